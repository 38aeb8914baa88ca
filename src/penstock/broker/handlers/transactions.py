"""Transactions: sessions, stagings and ends. What becomes of an end is in the letters that it sends."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...api.command import Command
from ...api.publish import PublishBatch, PublishRecords
from ...api.transactions import (
    TIMEOUT_MS_MAX,
    BeginTransaction,
    DescribeTransaction,
    EndTransaction,
    ForceAbort,
    InitProducer,
    ListTransactions,
    Participant,
    ProducerHeartbeat,
    ProducerSession,
    SeeTransactionStats,
    Stage,
    StageBatch,
    Staged,
    StageRecords,
    Transaction,
    TransactionEnd,
    TransactionStats,
)
from ...errors import (
    MalformedBatch,
    NotFound,
    Refused,
    TransactionEnded,
    TransactionInProgress,
)
from ...transactions.coordinator import NAME_LENGTH_MAX, Producer
from ...transactions.stagings import TransactionKey
from ...transactions.states import TransactionState
from ..partition import Now, Partition
from ..partition.batches import checked_batch
from ..partition.changes import Handler
from ..partition.record_batches import checked_records
from ..partition.staged_batches import (
    client_batch_to_stage,
    with_time_to_live,
)
from ..partition.staging import answered_count
from ..transactions import checked_timeout
from ..validation import require_valid
from ..walks import Slices, partitions_in
from .staged_messages import check_sequence, placed, stage_encoded, stage_messages

if TYPE_CHECKING:
    from ..node import Node

_MS = 1_000_000
_NOT_IN_IT = "the partition is not part of an open transaction"
_NOT_THE_LAST = "the transaction is not the last one of its producer"
_FORCED = "an administrator aborted it"


def init_producer(node: "Node", command: InitProducer, now: Now) -> ProducerSession:
    name = command.name
    if not 1 <= len(name) <= NAME_LENGTH_MAX or not name.isprintable():
        raise Refused(
            f"a producer's name is 1 to {NAME_LENGTH_MAX} characters that can be printed, "
            f"got {len(name)}",
            limit=NAME_LENGTH_MAX,
        )
    checked_timeout(command.timeout_ms, TIMEOUT_MS_MAX)
    producer = node.transactions.init(command, now)
    return ProducerSession(producer.producer_id, producer.epoch)


def heartbeat(node: "Node", command: ProducerHeartbeat, now: Now) -> None:
    coordinator = node.transactions.owned(command.producer_id)
    producer = coordinator.session(command.producer_id, command.epoch)
    if command.name not in ("", producer.name):
        raise NotFound("producer", command.name[:60])
    coordinator.alive(producer, now.monotonic_ns)


def begin(node: "Node", command: BeginTransaction, now: Now) -> str:
    coordinator = node.transactions.owned(command.producer_id)
    partitions = [node.partition(*one) for one in command.partitions]
    producer = coordinator.require(command.producer_id, command.epoch)
    if command.is_first and producer.is_open:
        raise TransactionInProgress(producer.producer_id, producer.state.value)
    node.transactions.enrol(producer, partitions, now)
    return id_of(producer)


def id_of(producer: Producer) -> str:
    """What users call a transaction."""
    return f"{producer.producer_id}-{producer.number}"


def stage(node: "Node", command: Stage, now: Now) -> Sequence[Staged]:
    node.topic(command.topic)
    check_sequence(command)
    if not command.messages and not command.delayed:
        return []
    session = command.producer_id, command.epoch
    # Refused here, before the transaction begins.
    producer = node.transactions.usable(*session)

    def enrol(partitions: Sequence[Partition]) -> int:
        node.transactions.enrol(producer, partitions, now)
        return producer.number

    return stage_messages(node, command, session, enrol, now)


def stage_batch(node: "Node", command: StageBatch, now: Now) -> Staged:
    partition = node.partition(command.topic, command.partition)
    batch = checked_batch(command.batch, node.limits)
    head = batch.encoded.head
    if head.producer_id < 0:
        raise MalformedBatch("a batch of a transaction has its producer's id, epoch and sequence")
    encoded = client_batch_to_stage(partition, batch, now)
    producer = node.transactions.usable(head.producer_id, head.producer_epoch)
    if node.bindings:
        require_valid(node, PublishBatch(command.topic, command.partition, command.batch))
    node.guard.admit_bytes(head.length, now)
    node.staging_quota.require_room(partition, encoded)
    node.transactions.enrol(producer, (partition,), now)
    return stage_encoded(partition, encoded, producer.number, now)


def stage_records(node: "Node", command: StageRecords, now: Now) -> Staged:
    partition = node.partition(command.topic, command.partition)
    batch = checked_records(
        command.batch, partition.config, now, node.limits, is_transactional=True
    )
    head = batch.encoded.head
    producer = node.transactions.usable(head.producer_id, head.producer_epoch)
    is_repeat = partition.machine.staging_producers.repeat_of(head) is not None
    identity = (*partition.identity,)
    if not is_repeat and not (producer.is_open and identity in producer.participants):
        raise TransactionEnded(producer.producer_id, producer.state.value, _NOT_IN_IT)
    if batch.messages is not None:
        raise Refused("a message of a transaction comes with its commit: it has no queue headers")
    if node.bindings and not is_repeat:
        records = PublishRecords(command.topic, command.partition, command.batch)
        require_valid(node, records)
    node.guard.admit_bytes(head.length, now)
    encoded = with_time_to_live(partition, batch.encoded, now)
    node.staging_quota.require_room(partition, encoded)
    return stage_encoded(partition, encoded, producer.number, now)


def end(node: "Node", command: EndTransaction, now: Now) -> TransactionEnd:
    producer_id, epoch = command.producer_id, command.epoch
    known = node.transactions.owned(producer_id).find(producer_id)
    if command.transaction_id not in ("", id_of(known)):
        raise TransactionEnded(producer_id, known.state.value, _NOT_THE_LAST)
    producer = node.transactions.end(producer_id, epoch, now, is_commit=command.is_commit)
    if epoch == producer.epoch != producer.transaction_epoch and not producer.is_open:
        # Nothing was staged since the last end, so there is nothing to decide.
        state = (
            TransactionState.COMPLETE_COMMIT
            if command.is_commit
            else TransactionState.COMPLETE_ABORT
        )
        return TransactionEnd(id_of(producer), state.value, epoch, True, ())
    return _end_of(node, producer)


def _end_of(node: "Node", producer: Producer) -> TransactionEnd:
    state = producer.state
    places = tuple(placed(node, producer.places))
    return TransactionEnd(id_of(producer), state.value, producer.epoch, state.is_complete, places)


def force_abort(node: "Node", command: ForceAbort, now: Now) -> TransactionEnd:
    home, producer = _found(node, command.transaction_id)
    if producer.is_open:
        node.transactions.decide(home, producer, now, is_commit=False, reason=_FORCED)
    elif producer.state.is_commit or producer.reason != _FORCED:
        raise TransactionEnded(producer.producer_id, producer.state.value, producer.reason)
    return _end_of(node, producer)


def _found(node: "Node", transaction_id: str) -> tuple[Partition, Producer]:
    producer_id, _, number = transaction_id.partition("-")
    if producer_id.isdecimal() and number.isdecimal() and len(producer_id) < 20:
        home = node.transactions.home(int(producer_id))
        producer = home.machine.coordinator.producers.get(int(producer_id))
        if producer is not None and str(producer.number) == number and producer.number:
            return home, producer
    raise NotFound("transaction", transaction_id[:60])


def describe(node: "Node", command: DescribeTransaction, now: Now) -> Transaction:
    return _described(node, _found(node, command.transaction_id)[1], now)


def list_transactions(
    node: "Node", command: ListTransactions, now: Now
) -> Slices[list[Transaction]]:
    known = {state.value for state in TransactionState}
    if command.state and command.state not in known:
        raise Refused(f"a state is one of {', '.join(sorted(known))}, not {command.state[:60]}")
    producer_ids: list[int] = []
    for home in [*node.transactions.coordinators()]:
        producers = home.machine.coordinator.producers
        for producer_id in [*producers]:
            if producer_id > command.after and _is_in(
                producers.get(producer_id), command.state or None
            ):
                producer_ids.append(producer_id)
            yield 1
    transactions: list[Transaction] = []
    for producer_id in sorted(producer_ids):
        if len(transactions) >= command.limit:
            break
        producer = node.transactions.home(producer_id).machine.coordinator.producers.get(
            producer_id
        )
        if producer is not None and _is_in(producer, command.state):
            transactions.append(_described(node, producer, now))
            yield len(producer.participants)
        now = yield 1
    return transactions


def _is_in(producer: Producer | None, state: str | None) -> bool:
    return producer is not None and state in (None, producer.state.value)


def stats(node: "Node", _command: SeeTransactionStats, now: Now) -> Slices[TransactionStats]:
    states, began_ns = Counter[str](), None
    for home in [*node.transactions.coordinators()]:
        producers = home.machine.coordinator.producers
        for producer_id in [*producers]:
            producer = producers.get(producer_id)
            if producer is not None:
                states[producer.state.value] += 1
                if producer.is_open:
                    began_ns = min(
                        producer.began_ns, producer.began_ns if began_ns is None else began_ns
                    )
            now = yield 1
    live = size = 0
    for partition in partitions_in(node, [*node.open]):
        stagings = partition.machine.stagings
        live, size = live + len(stagings.live), size + stagings.bytes
        now = yield 1
    open_ms = None if began_ns is None else (now.monotonic_ns - began_ns) // _MS
    active = states[TransactionState.ONGOING.value]
    return TransactionStats({**states}, live, size, open_ms, active)


def _described(node: "Node", producer: Producer, now: Now) -> Transaction:
    open_ms = (now.monotonic_ns - producer.began_ns) // _MS if producer.is_open else None
    return Transaction(
        id_of(producer),
        producer.producer_id,
        producer.name,
        producer.epoch,
        producer.state.value,
        producer.timeout_ms,
        open_ms,
        tuple(_participants(node, producer)),
        tuple(placed(node, producer.places)),
        producer.reason,
    )


def _participants(node: "Node", producer: Producer) -> Iterator[Participant]:
    key = TransactionKey(producer.producer_id, producer.number)
    for topic_id, number in producer.participants:
        facts = node.topics.by_id.get(topic_id)
        topic = None if facts is None else node.open.get(facts.name)
        if topic is None:
            continue
        partition = topic.partitions.serving_at(number)
        staged = None if partition is None else partition.machine.stagings.open.get(key)
        stagings = [] if staged is None else [*staged.stagings.values()]
        count = sum(one.message_count for one in stagings)
        size = sum(one.length for one in stagings)
        answers = 0 if partition is None else answered_count(partition, key)
        yield Participant(topic.facts.name, number, count, size, answers)


HANDLERS: Mapping[type[Command[Any]], Handler] = {
    InitProducer: init_producer,
    ProducerHeartbeat: heartbeat,
    BeginTransaction: begin,
    Stage: stage,
    StageBatch: stage_batch,
    StageRecords: stage_records,
    EndTransaction: end,
    ForceAbort: force_abort,
    ListTransactions: list_transactions,
    DescribeTransaction: describe,
    SeeTransactionStats: stats,
}

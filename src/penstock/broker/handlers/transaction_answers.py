"""Answers and offsets inside of transactions and named commits: claimed here, and carried out where those end."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pyroaring import BitMap64

from ...api.answers import Kind, LeaseAnswer, check_delay, stale_receipt
from ...api.command import Command
from ...api.commits import StageNamedAnswers
from ...api.transaction_answers import StageAnswers, StagedOffset, StageOffsets
from ...delivery import Delivery, DeliveryRecord, claims
from ...delivery.commands import ERROR_LENGTH_MAX
from ...delivery.leases import Claim
from ...delivery.records import ClaimKind
from ...errors import Refused
from ...groups.commands import require_current, require_owner
from ...model import TopicPartition
from ...transactions.coordinator import Producer
from ...transactions.names import staging_number
from ...transactions.stagings import NAMED_NUMBER, TransactionKey
from .. import groups
from ..partition import Now, Partition, consumption
from ..partition.changes import Handler
from .answers import checked_offsets, miscounted

if TYPE_CHECKING:
    from ..node import Node

_KINDS: Mapping[Kind, ClaimKind] = {
    Kind.ACK: ClaimKind.ACK,
    Kind.NACK: ClaimKind.NACK,
    Kind.REJECT: ClaimKind.REJECT,
}
# A nack without a delay of its own: the topic says how long it waits.
_BACKOFF = -1


class Claimant(NamedTuple):
    """A transaction or a staging that answers, and those that may have answered the same messages."""

    key: TransactionKey
    siblings: Collection[TransactionKey] = ()


class Answered(NamedTuple):
    """An answer with what it is about."""

    partition: Partition
    delivery: Delivery
    claim: Claim


def stage_answers(node: "Node", command: StageAnswers, now: Now) -> None:
    producer = _open_or_next(node, command.producer_id, command.epoch)
    claimant = Claimant(_key_of(producer))
    found = _all_answered(node, command.answers, claimant, now)
    if found:
        partitions = [*dict.fromkeys(one.partition for one in found)]
        node.transactions.enrol(producer, partitions, now)
        _claim(found, claimant, now)


def stage_named_answers(node: "Node", command: StageNamedAnswers, now: Now) -> None:
    staging_id = staging_number(command.staging)
    # The key that answers need not be the one that owns the staging: see `_open_or_next`.
    _, staging = node.commits.staging(staging_id)
    key = TransactionKey(staging_id, NAMED_NUMBER)
    claimant = Claimant(key, node.commits.siblings(staging))
    found = _all_answered(node, command.answers, claimant, now)
    if found:
        partitions = [*dict.fromkeys(one.partition for one in found)]
        node.commits.enrol(staging_id, partitions, now)
        _claim(found, claimant, now)


def _all_answered(
    node: "Node", answers: Sequence[LeaseAnswer], claimant: Claimant, now: Now
) -> list[Answered]:
    found = [_answered(node, one, claimant, now) for one in answers]
    _require_distinct(found)
    return found


def _claim(found: Sequence[Answered], claimant: Claimant, now: Now) -> None:
    for partition, delivery, claim in found:
        records = claims.claim(delivery, claimant.key, claim, claimant.siblings).records
        _record(partition, claimant.key, records, now)


def _open_or_next(node: "Node", producer_id: int, epoch: int) -> Producer:
    """The producer, of any owner: answers come from a key that may consume, which owns no producer."""
    return node.transactions.coordinator(producer_id).require(producer_id, epoch)


def _key_of(producer: Producer) -> TransactionKey:
    """The open transaction of a producer, or the one that it begins next."""
    number = producer.number if producer.is_open else producer.number + 1
    return TransactionKey(producer.producer_id, number)


def _answered(node: "Node", said: LeaseAnswer, claimant: Claimant, now: Now) -> Answered:
    """What an answer comes to. StaleReceipt: the lease does not hold all of it. It records nothing of the answer."""
    kind = _KINDS.get(said.kind)
    if kind is None:
        raise Refused(
            f"inside of a transaction or a staging messages are acked, nacked or rejected: {said.kind}"
        )
    delay_ms = _BACKOFF
    if said.ms is not None:
        check_delay(said.ms)
        delay_ms = said.ms
    partition = node.partition(said.topic, said.partition)
    offsets = checked_offsets(said.offsets)
    delivery = partition.machine.groups.get(said.group)
    if not offsets:
        raise Refused("an answer names at least one message")
    if delivery is None:
        raise stale_receipt(said, offsets.min())
    consumption.expire(partition, delivery, now)
    if wrong := miscounted(delivery, said):
        raise stale_receipt(said, wrong.min())
    error = said.reason[:ERROR_LENGTH_MAX]
    claim = Claim(kind, said.lease, "", 0, 0, offsets, error, delay_ms)
    stale = claims.claim(delivery, claimant.key, claim, claimant.siblings).reply.stale
    if stale:
        raise stale_receipt(said, stale.min())
    return Answered(partition, delivery, claim)


def _require_distinct(found: list[Answered]) -> None:
    seen: dict[tuple[Partition, int], BitMap64] = {}
    for partition, delivery, claim in found:
        known = seen.setdefault((partition, delivery.group), BitMap64())
        if twice := known & claim.offsets:
            raise Refused(f"offset {twice.min()} of {partition.topic} is answered twice")
        known |= claim.offsets


def _record(
    partition: Partition, key: TransactionKey, records: tuple[DeliveryRecord, ...], now: Now
) -> None:
    """Record what a transaction claims; its commit waits until that is durable."""
    if records:
        partition.record(records, now)
        staged = partition.machine.stagings.open[key]
        staged.answered_at = partition.journal.log.end_offset


def stage_offsets(node: "Node", command: StageOffsets, now: Now) -> None:
    producer = _open_or_next(node, command.producer_id, command.epoch)
    group = groups.check_group(command.group)
    _require_reader(node, command)
    topics = [node.topic(one) for one in sorted(command.topics())]
    groups.require_room(node, topics, group)
    places = [(_place(node, one), one) for one in command.offsets]
    if not places:
        return
    key = _key_of(producer)
    partitions = [*dict.fromkeys(partition for partition, _ in places)]
    node.transactions.enrol(producer, partitions, now)
    for partition, said in places:
        # New here: where it begins is no progress yet, whatever becomes of the transaction.
        start = partition.messages.start_offset
        delivery = partition.open_group(group, start, now, owner=node.principal.key_id)
        delivery.active_at_ns = max(delivery.active_at_ns, now.wall_ns)
        consumption.settle(partition, delivery, now)
        member, note = command.member, said.note
        records = claims.claim_below(delivery, key, said.offset, member=member, note=note)
        _record(partition, key, records, now)


def _require_reader(node: "Node", command: StageOffsets) -> None:
    """Refuse offsets of partitions that another member reads."""
    group, member = command.group, command.member
    membership = node.assigned.membership(group)
    if member in membership.members:
        require_current(membership, member, command.generation)
        for one in command.offsets:
            require_owner(membership, member, TopicPartition(one.topic, one.partition))
        return
    # Clients that are older than members in transactions say none; their epoch alone fences them.
    if member or command.generation is not None:
        generation = -1 if command.generation is None else command.generation
        node.classic.require_commit(group, member, generation, command.instance)
    for one in command.offsets:
        node.assigned.require_unowned(group, one.topic, one.partition)


def _place(node: "Node", said: StagedOffset) -> Partition:
    partition = node.partition(said.topic, said.partition)
    groups.require_offset(partition, said.offset)
    return partition


HANDLERS: Mapping[type[Command[Any]], Handler] = {
    StageAnswers: stage_answers,
    StageNamedAnswers: stage_named_answers,
    StageOffsets: stage_offsets,
}

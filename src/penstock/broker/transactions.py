"""The coordinators of a node: where they are, what they decide, and what a start has to finish.

A coordinator is the state of a partition of `__transactions`; the low digits of a producer's id say of which one. What
it decides is durable there before a letter with the decision leaves, and a decision waits for the stagings.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ..api.principals import NO_KEY
from ..api.transactions import InitProducer
from ..errors import (
    NoSpace,
    NotFound,
    PartitionFaulty,
    ProducerFenced,
    Refused,
    TransactionInProgress,
)
from ..transactions import Coordinator
from ..transactions.coordinator import Participant, Producer, is_used_up
from ..transactions.names import STAGING_ID_FIRST
from ..transactions.records import (
    NO_PART,
    CoordinatorRecord,
    TransactionConcluded,
    TransactionDecided,
    TransactionGrown,
)
from ..transactions.stagings import Staged, TransactionKey
from .authorise import authorise_owner
from .partition import Now, Partition
from .partition.partitioner import partition_of
from .partition.staging import drop, is_kept
from .shares import PRODUCERS

if TYPE_CHECKING:
    from .node import Node

TOPIC = "__transactions"
# Each is a file that commits sync, so a node makes do with one. A directory of before has four: the topic says it.
PARTITIONS = 1
# With the number of the coordinator below it an id stays within what every JSON reader takes for a whole number.
_ID_BITS = 48
_HOUR_NS = 3600 * 1_000_000_000
_NEVER_NS = float("inf")
# Partitions with which a transaction begins because the one before had them.
_EXPECTED_MAX = 100
TIMED_OUT = "it was open for too long"
REPLACED = "the producer began a new session"


class Transactions:
    """Finds coordinators and has them record; of one node."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        self._forget_at_ns = 0
        # Producers whose commit waits for its stagings, with the number of the transaction. Soft: what a crash takes of
        # it was not answered, and the producer asks again.
        self._committing: dict[int, int] = {}

    # Where coordinators are.

    def coordinators(self) -> Sequence[Partition]:
        """The partitions of `__transactions` that serve; none before the first producer."""
        topic = self._node.internal.get(TOPIC)
        return () if topic is None else [*topic.partitions]

    def home(self, producer_id: int) -> Partition:
        """The partition that coordinates a producer. NotFound: there is no such producer. PartitionFaulty."""
        topic = self._node.internal.get(TOPIC)
        if topic is None or producer_id < 0:
            raise NotFound("producer", producer_id)
        return topic.partitions[producer_id % len(topic.partitions)]

    def coordinator(self, producer_id: int) -> Coordinator:
        return self.home(producer_id).machine.coordinator

    def owned(self, producer_id: int) -> Coordinator:
        """The coordinator of a producer that the command's principal may speak for. NotFound, Forbidden."""
        coordinator = self.coordinator(producer_id)
        self._authorise(coordinator.find(producer_id))
        return coordinator

    def usable(self, producer_id: int, epoch: int) -> Producer:
        """A producer that the command's principal may speak for, and that may use its transaction.

        NotFound, Forbidden, ProducerFenced, TransactionInProgress.
        """
        return self.owned(producer_id).require(producer_id, epoch)

    def _authorise(self, producer: Producer) -> None:
        authorise_owner(self._node.principal, producer.owner, "producer", producer.name)

    # What commands have recorded.

    def init(self, command: InitProducer, now: Now) -> Producer:
        """A new session of the producer of this name. Its open transaction is aborted, in the same batch of records.

        A session that asks once more to be followed gets the one that follows it, which goes on as it is. Forbidden:
        another key has the name. ShareFull. ProducerFenced: the session to be followed is
        neither such a one nor the present one.
        """
        name, keeps_epoch = command.name, command.keeps_epoch
        topic = self._node.internal_topic(TOPIC, PARTITIONS, now)
        count = len(topic.partitions)
        number = partition_of(name.encode(), count)
        home = topic.partitions[number]
        coordinator = home.machine.coordinator
        known = coordinator.by_name.get(name)
        if known is not None:
            self._authorise(known)
        former = command.former
        if former is not None and known is not None and former == known.former:
            # The answer waits until the records of the first time are durable.
            self._node.changes.touched[home, 0] = None
            return known
        if former is not None and (known is None or former != (known.producer_id, known.epoch)):
            current = -1 if known is None else known.epoch
            raise ProducerFenced(former.producer_id, epoch=former.epoch, current=current)
        self._require_room(known)
        records: list[CoordinatorRecord] = []
        aborted: TransactionDecided | None = None
        if known is not None:
            if known.is_open:
                aborted, *rest = self._decision(home, known, now, is_commit=False, reason=REPLACED)
                records += [aborted, *rest]
            epoch = known.epoch if aborted is None else aborted.next_epoch
            if is_used_up(epoch, keeps_epoch=keeps_epoch) and (
                known.state.is_decided or known.participants
            ):
                home.record(records, now)
                raise TransactionInProgress(known.producer_id, known.state.value)
        new_id = self._node.entropy.getrandbits(_ID_BITS) * count + number
        while new_id in coordinator.producers:
            new_id += count
        record = coordinator.initialised(
            name,
            command.timeout_ms,
            new_id=new_id,
            at_ns=now.wall_ns,
            owner=self._node.principal.key_id,
            keeps_epoch=keeps_epoch,
            former=former,
            aborted=aborted,
        )
        home.record([*records, record], now)
        return coordinator.by_name[name]

    def _require_room(self, known: Producer | None) -> None:
        """ShareFull, unless the command's principal may have one more producer: a new name, or one without an owner."""
        if known is None or known.owner == NO_KEY:
            counts = [home.machine.coordinator.counts for home in self.coordinators()]
            in_all = 1 if known is None else 0
            PRODUCERS.require_room(self._node.limits, self._node.principal, counts, in_all=in_all)

    def enrol(self, producer: Producer, partitions: Sequence[Partition], now: Now) -> None:
        """Have the transaction of a producer open, with these partitions in it. Refused: too many."""
        if producer.is_open and all(one.identity in producer.participants for one in partitions):
            return
        joining: dict[Participant, None] = dict.fromkeys((*one.identity,) for one in partitions)
        if not producer.is_open and not producer.keeps_epoch:
            joining.update(dict.fromkeys(self._last_participants(producer)))
        home = self.home(producer.producer_id)
        home.record((home.machine.coordinator.grown(producer, (*joining,), now.wall_ns),), now)

    def _last_participants(self, producer: Producer) -> Iterator[Participant]:
        """Partitions that hold messages of the producer's last transaction, and serve.

        Most producers go on where they were, so the next one begins with these, in one record. A decision leaves out
        those that it does not come to. Clients that keep their epoch say themselves which partitions take part: a batch
        of the last transaction that comes late is refused for that.
        """
        for topic_id, number, _, _ in producer.places[:_EXPECTED_MAX]:
            facts = self._node.topics.by_id.get(topic_id)
            topic = None if facts is None else self._node.open.get(facts.name)
            if topic is not None and topic.partitions.serving_at(number) is not None:
                yield topic_id, number

    def end(self, producer_id: int, epoch: int, now: Now, *, is_commit: bool) -> Producer:
        """Decide the open transaction of a producer, or find that it is decided. A commit waits for its stagings: the
        sync that makes them durable is followed by the decision.

        The producer's state says how far it is. TransactionEnded, ProducerFenced, PartitionFaulty.
        """
        home = self.home(producer_id)
        producer = home.machine.coordinator.ending(producer_id, epoch, is_commit=is_commit)
        if producer.is_open:
            if is_commit and not self._is_staged(producer):
                self._committing[producer_id] = producer.number
            else:
                self.decide(home, producer, now, is_commit=is_commit)
        return producer

    def decide_staged(self, now: Now) -> bool:
        """Decide the commits that were asked for and whose stagings are durable by now, in one batch of records.

        False: there are none. NoSpace: they are decided later.
        """
        if not self._committing:
            return False
        records: dict[Partition, list[CoordinatorRecord]] = {}
        letters: dict[Partition, int] = {}
        over: list[int] = []
        for producer_id, number in self._committing.items():
            try:
                home = self.home(producer_id)
                producer = home.machine.coordinator.find(producer_id)
                is_awaited = producer.is_open and producer.number == number
                if is_awaited and not self._is_staged(producer):
                    continue
            except (NotFound, PartitionFaulty):
                over.append(producer_id)  # The next call of its producer hears why.
                continue
            over.append(producer_id)
            if is_awaited:
                ahead = letters.get(home, 0)
                found = self._decision(home, producer, now, is_commit=True, letters_ahead=ahead)
                letters[home] = ahead + len(producer.participants)
                records.setdefault(home, []).extend(found)
        for home, some in records.items():
            home.record(some, now)
        for producer_id in over:
            del self._committing[producer_id]
        return bool(records)

    def decide(
        self, home: Partition, producer: Producer, now: Now, *, is_commit: bool, reason: str = ""
    ) -> None:
        """Record the decision about an open transaction. From here on it is never undone."""
        home.record(self._decision(home, producer, now, is_commit=is_commit, reason=reason), now)

    def _decision(
        self,
        home: Partition,
        producer: Producer,
        now: Now,
        *,
        is_commit: bool,
        reason: str = "",
        letters_ahead: int = 0,
    ) -> tuple[TransactionDecided, *tuple[TransactionConcluded, ...]]:
        """What is to be recorded about an open transaction: how it ends, and its end if no partition takes part.

        `letters_ahead`: so many are recorded in front of it, in the same batch.
        """
        counts = tuple(self._counts(producer)) if is_commit else (0,) * len(producer.participants)
        decided = home.machine.coordinator.decided(
            producer,
            counts,
            is_commit=is_commit,
            first_sequence=home.machine.outbox.next_sequence + letters_ahead,
            reason=reason,
            at_ns=now.wall_ns,
        )
        if decided.letters():
            return (decided,)
        return decided, TransactionConcluded(0, producer.producer_id, producer.number, ())

    def _staged(self, producer: Producer) -> Iterator[tuple[Partition | None, Staged]]:
        """What the open transaction has in each of its partitions; None for one whose topic is gone."""
        key = TransactionKey(producer.producer_id, producer.number)
        for participant in producer.participants:
            partition = self._node.partition_of(*participant)
            found = None if partition is None else partition.machine.stagings.open.get(key)
            yield partition, found or Staged()

    def _counts(self, producer: Producer) -> Iterator[int]:
        for _, staged in self._staged(producer):
            yield staged.message_count if staged.stagings or staged.groups else NO_PART

    def _is_staged(self, producer: Producer) -> bool:
        """Whether all that the transaction has staged and answered would survive a power cut. PartitionFaulty."""
        return all(
            partition is None or is_kept(partition, staged)
            for partition, staged in self._staged(producer)
        )

    # What time does.

    def next_due_ns(self) -> float:
        return min(
            (one.machine.coordinator.next_due_ns for one in self.coordinators()), default=_NEVER_NS
        )

    def tick(self, now: Now) -> None:
        """Abort transactions that were open for too long, and forget producers that were idle for very long."""
        is_hourly = now.monotonic_ns >= self._forget_at_ns
        if is_hourly:
            self._forget_at_ns = now.monotonic_ns + _HOUR_NS
        for home in self.coordinators():
            coordinator = home.machine.coordinator
            for producer in coordinator.overdue(now.monotonic_ns):
                self.decide(home, producer, now, is_commit=False, reason=TIMED_OUT)
            if is_hourly:
                home.record(coordinator.idle(now.wall_ns), now)

    # What a start finishes.

    def resume(self, now: Now) -> None:
        """Apply every decision that was made, and have coordinators and partitions agree on what is open.

        On a full disk decisions are applied when there is room again.
        """
        self._node.commits.resume(now)
        with suppress(NoSpace):
            for home in self.coordinators():
                while home.machine.outbox.pending and (
                    self._node.forward(home, now) or self._sync_delays()
                ):
                    pass
            for partition in self._node.partitions():
                for key, staged in [*partition.machine.stagings.open.items()]:
                    with suppress(PartitionFaulty):
                        if key.producer_id >= STAGING_ID_FIRST:
                            self._node.commits.agree(partition, key.producer_id, now)
                            continue
                        self._agree(partition, key, staged, now)

    def _sync_delays(self) -> bool:
        """Have delayed messages durable that a decision has scheduled; whether there were any."""
        late = [
            one
            for one in self._node.partitions()
            if one.delayed.durable_end < one.delayed.end_offset
        ]
        for partition in late:
            partition.delayed.sync()
        return bool(late)

    def _agree(self, partition: Partition, key: TransactionKey, staged: Staged, now: Now) -> None:
        """A crash may have kept a staging and lost what its coordinator recorded about it, or the other way round."""
        try:
            home = self.home(key.producer_id)
            producer = home.machine.coordinator.find(key.producer_id)
        except NotFound:
            drop(partition, key, now)
            return
        is_last = producer.number == key.number
        if is_last and producer.state.is_decided:
            return  # The letter is on its way.
        identity: Participant = (*partition.identity,)
        is_open = is_last and producer.is_open
        is_next = producer.number + 1 == key.number and not producer.is_open
        if not (is_open or is_next):
            drop(partition, key, now)
        elif not (staged.stagings or staged.groups):
            return  # It holds nothing here, but it may yet: its end is not recorded.
        elif not is_open or identity not in producer.participants:
            grown = TransactionGrown(0, *key, producer.epoch, (identity,), now.wall_ns)
            home.record((grown,), now)


def checked_timeout(timeout_ms: int, longest_ms: int) -> int:
    if not 1 <= timeout_ms <= longest_ms:
        raise Refused(
            f"transaction_timeout_ms must be in 1..{longest_ms}, got {timeout_ms}",
            limit=longest_ms,
        )
    return timeout_ms

"""The coordinator of transactions: sessions of producers, what their transactions touch, and how they end.

Commands read it and return records; `apply` alone changes it. The letters that a decision sends are in the outbox of
the coordinator's partition; here is only which of them have not arrived.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ..errors import (
    NotFound,
    ProducerFenced,
    Refused,
    TransactionEnded,
    TransactionInProgress,
)
from ..kernel import OwnerCounts
from .records import (
    CoordinatedProducer,
    CoordinatorRecord,
    Place,
    ProducerForgotten,
    ProducerInitialised,
    TransactionConcluded,
    TransactionDecided,
    TransactionGrown,
)
from .states import NEXT, Step, TransactionState

TIMEOUT_MS = 60_000
TIMEOUT_MS_MAX = 15 * 60_000
NAME_LENGTH_MAX = 250
# The head of a batch has 32 bits for it.
EPOCH_MAX = (1 << 31) - 1
# Clients that keep their epoch have 16 bits for it.
KEPT_EPOCH_MAX = (1 << 15) - 1
PARTICIPANTS_MAX = 10_000
# Producers that were idle for so long are forgotten.
_IDLE_NS = 7 * 24 * 3600 * 1_000_000_000
_NEVER_NS = float("inf")
_MS = 1_000_000

Participant = tuple[int, int]
"""A topic's id and the number of a partition."""


@dataclass(slots=True)
class Producer:
    """A producer with a name, and its transaction: the open one, or the last."""

    producer_id: int
    name: str
    epoch: int
    timeout_ms: int
    # When it last did something, on the wall clock.
    at_ns: int
    state: TransactionState = TransactionState.EMPTY
    number: int = 0
    # The epoch in which the transaction `number` began. Its decision raises the producer's.
    transaction_epoch: int = -1
    participants: dict[Participant, None] = field(default_factory=dict)
    letters: set[int] = field(default_factory=set)
    places: tuple[Place, ...] = ()
    reason: str = ""
    # Its own commits and aborts leave the epoch as it is: Kafka's clients before KIP-890 know of no other. What ends
    # its transaction from outside still raises it.
    keeps_epoch: bool = False
    # The id of the key that made it; empty: it is every key's.
    owner: str = ""
    # The session, by id and epoch, that asked to be followed by the present one: it may ask once more, because its
    # answer was lost. None as soon as another one has the epoch: a session of before must not come into this one.
    former: tuple[int, int] | None = None
    # When the transaction began, and when it is aborted; on the clock that measures waiting, afresh after a restart.
    began_ns: int = 0
    deadline_ns: float = _NEVER_NS

    @property
    def is_open(self) -> bool:
        return self.state is TransactionState.ONGOING

    def step(self, step: Step) -> None:
        self.state = NEXT[self.state, step]


class Coordinator:
    """The machine: one for each partition of `__transactions`."""

    def __init__(self) -> None:
        self.producers: dict[int, Producer] = {}
        self.by_name: dict[str, Producer] = {}
        self.counts = OwnerCounts()
        # Those with an open transaction, in the order in which they began.
        self._open: dict[int, Producer] = {}
        # Which decision a letter that has not arrived carries, by the letter's sequence.
        self._letters: dict[int, Producer] = {}
        # No transaction is overdue before; it may be earlier than the earliest.
        self.next_due_ns = _NEVER_NS

    # What commands ask.

    def find(self, producer_id: int) -> Producer:
        found = self.producers.get(producer_id)
        if found is None:
            raise NotFound("producer", producer_id)
        return found

    def session(self, producer_id: int, epoch: int) -> Producer:
        """The producer, if this is its epoch. ProducerFenced."""
        found = self.find(producer_id)
        if epoch != found.epoch or epoch >= EPOCH_MAX:
            raise ProducerFenced(producer_id, epoch=epoch, current=found.epoch, said=found.reason)
        return found

    def require(self, producer_id: int, epoch: int) -> Producer:
        """The producer, if it may use its transaction.

        ProducerFenced; TransactionInProgress: its last one is being applied.
        """
        found = self.session(producer_id, epoch)
        if found.state.is_decided:
            raise TransactionInProgress(producer_id, found.state.value)
        return found

    def open_transactions(self) -> list[Producer]:
        return [*self._open.values()]

    def initialised(
        self,
        name: str,
        timeout_ms: int,
        *,
        new_id: int,
        at_ns: int,
        owner: str,
        keeps_epoch: bool = False,
        former: tuple[int, int] | None = None,
        aborted: TransactionDecided | None = None,
    ) -> ProducerInitialised:
        """A new session of the producer of this name, after `aborted` for its open transaction.

        `owner` has it from now on, if no key had it before. `former` is the session that asked for it.
        """
        known = self.by_name.get(name)
        identity = (new_id, name, 0)
        if known is not None:
            epoch = known.epoch if aborted is None else aborted.next_epoch
            if not is_used_up(epoch, keeps_epoch=keeps_epoch):
                identity = (known.producer_id, name, epoch + 1)
        owner = owner if known is None else known.owner or owner
        return ProducerInitialised(0, *identity, timeout_ms, at_ns, keeps_epoch, owner, former)

    def grown(
        self, producer: Producer, participants: tuple[Participant, ...], at_ns: int
    ) -> TransactionGrown:
        """What has to be recorded before these partitions take stagings. Refused: too many."""
        number, known = producer.number + 1, 0
        if producer.is_open:
            number, known = producer.number, len(producer.participants)
            participants = tuple(one for one in participants if one not in producer.participants)
        if known + len(participants) > PARTICIPANTS_MAX:
            raise Refused(f"a transaction has at most {PARTICIPANTS_MAX} partitions")
        return TransactionGrown(
            0, producer.producer_id, number, producer.epoch, participants, at_ns
        )

    def ending(self, producer_id: int, epoch: int, *, is_commit: bool) -> Producer:
        """The producer whose open, or last, transaction an end of this epoch is about.

        TransactionEnded: it ended in the other way. ProducerFenced: it is about an older one, or none.
        """
        found = self.find(producer_id)
        if not found.is_open and epoch == found.transaction_epoch:
            if found.state.is_commit != is_commit:
                raise TransactionEnded(producer_id, found.state.value, found.reason)
            return found
        if epoch != found.epoch:
            raise ProducerFenced(producer_id, epoch=epoch, current=found.epoch, said=found.reason)
        if found.state.is_decided:
            raise TransactionInProgress(producer_id, found.state.value)
        return found

    def decided(
        self,
        producer: Producer,
        counts: tuple[int, ...],
        *,
        is_commit: bool,
        first_sequence: int,
        reason: str,
        at_ns: int,
    ) -> TransactionDecided:
        """The decision about an open transaction. The epoch goes up, so that a late end never meets the next one."""
        assert producer.is_open, f"{producer.state} is not to be decided"
        is_kept = producer.keeps_epoch and not reason
        epoch = producer.epoch if is_kept else min(producer.epoch + 1, EPOCH_MAX)
        return TransactionDecided(
            0,
            producer.producer_id,
            producer.number,
            is_commit,
            epoch,
            first_sequence,
            counts,
            reason,
            at_ns,
        )

    def waits_for(self, sequence: int) -> Producer | None:
        """The producer whose decision a letter carries; None if it has arrived."""
        return self._letters.get(sequence)

    def overdue(self, now_ns: int) -> list[Producer]:
        """Producers whose transaction has been open for too long; from now on the next such time is exact."""
        if now_ns < self.next_due_ns:
            return []
        late = [one for one in self._open.values() if one.deadline_ns <= now_ns]
        waiting = (one.deadline_ns for one in self._open.values() if one.deadline_ns > now_ns)
        self.next_due_ns = min(waiting, default=_NEVER_NS)
        if late:
            self.next_due_ns = now_ns
        return late

    def alive(self, producer: Producer, now_ns: int) -> None:
        """A heartbeat: the time-out of the open transaction counts from now, up to the longest there is.

        Not recorded: a restart grants the time afresh.
        """
        if producer.is_open:
            latest_ns = producer.began_ns + TIMEOUT_MS_MAX * _MS
            producer.deadline_ns = min(now_ns + producer.timeout_ms * _MS, latest_ns)

    def idle(self, now_ns: int) -> list[ProducerForgotten]:
        """Records for producers that were idle for long, by the wall clock."""
        return [
            ProducerForgotten(0, one.producer_id)
            for one in self.producers.values()
            if (one.state, Step.FORGET) in NEXT and one.at_ns + _IDLE_NS < now_ns
        ]

    # What records change.

    def apply(self, record: CoordinatorRecord, now_ns: int) -> None:
        """`now_ns`: on the clock that measures waiting."""
        _APPLY[type(record)](self, record, now_ns)

    def _initialised(self, record: ProducerInitialised, _now_ns: int) -> None:
        known = self.producers.get(record.producer_id)
        if known is None:
            known = Producer(record.producer_id, record.name, 0, 0, 0)
            self._add(known)
        known.epoch, known.timeout_ms = record.epoch, record.timeout_ms
        known.at_ns, known.keeps_epoch = record.at_ns, record.keeps_epoch
        self.counts.remove(known.owner)
        known.owner, known.former = record.owner, record.former
        self.counts.add(known.owner)
        known.step(Step.INIT)
        if known.state is TransactionState.EMPTY:
            known.places, known.transaction_epoch, known.reason = (), -1, ""

    def _add(self, producer: Producer) -> None:
        before = self.by_name.get(producer.name)
        if before is not None:
            # Its epochs are used up.
            del self.producers[before.producer_id]
            self.counts.remove(before.owner)
        self.counts.add(producer.owner)
        self.producers[producer.producer_id] = self.by_name[producer.name] = producer

    def _grown(self, record: TransactionGrown, now_ns: int) -> None:
        producer = self.producers[record.producer_id]
        producer.step(Step.BEGIN)
        if record.number > producer.number:
            producer.number, producer.transaction_epoch = record.number, record.epoch
            producer.participants = {}
            producer.places, producer.reason = (), ""
            self._opened(producer, now_ns)
        producer.participants.update(dict.fromkeys(record.participants))
        producer.at_ns = record.at_ns

    def _opened(self, producer: Producer, now_ns: int) -> None:
        producer.began_ns, producer.deadline_ns = now_ns, now_ns + producer.timeout_ms * _MS
        self._open[producer.producer_id] = producer
        self.next_due_ns = min(self.next_due_ns, producer.deadline_ns)

    def _decided(self, record: TransactionDecided, _now_ns: int) -> None:
        producer = self.producers[record.producer_id]
        producer.step(Step.COMMIT if record.is_commit else Step.ABORT)
        if record.next_epoch != producer.epoch:
            producer.former = None
        producer.epoch, producer.at_ns = record.next_epoch, record.at_ns
        producer.reason = record.reason
        producer.letters = set(record.letters())
        self._letters.update(dict.fromkeys(producer.letters, producer))
        del self._open[record.producer_id]

    def arrived(self, sequence: int) -> None:
        """A letter has arrived. As a part of applying the record that says so."""
        producer = self._letters.pop(sequence, None)
        if producer is not None:
            producer.letters.discard(sequence)

    def _concluded(self, record: TransactionConcluded, _now_ns: int) -> None:
        producer = self.producers[record.producer_id]
        producer.step(Step.APPLIED)
        producer.places = record.places
        producer.participants = {}

    def _forgotten(self, record: ProducerForgotten, _now_ns: int) -> None:
        producer = self.producers.pop(record.producer_id)
        producer.step(Step.FORGET)
        self.counts.remove(producer.owner)
        del self.by_name[producer.name]

    def _image(self, record: CoordinatedProducer, now_ns: int) -> None:
        producer = Producer(
            record.producer_id,
            record.name,
            record.epoch,
            record.timeout_ms,
            record.at_ns,
            record.state,
            record.number,
            record.transaction_epoch,
            dict.fromkeys(record.participants),
            set(record.letters),
            record.places,
            record.reason,
            record.keeps_epoch,
            record.owner,
            record.former,
        )
        self._add(producer)
        self._letters.update(dict.fromkeys(producer.letters, producer))
        if producer.is_open:
            self._opened(producer, now_ns)

    def snapshot(self) -> Iterator[CoordinatorRecord]:
        for one in self.producers.values():
            yield CoordinatedProducer(
                0,
                one.producer_id,
                one.name,
                one.epoch,
                one.timeout_ms,
                one.at_ns,
                one.state,
                one.number,
                one.transaction_epoch,
                tuple(one.participants),
                tuple(sorted(one.letters)),
                one.places,
                one.reason,
                one.keeps_epoch,
                one.owner,
                one.former,
            )


def is_used_up(epoch: int, *, keeps_epoch: bool) -> bool:
    """Whether the session after this epoch needs another producer id, because there is no epoch left for it."""
    return epoch + 1 >= (KEPT_EPOCH_MAX if keeps_epoch else EPOCH_MAX)


_APPLY: dict[type, Callable[[Coordinator, Any, int], None]] = {
    ProducerInitialised: Coordinator._initialised,
    TransactionGrown: Coordinator._grown,
    TransactionDecided: Coordinator._decided,
    TransactionConcluded: Coordinator._concluded,
    ProducerForgotten: Coordinator._forgotten,
    CoordinatedProducer: Coordinator._image,
}

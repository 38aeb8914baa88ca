"""What one partition must hold: its messages, what its groups did, and its letters in the outbox.

The book reads both logs on after every event, as a follower would. When the node starts again the book is cut back to
what is left, if that keeps every promise, and then has to agree with the node.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pyroaring import BitMap64

from ..broker.partition import FORMAT, Partition
from ..broker.partition.records import (
    Arrived,
    CommitNoted,
    DelayLogMade,
    Forwarded,
    GroupClosed,
    GroupOpened,
    ModeSet,
    PartitionRecord,
)
from ..codec import Head, Origin, decode_messages
from ..codec.decode import delay_ids, open_body
from ..config import DeliveryConfig
from ..delivery.delay_records import DelayCancelled, DelayMoved
from ..delivery.offsets import Runs, each_offset, offsets_of
from ..delivery.records import (
    Absent,
    Acked,
    Buried,
    Claimed,
    ClaimsEnded,
    Committed,
    Disowned,
    Expired,
    Extended,
    Leased,
    Overtaken,
    Released,
    Retried,
    Rewound,
)
from ..log import Log
from ..model import Message
from ..schedules.records import ScheduleRemoved, ScheduleStored
from ..transactions.commit_records import (
    CommitNameOpened,
    NamedCommitConcluded,
    NamedStagingGrown,
    NamedStagingOpened,
    NamedStagingsDecided,
    NamedStagingsEnded,
)
from ..transactions.records import (
    ProducerForgotten,
    ProducerInitialised,
    StagingLogMade,
    StagingsEnded,
    TransactionConcluded,
    TransactionDecided,
    TransactionGrown,
)
from .delay_book import DelayBook
from .event import Event
from .group_book import GroupBook
from .journey_book import JourneyBook
from .transaction_book import TransactionBook
from .violation import Checker, Violation


class StoredMessage(NamedTuple):
    """A message in the log. `source` is the partition whose outbox it came from, 0 if it is a producer's."""

    message: Message
    append_time: int
    epoch: int
    source: int
    # Which delayed message it was, -1 if none.
    delay_id: int = -1
    # The producer and number of its transaction, if it is of one.
    transaction: tuple[int, int] | None = None


class Intent(NamedTuple):
    """A letter that the source has recorded: its group, its message, and where in the journal."""

    group: int
    offset: int
    attempts: int
    journal_end: int


@dataclass(slots=True)
class Promises:
    """The ends that clients were told are durable. Only a disk that lied may break them."""

    messages: int = 0
    state: int = 0


@dataclass(slots=True)
class PartitionBook:
    """The book of one partition, under the name that reports use."""

    name: str
    source: int
    rules: DeliveryConfig
    is_keeping_unread: bool
    is_disk_honest: bool
    delays: DelayBook
    transactions: TransactionBook
    stored: list[StoredMessage] = field(default_factory=list)
    groups: dict[int, GroupBook] = field(default_factory=dict)
    pending: dict[int, Intent] = field(default_factory=dict)
    forwarded: dict[int, Intent] = field(default_factory=dict)
    # Of letters with the decision about a transaction, those that have not arrived.
    decisions: set[int] = field(default_factory=set)
    # Of letters that came here: source and sequence to offset.
    copies: dict[tuple[int, int], int] = field(default_factory=dict)
    promises: Promises = field(default_factory=Promises)
    start_offset: int = 0
    journal_end: int = 0
    # Both logs are durable to this end of the journal, so a crash cannot take it back.
    durable_to: int = 0
    # Where the journal ended behind the last letter that is said to have arrived.
    done_end: int = 0
    epoch_lost: int = -1
    # Whether the disk knew of this life's epoch before anything was written in it.
    is_epoch_kept: bool = False
    skipped: int = 0
    journeys: JourneyBook = field(default_factory=JourneyBook)
    # Groups whose state changed since it was last compared.
    touched: set[int] = field(default_factory=set)
    _undo: list[tuple[int, Callable[[], object]]] = field(default_factory=list)

    @property
    def end(self) -> int:
        return len(self.stored)

    def read_messages(self, log: Log) -> list[tuple[int, StoredMessage]]:
        """Read new messages of the log. Returns them with their offsets."""
        fresh: list[tuple[int, StoredMessage]] = []
        for head, batch in log.batches_from(self.end):
            if head.base_offset != self.end:
                story = f"{self.name}: offset {head.base_offset} follows {self.end - 1}"
                raise Violation(Checker.DENSE, story)
            if head.epoch <= self.epoch_lost:
                story = f"{self.name}: offset {self.end} came again in epoch {head.epoch}"
                raise Violation(Checker.OFFSET_UNIQUE, story)
            source = head.origin_source if head.origin is Origin.OUTBOX else 0
            key = (head.producer_id, head.transaction_id) if head.transaction_id else None
            delay_ids = _delay_ids(batch, head)
            for message, delay_id in zip(decode_messages(batch, head), delay_ids, strict=True):
                stored = StoredMessage(message, head.append_time, head.epoch, source, delay_id, key)
                fresh.append((self.end, stored))
                self.stored.append(stored)
        return fresh

    def read_journal(self, log: Log) -> list[tuple[PartitionRecord, int]]:
        """Read new records of the journal. Returns each with the journal's end after it; none is applied."""
        fresh: list[tuple[PartitionRecord, int]] = []
        for head, batch in log.batches_from(self.journal_end):
            self.journal_end = head.next_offset
            records = FORMAT.from_batch(batch, head, self.name)
            fresh.extend((record, head.next_offset) for record in records)
        return fresh

    def apply(self, record: PartitionRecord, journal_end: int, event: Event) -> None:
        group = self.groups.get(record.group)
        self.touched.add(record.group)
        self.journeys.add(record, journal_end)
        if group is not None:
            self._on_undo(journal_end, group.begin())
        kind = type(record)
        if kind in _APPLY_TO_GROUP:
            _APPLY_TO_GROUP[kind](self.groups[record.group], record, event)
        elif kind in _APPLY:
            _APPLY[kind](self, record, journal_end, event)
        else:
            raise Violation(Checker.SURPRISE, f"{self.name}: no checker knows {record}")

    def _on_undo(self, journal_end: int, call: Callable[[], object]) -> None:
        self._undo.append((journal_end, call))

    def _expires_at(self, runs: Runs) -> Iterator[tuple[int, int]]:
        for offset in each_offset(offsets_of(runs)):
            yield offset, self._over_ns(offset)

    def _over_ns(self, offset: int) -> int:
        if not self.start_offset <= offset < self.end:
            story = f"{self.name}: {offset} is outside [{self.start_offset}, {self.end})"
            raise Violation(Checker.NO_PHANTOM, story)
        return self.stored[offset].message.expires_at or 0

    def _group_opened(self, record: GroupOpened, journal_end: int, _: Event) -> None:
        if record.group in self.groups:
            story = f"{self.name}: {record.name} shares number {record.group} with another group"
            raise Violation(Checker.LEASE_EXCLUSIVE, story)
        self.groups[record.group] = GroupBook(record.name, record.start, self.rules)
        self._on_undo(journal_end, lambda: self.groups.pop(record.group))

    def _group_closed(self, record: GroupClosed, journal_end: int, _: Event) -> None:
        group = self.groups.pop(record.group)
        self._on_undo(journal_end, lambda: self.groups.update({record.group: group}))

    def _mode_set(self, record: ModeSet, journal_end: int, _: Event) -> None:
        group = self.groups[record.group]
        before, group.mode = group.mode, record.mode
        self._on_undo(journal_end, lambda: setattr(group, "mode", before))

    def _commit_noted(self, _record: CommitNoted, _journal_end: int, _: Event) -> None:
        """A text of the client's own says nothing about messages."""

    def _delay(self, record: DelayCancelled | DelayMoved, journal_end: int, _: Event) -> None:
        self._on_undo(journal_end, self.delays.apply(record))

    def _leased(self, record: Leased, _: int, event: Event) -> None:
        self._require_lane_order(self.groups[record.group], offsets_of(record.runs))
        self.groups[record.group].lease(record, event, self._expires_at(record.runs))

    def _require_lane_order(self, group: GroupBook, offsets: BitMap64) -> None:
        """Violation: a message is leased for the first time before an older one of its lane."""
        last = {
            self.stored[one].message.priority: one
            for one in each_offset(offsets)
            if group.is_new(one)
        }
        for offset in range(group.floor, max(last.values(), default=0)):
            lane = self.stored[offset].message.priority
            if offset < last.get(lane, 0) and offset not in offsets and group.is_new(offset):
                story = f"{self.name}: {last[lane]} is handed out before {offset} of the same lane"
                raise Violation(Checker.LANE_ORDER, story)

    def _expired(self, record: Expired, _: int, event: Event) -> None:
        self.groups[record.group].expire(record, event, self._expires_at(record.runs))

    def _absent(self, record: Absent, _: int, event: Event) -> None:
        """Without offsets it only moves the cursor; with some it says that messages are missing."""
        if absent := [*each_offset(offsets_of(record.runs))]:
            raise Violation(Checker.DENSE, f"{self.name}: there is no message at {absent}")

    def _overtaken(self, record: Overtaken, _: int, event: Event) -> None:
        if record.offset > self.start_offset:
            story = f"{self.name}: overtaken at {record.offset}, but {self.start_offset} is kept"
            raise Violation(Checker.NO_ACKED_LOSS, story)
        skipped = self.groups[record.group].overtake(record)
        if skipped and self.is_keeping_unread:
            story = f"{self.name}: {skipped} unread messages were not kept"
            raise Violation(Checker.NO_ACKED_LOSS, story)
        self.skipped += skipped

    def _buried(self, record: Buried, journal_end: int, event: Event) -> None:
        group = self.groups[record.group]
        group.bury(record, event, self._over_ns(record.offset))
        if record.sequence < 0:
            return
        if record.sequence in self.pending or record.sequence in self.forwarded:
            story = f"{self.name}: sequence {record.sequence} stands for two letters"
            raise Violation(Checker.DLQ_ATOMIC, story)
        attempts = group.entry(record.offset).attempts
        self.pending[record.sequence] = Intent(record.group, record.offset, attempts, journal_end)
        self._on_undo(journal_end, lambda: self.pending.pop(record.sequence))

    def _delay_log_made(self, _: DelayLogMade, __: int, ___: Event) -> None:
        """Says nothing of messages or groups."""

    def _decided(
        self, record: TransactionDecided | NamedStagingsDecided, journal_end: int, _: Event
    ) -> None:
        self._on_undo(journal_end, self.transactions.decided(self.source, record, journal_end))
        letters = set(record.letters())
        self.decisions |= letters
        self._on_undo(journal_end, lambda: self.decisions.difference_update(letters))

    def _says_nothing(self, _record: PartitionRecord, _journal_end: int, _: Event) -> None:
        """What it comes to is seen in the messages, and in the answers that producers get."""

    def _forwarded(self, record: Forwarded, journal_end: int, _: Event) -> None:
        if record.sequence in self.decisions:
            self.decisions.discard(record.sequence)
            self._on_undo(journal_end, lambda: self.decisions.add(record.sequence))
            return
        intent = self.pending.pop(record.sequence, None)
        if intent is None:
            story = f"{self.name}: letter {record.sequence} arrived, but it was never sent"
            raise Violation(Checker.DLQ_ATOMIC, story)
        self.forwarded[record.sequence] = intent
        self._on_undo(journal_end, lambda: self.forwarded.pop(record.sequence))
        self._on_undo(journal_end, lambda: self.pending.update({record.sequence: intent}))

    def sequences_of(self, group: str, offset: int) -> list[int]:
        """Sequences of the letters in the outbox about this message of this group."""
        return [
            sequence
            for sequence, intent in self.pending.items()
            if intent.offset == offset and self.groups[intent.group].name == group
        ]

    def synced(self, journal_end: int) -> None:
        """Take note that both logs are durable to what they were when the journal ended there."""
        self.durable_to = max(self.durable_to, journal_end)
        if self.is_disk_honest:
            self._undo[:] = [one for one in self._undo if one[0] > self.durable_to]

    def cut_back(self, partition: Partition, *, is_forgiven: bool) -> None:
        """Forget what a crash took. Violation, unless forgiven: clients were told that it is durable."""
        messages_end, state_end = partition.messages.end_offset, partition.journal.log.end_offset
        if not is_forgiven:
            self._require_promises(messages_end, state_end)
        self.promises = Promises(
            min(self.promises.messages, messages_end), min(self.promises.state, state_end)
        )
        if self.is_epoch_kept:
            lost = (stored.epoch for stored in self.stored[messages_end:])
            self.epoch_lost = max(lost, default=self.epoch_lost)
        self.delays.cut_back(partition, is_forgiven=is_forgiven)
        self.copies = {key: at for key, at in self.copies.items() if at < messages_end}
        del self.stored[messages_end:]
        while self._undo and self._undo[-1][0] > state_end:
            self._undo.pop()[1]()
        self.journal_end = min(self.journal_end, state_end)
        self.journeys.cut(state_end)
        self.touched.update(self.groups)

    def _require_promises(self, messages_end: int, state_end: int) -> None:
        if messages_end < self.promises.messages:
            story = f"{self.name}: ends at {messages_end}, {self.promises.messages} were promised"
            raise Violation(Checker.NO_ACKED_LOSS, story)
        if state_end < self.promises.state:
            story = (
                f"{self.name}: answers up to {self.promises.state} were promised, {state_end} left"
            )
            raise Violation(Checker.LEASE_EXCLUSIVE, story)

    def restarted(self, partition: Partition, true_ns: int) -> None:
        """Take note of a start: opening syncs what is left, and grants leases anew."""
        # A node that has begun a reign knows it after every crash: no later batch is in the epoch of one that was lost.
        self.is_epoch_kept = self.is_disk_honest and partition.reign.is_begun
        self.synced(self.journal_end)
        for group in self.groups.values():
            group.restarted(true_ns)

    def require_unborn(self) -> None:
        """Violation: a group knows of offsets beyond the end, where other messages will be stored."""
        for group in self.groups.values():
            beyond = max(group.floor, *(one + 1 for one in group.entries), 0)
            if beyond > self.end:
                story = f"{self.name}: {group.name} knows of {beyond - 1}, the messages end at {self.end}"
                raise Violation(Checker.COMMIT_SAFE, story)

    def compare(self, partition: Partition) -> None:
        """Violation: the state of the node differs in anything."""
        found = dict(partition.machine.names)
        expected = {number: group.name for number, group in self.groups.items()}
        if found != expected:
            raise Violation(Checker.COMMIT_SAFE, f"{self.name} has groups {found}, not {expected}")
        for number, group in self.groups.items():
            group.compare(partition.machine.groups[number])
        self.delays.compare(partition)
        letters = partition.machine.outbox.pending
        expected_letters = {*self.pending, *self.decisions}
        if set(letters) != expected_letters:
            story = f"{self.name} has letters {sorted(letters)}, not {sorted(expected_letters)}"
            raise Violation(Checker.DLQ_ATOMIC, story)

    def compare_touched(self, partition: Partition) -> None:
        for number in self.touched:
            if number in self.groups:
                self.groups[number].compare_counts(partition.machine.groups[number])
        self.touched.clear()

    def require_pinned(self) -> None:
        """Violation: retention removed a message that a letter in the outbox needs."""
        for sequence, intent in self.pending.items():
            if intent.offset < self.start_offset:
                story = f"{self.name}: the payload of letter {sequence} is gone"
                raise Violation(Checker.DLQ_ATOMIC, story)


def _delay_ids(batch: memoryview, head: Head) -> list[int]:
    if head.origin is not Origin.DELAY:
        return [-1] * head.message_count
    found: list[int] = delay_ids(open_body(batch, head), head).tolist()
    return found


_APPLY_TO_GROUP: dict[type, Callable[[GroupBook, Any, Event], None]] = {
    Acked: GroupBook.ack,
    Claimed: GroupBook.claim,
    ClaimsEnded: GroupBook.end_claims,
    Disowned: GroupBook.disown,
    Extended: GroupBook.extend,
    Retried: GroupBook.retry,
    Released: GroupBook.release,
    Committed: GroupBook.commit,
    Rewound: GroupBook.rewind,
}
_APPLY: dict[type, Callable[[PartitionBook, Any, int, Event], None]] = {
    GroupOpened: PartitionBook._group_opened,
    GroupClosed: PartitionBook._group_closed,
    ModeSet: PartitionBook._mode_set,
    CommitNoted: PartitionBook._commit_noted,
    DelayCancelled: PartitionBook._delay,
    DelayMoved: PartitionBook._delay,
    Leased: PartitionBook._leased,
    Buried: PartitionBook._buried,
    Forwarded: PartitionBook._forwarded,
    DelayLogMade: PartitionBook._delay_log_made,
    Expired: PartitionBook._expired,
    Absent: PartitionBook._absent,
    Overtaken: PartitionBook._overtaken,
    TransactionDecided: PartitionBook._decided,
    NamedStagingsDecided: PartitionBook._decided,
    **dict.fromkeys(
        (
            Arrived,
            CommitNameOpened,
            NamedCommitConcluded,
            NamedStagingGrown,
            NamedStagingOpened,
            NamedStagingsEnded,
            ProducerForgotten,
            ProducerInitialised,
            ScheduleRemoved,
            ScheduleStored,
            StagingLogMade,
            StagingsEnded,
            TransactionConcluded,
            TransactionGrown,
        ),
        PartitionBook._says_nothing,
    ),
}

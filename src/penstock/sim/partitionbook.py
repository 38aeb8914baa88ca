"""What one partition must hold: its messages, what its groups did, and its letters on their way.

Fed by reading both logs on after every event, as a follower would. When the node starts again the book is cut back to
what is left, if that keeps every promise, and then has to agree with the node.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pyroaring import BitMap64

from ..api.received import Received
from ..broker.partition import FORMAT, Partition
from ..broker.records import (
    DelayLogMade,
    Forwarded,
    GroupClosed,
    GroupOpened,
    ModeSet,
    PartitionRecord,
)
from ..codec import Head, Origin, batches_in, decode_messages
from ..codec.decode import open_body
from ..codec.delays import delay_ids
from ..config import DeliveryConfig
from ..delivery.delay_records import DelayCancelled, DelayMoved
from ..delivery.offsets import Runs, each_offset, offsets_of
from ..delivery.records import (
    Absent,
    Acked,
    Buried,
    Committed,
    Expired,
    Extended,
    Leased,
    Overtaken,
    Released,
    Retried,
    Rewound,
)
from ..log import Log
from ..log.checkpoint import read_checkpoint
from ..model import Message
from .answers import Expected, expected_answers
from .delaybook import DelayBook
from .groupbook import GroupBook
from .scene import Scene
from .violation import Checker, Violation

_READ_BYTES = 1 << 20


class Stored(NamedTuple):
    """A message in the log. `source` is the partition whose outbox it came from, 0 if it is a producer's."""

    message: Message
    append_time: int
    epoch: int
    source: int
    # Which delayed message it was, -1 if none.
    delay_id: int = -1


class Intent(NamedTuple):
    """A letter that the source has recorded: whose, of which message, and where in the journal."""

    group: int
    offset: int
    attempts: int
    journal_end: int


@dataclass(slots=True)
class Promises:
    """What somebody was told is durable. Only a disk that lied may break it."""

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
    stored: list[Stored] = field(default_factory=list)
    groups: dict[int, GroupBook] = field(default_factory=dict)
    pending: dict[int, Intent] = field(default_factory=dict)
    forwarded: dict[int, Intent] = field(default_factory=dict)
    # Of letters that came here: source and sequence to offset.
    copies: dict[tuple[int, int], int] = field(default_factory=dict)
    promises: Promises = field(default_factory=Promises)
    start_offset: int = 0
    journal_end: int = 0
    # Both logs are durable to here, so nothing of it can be taken back any more.
    durable_to: int = 0
    epoch_lost: int = -1
    # Whether the disk knew of this life's epoch before anything was written in it.
    is_epoch_kept: bool = False
    skipped: int = 0
    # Groups whose state changed since it was last compared.
    touched: set[int] = field(default_factory=set)
    _undo: list[tuple[int, Callable[[], object]]] = field(default_factory=list)

    @property
    def end(self) -> int:
        return len(self.stored)

    def read_messages(self, log: Log) -> list[tuple[int, Stored]]:
        """Take over new messages from the log; returns them with their offsets."""
        fresh: list[tuple[int, Stored]] = []
        for head, batch in _batches(log, self.end):
            if head.base_offset != self.end:
                story = f"{self.name}: offset {head.base_offset} follows {self.end - 1}"
                raise Violation(Checker.DENSE, story)
            if head.epoch <= self.epoch_lost:
                story = f"{self.name}: offset {self.end} came again in epoch {head.epoch}"
                raise Violation(Checker.OFFSET_UNIQUE, story)
            source = head.origin_source if head.origin is Origin.OUTBOX else 0
            delay_ids = _delay_ids(batch, head)
            for message, delay_id in zip(decode_messages(batch, head), delay_ids, strict=True):
                stored = Stored(message, head.append_time, head.epoch, source, delay_id)
                fresh.append((self.end, stored))
                self.stored.append(stored)
        return fresh

    def read_journal(self, log: Log) -> list[tuple[PartitionRecord, int]]:
        """New records, each with the journal's end after its decision. They are not applied yet."""
        fresh: list[tuple[PartitionRecord, int]] = []
        for head, batch in _batches(log, self.journal_end):
            self.journal_end = head.next_offset
            records = FORMAT.from_batch(batch, head, self.name)
            fresh.extend((record, head.next_offset) for record in records)
        return fresh

    def apply(self, record: PartitionRecord, journal_end: int, scene: Scene) -> None:
        group = self.groups.get(record.group)
        self.touched.add(record.group)
        if group is not None:
            self._on_undo(journal_end, group.begin())
        kind = type(record)
        if kind not in _APPLY:
            raise Violation(Checker.SURPRISE, f"{self.name}: nobody expects {record}")
        _APPLY[kind](self, record, journal_end, scene)

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

    def _group_opened(self, record: GroupOpened, journal_end: int, _: Scene) -> None:
        if record.group in self.groups:
            story = f"{self.name}: {record.name} shares number {record.group} with another group"
            raise Violation(Checker.LEASE_EXCLUSIVE, story)
        self.groups[record.group] = GroupBook(record.name, record.start, self.rules)
        self._on_undo(journal_end, lambda: self.groups.pop(record.group))

    def _group_closed(self, record: GroupClosed, journal_end: int, _: Scene) -> None:
        group = self.groups.pop(record.group)
        self._on_undo(journal_end, lambda: self.groups.update({record.group: group}))

    def _mode_set(self, record: ModeSet, journal_end: int, _: Scene) -> None:
        group = self.groups[record.group]
        before, group.mode = group.mode, record.mode
        self._on_undo(journal_end, lambda: setattr(group, "mode", before))

    def _delay(self, record: DelayCancelled | DelayMoved, journal_end: int, _: Scene) -> None:
        self._on_undo(journal_end, self.delays.apply(record))

    def _leased(self, record: Leased, _: int, scene: Scene) -> None:
        self._require_lane_order(self.groups[record.group], offsets_of(record.runs))
        self.groups[record.group].lease(record, scene, self._expires_at(record.runs))

    def _require_lane_order(self, group: GroupBook, offsets: BitMap64) -> None:
        """First in, first out: no message is handed out for the first time before an older one of its lane."""
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

    def _acked(self, record: Acked, _: int, scene: Scene) -> None:
        self.groups[record.group].ack(record, scene)

    def _extended(self, record: Extended, _: int, scene: Scene) -> None:
        self.groups[record.group].extend(record, scene)

    def _retried(self, record: Retried, _: int, scene: Scene) -> None:
        self.groups[record.group].retry(record, scene)

    def _released(self, record: Released, _: int, scene: Scene) -> None:
        self.groups[record.group].release(record, scene)

    def _expired(self, record: Expired, _: int, scene: Scene) -> None:
        self.groups[record.group].expire(record, scene, self._expires_at(record.runs))

    def _absent(self, record: Absent, _: int, scene: Scene) -> None:
        """Without offsets it only moves the cursor; with some it says that messages are missing."""
        if absent := [*each_offset(offsets_of(record.runs))]:
            raise Violation(Checker.DENSE, f"{self.name}: there is no message at {absent}")

    def _committed(self, record: Committed, _: int, scene: Scene) -> None:
        self.groups[record.group].commit(record, scene)

    def _rewound(self, record: Rewound, _: int, scene: Scene) -> None:
        self.groups[record.group].rewind(record, scene)

    def _overtaken(self, record: Overtaken, _: int, scene: Scene) -> None:
        if record.offset > self.start_offset:
            story = f"{self.name}: overtaken at {record.offset}, but {self.start_offset} is kept"
            raise Violation(Checker.NO_ACKED_LOSS, story)
        skipped = self.groups[record.group].overtake(record)
        if skipped and self.is_keeping_unread:
            story = f"{self.name}: {skipped} unread messages were not kept"
            raise Violation(Checker.NO_ACKED_LOSS, story)
        self.skipped += skipped

    def _buried(self, record: Buried, journal_end: int, scene: Scene) -> None:
        group = self.groups[record.group]
        group.bury(record, scene, self._over_ns(record.offset))
        if record.sequence < 0:
            return
        if record.sequence in self.pending or record.sequence in self.forwarded:
            story = f"{self.name}: sequence {record.sequence} stands for two letters"
            raise Violation(Checker.DLQ_ATOMIC, story)
        attempts = group.entry(record.offset).attempts
        self.pending[record.sequence] = Intent(record.group, record.offset, attempts, journal_end)
        self._on_undo(journal_end, lambda: self.pending.pop(record.sequence))

    def _delay_log_made(self, _: DelayLogMade, __: int, ___: Scene) -> None:
        """Says nothing of messages or groups."""

    def _forwarded(self, record: Forwarded, journal_end: int, _: Scene) -> None:
        intent = self.pending.pop(record.sequence, None)
        if intent is None:
            story = f"{self.name}: letter {record.sequence} arrived, but it was never sent"
            raise Violation(Checker.DLQ_ATOMIC, story)
        self.forwarded[record.sequence] = intent
        self._on_undo(journal_end, lambda: self.forwarded.pop(record.sequence))
        self._on_undo(journal_end, lambda: self.pending.update({record.sequence: intent}))

    def sequences_of(self, group: str, offset: int) -> list[int]:
        """Letters on their way that are about this message of this group."""
        return [
            sequence
            for sequence, intent in self.pending.items()
            if intent.offset == offset and self.groups[intent.group].name == group
        ]

    def synced(self, journal_end: int) -> None:
        """Both logs are durable to what they were when the journal ended there."""
        self.durable_to = max(self.durable_to, journal_end)
        if self.is_disk_honest:
            self._undo[:] = [one for one in self._undo if one[0] > self.durable_to]

    def expected_answers(self, first: Received, offsets: BitMap64, scene: Scene) -> Expected:
        return expected_answers(self.groups.get(first.place.group), first, offsets, scene)

    def cut_back(self, partition: Partition, *, is_forgiven: bool) -> None:
        """Forget what a crash took. Not forgiven: nothing of it may have been promised."""
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
        """Opening made everything durable that was left, and grants leases afresh."""
        log = partition.messages
        checkpoint = read_checkpoint(log.disk, log.directory, log.seed)
        self.is_epoch_kept = (
            checkpoint is not None
            and not checkpoint.is_closed
            and checkpoint.epochs[-1].epoch == log.epoch
        )
        self.synced(self.journal_end)
        for group in self.groups.values():
            group.restarted(true_ns)

    def require_unborn(self) -> None:
        """Nothing may be known of messages that are not there: the next ones at these offsets are others."""
        for group in self.groups.values():
            beyond = max(group.floor, *(one + 1 for one in group.entries), 0)
            if beyond > self.end:
                story = f"{self.name}: {group.name} knows of {beyond - 1}, the messages end at {self.end}"
                raise Violation(Checker.COMMIT_SAFE, story)

    def compare(self, partition: Partition) -> None:
        """The whole state against the node's."""
        found = dict(partition.machine.names)
        expected = {number: group.name for number, group in self.groups.items()}
        if found != expected:
            raise Violation(Checker.COMMIT_SAFE, f"{self.name} has groups {found}, not {expected}")
        for number, group in self.groups.items():
            group.compare(partition.machine.groups[number])
        self.delays.compare(partition)
        letters = partition.machine.outbox.pending
        if set(letters) != set(self.pending):
            story = f"{self.name} has letters {sorted(letters)}, not {sorted(self.pending)}"
            raise Violation(Checker.DLQ_ATOMIC, story)

    def compare_touched(self, partition: Partition) -> None:
        for number in self.touched:
            if number in self.groups:
                self.groups[number].compare_counts(partition.machine.groups[number])
        self.touched.clear()

    def require_pinned(self) -> None:
        """What is still needed must not have been removed."""
        for sequence, intent in self.pending.items():
            if intent.offset < self.start_offset:
                story = f"{self.name}: the payload of letter {sequence} is gone"
                raise Violation(Checker.DLQ_ATOMIC, story)


def _delay_ids(batch: memoryview, head: Head) -> list[int]:
    if head.origin is not Origin.DELAY:
        return [-1] * head.message_count
    found: list[int] = delay_ids(open_body(batch, head), head).tolist()
    return found


def _batches(log: Log, offset: int) -> Iterator[tuple[Head, memoryview]]:
    while offset < log.end_offset:
        run = log.read(offset, bytes_max=_READ_BYTES)
        yield from batches_in(run.data, seed=log.seed)
        offset = run.next_offset


_APPLY: dict[type, Callable[[PartitionBook, Any, int, Scene], None]] = {
    GroupOpened: PartitionBook._group_opened,
    GroupClosed: PartitionBook._group_closed,
    ModeSet: PartitionBook._mode_set,
    DelayCancelled: PartitionBook._delay,
    DelayMoved: PartitionBook._delay,
    Leased: PartitionBook._leased,
    Acked: PartitionBook._acked,
    Extended: PartitionBook._extended,
    Retried: PartitionBook._retried,
    Released: PartitionBook._released,
    Buried: PartitionBook._buried,
    Forwarded: PartitionBook._forwarded,
    DelayLogMade: PartitionBook._delay_log_made,
    Expired: PartitionBook._expired,
    Absent: PartitionBook._absent,
    Committed: PartitionBook._committed,
    Rewound: PartitionBook._rewound,
    Overtaken: PartitionBook._overtaken,
}

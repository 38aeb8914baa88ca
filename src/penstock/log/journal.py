"""The journal of a machine: its records in a log of their own, with snapshots.

The order rule. A journal batch carries the end of the message log at which it was decided. A crash may leave state
without its messages, because a disk may write anything before a sync, and syncs both logs side by side. So recovery
drops state that was decided beyond the recovered end of the messages: otherwise a new message at such an offset would
be finished from the start. A snapshot comes after both.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from ..codec import Columns, Marks, Origin, batches_in, encode
from ..errors import DamagedFile
from ..kernel import Machine
from ..model import Epoch, LogEnd, Offset
from .log import Log
from .records import RecordFormat
from .reign import go_on
from .snapshot import (
    Snapshot,
    SnapshotPlan,
    read_snapshot,
    remove_snapshot,
    snapshot_content,
    snapshot_offsets,
    snapshot_path,
)
from .sync_plan import SyncPlan
from .trim import release, truncate

Record = TypeVar("Record")
# The newest, and one to fall back on if the disk damages it.
_SNAPSHOTS_KEPT = 2


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The result of a recovery."""

    snapshot: Offset | None
    # Damaged or missing; older ones and the journal did without.
    snapshots_skipped: tuple[DamagedFile, ...]
    records: int
    dropped_from: Offset | None


@dataclass(frozen=True, slots=True)
class OrderedPlan:
    """Plans that have to become durable one after the other."""

    messages: SyncPlan
    state: SyncPlan
    snapshot: SnapshotPlan | None = None

    def run(self) -> None:
        self.messages.run()
        self.state.run()
        if self.snapshot is not None:
            self.snapshot.run()


class HistoryLimits(NamedTuple):
    """How long records are kept that no restart needs any more, and how many bytes of segments at most."""

    age_ns_max: float
    bytes_max: int


class Journal(Generic[Record]):
    """Records of one machine. `log` is an open log that only this journal writes to."""

    def __init__(self, log: Log, form: RecordFormat[Record]) -> None:
        self.log, self.form = log, form
        # How long, and how much of it, the log is kept when a snapshot has its state; 0: not at all.
        self.history = HistoryLimits(0, 0)
        # Of the newest one: what writing one takes.
        self.snapshot_bytes = 0
        # Snapshots that could not be read: none of them is one to fall back on.
        self._unreadable: set[Offset] = set()

    def append(self, records: Sequence[Record], *, decided_at: LogEnd, now_ns: int) -> Offset:
        """Write the records of one decision as one batch: after a crash all of them are there or none."""
        marks = Marks(
            control=True,
            origin=Origin.DECIDED_AT,
            origin_source=decided_at.epoch,
            origin_sequence=decided_at.offset,
        )
        values = list(map(self.form.encode, records))
        columns = Columns(values=values, timestamps=now_ns, schema_ids=self.form.version)
        encoded = encode(columns, marks=marks)
        return self.log.append(encoded, now_ns=now_ns).base_offset

    def recover(
        self,
        machine: Machine[Record],
        *,
        message_end: LogEnd,
        known_snapshot: int = -1,
        snapshots: Sequence[Offset] | None = None,
        note: "Callable[[Offset, Sequence[Record]], None] | None" = None,
    ) -> ReplayResult:
        """Bring an empty machine to the state that the journal and the recovered messages agree on.

        `snapshots` are those in the directory, if the caller has looked. `note` is told of every batch of records that
        is replayed, with its offset.

        DamagedFile: without a snapshot that is damaged, or missing though known, that cannot be done.
        """
        if snapshots is None:
            snapshots = snapshot_offsets(self.log.disk, self.log.directory)
        skipped, snapshot = self._newest_snapshot(message_end, known_snapshot, snapshots)
        start = self.log.start_offset if snapshot is None else snapshot.offset
        dropped_from = self._drop_beyond(start, message_end)
        if snapshot is not None:
            self.snapshot_bytes = len(snapshot.body)
            for record in self._records_in(snapshot.body, snapshot.path):
                machine.apply(record)
        replayed = 0
        for head, batch in self.log.batches_from(start):
            records = [*self.form.from_batch(batch, head, self.log.directory)]
            for record in records:
                machine.apply(record)
            replayed += len(records)
            if note is not None:
                note(Offset(head.base_offset), records)
        return ReplayResult(
            None if snapshot is None else snapshot.offset, tuple(skipped), replayed, dropped_from
        )

    def _newest_snapshot(
        self, message_end: LogEnd, known: int, offsets: Sequence[Offset]
    ) -> tuple[list[DamagedFile], Snapshot[Record] | None]:
        """The snapshot to begin with, if there is one, and those that should have been in its place."""
        directory, skipped = self.log.directory, list[DamagedFile]()
        if known > max(offsets, default=-1):
            path = snapshot_path(directory, known)
            skipped.append(DamagedFile(path, "the snapshot is missing"))
        for offset in reversed(offsets):
            try:
                snapshot: Snapshot[Record] = read_snapshot(
                    self.log.disk, directory, offset, seed=self.log.seed
                )
            except DamagedFile as error:
                skipped.append(error.fresh())
                self._unreadable.add(offset)
                continue
            if skipped and snapshot.offset < self.log.start_offset:
                break  # It would have been the one before that was good enough.
            self._require_behind(snapshot, message_end)
            return skipped, snapshot
        if self.log.start_offset > 0:
            if skipped:
                raise skipped[0].fresh()
            raise DamagedFile(directory, "no snapshot for a journal that has lost its start")
        return skipped, None

    def _require_behind(self, snapshot: Snapshot[Record], message_end: LogEnd) -> None:
        if snapshot.offset > self.log.end_offset:
            reason = f"it is ahead of the state log, which ends at {self.log.end_offset}"
            raise DamagedFile(snapshot.path, reason)
        if snapshot.offset < self.log.start_offset:
            reason = f"the state log after it is gone up to {self.log.start_offset}"
            raise DamagedFile(snapshot.path, reason)
        if snapshot.message_end > message_end or snapshot.message_end.offset > message_end.offset:
            raise DamagedFile(
                snapshot.path, f"it is ahead of the messages, which end at {message_end}"
            )

    def _drop_beyond(self, start: Offset, message_end: LogEnd) -> Offset | None:
        """Cut the journal where it speaks of messages that are not there any more."""
        for head, _ in self.log.batches_from(start):
            decided_at = LogEnd(Epoch(head.origin_source), Offset(head.origin_sequence))
            if decided_at.offset > message_end.offset or decided_at.epoch > message_end.epoch:
                epoch = self.log.epoch
                dropped_from = truncate(self.log, head.base_offset)
                go_on(self.log, epoch)
                # Or a journal that is shorter now would look like one that has lost its end.
                self.log.sync(with_checkpoint=True)
                return dropped_from
        return None

    def _records_in(self, body: memoryview, path: str) -> Iterator[Record]:
        for head, batch in batches_in(body, seed=self.log.seed):
            yield from self.form.from_batch(batch, head, path)

    def snapshot_plan(self, messages: Log, machine: Machine[Record]) -> SnapshotPlan:
        """A snapshot of what the machine is now, to be written once both logs are durable."""
        log = self.log
        content = snapshot_content(
            machine.snapshot(),
            self.form,
            offset=log.end_offset,
            message_end=messages.end,
            seed=log.seed,
        )
        self.snapshot_bytes = sum(map(len, content))
        return SnapshotPlan(log.disk, log.directory, log.end_offset, content)

    def plan_snapshot(self, messages: Log, machine: Machine[Record]) -> OrderedPlan:
        """Make both logs durable, messages first, and then a snapshot of what the machine is now."""
        snapshot = self.snapshot_plan(messages, machine)
        return OrderedPlan(messages.plan_sync(), self.log.plan_sync(), snapshot)

    def synced(self, messages: Log, plan: OrderedPlan) -> None:
        """Take note that a plan was run; after a snapshot, forget what it made unnecessary."""
        messages.synced(plan.messages)
        self.log.synced(plan.state)
        if plan.snapshot is not None:
            self.snapshot_written(plan.snapshot, messages.sync)

    def snapshot_written(self, snapshot: SnapshotPlan, sync_others: Callable[[], object]) -> None:
        """Forget what a snapshot has made unnecessary.

        To remove old segments syncs records that came after the snapshot: `sync_others` first makes durable what those
        rest on, or the durable end of the journal would be ahead of it.
        """
        self._unreadable.discard(snapshot.offset)
        if self.log.tap is not None:
            self.log.tap.snapshot(self.log, snapshot.offset)
        found = snapshot_offsets(self.log.disk, self.log.directory)
        offsets = [one for one in found if one not in self._unreadable]
        for offset in offsets[:-_SNAPSHOTS_KEPT]:
            remove_snapshot(self.log.disk, self.log.directory, offset)
        needed = offsets[-_SNAPSHOTS_KEPT:][0]
        start = self._history_start(needed, self.log.append_time)
        if len(self.log.segments) > 1 and self.log.segments[1].base_offset <= start:
            sync_others()
            release(self.log, below=start)

    def history_end(self, now_ns: int) -> Offset | None:
        """Returns up to where the log is only history, and older than it should be; None if nothing is.

        An idle log takes no snapshot, after which it would be removed.
        """
        offsets = snapshot_offsets(self.log.disk, self.log.directory)
        if len(self.log.segments) == 1 or len(offsets) < _SNAPSHOTS_KEPT:
            return None
        start = self._history_start(offsets[0], now_ns)
        return start if start >= self.log.segments[1].base_offset else None

    def _history_start(self, needed: Offset, now_ns: int) -> Offset:
        """Returns the first offset to keep of a log whose state a snapshot has up to `needed`."""
        size, oldest_ns = self.log.size, now_ns - self.history.age_ns_max
        start: Offset | None = None
        for number, segment in enumerate(self.log.segments):
            end = self.log.end_of(number)
            if end > needed:
                break
            is_too_much, size = size > self.history.bytes_max, size - segment.size
            # 0: the end of the segment is damaged. It goes or stays with the one behind it.
            last_time = 0 if is_too_much else segment.last_time(end)
            if is_too_much or 0 < last_time < oldest_ns:
                start = None
                continue
            start = Offset(segment.base_offset) if start is None else start
            if last_time:
                break  # Times only grow: all others are young enough, and need not be looked at.
        return needed if start is None else start

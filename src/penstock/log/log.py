"""A partition's log: append at the end, read anywhere, forget from the front.

Not thread-safe: one owner calls it. Two things may run elsewhere meanwhile: a `SyncPlan`, and reads of a `Run` that
was handed out. A write is in the page cache when `append` returns, and durable when the plan that covers it was run
and reported back with `synced`.
"""

from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import msgspec

from ..codec import HEAD_BYTES, Encoded, Head, batches_in, read_head, seed_of
from ..codec.head import pack_head, place
from ..config import OFF, LogConfig
from ..errors import DamagedBatch, FileMissing, MalformedBatch, NoSpace, OffsetOutOfRange
from ..model import Buffer, Epoch, LogEnd, LogId, Offset
from ..ports import Disk
from .checkpoint import Checkpoint, EpochStart
from .layout import CHECKPOINT, replace_file
from .scan import Broken, Found
from .segment import Segment
from .stretch import Stretch, stretch_at

_RELATIVE_OFFSET_MAX = (1 << 32) - 1  # The index keeps offsets as u32 from the segment's first.
# An index of a full 64 MiB segment takes 256 KiB; readers seldom jump between more segments than this.
_INDEXES_LOADED_MAX = 8
# A process may have thousands of logs, and each keeps one batch. What is longer takes longer to read anyhow.
_KEPT_BYTES_MAX = 4096
_NOTHING = (b"", b"")


class Run(NamedTuple):
    """Consecutive whole batches as they are stored. The first one holds the offset asked for."""

    data: memoryview
    base_offset: Offset
    next_offset: Offset


class Appended(NamedTuple):
    """Where a batch came to rest, and its head there, but for the checksum."""

    base_offset: Offset
    next_offset: Offset
    append_time: int
    head: Head


# As calling the classes does it, without a call of its own.
_appended: Callable[[tuple[Offset, Offset, int, Head]], Appended] = partial(tuple.__new__, Appended)
_run: Callable[[tuple[memoryview, int, int]], Run] = partial(tuple.__new__, Run)


class MetaMark(msgspec.Struct, eq=False):
    """How far the owner's meta journal is durable. One for all logs of an owner; each checkpoint has it as it was."""

    end: LogEnd


class SyncPlan(msgspec.Struct, eq=False):
    """What makes a log durable up to an offset. May be run in another thread; one at a time."""

    disk: Disk
    directory: str
    up_to: Offset
    segments: tuple[tuple[Segment, int], ...]
    directory_changes: int
    is_directory_dirty: bool
    checkpoint: Checkpoint | None
    seed: int
    bytes_appended: int
    checkpoint_changes: int
    is_checkpoint_written: bool = False

    def run(self) -> None:
        """FileMissing: a file is gone from its place, so it does not matter that its bytes are on the disk."""
        for segment, _ in self.segments:
            file = segment.opened or segment.file
            file.sync()
            if not file.is_there():
                raise FileMissing(segment.path)
        if self.is_directory_dirty:
            self.disk.sync_directory(self.directory)
        if self.checkpoint is not None:
            # On a full disk the old one stays: a restart reads more, and nothing is lost.
            with suppress(NoSpace):
                content = self.checkpoint.to_bytes(self.seed)
                replace_file(self.disk, self.directory, CHECKPOINT, content)
                self.is_checkpoint_written = True


class Log:
    """Made by `open_log`. `end_offset` is the next offset to be written, `durable_end` the first that a power cut
    may take, `start_offset` the first that is kept.

    `settled_to` is the segment that the checkpoint on the disk speaks of: a restart reads no segment before it, so
    only those may be written anew. `reshapes` counts how often segments went or were replaced. `meta` is as the
    checkpoint on the disk has it, until the owner puts its own in its place.
    """

    def __init__(
        self, disk: Disk, directory: str, log_id: LogId, config: LogConfig, checkpoint: Checkpoint
    ) -> None:
        self.disk, self.directory, self.log_id, self.config = disk, directory, log_id, config
        self.seed = seed_of(log_id)
        self.segments: list[Segment] = []
        self.start_offset = checkpoint.start_offset
        self.end_offset = self.durable_end = checkpoint.offset
        self.append_time = checkpoint.append_time
        self.compacted_to = checkpoint.compacted_to
        self.epochs = list(checkpoint.epochs)
        self.settled_to = checkpoint.segment
        self.meta = MetaMark(checkpoint.meta_end)
        self.reshapes = 0
        self.is_compacting = False
        self._is_closing = False
        self._directory_changes = self._directory_changes_synced = 0
        # Since it was opened.
        self.bytes_appended = self._bytes_checkpointed = 0
        self._checkpoint_changes = self._checkpoint_changes_saved = 0
        # Where the last read ended, so that the next one need not search.
        self._read_segment: Segment | None = None
        self._read_offset = self._read_position = 0
        # The last batch, if it is small: whoever waits for messages asks for it as soon as it is there. -1: none.
        self._kept_offset = -1
        self._kept: tuple[Buffer, Buffer] = _NOTHING
        self._recently_indexed: list[Segment] = []
        # Told of every damaged batch that a read meets, before the read raises it.
        self.on_damage: Callable[[DamagedBatch], None] = _ignore

    @property
    def epoch(self) -> Epoch:
        return self.epochs[-1].epoch

    @property
    def end(self) -> LogEnd:
        return LogEnd(self.epoch, self.end_offset)

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)

    def begin_epoch(self, epoch: Epoch) -> None:
        """Write in a new epoch from now on. The next sync makes that durable too."""
        assert epoch > self.epoch, f"epoch {epoch} after {self.epoch}"
        if self.epochs[-1].offset == self.end_offset:
            self.epochs.pop()
        self.epochs.append(EpochStart(epoch, self.end_offset))
        self.changed_checkpoint()

    def append(self, encoded: Encoded, *, now_ns: int) -> Appended:
        """Write a verified batch at the end; it is readable on return and durable after a sync."""
        head, body, active = encoded.head, encoded.body, self.segments[-1]
        if self._must_roll(active, head, now_ns):
            active = self.roll()
        base_offset = self.end_offset
        placed = place(
            head,
            base_offset=base_offset,
            unsynced=base_offset - self.durable_end,
            epoch=self.epochs[-1].epoch,
            # A clock that steps back must not make later messages look older than earlier ones.
            append_time=max(now_ns, self.append_time),
        )
        packed = pack_head(placed, seed=self.seed)
        active.append(placed, packed, *body)
        # Bytes only: what else there is may be written to by whoever sent it.
        is_kept = len(body) == 1 and type(body[0]) is bytes and head.length <= _KEPT_BYTES_MAX
        self._kept_offset = base_offset if is_kept else -1
        self._kept = (packed, body[0]) if is_kept else _NOTHING
        self.end_offset = next_offset = Offset(base_offset + head.last_delta + 1)
        self.append_time = placed.append_time
        self.bytes_appended += head.length
        return _appended((base_offset, next_offset, placed.append_time, placed))

    def _must_roll(self, active: Segment, head: Head, now_ns: int) -> bool:
        if active.size == 0:
            return False
        config = self.config
        if active.size + head.length > config.segment_size_bytes:
            return True
        messages = self.end_offset - active.base_offset
        if messages + head.last_delta > _RELATIVE_OFFSET_MAX:
            return True
        if config.segment_messages_max != OFF and messages >= config.segment_messages_max:
            return True
        if config.segment_age_ms == OFF:
            return False
        index = active.loaded or active.index()
        return now_ns - index.first_time >= config.segment_age_ms * 1_000_000

    def roll(self) -> Segment:
        """Go on in a new file. The old one is synced by the next plan, before the new one is."""
        sealed = self.segments[-1]
        if sealed.size == 0:
            return sealed
        self.add_segment(self.end_offset)
        sealed.is_index_saved = False
        sealed.last_time_known = sealed.index().last_time
        self._note_index(sealed)
        with suppress(NoSpace):
            sealed.write_index()
        return self.segments[-1]

    def add_segment(self, base_offset: int) -> None:
        segment = self.new_segment(base_offset)
        segment.create()
        self.segments.append(segment)
        self.changed_directory()

    def changed_directory(self) -> None:
        """A file came or went: the next sync covers the directory too."""
        self._directory_changes += 1

    def new_segment(self, base_offset: int) -> Segment:
        interval = self.config.index_interval_bytes
        return Segment(self.disk, self.directory, base_offset, self.seed, interval)

    def read(self, offset: int, *, bytes_max: int) -> Run:
        """Whole batches from the one that holds `offset` on, at least one, up to `bytes_max`.

        At the end of the log: nothing. A damaged batch: DamagedBatch, and where reading can go on.
        """
        if not self.start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRange(offset, start=self.start_offset, end=self.end_offset)
        if offset == self.end_offset:
            return Run(memoryview(b""), Offset(offset), Offset(offset))
        if offset == self._kept_offset:
            return self._read_kept()
        segment, position = self._place_of(offset)
        wanted = min(max(bytes_max, HEAD_BYTES), segment.size - position)
        data = memoryview(segment.file.read(position, wanted))
        start = offset
        try:
            first = read_head(data, seed=self.seed)
            if not first.base_offset <= offset <= first.last_offset:
                raise MalformedBatch(f"offsets {first.base_offset} to {first.last_offset}")
            start = first.base_offset
            if first.length > len(data):
                data = memoryview(segment.file.read(position, first.length))
            end, last = _whole_batches(data, self.seed)
        except MalformedBatch as error:
            broken = Broken(position, error.reason)
            end_offset = self.end_of(self._segment_number(offset))
            damage = segment.damaged(broken, offset=offset, end_offset=end_offset, first=start)
            self.on_damage(damage)
            raise damage from None
        self._read_segment, self._read_position = segment, position + end
        self._read_offset = last.next_offset
        return Run(data[:end], Offset(first.base_offset), Offset(last.next_offset))

    def find(self, offset: int, *, bytes_max: int, limit: int) -> Stretch | None:
        """Where `read` would read, and no more than is needed for `limit` offsets. None: use `read`."""
        if not self.start_offset <= offset < self.end_offset:
            return None
        segment, position = self._place_of(offset)
        found = stretch_at(segment, position, offset, bytes_max=bytes_max, limit=limit)
        if found is not None:
            self._read_segment, self._read_position = segment, position + found.size
            self._read_offset = found.next_offset
        return found

    def _read_kept(self) -> Run:
        """The last batch as it was written. It was whole then: no checksum has to say so."""
        self._read_segment = active = self.segments[-1]
        self._read_offset, self._read_position = self.end_offset, active.size
        return _run((memoryview(b"".join(self._kept)), self._kept_offset, self.end_offset))

    def _place_of(self, offset: int) -> tuple[Segment, int]:
        segment = self._read_segment
        is_next = segment is not None and self._read_offset == offset
        if segment is not None and is_next and self._read_position < segment.size:
            return segment, self._read_position
        number, found = self.place_of_batch(offset)
        self._note_index(self.segments[number])
        return self.segments[number], found.position

    def head_at(self, offset: int) -> Head:
        """The head of the batch that holds `offset`; its body is not read. DamagedBatch: it is not there."""
        return self.place_of_batch(offset)[1].head

    def place_of_batch(self, offset: int) -> tuple[int, Found]:
        """Number of the segment that holds `offset`, and its batch there. DamagedBatch: it is not there."""
        number = self._segment_number(offset)
        segment, end_offset = self.segments[number], self.end_of(number)
        try:
            found = segment.find_offset(offset, end_offset=end_offset)
            if found is None:
                reason = f"the file ends before offset {offset}"
                raise DamagedBatch(
                    segment.path, segment.size, reason, offset=offset, next_offset=end_offset
                )
        except DamagedBatch as damage:
            self.on_damage(damage)
            raise
        return number, found

    def end_of(self, number: int) -> Offset:
        """The first offset behind a segment."""
        is_last = number + 1 == len(self.segments)
        return self.end_offset if is_last else Offset(self.segments[number + 1].base_offset)

    def bytes_from(self, offset: int) -> int:
        """Stored bytes from the batch that holds `offset` to the end; if it is damaged, from the start of its file."""
        if offset >= self.end_offset:
            return 0
        try:
            number, found = self.place_of_batch(offset)
            position = found.position
        except DamagedBatch:
            number, position = self._segment_number(offset), 0
        return sum(segment.size for segment in self.segments[number:]) - position

    def forget_hint(self) -> None:
        """Segments changed under the readers: search again."""
        self.reshapes += 1
        self._read_segment, self._kept_offset = None, -1
        for segment in self._recently_indexed:
            segment.loaded = None
        self._recently_indexed.clear()

    def _segment_number(self, offset: int) -> int:
        return bisect_right(self.segments, offset, key=lambda segment: segment.base_offset) - 1

    def _note_index(self, segment: Segment) -> None:
        """Keep only the indexes that were used last; the active segment needs its own for appending."""
        if segment is self.segments[-1]:
            return
        if segment in self._recently_indexed:
            self._recently_indexed.remove(segment)
        self._recently_indexed.append(segment)
        if len(self._recently_indexed) > _INDEXES_LOADED_MAX:
            self._recently_indexed.pop(0).unload_index()

    def offset_at(self, time_ns: int) -> Offset:
        """The first offset that was appended at `time_ns` or later; the end if there is none yet.

        If what comes before that is damaged: the first offset of the damage, so that a reader hears of it.
        """
        low, high = 0, len(self.segments)
        while low < high:
            middle = (low + high) // 2
            is_before = self._ends_before(middle, time_ns)
            low, high = (middle + 1, high) if is_before else (low, middle)
        found = self.segments[low].offset_at(time_ns) if low < len(self.segments) else None
        offset = self.end_offset if found is None else Offset(found)
        is_first = low > 0 and offset == self.end_of(low - 1)
        return self._end_known(low - 1) if is_first else offset

    def _ends_before(self, number: int, time_ns: int) -> bool:
        """All that is known of a segment is older. If nothing is, because of damage, the one before it counts."""
        if self.segments[number].size == 0:
            return False
        for earlier in range(number, -1, -1):
            segment = self.segments[earlier]
            index = segment.index()
            self._note_index(segment)
            if index.size:
                return index.last_time < time_ns
        return True

    def _end_known(self, number: int) -> Offset:
        """Where the last whole batch of a segment ends; that is before the next segment only if there is damage."""
        segment = self.segments[number]
        end = max(segment.base_offset, segment.index().next_offset)
        self._note_index(segment)
        return Offset(min(end, self.end_of(number)))

    def end_of_epoch(self, epoch: Epoch) -> Offset:
        """Where the first later epoch starts; the end of the log if there is none."""
        later = (start.offset for start in self.epochs if start.epoch > epoch)
        return next(later, self.end_offset)

    def plan_sync(self, *, with_checkpoint: bool = False) -> SyncPlan:
        """What to do to make everything appended so far durable. Old segments come before new ones."""
        bytes_unchecked = self.bytes_appended - self._bytes_checkpointed
        checkpoint = None
        if (
            with_checkpoint
            or self._checkpoint_changes > self._checkpoint_changes_saved
            or bytes_unchecked >= self.config.checkpoint_bytes
        ):
            with suppress(NoSpace):
                self.segments[-1].write_index()
            checkpoint = self.checkpoint()
        dirty = tuple([(one, one.size) for one in self.segments if one.size > one.synced_size])
        return SyncPlan(
            self.disk,
            self.directory,
            self.end_offset,
            dirty,
            self._directory_changes,
            self._directory_changes > self._directory_changes_synced,
            checkpoint,
            self.seed,
            self.bytes_appended,
            self._checkpoint_changes,
        )

    def synced(self, plan: SyncPlan) -> None:
        """Take note that a plan was run."""
        for segment, size in plan.segments:
            segment.synced_size = max(segment.synced_size, size)
        self._directory_changes_synced = plan.directory_changes
        self.durable_end = max(self.durable_end, plan.up_to)
        if plan.checkpoint is not None and plan.is_checkpoint_written:
            self.settled_to = plan.checkpoint.segment
            self._bytes_checkpointed = plan.bytes_appended
            self._checkpoint_changes_saved = plan.checkpoint_changes

    def sync(self, *, with_checkpoint: bool = False) -> None:
        """Make everything durable, here and now."""
        plan = self.plan_sync(with_checkpoint=with_checkpoint)
        plan.run()
        self.synced(plan)

    def changed_checkpoint(self) -> None:
        """Something changed that only the checkpoint will know: the next sync writes one."""
        self._checkpoint_changes += 1

    def replace_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Make a promise durable before the log itself changes. NoSpace: nothing happened."""
        replace_file(self.disk, self.directory, CHECKPOINT, checkpoint.to_bytes(self.seed))
        self.settled_to = checkpoint.segment
        self._checkpoint_changes_saved = self._checkpoint_changes

    def checkpoint(self) -> Checkpoint:
        """The present state, true once everything up to the end is synced."""
        active = self.segments[-1]
        return Checkpoint(
            start_offset=self.start_offset,
            segment=Offset(active.base_offset),
            position=active.size,
            offset=self.end_offset,
            append_time=self.append_time,
            compacted_to=self.compacted_to,
            epochs=tuple(self.epochs),
            is_closed=self._is_closing,
            meta_end=self.meta.end,
        )

    def close(self) -> None:
        """Sync, so that the next open has nothing to read, and give the files back."""
        if not self.segments:
            return
        self._is_closing = True
        self.sync(with_checkpoint=True)
        self.discard()

    def discard(self) -> None:
        """Give the files back as they are: the log is about to be deleted, or the process to end."""
        self.forget_hint()
        for segment in self.segments:
            segment.close()
        self.segments.clear()


def _ignore(_damage: DamagedBatch) -> None:
    return


def _whole_batches(data: memoryview, seed: int) -> tuple[int, Head]:
    """Where the last of the batches ends that are whole and follow each other, and its head.

    MalformedBatch: the first is not whole. A later one that is not ends it: the next read will say so.
    """
    size, last = 0, None
    try:
        for head, _ in batches_in(data, seed=seed, is_cut=True):
            if last is not None and head.base_offset != last.next_offset:
                break
            size, last = size + head.length, head
    except MalformedBatch:
        if last is None:
            raise
    assert last is not None, "there are some bytes"
    return size, last

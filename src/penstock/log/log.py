"""A partition's log: append at the end, read anywhere, forget from the front.

Not thread-safe: one owner calls it. Two things may run elsewhere meanwhile: a `SyncPlan`, and reads of a `Run` that
was handed out. A write is in the page cache when `append` returns, and durable when the plan that covers it was run
and reported back with `synced`.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from ..codec import HEAD_BYTES, Encoded, Head, read_head, seed_of
from ..codec.head import HEAD, head_of, pack_head, place, verify_body
from ..config import OFF, LogConfig
from ..errors import DamagedBatch, MalformedBatch, OffsetOutOfRange
from ..model import Buffer, Epoch, LogEnd, LogId, Offset
from ..ports import Disk
from .checkpoint import Checkpoint, EpochStart, MetaMark
from .layout import CHECKPOINT, replace_file
from .reign import ALONE, Reign, Tap
from .scan import BrokenBatch, HeadPosition, following
from .segment import Segment, Stretch
from .sync_plan import SyncPlan

_READ_BYTES = 1 << 20  # One piece of `batches_from`.
_RELATIVE_OFFSET_MAX = (1 << 32) - 1  # The index keeps offsets as u32 from the segment's first.
# An index of a full 64 MiB segment takes 256 KiB; readers seldom use more segments than this in turn.
_INDEXES_LOADED_MAX = 8
# An index of so little is made from the heads as soon as its two files are read, and sooner than they are written.
_UNINDEXED_BYTES_MAX = 16 << 10
# A process may have thousands of logs, and each keeps its last batch if it is not longer.
_KEPT_BYTES_MAX = 4096


class Run(NamedTuple):
    """Consecutive whole batches as they are stored. The first one holds the offset asked for."""

    data: memoryview
    base_offset: Offset
    next_offset: Offset
    heads: Sequence[Head] = ()


class AppendResult(NamedTuple):
    """The position of an appended batch, and its head there without the checksum."""

    base_offset: Offset
    next_offset: Offset
    append_time: int
    head: Head


# As calling the classes does it, without a call of its own.
_appended: Callable[[tuple[Offset, Offset, int, Head]], AppendResult] = partial(
    tuple.__new__, AppendResult
)


class Log:
    """`open_log` makes it. `end_offset` is the next offset to be written, `durable_end` the first that a power cut
    may take, `start_offset` the first that is kept: that of the first file, or `hidden_below` where the owner has moved
    the start inside of that file. The owner keeps a record of it.

    `settled_to` is the segment of the checkpoint on the disk: a restart reads no segment before it, so only those may
    be written anew. `reshapes` counts how often segments were removed or replaced. `meta` is that of the checkpoint on
    the disk, until the node sets its own.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        log_id: LogId,
        config: LogConfig,
        checkpoint: Checkpoint,
        *,
        reign: Reign = ALONE,
    ) -> None:
        self.disk, self.directory, self.log_id, self.config = disk, directory, log_id, config
        self.seed = seed_of(log_id)
        self.reign = reign
        # None: no other node has this log, and appends cost what they always did.
        self.tap: Tap | None = None
        self.segments: list[Segment] = []
        self.first_base = checkpoint.start_offset
        self.hidden_below = Offset(0)
        self.end_offset = self.durable_end = checkpoint.offset
        self.append_time = checkpoint.append_time
        self.compacted_to = checkpoint.compacted_to
        self.epochs = list(checkpoint.epochs)
        self.settled_to = checkpoint.segment
        self.meta = MetaMark(checkpoint.meta_end)
        self.reshapes = 0
        self.is_compacting = False
        self.is_closing = False
        # As it is on the disk; None: there is none, or it is damaged.
        self.saved_checkpoint: Checkpoint | None = None
        self._directory_changes = self._directory_changes_synced = 0
        # Since it was opened.
        self.bytes_appended = self._bytes_checkpointed = 0
        self._checkpoint_changes = self._checkpoint_changes_saved = 0
        # Where the last read ended, so that the next one need not search.
        self._read_segment: Segment | None = None
        self._read_offset = self._read_position = 0
        # The last batch, if it is small: a waiting consumer reads it at once. -1: none.
        self._kept_offset = -1
        self._kept: tuple[Buffer, Buffer] | None = None
        self._recently_indexed: list[Segment] = []
        # Called with every damaged batch that a read meets, before the read raises it.
        self.on_damage: Callable[[DamagedBatch], None] = _ignore

    @property
    def committed_end(self) -> Offset:
        """The first offset that a power cut, or another leader where others have this log, could take."""
        return self.reign.committed_end(self)

    @property
    def start_offset(self) -> Offset:
        return max(self.first_base, self.hidden_below)

    @property
    def epoch(self) -> Epoch:
        return self.epochs[-1].epoch

    @property
    def next_epoch(self) -> Epoch:
        """The epoch of whoever writes the log now, which its next batch will be in."""
        return max(self.epochs[-1].epoch, self.reign.epoch)

    @property
    def reign_start(self) -> Offset:
        """The end that the log had when the node began to write it."""
        last = self.epochs[-1]
        return last.offset if last.epoch == self.reign.epoch else self.end_offset

    @property
    def end(self) -> LogEnd:
        """The end, with the epoch of the last batch: one that has begun and has no batch is known here alone."""
        last = self.epochs[-1]
        if last.offset == self.end_offset and len(self.epochs) > 1:
            last = self.epochs[-2]
        return LogEnd(last.epoch, self.end_offset)

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)

    def begin_epoch(self, epoch: Epoch) -> None:
        """Write in a new epoch from now on. The next sync makes that durable too."""
        self.note_epoch(epoch)
        self.changed_checkpoint()

    def note_epoch(self, epoch: Epoch) -> None:
        """Note that a batch at the end is the first one of an epoch: its head says so, and no checkpoint has to."""
        assert epoch > self.epoch, f"epoch {epoch} after {self.epoch}"
        if self.epochs[-1].offset == self.end_offset:
            self.epochs.pop()
        self.epochs.append(EpochStart(epoch, self.end_offset))

    def append(self, encoded: Encoded, *, now_ns: int) -> AppendResult:
        """Write a verified batch at the end; it is readable on return and durable after a sync."""
        # The node may begin its epoch with this, by a record in meta, which may be this log.
        epoch = self.epochs[-1].epoch
        if is_new_epoch := epoch != self.reign.epoch:
            epoch = self.reign.epoch_for(self)
        head, body, active = encoded.head, encoded.body, self.segments[-1]
        if self.must_roll(active, head, now_ns):
            active = self.roll()
        base_offset = self.end_offset
        placed = place(
            head,
            base_offset=base_offset,
            unsynced=base_offset - self.durable_end,
            epoch=epoch,
            # A clock that steps back must not make later messages look older than earlier ones.
            append_time=max(now_ns, self.append_time),
        )
        packed = pack_head(placed, seed=self.seed)
        active.append(placed, packed, *body)
        if is_new_epoch and epoch > self.epoch:
            self.note_epoch(epoch)
        # Bytes only: the caller may still write to any other buffer.
        is_kept = len(body) == 1 and type(body[0]) is bytes and head.length <= _KEPT_BYTES_MAX
        self._kept_offset = base_offset if is_kept else -1
        self._kept = (packed, body[0]) if is_kept else None
        self.end_offset = next_offset = Offset(base_offset + head.last_delta + 1)
        self.append_time = placed.append_time
        self.bytes_appended += head.length
        if self.tap is not None:
            self.tap.appended(self, placed, (packed, *body))
        return _appended((base_offset, next_offset, placed.append_time, placed))

    def append_run(self, batches: Sequence[Encoded], *, now_ns: int) -> list[Head]:
        """Write verified batches behind each other at the end, with one write: as many as the active segment takes, and
        at least one. Returns their heads there, without the checksum. NoSpace: nothing was written.
        """
        epoch, active = self.reign.epoch_for(self), self.segments[-1]
        if self.must_roll(active, batches[0].head, now_ns):
            active = self.roll()
        size, offset = active.size, self.end_offset
        append_time = max(now_ns, self.append_time)
        heads: list[Head] = []
        pieces: list[tuple[Buffer, ...]] = []
        for encoded in batches:
            head = encoded.head
            if heads and not self._has_room(size, offset - active.base_offset, head):
                break
            placed = place(
                head,
                base_offset=offset,
                unsynced=offset - self.durable_end,
                epoch=epoch,
                append_time=append_time,
            )
            heads.append(placed)
            pieces.append((pack_head(placed, seed=self.seed), *encoded.body))
            size, offset = size + head.length, Offset(offset + head.last_delta + 1)
        active.append_run(heads, [part for parts in pieces for part in parts])
        if epoch > self.epoch:
            self.note_epoch(epoch)
        self._kept_offset, self._kept = -1, None
        self.bytes_appended += sum(one.length for one in heads)
        self.end_offset, self.append_time = offset, append_time
        if self.tap is not None:
            for placed, parts in zip(heads, pieces, strict=True):
                self.tap.appended(self, placed, parts)
        return heads

    def go_on_behind(self, head: Head) -> None:
        """Take note of a batch that was written to the active segment as it came, and not by `append`."""
        self._kept_offset, self._kept = -1, None
        self.end_offset, self.append_time = Offset(head.next_offset), head.append_time
        self.bytes_appended += head.length

    def must_roll(self, active: Segment, head: Head, now_ns: int) -> bool:
        if active.size == 0:
            return False
        if not self._has_room(active.size, self.end_offset - active.base_offset, head):
            return True
        age_ms = self.config.segment_age_ms
        if age_ms == OFF:
            return False
        index = active.loaded or active.index()
        return now_ns - index.first_time >= age_ms * 1_000_000

    def _has_room(self, size: int, messages: int, head: Head) -> bool:
        """Whether a segment of so many bytes and messages takes one more batch."""
        config = self.config
        if size + head.length > config.segment_size_bytes:
            return False
        if messages + head.last_delta > _RELATIVE_OFFSET_MAX:
            return False
        return config.segment_messages_max == OFF or messages < config.segment_messages_max

    @property
    def bytes_unchecked(self) -> int:
        """How many bytes there are behind the checkpoint."""
        return self.bytes_appended - self._bytes_checkpointed

    def bytes_behind(self, checkpoint: Checkpoint) -> int:
        """How many bytes of the log a checkpoint does not speak of."""
        sizes = (one.size for one in self.segments if one.base_offset >= checkpoint.segment)
        return sum(sizes) - checkpoint.position

    def count_unchecked(self, size: int) -> None:
        """Count bytes that were read behind the checkpoint towards the next one."""
        self._bytes_checkpointed -= size

    def roll(self) -> Segment:
        """Append to a new segment from now on. The next plan syncs the old one before it. Returns the new one."""
        sealed = self.segments[-1]
        if sealed.size == 0:
            return sealed
        self.add_segment(self.end_offset)
        sealed.is_index_saved = False
        sealed.last_time_known = sealed.index().last_time
        self.note_index(sealed)
        sealed.save_index()
        return self.segments[-1]

    def add_segment(self, base_offset: int) -> None:
        segment = self.new_segment(base_offset)
        segment.create()
        self.segments.append(segment)
        self.changed_directory()

    def changed_directory(self) -> None:
        """Let the next sync cover the directory too, because a file was added or removed."""
        self._directory_changes += 1

    def new_segment(self, base_offset: int) -> Segment:
        interval = self.config.index_interval_bytes
        return Segment(self.disk, self.directory, base_offset, self.seed, interval)

    def read(self, offset: int, *, bytes_max: int) -> Run:
        """Returns whole batches from the one that holds `offset` on, at least one, up to `bytes_max`; none at the end.

        DamagedBatch says where reading can go on. OffsetOutOfRange.
        """
        if not max(self.first_base, self.hidden_below) <= offset <= self.end_offset:
            raise OffsetOutOfRange(offset, start=self.start_offset, end=self.end_offset)
        if offset == self.end_offset:
            return Run(memoryview(b""), Offset(offset), Offset(offset))
        if offset == self._kept_offset:
            return self._read_kept()
        segment, position = self._place_of(offset)
        wanted = min(max(bytes_max, HEAD_BYTES), segment.size - position)
        file = segment.opened or segment.file
        data = memoryview(file.read(position, wanted))
        start = offset
        try:
            first = read_head(data, seed=self.seed)
            if not first.base_offset <= offset <= first.base_offset + first.last_delta:
                raise MalformedBatch(f"offsets {first.base_offset} to {first.last_offset}")
            start = first.base_offset
            if first.length > len(data):
                data = memoryview(file.read(position, first.length))
            verify_body(data[: first.length], first)
        except MalformedBatch as error:
            broken = BrokenBatch(position, error.reason)
            end_offset = self.end_of(self.segment_number(offset))
            damage = segment.damaged(broken, offset=offset, end_offset=end_offset, first=start)
            self.on_damage(damage)
            raise damage.fresh() from None
        heads, end, next_offset = following(data, first, self.seed)
        self._read_segment, self._read_position = segment, position + end
        self._read_offset = next_offset
        return Run(data[:end], Offset(start), Offset(next_offset), heads)

    def batches_from(self, offset: int) -> Iterator[tuple[Head, memoryview]]:
        """Returns all batches from the one that holds `offset` on, read piece by piece."""
        while offset < self.end_offset:
            run, position = self.read(offset, bytes_max=_READ_BYTES), 0
            for head in run.heads:
                yield head, run.data[position : position + head.length]
                position += head.length
            offset = run.next_offset

    def find(self, offset: int, *, bytes_max: int, limit: int) -> Stretch | None:
        """Returns where `read` would read, at most what is needed for `limit` offsets; or None: use `read`."""
        if not self.start_offset <= offset < self.end_offset:
            return None
        segment, position = self._place_of(offset)
        found = segment.stretch(position, offset, bytes_max=bytes_max, limit=limit)
        if found is not None:
            self._read_segment, self._read_position = segment, position + found.size
            self._read_offset = found.next_offset
        return found

    def _read_kept(self) -> Run:
        """Returns the last batch from memory, as it was appended; its checksums need no check."""
        self._read_segment = active = self.segments[-1]
        self._read_offset, self._read_position = self.end_offset, active.size
        assert self._kept is not None
        data = memoryview(b"".join(self._kept))
        head = head_of(HEAD.unpack_from(data))
        return Run(data, Offset(head.base_offset), self.end_offset, [head])

    def _place_of(self, offset: int) -> tuple[Segment, int]:
        segment = self._read_segment
        is_next = segment is not None and self._read_offset == offset
        if segment is not None and is_next and self._read_position < segment.size:
            return segment, self._read_position
        number, found = self.place_of_batch(offset)
        self.note_index(self.segments[number])
        return self.segments[number], found.position

    def head_at(self, offset: int) -> Head:
        """Returns the head of the batch that holds `offset`; its body is not read. DamagedBatch."""
        return self.place_of_batch(offset)[1].head

    def place_of_batch(self, offset: int) -> tuple[int, HeadPosition]:
        """Returns the number of the segment that holds `offset`, and its batch there. DamagedBatch."""
        number = self.segment_number(offset)
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
        """Returns the first offset behind a segment."""
        is_last = number + 1 == len(self.segments)
        return self.end_offset if is_last else Offset(self.segments[number + 1].base_offset)

    def forget_hint(self) -> None:
        """Let the next read search again, because segments changed."""
        self.reshapes += 1
        self._read_segment, self._kept_offset = None, -1
        for segment in self._recently_indexed:
            segment.loaded = None
        self._recently_indexed.clear()

    def segment_number(self, offset: int) -> int:
        """Returns the number of the segment that holds an offset, or would."""
        return bisect_right(self.segments, offset, key=lambda segment: segment.base_offset) - 1

    def note_index(self, segment: Segment) -> None:
        """Keep only the indexes that were used last; the active segment needs its own for appending."""
        if segment is self.segments[-1]:
            return
        if segment in self._recently_indexed:
            self._recently_indexed.remove(segment)
        self._recently_indexed.append(segment)
        if len(self._recently_indexed) > _INDEXES_LOADED_MAX:
            self._recently_indexed.pop(0).unload_index()

    def end_of_epoch(self, epoch: Epoch) -> Offset:
        """Returns the offset at which the first later epoch starts, or the end of the log if there is none."""
        later = (start.offset for start in self.epochs if start.epoch > epoch)
        return next(later, self.end_offset)

    def plan_sync(self, *, with_checkpoint: bool = False) -> SyncPlan:
        """Returns the syncs that make everything appended so far durable, old segments before new ones."""
        checkpoint = index = None
        if (
            with_checkpoint
            or self._checkpoint_changes > self._checkpoint_changes_saved
            or self._is_active_unnamed()
            or self.bytes_unchecked >= self.config.checkpoint_bytes
        ):
            checkpoint, active = self.checkpoint(), self.segments[-1]
            if active.size > _UNINDEXED_BYTES_MAX or active.has_saved_index:
                index = active.copied_index()
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
            self.segments[-1],
            index,
        )

    def _is_active_unnamed(self) -> bool:
        """Whether no checkpoint on the disk speaks of bytes of the active segment, so that its loss would
        not be missed."""
        active, saved = self.segments[-1], self.saved_checkpoint
        is_named = saved is not None and saved.segment == active.base_offset and saved.position > 0
        return active.size > 0 and not is_named

    def synced(self, plan: SyncPlan) -> None:
        """Record that a plan was run."""
        for segment, size in plan.segments:
            segment.synced_size = max(segment.synced_size, size)
        self._directory_changes_synced = plan.directory_changes
        self.durable_end = max(self.durable_end, plan.up_to)
        if plan.checkpoint is not None and plan.is_checkpoint_written:
            self.saved_checkpoint = plan.checkpoint
            self.settled_to = plan.checkpoint.segment
            self._bytes_checkpointed = plan.bytes_appended
            self._checkpoint_changes_saved = plan.checkpoint_changes

    def sync(self, *, with_checkpoint: bool = False) -> None:
        """Make everything durable before returning."""
        plan = self.plan_sync(with_checkpoint=with_checkpoint)
        plan.run()
        self.synced(plan)

    def changed_checkpoint(self) -> None:
        """Let the next sync write a checkpoint, because something changed that only a checkpoint records."""
        self._checkpoint_changes += 1

    def replace_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Make a new start or end of a synced log durable, before its files change.

        NoSpace: nothing happened.
        """
        replace_file(self.disk, self.directory, CHECKPOINT, checkpoint.to_bytes(self.seed))
        self.saved_checkpoint = checkpoint
        self.settled_to = checkpoint.segment
        self._checkpoint_changes_saved = self._checkpoint_changes
        self.first_base, self.epochs = checkpoint.start_offset, [*checkpoint.epochs]
        self.end_offset = self.durable_end = checkpoint.offset
        self.compacted_to = checkpoint.compacted_to

    def checkpoint(self) -> Checkpoint:
        """Returns a checkpoint of the present state, which is true once everything up to the end is synced."""
        active = self.segments[-1]
        return Checkpoint(
            start_offset=self.first_base,
            segment=Offset(active.base_offset),
            position=active.size,
            offset=self.end_offset,
            append_time=self.append_time,
            compacted_to=self.compacted_to,
            epochs=tuple(self.epochs),
            is_closed=self.is_closing,
            meta_end=self.meta.end,
        )

    def plan_close(self, *, with_checkpoint: bool = False) -> SyncPlan:
        """Returns what has to be synced before the files are closed, so that the next open has nothing to read.

        A checkpoint that is up to date is only written again if `with_checkpoint` asks for it.
        """
        self.is_closing = True
        is_saved = self._is_saved()
        if is_saved:
            # What has changed since is as it was before.
            self._checkpoint_changes_saved = self._checkpoint_changes
        return self.plan_sync(with_checkpoint=with_checkpoint or not is_saved)

    def close(self, *, with_checkpoint: bool = False) -> None:
        """Sync what `plan_close` names, and close the files."""
        if not self.segments:
            return
        plan = self.plan_close(with_checkpoint=with_checkpoint)
        plan.run()
        self.synced(plan)
        self.reign.closing(self)
        self.discard()

    def _is_saved(self) -> bool:
        """Whether a sync would write nothing new. Progress of meta alone does not count."""
        saved = self.saved_checkpoint
        return (
            saved is not None
            and replace(self.checkpoint(), meta_end=saved.meta_end) == saved
            and self._directory_changes == self._directory_changes_synced
            and all(segment.size == segment.synced_size for segment in self.segments)
        )

    def discard(self) -> None:
        """Close the files without a sync, because the log will be deleted or the process ends."""
        self.forget_hint()
        for segment in self.segments:
            segment.close()
        self.segments.clear()


def _ignore(_damage: DamagedBatch) -> None:
    return

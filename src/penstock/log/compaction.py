"""Key compaction: of every key only the last message stays, and offsets never change.

Two walks over the sealed segments. The first notes the last offset of each key, from where the previous run ended. The
second, oldest segment first, writes every segment anew that holds something older. A batch that keeps nothing becomes
part of the range of the batch before it, so that ranges stay adjacent; if there is none of the same epoch before it in
the segment, an empty batch takes its place, because an epoch has to go on starting where it did.

A crash leaves each segment as it was or as it should be, and either is right: the checkpoint remembers no position in
them, and an index that does not fit is recognised. The mark up to which everything is compacted moves last.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import compress
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from ..codec import Head, select
from ..codec.blobs import Bools
from ..codec.body import Body, Column
from ..codec.decode import offsets_of, open_body
from ..codec.head import BODY_BYTES_MAX, pack_head
from ..errors import PenstockError, TooLarge
from ..model import Buffer, Offset
from ..ports import Disk, File
from .index import Index
from .layout import TEMPORARY, remove_if_there
from .log import Log
from .scan import BrokenBatch, StoredBatch, walk_batches
from .segment import Segment

T = TypeVar("T")
KEYS_MAX = 1_000_000  # A short key takes some 150 bytes in the map.
STEP_BYTES = 1 << 18  # Some 5 ms, then the owner may append again.
_WRITE_BYTES = 1 << 18
_POSITION_MAX = (1 << 32) - 1  # The index keeps positions as u32.
_MS_NS = 1_000_000


class CompactionResult(NamedTuple):
    """The result of a run. `compacted_to` stays where it was if retention removed segments meanwhile."""

    segments_rewritten: int
    messages_removed: int
    bytes_freed: int
    compacted_to: Offset


class ClearResult(NamedTuple):
    """The result of a clearing."""

    segments_rewritten: int
    messages_removed: int
    bytes_freed: int


Keeps = Callable[[npt.NDArray[np.int64]], Bools]
"""Of offsets in growing order, which have to stay."""


class Syncable(Protocol):
    """A file, or the entries of a directory."""

    def sync(self) -> None: ...


Steps = Generator[int | Syncable, None, None]


def compact(log: Log, *, now_ns: int, keep_from: Offset | None = None) -> CompactionResult:
    """Compact all sealed segments at once; durable on return. NoSpace, DamagedBatch: see `compact_steps`."""
    log.sync(with_checkpoint=True)
    compacted = perform(compact_steps(log, now_ns=now_ns, keep_from=keep_from))
    log.sync()
    return compacted


def perform(steps: "Generator[int | Syncable, None, T]") -> T:
    """Run all steps at once. Returns their result."""
    while True:
        try:
            step = next(steps)
        except StopIteration as finished:
            result: T = finished.value
            return result
        if not isinstance(step, int):
            step.sync()


def compact_steps(
    log: Log,
    *,
    now_ns: int,
    keep_from: Offset | None = None,
    keys_max: int = KEYS_MAX,
    step_bytes: int = STEP_BYTES,
) -> Generator[int | Syncable, None, CompactionResult]:
    """Compact in steps. Between them the caller may use the log, for example append.

    A step yields how many bytes it read, or a file or directory that the caller has to sync, in any thread, before
    the next step. Only segments count that the last checkpoint has left behind and that end at or before `keep_from`:
    a message that may still be truncated must not displace one that stays. With more than `keys_max` keys a run ends
    early, and the next one goes on from there. It also ends when retention removes its segments. NoSpace and
    DamagedBatch leave the segment as it was.
    """
    assert not log.is_compacting, "one at a time"
    log.is_compacting = True
    try:
        run = Compaction(log, now_ns, sealed_segments(log, keep_from), step_bytes)
        yield from run.note_last_offsets(keys_max)
        yield from run.rewrite_segments()
        if run.end_offset > log.compacted_to and not run.is_overtaken:
            log.compacted_to = run.end_offset
            log.changed_checkpoint()
    finally:
        log.is_compacting = False
    return CompactionResult(
        run.segments_rewritten, run.messages_removed, run.bytes_freed, log.compacted_to
    )


class _Sealed(NamedTuple):
    """A segment that gets no more appends, and the first offset behind it."""

    segment: Segment
    end_offset: Offset


def sealed_segments(log: Log, keep_from: Offset | None) -> list[_Sealed]:
    end_offset = log.settled_to if keep_from is None else min(log.settled_to, keep_from)
    found = (_Sealed(one, log.end_of(number)) for number, one in enumerate(log.segments[:-1]))
    return [one for one in found if one.end_offset <= end_offset]


class Compaction:
    """One run. `end_offset` is how far it goes: the end of a segment, or of a batch if the map is full there."""

    def __init__(self, log: Log, now_ns: int, sealed: list[_Sealed], step_bytes: int) -> None:
        self.log, self.sealed = log, sealed
        self.end_offset = sealed[-1].end_offset if sealed else log.compacted_to
        self.segments_rewritten = self.messages_removed = self.bytes_freed = 0
        self._last_offsets: dict[bytes, int] = {}
        self._grace_end_ns = now_ns - log.config.tombstone_grace_ms * _MS_NS
        self._step_bytes, self._step_done = step_bytes, 0
        self._reshapes = log.reshapes

    @property
    def is_overtaken(self) -> bool:
        """Whether segments were removed or replaced since the run began, so that its own may be closed."""
        return self.log.reshapes != self._reshapes

    def note_last_offsets(self, keys_max: int) -> Steps:
        for one in self.sealed:
            if one.end_offset <= self.log.compacted_to:
                continue
            for batch in self._batches(one):
                if batch.head.next_offset > self.log.compacted_to:
                    self._note(batch)
                if len(self._last_offsets) >= keys_max:
                    self.end_offset = Offset(batch.head.next_offset)
                    return
                yield from self._breathe(batch.head.length)
                if self.is_overtaken:
                    return

    def _note(self, batch: StoredBatch) -> None:
        if batch.head.is_control:
            return
        body = body_of(batch)
        keys, offsets = body.blob(Column.KEYS), offsets_of(body, batch.head)
        if keys.lengths is None:
            return
        # Later messages come later, so the last one stays.
        pairs = zip(keys.items(body.count, b""), offsets, strict=True)
        self._last_offsets.update(
            pairs if keys.valid is None else compress(pairs, keys.valid.tolist())
        )

    def rewrite_segments(self) -> Steps:
        for one in self.sealed:
            if self.is_overtaken or one.segment.base_offset >= self.end_offset:
                return
            rewrite = _Rewrite(one.segment)
            try:
                yield from self._select(one, rewrite)
                if rewrite.file is not None and not self.is_overtaken:
                    yield from self._replace(rewrite)
            finally:
                rewrite.discard()

    def _select(self, one: _Sealed, rewrite: "_Rewrite") -> Steps:
        """Read a segment. The new file begins at the first batch that loses a message; without one there is no file."""
        for batch in self._batches(one):
            kept = self._kept(batch)
            if kept is not None and rewrite.file is None:
                rewrite.begin()
                yield from self._copy_front(rewrite)
                if self.is_overtaken:
                    return
            rewrite.add(batch, kept)
            yield from self._breathe(batch.head.length)
            if self.is_overtaken:
                return
        if rewrite.file is not None:
            rewrite.finish()

    def _kept(self, batch: StoredBatch) -> Bools | None:
        """Returns which messages stay, or None if all do."""
        head = batch.head
        if head.is_control or head.message_count == 0 or head.base_offset >= self.end_offset:
            return None
        body = body_of(batch)
        keys, offsets = body.blob(Column.KEYS), offsets_of(body, head)
        if keys.lengths is None:
            return None
        found = map(self._last_offsets.get, keys.items(body.count, b""), offsets)
        kept = np.fromiter(found, np.int64, body.count) <= _as_array(offsets)
        if head.append_time <= self._grace_end_ns:
            # It is the last of its key, and the messages that it deletes were here or in an older segment.
            kept &= _has_value(body)
        if keys.valid is not None:
            kept |= ~keys.valid
        return None if kept.all() else kept

    def _copy_front(self, rewrite: "_Rewrite") -> Steps:
        """Copy the batches before the first one that loses a message, as they are."""
        position, end = 0, rewrite.size
        while position < end:
            size = min(_WRITE_BYTES, end - position)
            rewrite.copy(position, size)
            position += size
            yield from self._breathe(size)
            if self.is_overtaken:
                return

    def _replace(self, rewrite: "_Rewrite") -> Steps:
        """Replace the old file by the new one, durably, before the next segment."""
        assert rewrite.file is not None
        yield rewrite.file
        if self.is_overtaken:
            return
        bytes_before = rewrite.segment.size
        rewrite.replace()
        self.log.forget_hint()
        self._reshapes = self.log.reshapes
        self.segments_rewritten += 1
        self.messages_removed += rewrite.messages_removed
        self.bytes_freed += bytes_before - rewrite.size
        yield _Directory(self.log.disk, self.log.directory)

    def _batches(self, one: _Sealed) -> Iterator[StoredBatch]:
        segment, next_offset = one.segment, one.segment.base_offset
        try:
            for batch in walk_batches(segment.file, 0, segment.size, seed=segment.seed):
                if batch.head.base_offset != next_offset:
                    raise BrokenBatch(
                        batch.position, f"it starts at offset {batch.head.base_offset}"
                    )
                next_offset = batch.head.next_offset
                yield batch
            if next_offset != one.end_offset:
                raise BrokenBatch(segment.size, f"the file ends before offset {one.end_offset}")
        except BrokenBatch as broken:
            damage = segment.damaged(broken, offset=next_offset, end_offset=one.end_offset)
            self.log.on_damage(damage)
            raise damage.fresh() from None

    def _breathe(self, size: int) -> Steps:
        self._step_done += size
        if self._step_done >= self._step_bytes:
            done, self._step_done = self._step_done, 0
            yield done


def body_of(batch: StoredBatch) -> Body:
    # Batches in the log were within the limits of their time.
    return open_body(batch.data, batch.head, size_max=BODY_BYTES_MAX)


def _as_array(offsets: Sequence[int]) -> npt.NDArray[np.int64]:
    if isinstance(offsets, range):
        return np.arange(offsets.start, offsets.stop, dtype=np.int64)
    return np.array(offsets, dtype=np.int64)


def _has_value(body: Body) -> Bools | bool:
    values = body.blob(Column.VALUES)
    return values.lengths is not None if values.valid is None else values.valid


@dataclass(frozen=True, slots=True)
class _Directory:
    disk: Disk
    path: str

    def sync(self) -> None:
        self.disk.sync_directory(self.path)


@dataclass(slots=True)
class _Pending:
    """A batch whose range may still grow over the batches behind it."""

    batch: StoredBatch
    kept: Bools | None
    last_offset: int


class _Rewrite:
    """A segment that is being written to a new file."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.file: File | None = None
        self.size = self.messages = self.messages_removed = 0
        self._path = segment.path + TEMPORARY
        self._index = Index(segment.base_offset, segment.interval_bytes)
        self._pending: _Pending | None = None
        self._unwritten: list[Buffer] = []
        self._unwritten_bytes = 0

    def begin(self) -> None:
        self.file = self.segment.disk.create(self._path)

    def copy(self, position: int, size: int) -> None:
        assert self.file is not None
        self.file.append(self.segment.file.read(position, size))

    def add(self, batch: StoredBatch, kept: Bools | None) -> None:
        """Add the next batch; `kept` says which of its messages stay."""
        count = batch.head.message_count
        left = count if kept is None else int(kept.sum())
        self.messages_removed += count - left
        pending = self._pending
        is_same_epoch = pending is not None and pending.batch.head.epoch == batch.head.epoch
        if pending is not None and left == 0 and is_same_epoch:
            pending.last_offset = batch.head.last_offset
            return
        self._settle()
        self._pending = _Pending(batch, kept, batch.head.last_offset)

    def finish(self) -> None:
        self._settle()
        self._flush()

    def _settle(self) -> None:
        """Write the pending batch: its range does not grow any more."""
        if self._pending is None:
            return
        head, pieces = _final(self._pending, self.segment.seed)
        self._pending = None
        if self.size > _POSITION_MAX:
            raise TooLarge("compacted segment in bytes", found=self.size, limit=_POSITION_MAX)
        self._index.add(head, self.size)
        self.size += head.length
        self.messages += head.message_count
        if self.file is not None:
            self._unwritten += pieces
            self._unwritten_bytes += head.length
            if self._unwritten_bytes >= _WRITE_BYTES:
                self._flush()

    def _flush(self) -> None:
        assert self.file is not None
        self.file.append(*self._unwritten)
        self._unwritten.clear()
        self._unwritten_bytes = 0

    def replace(self) -> None:
        """Replace the old file. No sync of it may be under way."""
        assert self.file is not None
        segment = self.segment
        self.file.close()
        segment.close()
        segment.disk.rename(self._path, segment.path)
        self.file = None
        segment.size = segment.synced_size = self.size
        segment.loaded, segment.last_time_known = self._index, self._index.last_time
        segment.is_index_saved = False
        segment.messages_known = self.messages
        segment.unload_index()

    def discard(self) -> None:
        """Remove the new file, unless it has replaced the old one. If that fails, the next open does it."""
        if self.file is not None:
            with suppress(PenstockError):
                self.file.close()
                remove_if_there(self.segment.disk, self._path)


def _final(pending: _Pending, seed: int) -> tuple[Head, Sequence[Buffer]]:
    batch, kept, last_offset = pending.batch, pending.kept, pending.last_offset
    if kept is None and last_offset == batch.head.last_offset:
        return batch.head, (batch.data,)
    if kept is None:
        kept = np.ones(batch.head.message_count, np.bool_)
    edited = select(batch.data, batch.head, kept, last_offset=last_offset, size_max=BODY_BYTES_MAX)
    return edited.head, (pack_head(edited.head, seed=seed), *edited.body)


class _Clearing(Compaction):
    """A compaction in which the caller says what to keep."""

    keeps: Keeps

    def _kept(self, batch: StoredBatch) -> Bools | None:
        if batch.head.is_control or batch.head.message_count == 0:
            return None
        kept = self.keeps(_as_array(offsets_of(body_of(batch), batch.head)))
        return None if kept.all() else kept


def clear(log: Log, keeps: Keeps, segments: Sequence[int], *, keep_from: Offset) -> ClearResult:
    """Write some segments, named by their first offsets, anew with the messages that stay; durable on return.

    Offsets never change. Only segments that end at or before `keep_from` count. NoSpace and DamagedBatch leave the
    segment as it was.
    """
    log.sync(with_checkpoint=True)
    chosen = [one for one in sealed_segments(log, keep_from) if one.segment.base_offset in segments]
    assert not log.is_compacting, "one at a time"
    log.is_compacting = True
    try:
        run = _Clearing(log, 0, chosen, STEP_BYTES)
        run.keeps = keeps
        perform(run.rewrite_segments())
    finally:
        log.is_compacting = False
    return ClearResult(run.segments_rewritten, run.messages_removed, run.bytes_freed)

"""Figures of a log, from the heads of its batches alone."""

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from enum import Enum

from ...codec import Head, seed_of
from ...model import LogId
from ...ports import Disk
from ..checkpoint import EpochStart
from ..layout import PARKED
from ..scan import HeadPosition, walk_around
from .audits import IndexAudit
from .survey import LogFile, find_files, note_epoch
from .verify import ReadProgress, checkpoint_of


class IndexState(Enum):
    """The state of a segment's index."""

    GOOD = "good"
    MISSING = "missing"
    NONE = "none"  # The newest segment has none while it is small.
    WRONG = "wrong"


@dataclass(slots=True)
class SegmentStats:
    """One segment. `unreadable_bytes` are in no batch whose head can be read."""

    base_offset: int
    next_offset: int
    size: int
    batches: int = 0
    messages: int = 0
    stored_bytes: int = 0
    body_bytes: int = 0
    unreadable_bytes: int = 0
    first_append_time: int | None = None
    last_append_time: int | None = None
    index: IndexState = IndexState.GOOD

    def add(self, head: Head) -> None:
        self.batches += 1
        self.messages += head.message_count
        self.stored_bytes += head.stored_size
        self.body_bytes += head.body_size
        self.next_offset = head.next_offset
        self.last_append_time = head.append_time
        if self.first_append_time is None:
            self.first_append_time = head.append_time


@dataclass(slots=True)
class LogStats:
    """A log. `start_offset` is None where nothing says what it is."""

    log_id: LogId
    start_offset: int = 0
    checkpoint_offset: int | None = None
    segments: list[SegmentStats] = field(default_factory=list)
    epochs: list[EpochStart] = field(default_factory=list)

    @property
    def end_offset(self) -> int:
        return self.segments[-1].next_offset if self.segments else self.start_offset

    def total(self, name: str) -> int:
        """Returns the sum of a field over all segments."""
        return sum(getattr(segment, name) for segment in self.segments)

    @property
    def compression_ratio(self) -> float:
        """How many times smaller bodies are stored than they are uncompressed."""
        stored = self.total("stored_bytes")
        return self.total("body_bytes") / stored if stored else 1.0

    @property
    def messages_per_batch(self) -> float:
        batches = self.total("batches")
        return self.total("messages") / batches if batches else 0.0

    @property
    def append_times(self) -> tuple[int | None, int | None]:
        """The append times of the first and of the last batch."""
        first = (segment.first_append_time for segment in self.segments)
        last = (segment.last_append_time for segment in reversed(self.segments))
        return (
            next((time for time in first if time is not None), None),
            next((time for time in last if time is not None), None),
        )


def stats_steps(
    disk: Disk, directory: str, *, log_id: LogId
) -> Generator[ReadProgress, None, LogStats]:
    """Read the heads of a log, a segment a step. Returns the figures. Bodies are for `verify_steps`."""
    seed = seed_of(log_id)
    checkpoint, _ = checkpoint_of(disk, directory, seed)
    stats = LogStats(log_id)
    files = [file for file in find_files(disk, directory, seed) if file.is_readable]
    if checkpoint is not None:
        stats.start_offset, stats.checkpoint_offset = checkpoint.start_offset, checkpoint.offset
    elif files:
        stats.start_offset = files[0].base_offset
    total_bytes, done_bytes = sum(file.size for file in files), 0
    for file in files:
        if file.path.endswith(PARKED):
            continue
        segment = _segment(disk, directory, file, seed, stats.epochs)
        if file is files[-1] and segment.index is IndexState.MISSING:
            segment.index = IndexState.NONE
        stats.segments.append(segment)
        done_bytes += file.size
        yield ReadProgress(done_bytes, total_bytes)
    return stats


def _segment(
    disk: Disk, directory: str, file: LogFile, seed: int, epochs: list[EpochStart]
) -> SegmentStats:
    found = SegmentStats(file.base_offset, file.base_offset, file.size)
    index = IndexAudit(disk, directory, file, seed)
    readable_bytes = 0
    for position, head in _heads(disk, file, seed):
        found.add(head)
        index.see(position, head)
        note_epoch(epochs, head)
        readable_bytes += head.length
    found.unreadable_bytes = file.size - readable_bytes
    if index.is_missing:
        found.index = IndexState.MISSING
    elif index.verdict():
        found.index = IndexState.WRONG
    return found


def _heads(disk: Disk, file: LogFile, seed: int) -> Iterator[HeadPosition]:
    with closing(disk.open(file.path)) as handle:
        around = walk_around(handle, 0, file.size, seed=seed, next_offset=file.base_offset)
        yield from (found for found in around if isinstance(found, HeadPosition))

"""Makes a log shorter: from the end after a crash or by another leader, or from the front by retention.

Neither may run while a `SyncPlan` of the same log does.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from ..config import OFF, LogConfig
from ..errors import NoSpace, OffsetOutOfRange
from ..model import Offset
from .checkpoint import EpochStart
from .layout import JOURNEY_INDEX, remove_if_there, remove_segment, segment_path
from .log import Log

_HOUR_NS = 3600 * 1_000_000_000


def truncate(log: Log, offset: int) -> Offset:
    """Remove everything from `offset` on, and the whole batch if it lies inside one. Returns the new end.

    The caller opens a new epoch before it appends again. A crash on the way may leave more than was asked
    for, never less, and never a hole: files go from the end backwards, each durably.
    """
    if not log.start_offset <= offset <= log.end_offset:
        raise OffsetOutOfRange(offset, start=log.start_offset, end=log.end_offset)
    if offset == log.end_offset:
        return log.end_offset
    log.sync()
    number, found = log.place_of_batch(offset)
    position, end_offset = found.position, Offset(found.head.base_offset)
    segment, later = log.segments[number], log.segments[number + 1 :]
    # The checkpoint changes before the files: one beyond the end would look like damage.
    log.replace_checkpoint(
        replace(
            log.checkpoint(),
            segment=Offset(segment.base_offset),
            position=position,
            offset=end_offset,
            # What comes at these offsets next was never compacted.
            compacted_to=min(log.compacted_to, end_offset),
            epochs=(log.epochs[0], *(one for one in log.epochs[1:] if one.offset < end_offset)),
        )
    )
    del log.segments[number + 1 :]
    log.forget_hint()
    # It may know what is cut off, and would be believed again once the log is as long as it was.
    remove_if_there(log.disk, segment_path(log.directory, segment.base_offset, JOURNEY_INDEX))
    log.disk.sync_directory(log.directory)
    for gone in reversed(later):
        gone.close()
        remove_segment(log.disk, log.directory, gone.base_offset)
        log.disk.sync_directory(log.directory)
    segment.size = segment.synced_size = position
    segment.loaded = segment.last_time_known = None
    segment.messages_known = segment.latest_known = None
    segment.file.truncate(position)
    segment.file.sync()
    return end_offset


class RetentionResult(NamedTuple):
    """What retention removed."""

    segments_removed: int
    bytes_freed: int
    start_offset: Offset


class SegmentAge(NamedTuple):
    """End, age and size of a segment, for retention."""

    next_offset: int
    size: int
    last_time: int


def retain(log: Log, *, now_ns: int, keep_from: Offset) -> RetentionResult:
    """Remove old segments as configured, but nothing at or above `keep_from`. Returns what was removed.

    On a full disk segments that need no new file are removed all the same, and those that would stay.
    """
    if _is_all_expired(log, now_ns, keep_from):
        with suppress(NoSpace):
            log.roll()
    gone = log.segments[: count_expired(log, now_ns=now_ns, keep_from=keep_from)]
    if gone:
        _drop_front(log, len(gone))
    return RetentionResult(len(gone), sum(one.size for one in gone), log.start_offset)


def has_expired(log: Log, *, now_ns: int, keep_from: Offset) -> bool:
    """Returns whether something is left that may be removed."""
    is_all = _is_all_expired(log, now_ns, keep_from)
    return is_all or count_expired(log, now_ns=now_ns, keep_from=keep_from) > 0


def count_expired(log: Log, *, now_ns: int, keep_from: int) -> int:
    """Returns how many of the oldest segments may be removed."""
    # The active segment counts for sizes too, or a log would keep a segment more than it was told to.
    active_size = log.segments[-1].size
    return expired(_aged(log), log.config, active_size, now_ns=now_ns, keep_from=keep_from)


def _aged(log: Log) -> list[SegmentAge]:
    """Returns the sealed segments. One whose end is damaged counts as young as the next one."""
    facts: list[SegmentAge] = []
    last_time = log.append_time
    for one, following in reversed([*pairwise(log.segments)]):
        last_time = one.last_time(following.base_offset) or last_time
        facts.append(SegmentAge(following.base_offset, one.size, last_time))
    return facts[::-1]


def _is_all_expired(log: Log, now_ns: int, keep_from: Offset) -> bool:
    """Whether the active segment has expired too. An idle log would otherwise never roll and remove it."""
    active, hours = log.segments[-1], log.config.retention_hours
    if active.size == 0 or hours == OFF or keep_from < log.end_offset:
        return False
    return active.index().last_time < now_ns - int(hours * _HOUR_NS)


def expired(
    facts: Sequence[SegmentAge], config: LogConfig, active_size: int, *, now_ns: int, keep_from: int
) -> int:
    """Returns how many of the sealed segments, oldest first, may be removed."""
    oldest_kept_ns = now_ns - int(config.retention_hours * _HOUR_NS)
    total = active_size + sum(fact.size for fact in facts)
    for number, fact in enumerate(facts):
        kept = len(facts) + 1 - number  # The active segment counts as well.
        by_age = config.retention_hours != OFF and fact.last_time < oldest_kept_ns
        by_size = config.retention_bytes != OFF and total - fact.size >= config.retention_bytes
        by_count = config.retention_segments != OFF and kept > config.retention_segments
        is_held = fact.next_offset > keep_from or kept <= config.retention_segments_min
        if is_held or not (by_age or by_size or by_count):
            return number
        total -= fact.size
    return len(facts)


def _drop_front(log: Log, count: int) -> None:
    """Move the start durably, then remove the files; a restart finishes what a crash leaves undone."""
    gone, start_offset = log.segments[:count], Offset(log.segments[count].base_offset)
    older = [one for one in log.epochs if one.offset <= start_offset]
    newer = [one for one in log.epochs if one.offset > start_offset]
    log.sync()
    log.replace_checkpoint(
        replace(
            log.checkpoint(),
            start_offset=start_offset,
            epochs=(EpochStart(older[-1].epoch, start_offset), *newer),
            compacted_to=max(log.compacted_to, start_offset),
        )
    )
    del log.segments[:count]
    log.forget_hint()
    for segment in gone:
        segment.close()
        remove_segment(log.disk, log.directory, segment.base_offset)
    if log.tap is not None:
        log.tap.started(log)


def release(log: Log, *, below: Offset) -> None:
    """Remove sealed segments that hold nothing at or above `below`, because a snapshot has their state."""
    count = sum(1 for following in log.segments[1:] if following.base_offset <= below)
    if count:
        _drop_front(log, count)

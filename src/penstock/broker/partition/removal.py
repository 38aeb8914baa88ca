"""Removes messages from a partition: by age and size, below an offset, and all but the last of each key."""

from collections.abc import Generator
from contextlib import suppress
from dataclasses import replace

from ...config import OFF
from ...errors import NoSpace, OffsetOutOfRange
from ...log.compaction import CompactionResult, Syncable
from ...log.compaction import compact_steps as steps_of_log
from ...log.trim import RetentionResult, has_expired, release
from ...log.trim import retain as retain_segments
from ...model import Offset
from .partition import Now, Partition
from .records import StartMoved

_HOUR_NS = 3600 * 1_000_000_000
_NO_SNAPSHOT = "no message can be removed without a snapshot of the state"


def retain(partition: Partition, now: Now, older_than_ns: int | None = None) -> RetentionResult:
    """Remove what is past retention, or older than said, but nothing that a group or a reader of files needs.

    Groups that were overtaken hear of it. NoSpace: what could go without a new snapshot is gone, and there is more.
    """
    log, usual = partition.messages, partition.messages.config
    if older_than_ns is not None:
        hours = max(older_than_ns, 1) / _HOUR_NS
        log.config = replace(usual, retention_hours=hours)
    try:
        has_room, first_kept = _cover_what_may_go(partition, now), keep_from(partition, now)
        covered = Offset(min(first_kept, partition.snapshot_covers))
        kept = retain_segments(log, now_ns=now.wall_ns, keep_from=covered)
        reach = covered if has_room else Offset(first_kept)
        is_refused = has_expired(log, now_ns=now.wall_ns, keep_from=reach)
    finally:
        log.config = usual
    if (end := partition.journal.history_end(now.wall_ns)) is not None:
        # Removing segments syncs the state log, which may speak of anything that came before it.
        log.sync()
        partition.delayed.sync()
        partition.staging.sync()
        release(partition.journal.log, below=end)
    partition.machine.dedup.forget_expired(now.wall_ns)
    partition.machine.lanes.forget_below(partition.messages.start_offset)
    with suppress(NoSpace):
        partition.overtake(now)
    if is_refused:
        raise NoSpace(reason="what is past retention cannot be removed without some room for files")
    return kept


def trim(partition: Partition, before: int, now: Now) -> Offset:
    """Begin at an offset from now on, and remove the files that hold nothing else; the new start.

    What a letter on its way or a reader of files needs stays. OffsetOutOfRange. NoSpace: nothing happened.
    """
    log = partition.messages
    if not 0 <= before <= log.end_offset:
        raise OffsetOutOfRange(before, start=log.start_offset, end=log.end_offset)
    if before == log.end_offset:
        log.roll()
    partition.delayed.sync()
    if partition.snapshot_covers < before and not partition.cover(now):
        raise NoSpace(reason=_NO_SNAPSHOT)
    pinned = (partition.machine.outbox.pinned_from(), partition.pins.lowest(now.monotonic_ns))
    start = min(before, partition.snapshot_covers, *(one for one in pinned if one is not None))
    if start > log.start_offset:
        partition.record((StartMoved(0, start),), now)
        log.hidden_below = Offset(start)
    release(log, below=Offset(start))
    partition.machine.lanes.forget_below(log.start_offset)
    with suppress(NoSpace):
        partition.overtake(now)
    return log.start_offset


def compact_steps(
    partition: Partition, now: Now
) -> Generator[int | Syncable, None, CompactionResult]:
    """Of every key keep only the last message, in the steps of the log, of some milliseconds each.

    NoSpace: what a snapshot covers is compacted, and there is more.
    """
    log, has_room = partition.messages, _cover_what_may_go(partition, now)
    first_kept = Offset(min(keep_from(partition, now), partition.snapshot_covers))
    log.sync(with_checkpoint=True)
    compacted = yield from steps_of_log(log, now_ns=now.wall_ns, keep_from=first_kept)
    log.sync()
    if not has_room and log.segments[-1].base_offset > partition.snapshot_covers:
        raise NoSpace(reason=_NO_SNAPSHOT)
    return compacted


def _cover_what_may_go(partition: Partition, now: Now) -> bool:
    """Producers, idempotency keys and arrivals are read from the messages: have them in a snapshot first.

    What removes messages syncs their log, and with it batches that name delayed ones: those go first. False: there is
    no room for a snapshot.
    """
    partition.delayed.sync()
    hours = partition.messages.config.retention_hours
    may_go: int = partition.messages.segments[-1].base_offset
    if hours != OFF and partition.messages.append_time < now.wall_ns - int(hours * _HOUR_NS):
        may_go = partition.messages.end_offset
    # What followers do not have yet may not go either, and that is not for want of room.
    is_settled = partition.is_committed
    return partition.snapshot_covers >= may_go or partition.cover(now) or not is_settled


def keep_from(partition: Partition, now: Now) -> int:
    """The first offset that must stay: a letter on its way needs it, a reader of files, or `keep_unread` a
    group that is behind."""
    pinned = (partition.machine.outbox.pinned_from(), partition.pins.lowest(now.monotonic_ns))
    first = min((int(partition.messages.end_offset), *(one for one in pinned if one is not None)))
    if partition.config.keep_unread and partition.user_groups():
        unread = max(
            partition.backlog_start(),
            _start_of_last(partition, partition.config.keep_unread_bytes_max),
        )
        first = min(first, unread)
    return first


def _start_of_last(partition: Partition, bytes_max: int) -> int:
    """Where the last segments begin that together hold at most so many bytes."""
    start, size = int(partition.messages.end_offset), 0
    for segment in reversed(partition.messages.segments):
        size += segment.size
        if size > bytes_max:
            break
        start = segment.base_offset
    return start

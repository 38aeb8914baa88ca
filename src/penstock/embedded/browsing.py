"""A queue's places, its figures, and cleaning up behind it."""

from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from ..api.arguments import whole_number
from ..api.units import Duration, datetime_ns, duration_ns
from ..broker.partition import Now, Partition
from ..errors import OffsetOutOfRange
from ..log import Log
from .stats import QueueStats, Timings

_HOUR_NS = 3600 * 1_000_000_000
# Retention counts in hours above zero; this is less than a microsecond.
_AT_ONCE_HOURS = 1e-10


class Compacted(NamedTuple):
    """What was removed from the disk."""

    segments_removed: int
    bytes_freed: int


def offset_of(log: Log, to: int | datetime) -> int:
    """Where a seek leads: to an id, or to the first message of a time or later.

    OffsetOutOfRange: there is no message with that id, and it is not the next one to be given.
    """
    if isinstance(to, datetime):
        return log.offset_at(datetime_ns(to, "seek"))
    asked = whole_number("seek: an id", to)
    if not log.start_offset < asked <= log.end_offset + 1:
        raise OffsetOutOfRange(asked, start=log.start_offset + 1, end=log.end_offset + 1, what="id")
    return asked - 1


def compact(partition: Partition, older_than: Duration | None, now: Now) -> Compacted:
    """Remove what is finished and old: past retention, or older than said."""
    log = partition.messages
    usual = log.config
    if older_than is not None:
        hours = max(duration_ns(older_than) / _HOUR_NS, _AT_ONCE_HOURS)
        log.config = replace(usual, retention_hours=hours)
    try:
        kept = partition.retain(now)
    finally:
        log.config = usual
    return Compacted(kept.segments_removed, kept.bytes_freed)


def stats_of(
    partition: Partition, group: str, timings: Timings, *, unread: int, dead_letters: int
) -> QueueStats:
    """Figures of a queue; `unread` messages are leased to the queue itself, and no caller has got them yet."""
    delivery, log = partition.group(group), partition.messages
    unfinished = delivery.progress.unfinished_below(log.end_offset)
    return QueueStats(
        put=log.end_offset,
        waiting=unfinished - delivery.leases.in_flight + unread,
        in_flight=delivery.leases.in_flight - unread,
        done=log.end_offset - unfinished,
        expired=delivery.expired_count,
        dead_letters=dead_letters,
        first_id=log.start_offset + 1,
        next_id=log.end_offset + 1,
        bytes=log.size,
        segments=len(log.segments),
        write=timings.write.percentiles(),
        age=timings.age.percentiles(),
        delayed=len(partition.machine.delays.pending),
    )

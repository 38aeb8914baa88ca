"""Looking at a queue without taking anything out of it, and cleaning up behind it."""

from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from ..api.arguments import whole_number
from ..api.leased import LeasedPart
from ..api.receipts import Place
from ..api.received import Received
from ..api.units import Duration, datetime_ns, duration_ns
from ..broker.damage import behind
from ..broker.partition import Now, Partition
from ..config import OnDamage
from ..delivery import commands
from ..delivery.offsets import each_offset
from ..errors import DamagedBatch, OffsetOutOfRange
from ..log import Log
from .stats import QueueStats, Timings

_HOUR_NS = 3600 * 1_000_000_000
# Retention counts in hours above zero; this is less than a microsecond.
_AT_ONCE_HOURS = 1e-10
NO_LEASE = 0


class Compacted(NamedTuple):
    """What was removed from the disk."""

    segments_removed: int
    bytes_freed: int


def look_ahead(partition: Partition, group: str, limit: int, now: Now) -> list[Received]:
    """What a poll would hand out next, as messages that are held by nobody."""
    delivery = partition.group(group)
    delivery.tick(now.monotonic_ns)
    if limit <= 0:
        return []
    place = Place(partition.topic, partition.number, delivery.group)
    choice = commands.choose(delivery, limit=limit, end=partition.messages.end_offset)
    found: list[Received] = []
    readable_from = 0
    for offset in each_offset(choice.offsets):
        if offset < readable_from or delivery.progress.is_finished(offset):
            continue
        try:
            opened = partition.shelf.at(offset)
        except DamagedBatch as damage:
            if found and partition.config.on_damage is OnDamage.STOP:
                break
            readable_from = behind(damage, partition.config)
            continue
        columns = opened.columns()
        if offset not in columns.offsets:
            continue
        index = columns.offsets.index(offset)
        failure = delivery.failures.get(offset)
        attempts = 0 if failure is None else failure.attempts
        row = columns.rows(index, index + 1)
        (message,) = LeasedPart(place, NO_LEASE, row, attempts).messages()
        if message.expires_at is None or message.expires_at > now.wall_ns:
            found.append(message)
    return found


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

"""Delayed messages: scheduled, listed, changed, cancelled.

A delayed message rests in the delay log of the partition that it will go to, and its offset there is its id.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from heapq import merge
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from ...api.delays import DelayedMessage, DelayPlace, DelayState, DelayStats
from ...api.publish import Delayed, Published
from ...codec import Columns, read_head
from ...codec.body import Column
from ...codec.columns import columns_of
from ...codec.decode import due_times, message_rows, offsets_of, open_body
from ...codec.head import BODY_BYTES_MAX
from ...config import OFF
from ...delivery.delay_records import DelayCancelled, DelayKind, DelayMoved
from ...delivery.offsets import each_offset
from ...errors import Damaged, DamagedBatch, NotFound, NotPending, Refused
from ...model import Message
from .batch_cache import LogCache
from .damage import behind
from .partition import Now, Partition
from .publishing import (
    PendingAppend,
    Router,
    append_all,
    expiry_or,
    routed,
    times_or,
    without_repeats,
)

_MS = 1_000_000


class _Stored(NamedTuple):
    """What the delay log has of a message; it may have been moved since. Nothing if it was cleared away."""

    message: Message | None = None
    due_ns: int = 0
    delay_key: bytes | None = None


_NOT_STORED = _Stored()


def publish_delayed(
    partitions: Sequence[Partition],
    router: Router,
    delayed: Sequence[Delayed],
    now: Now,
    *,
    to_partition: int | None = None,
) -> list[Published]:
    """Schedule messages; results in their order. A repeated idempotency key gets the first result."""
    by_partition = routed(partitions, router, [*map(routed_as, delayed)], to_partition)
    homes = (partitions, router)
    pending = [
        _prepared(partitions[number], [delayed[one] for one in indexes], now, homes)
        for number, indexes in by_partition.items()
    ]
    return append_all(pending, by_partition, now)


def routed_as(delayed: Delayed) -> Message:
    """Messages of one business key have to meet, so without a key of its own a message goes where that says."""
    if delayed.delay_key is None or delayed.message.key is not None:
        return delayed.message
    return Message(None, key=delayed.delay_key)


def _prepared(
    partition: Partition,
    delayed: Sequence[Delayed],
    now: Now,
    homes: tuple[Sequence[Partition], Router],
) -> PendingAppend:
    pending = without_repeats(partition, [one.message for one in delayed], now, homes)
    if pending.fresh:
        pending.delayed = delay_columns(partition, [delayed[index] for index in pending.fresh], now)
    return pending


def delay_columns(partition: Partition, delayed: Sequence[Delayed], now: Now) -> Columns:
    """Delayed messages for the delay log. The time to live of the topic begins when a message is due."""
    due_at = [one.due_ns for one in delayed]
    if min(due_at) <= 0:
        raise Refused("a due time is in nanoseconds since 1970, and must be above 0")
    ttl_ms = partition.config.ttl_ms
    until_ns = None if ttl_ms == OFF else [max(one, now.wall_ns) + ttl_ms * _MS for one in due_at]
    columns = columns_of([one.message for one in delayed])
    keys = [one.delay_key for one in delayed]
    return replace(
        columns,
        timestamps=times_or(columns.timestamps, now.wall_ns),
        expires_at=expiry_or(columns.expires_at, until_ns),
        due_at=due_at,
        delay_keys=None if keys.count(None) == len(keys) else keys,
    )


def cancel(partition: Partition, identity: int, now: Now, *, is_read: bool) -> DelayedMessage:
    """Never deliver it. NotPending: it has fired, or was cancelled before. Not `is_read`: the reply has no message."""
    _require_pending(partition, identity)
    found = describe(partition, identity) if is_read else _unread(partition, identity)
    partition.record((DelayCancelled(0, partition.delayed.epoch, identity),), now)
    return replace(found, state=DelayState.CANCELLED)


def reschedule(partition: Partition, identity: int, due_ns: int, now: Now) -> None:
    """Deliver it at another time. NotPending: it has fired, or was cancelled."""
    _require_pending(partition, identity)
    if due_ns <= 0:
        raise Refused("a due time is in nanoseconds since 1970, and must be above 0")
    partition.record((DelayMoved(0, partition.delayed.epoch, identity, due_ns),), now)


def _require_pending(partition: Partition, identity: int) -> None:
    state = partition.machine.delays.state_of(identity)
    if state is None:
        raise NotFound("delayed message", f"{partition.topic}/{partition.number}/{identity}")
    if state is not DelayState.PENDING:
        raise NotPending(identity, state.value)


def get(partition: Partition, identity: int) -> DelayedMessage:
    """One delayed message, also if it is finished, for as long as the delay log keeps it.

    Damaged: it cannot be read, and its topic does not skip damage.
    """
    found = describe(partition, identity)
    if isinstance(found.damage, DamagedBatch):
        behind(found.damage, partition.config)
    elif found.damage is not None:
        raise found.damage.fresh()
    return found


def describe(partition: Partition, identity: int, cache: LogCache | None = None) -> DelayedMessage:
    """One delayed message, or what is known of it if it cannot be read. NotFound: it never was, or is forgotten.

    With a `cache` of the delay log the batches that were read stay there.
    """
    state = partition.machine.delays.state_of(identity)
    if state is None:
        raise NotFound("delayed message", f"{partition.topic}/{partition.number}/{identity}")
    stored = _NOT_STORED
    damage: Damaged | None = None
    try:
        stored = _read(partition, identity, cache)
        if stored.message is None and state is DelayState.PENDING:
            damage = _lost_in_repair(partition, identity)
    except Damaged as error:
        damage = error.fresh()
    if state is DelayState.PENDING:
        return replace(_unread(partition, identity), message=stored.message, damage=damage)
    message, due_ns, key = stored
    return DelayedMessage(
        partition.topic, partition.number, identity, state, due_ns, key, message, damage
    )


def _unread(partition: Partition, identity: int) -> DelayedMessage:
    """What memory knows of a pending message."""
    delays = partition.machine.delays
    due_ns, key = delays.dues.of(identity), delays.key_of(identity)
    return DelayedMessage(
        partition.topic, partition.number, identity, DelayState.PENDING, due_ns, key, None
    )


def _read(partition: Partition, identity: int, cache: LogCache | None) -> _Stored:
    """One row of its batch. Damaged: it is there and cannot be read."""
    log = partition.delayed.log
    assert log is not None, "an id was given, so there is a log"
    if cache is None:
        run = log.read(identity, bytes_max=1)
        head = read_head(run.data, seed=log.seed)
        body = open_body(run.data, head, size_max=BODY_BYTES_MAX)
    else:
        opened = cache.at(identity)
        head, body = opened.head, opened.body
    index = bisect_left(offsets := offsets_of(body, head), identity)
    if index == len(offsets) or offsets[index] != identity:
        return _NOT_STORED
    rows = np.array([index])
    due_ns = int(due_times(body)[index])
    (key,) = body.blob(Column.DELAY_KEYS).picked(rows, body.count)
    return _Stored(message_rows(body, head, rows).message(0), due_ns, key)


def _lost_in_repair(partition: Partition, identity: int) -> DamagedBatch:
    """What to say of a pending message whose place a repair has filled, until it is due."""
    log = partition.delayed.log
    assert log is not None, "an id was given, so there is a log"
    number, (position, head) = log.place_of_batch(identity)
    return DamagedBatch(
        log.segments[number].path,
        position,
        f"a repair has filled the place of offset {identity}, which is lost",
        offset=identity,
        next_offset=head.next_offset,
    )


def places_after(partition: Partition, after: DelayPlace) -> Iterator[DelayPlace]:
    """The pending messages that come after a place, earliest first; also those that are damaged."""
    delays = partition.machine.delays
    stuck = sorted((delays.dues.of(one), one) for one in each_offset(delays.stuck))
    for due_ns, identity in merge(stuck, delays.wheel.in_order(after.due_ns)):
        if (place := DelayPlace(due_ns, partition.number, identity)) > after:
            yield place


def stats_of(partition: Partition) -> DelayStats:
    delays = partition.machine.delays
    return DelayStats(
        partition.number,
        len(delays.pending),
        delays.counts[DelayKind.DELIVERED],
        delays.counts[DelayKind.EXPIRED],
        delays.counts[DelayKind.CANCELLED],
        delays.counts[DelayKind.LOST],
        len(delays.stuck),
        None if not delays.pending else int(_next_due(partition)),
        partition.delayed.size,
        delays.wheel.levels(),
    )


def _next_due(partition: Partition) -> int:
    delays = partition.machine.delays
    first = next(delays.wheel.in_order(), None)
    return first[0] if first is not None else delays.dues.of((delays.stuck | delays.held).min())

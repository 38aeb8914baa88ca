"""Polls and answers of a group on one partition: delivery decides, the partition records."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import compress, groupby
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from pyroaring import BitMap64

from ...api.groups import PartitionLanes
from ...api.leased import LeasedMessages, LeasedPart, joined_columns
from ...api.receipts import Place
from ...codec import Origin
from ...codec.decode import message_rows
from ...delivery import (
    AnswerResult,
    Choice,
    Delivery,
    DeliveryRecord,
    FailureRules,
    LeaseRequest,
    Undeliverable,
    commands,
    lanes,
    strict,
)
from ...delivery.lanes import LaneRequest, held_by_lane
from ...delivery.offsets import next_of
from ...errors import Damaged, DamagedBatch, PenstockError, Refused, Unavailable
from ...kernel import Outcome
from ...model import MessageColumns, Priority
from .batch_cache import CachedBatch
from .damage import Skip, behind
from .delaying import ids_of
from .partition import Now, Partition

# A poll that found nothing fit to hand out looks at this many at a time, until it has found something.
_LOOK_AHEAD = 10_000
# 366 days: longer than any schedule, and far from where times overflow.
_DELAY_MS_MAX = 366 * 24 * 3600 * 1000
_NONE = BitMap64()
_ALL_FIT = Undeliverable(_NONE, _NONE)
MIXED = -1


class Wanted(NamedTuple):
    """What a member asks for in one poll."""

    member: str
    limit: int
    duration_ms: int
    # Of this lane only.
    priority: Priority | None = None
    # As many batches as hold so many bytes together are opened for it, and at least one. None: as many as it takes.
    bytes_max: int | None = None

    def after(self, found: LeasedMessages) -> "Wanted | None":
        """What is still wanted when these were found; None if that is enough."""
        limit, left = self.limit - len(found), self.bytes_max
        if limit <= 0:
            return None
        if left is not None:
            left -= found.content_bytes()
            if left <= 0:
                return None
        return self._replace(limit=limit, bytes_max=left)


class Rows(NamedTuple):
    """Messages of one batch in columns, and their priority if they all have the same; the rest: see LeasedPart."""

    priority: int
    columns: MessageColumns
    is_bare: bool = False
    delay_ids: Mapping[int, int] = {}


def poll(partition: Partition, delivery: Delivery, wanted: Wanted, now: Now) -> LeasedMessages:
    """Lease the next messages to a member: one record for all of them. None ready: nothing in it.

    DamagedBatch: the next message cannot be read any more. Where the topic says that damage is skipped, the group has
    lost it instead, and goes on behind it.
    """
    check_duration(partition, wanted.duration_ms)
    settle(partition, delivery, now)
    delivery.active_at_ns = max(delivery.active_at_ns, now.wall_ns)
    room = commands.room_for(delivery, wanted.member, partition.rules, limit=wanted.limit)
    look = room
    while room > 0:
        try:
            choice, unfit, seen, _ = _looked_at(partition, delivery, wanted, look, now.wall_ns)
        except DamagedBatch as damage:
            _skip(partition, delivery, damage, now)
            continue
        if not choice.offsets:
            delivery.hints.turns = choice.turns
            break
        # Lanes are shared out for a certain number, so a longer look at them only finishes what is unfit.
        is_look = choice.is_by_lanes and look > room
        grant = LeaseRequest(wanted.member, 0 if is_look else room, wanted.duration_ms)
        outcome = commands.lease(delivery, choice, unfit, grant, failing_of(partition, now))
        partition.record(outcome.records, now)
        delivery.hints.turns = choice.turns
        if outcome.reply.offsets:
            granted = outcome.reply
            place = Place(partition.topic, partition.number, delivery.group)
            rows = _rows_of_all(seen, granted.offsets)
            if choice.is_by_lanes:
                rows = _by_priority(rows)
            _note_served(delivery, rows, now)
            name = partition.machine.names[delivery.group]
            served = [(one.priority, one.columns) for one in rows]
            partition.times.leased(delivery, name, granted.lease, served, now.wall_ns)
            return LeasedMessages(*[_part(delivery, place, granted.lease, some) for some in rows])
        look = room if is_look else _LOOK_AHEAD
    return LeasedMessages()


def _choose(partition: Partition, delivery: Delivery, limit: int, only: Priority | None) -> Choice:
    end, by_priority = partition.messages.end_offset, partition.machine.lanes
    if delivery.is_strict:
        return strict.choose(delivery, limit=limit, end=end)
    if only is None and by_priority.is_flat and not delivery.ahead:
        return commands.choose(delivery, limit=limit, end=end)
    partition.cache.has_lanes = True
    return lanes.choose(
        delivery, by_priority, LaneRequest(limit, end, partition.rules.starvation_ms, only)
    )


def _looked_at(
    partition: Partition, delivery: Delivery, wanted: Wanted, look: int, now_ns: int
) -> "Inspected":
    """The next messages, as many as may be in memory at once; an empty choice if there are none."""
    while True:
        choice = _choose(partition, delivery, look, wanted.priority)
        if not choice.offsets:
            return Inspected(choice, _ALL_FIT, [])
        found = _inspect(partition, choice, now_ns, wanted.bytes_max)
        if not (found.is_too_large and choice.is_by_lanes):
            return found
        # Those at the end may be the urgent ones: a smaller choice is shared out anew.
        look = len(found.choice.offsets)


def _by_priority(found: list[Rows]) -> list[Rows]:
    """The most urgent ones first; in a lane they stay in their order. Whole batches, if each has one priority."""
    if all(rows.priority != MIXED for rows in found):
        return sorted(found, key=attrgetter("priority"))
    columns = joined_columns([rows.columns for rows in found])
    order = sorted(range(len(columns.offsets)), key=columns.priorities.__getitem__)
    ordered = columns.each(lambda column: [column[row] for row in order])
    ids = {offset: one for rows in found for offset, one in rows.delay_ids.items()}
    return [Rows(MIXED, ordered, delay_ids=ids)]


def _note_served(delivery: Delivery, found: list[Rows], now: Now) -> None:
    """Count what each lane handed out; the first of each part has waited longest."""
    for priority, columns, *_ in found:
        times = columns.timestamps
        groups: Iterable[tuple[int, Sequence[int]]] = ((priority, range(len(times))),)
        if priority == MIXED:
            by_lane = groupby(range(len(times)), columns.priorities.__getitem__)
            groups = ((lane, list(rows)) for lane, rows in by_lane)
        for lane, rows in groups:
            wait_ns = max(0, now.wall_ns - times[rows[0]])
            delivery.hints.averages[lane].add(len(rows), wait_ns, now.monotonic_ns)


def lane_stats(partition: Partition, delivery: Delivery, now: Now) -> PartitionLanes:
    """What each priority lane holds for a group and did for it since the start. Its times are wall times."""
    end, machine = partition.messages.end_offset, partition.machine
    held = held_by_lane(delivery, machine.lanes)
    found = []
    for one in Priority:
        waiting = machine.lanes.count(one, delivery, end)
        stats = delivery.hints.averages[one].stats(one, waiting, now.monotonic_ns)
        at_ns = stats.served_at_ns
        found.append(
            stats._replace(
                in_flight=held[one],
                enqueued_per_second=machine.enqueued[one].per_second(now.wall_ns),
                served_at_ns=None if at_ns is None else now.wall_ns - (now.monotonic_ns - at_ns),
            )
        )
    return PartitionLanes(partition.number, tuple(found))


def ready_count(partition: Partition, delivery: Delivery) -> int:
    """How many messages nobody holds and nothing keeps back, as of the last tick; some may turn out to be expired."""
    return len(delivery.ready) + delivery.unseen_below(partition.messages.end_offset)


def ready_for(partition: Partition, group: str) -> int:
    """The same for a group that may not have begun here: then everything there is."""
    if group in partition.machine.numbers:
        return ready_count(partition, partition.group(group))
    return partition.messages.end_offset - partition.messages.start_offset


def settle(partition: Partition, delivery: Delivery, now: Now) -> None:
    """Bring a group up to date with the time and with the start of the log."""
    expire(partition, delivery, now)
    start = partition.messages.start_offset
    if delivery.progress.lowest_unfinished() < start:
        partition.record(commands.overtake(delivery, start), now)


def expire(partition: Partition, delivery: Delivery, now: Now) -> None:
    """Deal with every lease whose deadline has come, so that nobody is answered on a lease that is over."""
    if delivery.tick(now.monotonic_ns):
        partition.changes.touched.add((partition, delivery.group))
    while delivery.leases.next_deadline_ns() <= delivery.now_ns:
        before = delivery.leases.in_flight
        partition.record(commands.expire_due(delivery, failing_of(partition, now)), now)
        assert delivery.leases.in_flight < before, "what is late does not stay in flight"
        _keep_order(partition, delivery, now)


def _keep_order(partition: Partition, delivery: Delivery, now: Now) -> None:
    """After a failure: where the order is strict, what is out behind it comes back."""
    if delivery.is_strict:
        partition.record(strict.hold_back(delivery), now)


class Inspected(NamedTuple):
    """A choice that can be read, what of it cannot be handed out, and the batches that it lies in.

    `is_too_large`: the choice ends early, because more would not fit into memory.
    """

    choice: Choice
    unfit: Undeliverable
    seen: list[CachedBatch]
    is_too_large: bool = False


def _inspect(partition: Partition, choice: Choice, now_ns: int, bytes_max: int | None) -> Inspected:
    """Look at the messages of a choice. Where one cannot be read, or is one too many, the choice ends before it."""
    offsets, unfit = choice.offsets, _ALL_FIT
    seen: list[CachedBatch] = []
    size = 0
    offset: int | None = offsets.min()
    last = offsets.max()
    while offset is not None:
        try:
            opened = partition.cache.at(offset)
        except DamagedBatch:
            if not seen:
                raise
            return Inspected(_cut(choice, offset), unfit, seen)
        size += opened.head.body_size
        if bytes_max is not None and size > bytes_max and seen:
            return Inspected(_cut(choice, offset), unfit, seen, is_too_large=True)
        seen.append(opened)
        unfit = _with_unfit(unfit, opened, offsets, now_ns)
        following = opened.head.next_offset
        offset = next_of(offsets, following) if last >= following else None
    return Inspected(choice, unfit, seen)


def _cut(choice: Choice, end: int) -> Choice:
    offsets = BitMap64(choice.offsets)
    offsets.remove_range(end, offsets.max() + 1)
    return replace(choice, offsets=offsets, cursor=min(choice.cursor, end))


def _with_unfit(
    unfit: Undeliverable, opened: CachedBatch, offsets: BitMap64, now_ns: int
) -> Undeliverable:
    """What one batch adds to the offsets that cannot be handed out."""
    head, late = opened.head, opened.expired(now_ns)
    if head.is_dense and not len(late):
        return unfit
    covered = BitMap64(range(head.base_offset, head.next_offset)) & offsets
    absent = _NONE if head.is_dense else covered - BitMap64(list(opened.columns().offsets))
    return Undeliverable(unfit.expired | (covered & BitMap64(late.tolist())), unfit.absent | absent)


def _rows_of_all(seen: list[CachedBatch], offsets: BitMap64) -> list[Rows]:
    # Whole batches: passing each message through a generator costs a fifth of the poll.
    found: list[Rows] = []
    for opened in seen:
        columns = _rows(opened, offsets)
        if columns is not None:
            mask = opened.head.priorities
            priority = mask.bit_length() - 1 if mask.bit_count() == 1 else MIXED
            ids = ids_of(opened.body, opened.head) if opened.head.origin is Origin.DELAY else {}
            found.append(Rows(priority, columns, opened.body.is_bare, ids))
    return found


def _rows(opened: CachedBatch, offsets: BitMap64) -> MessageColumns | None:
    """The rows of a batch whose offsets are wanted; None if there are none."""
    base, end = opened.head.base_offset, opened.head.next_offset
    count = offsets.range_cardinality(base, end)
    if not count:
        return None
    is_dense = opened.head.is_dense
    if is_dense and count == opened.head.message_count:
        return opened.columns()  # All of it: nothing is copied.
    first = next_of(offsets, base)
    # Neighbours, as most are: no set has to be made for them.
    if is_dense and offsets.contains_range(first, first + count):
        return opened.columns().rows(first - base, first - base + count)
    mine = BitMap64(range(base, end)) & offsets
    if is_dense:
        positions = np.frombuffer(mine.to_array(), dtype=np.int64) - base
        return message_rows(opened.body, opened.head, positions)
    columns = opened.columns()
    mask = [offset in mine for offset in columns.offsets]
    return columns.each(lambda column: list(compress(column, mask)))


def _part(delivery: Delivery, place: Place, lease: int, rows: Rows) -> LeasedPart:
    _, columns, is_bare, delay_ids = rows
    if not delivery.failures:
        return LeasedPart(place, lease, columns, 1, is_bare, delay_ids=delay_ids)
    attempts = list(map(delivery.attempts_of, columns.offsets))
    failed = (delivery.failures.get(offset) for offset in columns.offsets)
    errors = {
        offset: failure.error
        for offset, failure in zip(columns.offsets, failed, strict=True)
        if failure is not None
    }
    return LeasedPart(place, lease, columns, attempts, is_bare, errors, delay_ids)


def failing_of(partition: Partition, now: Now) -> FailureRules:
    return FailureRules(
        partition.rules, partition.entropy, partition.machine.outbox.next_sequence, now.wall_ns
    )


def _answer(
    partition: Partition, outcome: Outcome[DeliveryRecord, AnswerResult], now: Now
) -> AnswerResult:
    partition.record(outcome.records, now)
    return outcome.reply


def ack(
    partition: Partition, delivery: Delivery, lease: int, offsets: BitMap64, now: Now
) -> AnswerResult:
    expire(partition, delivery, now)
    return _answer(partition, commands.ack(delivery, lease, offsets), now)


def nack(
    partition: Partition,
    delivery: Delivery,
    lease: int,
    offsets: BitMap64,
    now: Now,
    *,
    error: str = "",
    delay_ms: int | None = None,
) -> AnswerResult:
    if delay_ms is not None and not 0 <= delay_ms <= _DELAY_MS_MAX:
        raise Refused(f"delay must be in 0..{_DELAY_MS_MAX} ms, got {delay_ms}")
    expire(partition, delivery, now)
    failing = failing_of(partition, now)
    outcome = commands.nack(delivery, lease, offsets, failing, error=error, delay_ms=delay_ms)
    answered = _answer(partition, outcome, now)
    _keep_order(partition, delivery, now)
    return answered


def reject(
    partition: Partition,
    delivery: Delivery,
    lease: int,
    offsets: BitMap64,
    now: Now,
    *,
    error: str = "",
) -> AnswerResult:
    expire(partition, delivery, now)
    failing = failing_of(partition, now)
    return _answer(partition, commands.reject(delivery, lease, offsets, failing, error=error), now)


def extend(
    partition: Partition,
    delivery: Delivery,
    lease: int,
    offsets: BitMap64,
    now: Now,
    *,
    duration_ms: int,
) -> AnswerResult:
    check_duration(partition, duration_ms)
    expire(partition, delivery, now)
    outcome = commands.extend(delivery, lease, offsets, duration_ms=duration_ms)
    return _answer(partition, outcome, now)


def check_duration(partition: Partition, duration_ms: int) -> None:
    """Refused, unless a lease may be that long."""
    longest = partition.rules.visibility_timeout_ms_max
    if not 0 < duration_ms <= longest:
        raise Refused(f"visibility timeout must be in 1..{longest} ms, got {duration_ms}")


def release(partition: Partition, delivery: Delivery, member: str, now: Now) -> None:
    """A member went away: what it holds is ready again at once."""
    expire(partition, delivery, now)
    partition.record(commands.release(delivery, member, failing_of(partition, now)), now)


def poll_all(
    places: Iterable[tuple[Partition, Delivery, int]], wanted: Wanted, now: Now
) -> LeasedMessages:
    """Lease messages of several partitions to a member, each for its own time in milliseconds.

    A partition that cannot be read, or has no room for the record of a lease, does not keep the others from being
    served. Its error is raised if none of them had anything.
    """
    found, some = LeasedMessages(), LeasedMessages()
    trouble: PenstockError | None = None
    rest = wanted
    for partition, delivery, duration_ms in places:
        more = rest.after(some)
        if more is None:
            break
        rest, some = more, LeasedMessages()
        try:
            some = poll(partition, delivery, rest._replace(duration_ms=duration_ms), now)
        except (Damaged, Unavailable) as error:
            trouble = trouble or error
        found += some
    if trouble is not None and not found:
        raise trouble
    return found


def _skip(partition: Partition, delivery: Delivery, damage: DamagedBatch, now: Now) -> None:
    """Record that a group has lost what a damaged batch held, and tell the ledger. The batch again: the topic stops."""
    end = behind(damage, partition.config)
    assert damage.offset is not None, "a read knows what it was to read"
    before = delivery.skipped_count
    partition.record(commands.skip(delivery, damage.offset, end), now)
    partition.damage.on_skipped(
        Skip(
            partition.topic,
            partition.number,
            partition.machine.names[delivery.group],
            damage.offset,
            end,
            delivery.skipped_count - before,
            damage.reason,
        )
    )

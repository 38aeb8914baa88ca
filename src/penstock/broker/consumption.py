"""Polls and answers of a group on one partition: delivery decides, the partition records."""

from collections.abc import Iterable, Sequence
from itertools import compress, repeat
from typing import Any, NamedTuple

from pyroaring import BitMap64

from ..delivery import Answered, Choice, Delivery, DeliveryRecord, Failing, Grant, Unfit, commands
from ..errors import DamagedBatch, Refused
from ..kernel import Outcome
from .partition import Now, Partition
from .received import Place, Received
from .shelf import Opened

# A poll that found nothing fit to hand out looks at this many at a time, until it has found something.
_LOOK_AHEAD = 10_000
# 366 days: longer than any schedule, and far from where times overflow.
_DELAY_MS_MAX = 366 * 24 * 3600 * 1000
_NONE = BitMap64()
_ALL_FIT = Unfit(_NONE, _NONE)


class Wanted(NamedTuple):
    """What a member asks for in one poll."""

    member: str
    limit: int
    duration_ms: int


def poll(partition: Partition, delivery: Delivery, wanted: Wanted, now: Now) -> list[Received]:
    """Lease the next messages to a member: one record for all of them. None ready: an empty list.

    DamagedBatch: the next message cannot be read any more; `skip_damage` goes on behind it.
    """
    _check_duration(partition, wanted.duration_ms)
    settle(partition, delivery, now)
    delivery.active_at_ns = max(delivery.active_at_ns, now.wall_ns)
    room = commands.room_for(delivery, wanted.member, partition.rules, limit=wanted.limit)
    look, grant = room, Grant(wanted.member, room, wanted.duration_ms)
    while room > 0:
        choice = commands.choose(delivery, limit=look, end=partition.messages.end_offset)
        if not choice.offsets:
            break
        choice, unfit = _inspect(partition, choice, now.wall_ns)
        outcome = commands.lease(delivery, choice, unfit, grant, failing_of(partition, now))
        partition.record(outcome.records, now)
        if outcome.reply.offsets:
            granted = outcome.reply
            return _handed_out(partition, delivery, granted.lease, granted.offsets)
        look = _LOOK_AHEAD
    return []


def ready_count(partition: Partition, delivery: Delivery) -> int:
    """How many messages nobody holds and nothing keeps back, as of the last tick; some may turn out to be expired."""
    return len(delivery.ready) + max(0, partition.messages.end_offset - delivery.cursor)


def settle(partition: Partition, delivery: Delivery, now: Now) -> None:
    """Bring a group up to date with the time and with the start of the log."""
    expire(partition, delivery, now)
    start = partition.messages.start_offset
    if delivery.progress.lowest_unfinished() < start:
        partition.record(commands.overtake(delivery, start), now)


def expire(partition: Partition, delivery: Delivery, now: Now) -> None:
    """Deal with every lease whose deadline has come, so that nobody is answered on a lease that is over."""
    delivery.tick(now.monotonic_ns)
    while delivery.leases.next_deadline_ns() <= delivery.now_ns:
        before = delivery.leases.in_flight
        partition.record(commands.expire_due(delivery, failing_of(partition, now)), now)
        assert delivery.leases.in_flight < before, "what is late does not stay in flight"


def _inspect(partition: Partition, choice: Choice, now_ns: int) -> tuple[Choice, Unfit]:
    """Look at the messages of a choice. Where one cannot be read, the choice ends before it."""
    offsets, unfit = choice.offsets, _ALL_FIT
    offset: int | None = offsets.min()
    last = offsets.max()
    while offset is not None:
        try:
            opened = partition.shelf.at(offset)
        except DamagedBatch:
            if offset == offsets.min():
                raise
            return _cut(choice, offset), unfit
        unfit = _with_unfit(unfit, opened, offsets, now_ns)
        following = opened.head.next_offset
        offset = offsets.next_set_bit(following) if last >= following else None
    return choice, unfit


def _cut(choice: Choice, end: int) -> Choice:
    offsets = BitMap64(choice.offsets)
    offsets.remove_range(end, offsets.max() + 1)
    return Choice(offsets, min(choice.cursor, end))


def _with_unfit(unfit: Unfit, opened: Opened, offsets: BitMap64, now_ns: int) -> Unfit:
    """What one batch adds to the offsets that cannot be handed out."""
    head, late = opened.head, opened.expired(now_ns)
    if head.is_dense and not len(late):
        return unfit
    covered = BitMap64(range(head.base_offset, head.next_offset)) & offsets
    absent = _NONE if head.is_dense else covered - BitMap64(list(opened.unpacked()[-1]))
    return Unfit(unfit.expired | (covered & BitMap64(late.tolist())), unfit.absent | absent)


def _handed_out(
    partition: Partition, delivery: Delivery, lease: int, offsets: BitMap64
) -> list[Received]:
    # A list that grows by whole batches: passing each message through a generator costs a fifth of the poll.
    received: list[Received] = []
    place = Place(partition.topic, partition.number, delivery.group)
    offset: int | None = offsets.min()
    last = offsets.max()
    while offset is not None:
        opened = partition.shelf.at(offset)
        base, following = opened.head.base_offset, opened.head.next_offset
        mine = BitMap64(range(base, following)) & offsets
        lists = _rows(opened.unpacked(), mine, opened.head.is_dense)
        attempts = _attempts(delivery, lists[-1])
        received += map(Received, *lists, attempts, repeat(lease), repeat(place))
        offset = offsets.next_set_bit(following) if last >= following else None
    return received


def _rows(lists: Sequence[Sequence[Any]], mine: BitMap64, is_dense: bool) -> list[Sequence[Any]]:
    """The rows of a batch whose offsets are wanted, column by column."""
    first, last = mine.min(), mine.max()
    if is_dense and last - first + 1 == len(mine):
        start = first - lists[-1][0]
        return [column[start : start + len(mine)] for column in lists]
    mask = [offset in mine for offset in lists[-1]]
    return [list(compress(column, mask)) for column in lists]


def _attempts(delivery: Delivery, offsets: Sequence[int]) -> Iterable[int]:
    if not delivery.failures:
        return repeat(1)
    return map(delivery.attempts_of, offsets)


def failing_of(partition: Partition, now: Now) -> Failing:
    return Failing(
        partition.rules, partition.entropy, partition.machine.outbox.next_sequence, now.wall_ns
    )


def _answer(partition: Partition, outcome: Outcome[DeliveryRecord, Answered], now: Now) -> Answered:
    partition.record(outcome.records, now)
    return outcome.reply


def ack(
    partition: Partition, delivery: Delivery, lease: int, offsets: BitMap64, now: Now
) -> Answered:
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
) -> Answered:
    if delay_ms is not None and not 0 <= delay_ms <= _DELAY_MS_MAX:
        raise Refused(f"delay must be in 0..{_DELAY_MS_MAX} ms, got {delay_ms}")
    expire(partition, delivery, now)
    failing = failing_of(partition, now)
    outcome = commands.nack(delivery, lease, offsets, failing, error=error, delay_ms=delay_ms)
    return _answer(partition, outcome, now)


def reject(
    partition: Partition,
    delivery: Delivery,
    lease: int,
    offsets: BitMap64,
    now: Now,
    *,
    error: str = "",
) -> Answered:
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
) -> Answered:
    _check_duration(partition, duration_ms)
    expire(partition, delivery, now)
    outcome = commands.extend(delivery, lease, offsets, duration_ms=duration_ms)
    return _answer(partition, outcome, now)


def _check_duration(partition: Partition, duration_ms: int) -> None:
    longest = partition.rules.visibility_timeout_ms_max
    if not 0 < duration_ms <= longest:
        raise Refused(f"visibility timeout must be in 1..{longest} ms, got {duration_ms}")


def release(partition: Partition, delivery: Delivery, member: str, now: Now) -> None:
    """A member went away: what it holds is ready again at once."""
    expire(partition, delivery, now)
    partition.record(commands.release(delivery, member, failing_of(partition, now)), now)


def skip_damage(partition: Partition, delivery: Delivery, now: Now) -> int:
    """Go on behind the batch that the next poll could not read; how many messages the group loses is returned."""
    settle(partition, delivery, now)
    choice = commands.choose(delivery, limit=1, end=partition.messages.end_offset)
    following = _next_readable(partition, choice)
    if following is None:
        raise Refused("the next message of the group is not damaged")
    before = delivery.skipped_count
    partition.record(commands.skip(delivery, choice.offsets.min(), following), now)
    return delivery.skipped_count - before


def _next_readable(partition: Partition, choice: Choice) -> int | None:
    """Where reading can go on if the first message of a choice is damaged; None if it is not."""
    try:
        if choice.offsets:
            partition.shelf.at(choice.offsets.min())
    except DamagedBatch as damage:
        return damage.next_offset
    return None

"""Groups as a whole: their start on every partition, reset, lag, and when they are forgotten."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from ..api.receipts import Place, write_receipt
from ..api.start import EARLIEST, Start
from ..config import OFF, Cleanup
from ..delivery import Delivery
from ..delivery.commands import commit as decide_commit
from ..delivery.commands import rewind
from ..delivery.offsets import each_offset
from ..errors import Damaged, DamagedBatch, GroupBusy, NotFound, OffsetOutOfRange, Refused
from ..groups import Mode
from ..log.counting import messages_from
from ..model import check_name
from . import consumption
from .partition import Now, Partition
from .records import ModeSet, PartitionRecord
from .start import offset_in
from .topics import INTERNAL_PREFIX

_HOUR_NS = 3600 * 1_000_000_000
_MS = 1_000_000


class Move(NamedTuple):
    """What a reset does, or would do, to one partition."""

    partition: int
    floor_before: int
    floor_after: int
    in_flight: int


class PartitionLag(NamedTuple):
    """How far a group is behind on one partition. Seconds: the age of the oldest message it has not finished."""

    topic: str
    partition: int
    floor: int
    end: int
    lag: int
    lag_seconds: float
    in_flight: int
    finished_above: int


class InFlight(NamedTuple):
    """A message in the hands of a member."""

    receipt: str
    topic: str
    partition: int
    offset: int
    member: str
    attempts: int
    first_delivery_ns: int
    last_delivery_ns: int
    deadline_in_ms: int


def check_group(name: str) -> str:
    """A name that users may give to a group."""
    found = check_name(name, "group")
    if found.startswith(INTERNAL_PREFIX):
        raise Refused(f"group names that start with {INTERNAL_PREFIX!r} are internal: {found}")
    return found


def open_everywhere(partitions: Iterable[Partition], group: str, start: Start, now: Now) -> None:
    """Make sure that a group exists on every partition; a new one begins at `start`.

    One that exists reads partitions that were added since from their first message, whatever its start was.
    """
    present = list(partitions)
    missing = [one for one in present if group not in one.machine.numbers]
    if len(missing) < len(present):
        start = EARLIEST
    starts = [offset_in(partition.messages, start) for partition in missing]
    for partition, offset in zip(missing, starts, strict=True):
        partition.open_group(group, offset, now)


def existing(partitions: Iterable[Partition], group: str) -> list[tuple[Partition, Delivery]]:
    """Where a group reads; NotFound if it does so nowhere."""
    found = [
        (partition, partition.group(group))
        for partition in partitions
        if group in partition.machine.numbers
    ]
    if not found:
        raise NotFound("group", group)
    return found


def on_all(
    partitions: Sequence[Partition], group: str, now: Now
) -> list[tuple[Partition, Delivery]]:
    """A group on every partition; a partition that it does not know yet is read from its first message."""
    if any(group not in one.machine.numbers for one in partitions):
        existing(partitions, group)
        open_everywhere(partitions, group, EARLIEST, now)
    return [(partition, partition.group(group)) for partition in partitions]


def plan_reset(partitions: Sequence[Partition], group: str, to: Start) -> list[Move]:
    """What a reset would do."""
    return [
        Move(
            partition.number,
            delivery.progress.floor,
            offset_in(partition.messages, to),
            delivery.leases.in_flight,
        )
        for partition, delivery in existing(partitions, group)
    ]


def check_reset(
    partitions: Sequence[Partition], group: str, to: Start, now: Now, *, is_forced: bool
) -> list[Move]:
    """What `reset` would do now. Refused as that would refuse it: OffsetOutOfRange, GroupBusy, NotFound."""
    for partition, delivery in existing(partitions, group):
        consumption.expire(partition, delivery, now)
    moves = plan_reset(partitions, group, to)
    in_flight = sum(move.in_flight for move in moves)
    if in_flight and not is_forced:
        raise GroupBusy(group, in_flight=in_flight)
    return moves


def reset(
    partitions: Sequence[Partition],
    group: str,
    to: Start,
    now: Now,
    *,
    is_forced: bool,
    is_mode_open: bool = False,
) -> list[Move]:
    """Start a group again from another place: receipts and attempts are void. It has to be empty, or forced.

    With `is_mode_open` the next use decides again how it reads the topic.
    """
    moves = check_reset(partitions, group, to, now, is_forced=is_forced)
    for (partition, delivery), move in zip(existing(partitions, group), moves, strict=True):
        records: list[PartitionRecord] = [*rewind(delivery, move.floor_after)]
        if is_mode_open and delivery.group in partition.machine.modes:
            records.append(ModeSet(delivery.group, Mode.UNDECIDED))
        partition.record(records, now)
    return moves


def commit(partition: Partition, delivery: Delivery, offset: int, now: Now) -> bool:
    """Finish everything below an offset, whoever holds it. False: the group was there already."""
    log = partition.messages
    if not 0 <= offset <= log.end_offset:
        raise OffsetOutOfRange(offset, start=log.start_offset, end=log.end_offset)
    consumption.settle(partition, delivery, now)
    records = decide_commit(delivery, offset)
    partition.record(records, now)
    return bool(records)


def lag_of(partition: Partition, delivery: Delivery, now: Now) -> PartitionLag:
    progress, log = delivery.progress, partition.messages
    start, end = log.start_offset, log.end_offset
    oldest, lag = max(progress.lowest_unfinished(), start), unfinished(partition, delivery)
    return PartitionLag(
        partition.topic,
        partition.number,
        progress.floor,
        end,
        lag,
        _age_s(partition, oldest, now) if lag and oldest < end else 0.0,
        delivery.leases.in_flight,
        len(progress.finished),
    )


def unfinished(partition: Partition, delivery: Delivery) -> int:
    """How many messages a group has still to finish. Where the log was compacted, offsets without one do not count."""
    progress, log = delivery.progress, partition.messages
    start, end = log.start_offset, log.end_offset
    is_compacted = partition.config.cleanup is Cleanup.COMPACT or log.compacted_to > start
    if is_compacted:
        # What came back is known one by one; what was never handed out is counted in the log.
        back = delivery.leases.in_flight + len(delivery.ready) + len(delivery.waiting)
        with suppress(Damaged):
            unseen = messages_from(log, max(delivery.cursor, start)) - len(delivery.ahead)
            return back + max(0, unseen)
    return progress.unfinished_below(end) - progress.unfinished_below(start)


def _age_s(partition: Partition, offset: int, now: Now) -> float:
    """How long ago the batch with this offset was appended; if it is damaged, the next one that can be read."""
    log = partition.messages
    while offset < log.end_offset:
        try:
            head = log.head_at(offset)
        except DamagedBatch as damage:
            offset = damage.next_offset or log.end_offset
        else:
            return max(0, now.wall_ns - head.append_time) / 1e9
    return 0.0


def in_flight(partition: Partition, delivery: Delivery) -> Iterator[InFlight]:
    """What the members hold now."""
    place = Place(partition.topic, partition.number, delivery.group)
    for lease in delivery.leases.by_number.values():
        for term in lease.terms:
            left_ms = max(0, term.deadline_ns - delivery.now_ns) // _MS
            for offset in each_offset(term.offsets):
                failure = delivery.failures.get(offset)
                attempts = delivery.attempts_of(offset)
                yield InFlight(
                    write_receipt(place, offset, attempts, lease.number),
                    partition.topic,
                    partition.number,
                    offset,
                    lease.member,
                    attempts,
                    lease.at_ns if failure is None else failure.first_delivery_ns,
                    lease.at_ns,
                    left_ms,
                )


def expire_idle(
    partitions: Sequence[Partition], now: Now, *, busy: Collection[str] = ()
) -> list[str]:
    """Forget the groups of a topic that nobody has asked for a long time on any partition; their names are returned.

    Those that are `busy` have members, which may have good reason not to ask.
    """
    hours = partitions[0].config.group_retention_hours
    if hours == OFF:
        return []
    known = {name for partition in partitions for name, _ in partition.user_groups()}
    names = sorted(known.difference(busy))
    idle = [name for name in names if _is_idle(partitions, name, now, int(hours * _HOUR_NS))]
    for name in idle:
        for partition, _ in existing(partitions, name):
            partition.close_group(name, now)
    return idle


def _is_idle(partitions: Sequence[Partition], group: str, now: Now, retention_ns: int) -> bool:
    deliveries = [delivery for _, delivery in existing(partitions, group)]
    if any(delivery.leases.in_flight for delivery in deliveries):
        return False
    active_at_ns = max(delivery.active_at_ns for delivery in deliveries)
    return now.wall_ns - active_at_ns > retention_ns

"""Polls and answers of a group on one partition: delivery decides, the partition records."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec.structs import replace
from pyroaring import BitMap64

from ...api.answers import check_delay
from ...api.groups import PartitionLanes
from ...api.leased import LeasedMessages, LeasedPart
from ...api.principals import NO_KEY
from ...api.receipts import Place
from ...codec.body import Column
from ...config import DeliveryConfig
from ...delivery import (
    AnswerResult,
    Choice,
    Delivery,
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
from ...journeys.latency import GroupName
from ...model import Priority
from .batch_cache import CachedBatch
from .damage import Skip, behind
from .partition import Now, Partition
from .rows import Rows, by_priority, rows_of

# A poll that found nothing fit to hand out looks at this many at a time, until it has found something.
_LOOK_AHEAD = 10_000
_MS = 1_000_000
_NONE = BitMap64()
_ALL_FIT = Undeliverable(_NONE, _NONE)


class Wanted(NamedTuple):
    """What a member asks for in one poll."""

    member: str
    limit: int
    # None: as long as the topic says.
    duration_ms: int | None
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


def poll(partition: Partition, delivery: Delivery, wanted: Wanted, now: Now) -> LeasedMessages:
    """Lease the next messages to a member: one record for all of them. None ready: nothing in it.

    DamagedBatch: the next message cannot be read any more. Where the topic says that damage is skipped, the group has
    lost it instead, and goes on behind it.
    """
    settle(partition, delivery, now)
    delivery.active_at_ns = max(delivery.active_at_ns, now.wall_ns)
    if delivery.commits:
        # A transaction says how far the group is. Until it ends, no member may get what lies below that.
        return LeasedMessages()
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
        duration_ms = wanted.duration_ms or partition.config.visibility_timeout_ms
        grant = LeaseRequest(wanted.member, 0 if is_look else room, duration_ms)
        outcome = commands.lease(delivery, choice, unfit, grant, failing_of(partition, now))
        partition.record(outcome.records, now)
        delivery.hints.turns = choice.turns
        if outcome.reply.offsets:
            granted = outcome.reply
            rows = rows_of(seen, granted.offsets, has_delays=partition.machine.has_delay_log)
            in_lanes = by_priority(rows)
            _note_served(delivery, in_lanes, now)
            name = partition.machine.names[delivery.group]
            owner = partition.machine.owners.get(delivery.group, NO_KEY)
            partition.times.leased(
                delivery, GroupName(name, owner), granted.lease, in_lanes, now.wall_ns
            )
            if choice.is_by_lanes:
                rows = in_lanes
            return LeasedMessages(*_parts(partition, delivery, granted.lease, rows))
        look = room if is_look else _LOOK_AHEAD
    return LeasedMessages()


def _looked_at(
    partition: Partition, delivery: Delivery, wanted: Wanted, look: int, now_ns: int
) -> "Inspected":
    """The next messages, as many as may be in memory at once; an empty choice if there are none."""
    end, by_priority = partition.messages.end_offset, partition.machine.lanes
    while True:
        if delivery.is_strict:
            choice = strict.choose(delivery, limit=look, end=end)
        elif wanted.priority is None and by_priority.is_flat and not delivery.ahead:
            choice = commands.choose(delivery, limit=look, end=end)
        else:
            partition.cache.has_lanes = True
            asked = LaneRequest(look, end, partition.rules.starvation_ms, wanted.priority)
            choice = lanes.choose(delivery, by_priority, asked)
        if not choice.offsets:
            return Inspected(choice, _ALL_FIT, [])
        found = _inspect(partition, choice, now_ns, wanted.bytes_max)
        if not (found.is_too_large and choice.is_by_lanes):
            return found
        # Those at the end may be the urgent ones: a smaller choice is shared out anew.
        look = len(found.choice.offsets)


def _note_served(delivery: Delivery, found: list[Rows], now: Now) -> None:
    """Count what each lane handed out; the first of each part has waited longest."""
    averages, now_ns = delivery.hints.averages, now.monotonic_ns
    for priority, columns, *_ in found:
        times = columns.timestamps
        averages[priority].add(len(times), max(0, now.wall_ns - times[0]), now_ns)


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
    """How many messages no consumer holds and nothing keeps back, as of the last tick; some may be expired."""
    return len(delivery.ready) + delivery.unseen_below(partition.messages.end_offset)


def ready_for(partition: Partition, group: str) -> int:
    """How many messages are ready for a group; all of the partition's, if it has not begun here."""
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
    """Deal with every lease whose deadline has come, so that no consumer is answered on a lease that is over."""
    if delivery.tick(now.monotonic_ns):
        partition.changes.touched[partition, delivery.group] = None
    while delivery.leases.next_deadline_ns() <= delivery.now_ns:
        before = delivery.leases.in_flight
        partition.record(commands.expire_due(delivery, failing_of(partition, now)), now)
        assert delivery.leases.in_flight < before, "what is late does not stay in flight"
        keep_order(partition, delivery, now)


def keep_order(partition: Partition, delivery: Delivery, now: Now) -> None:
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
        head = opened.head
        size += head.body_size
        if bytes_max is not None and size > bytes_max and seen:
            return Inspected(_cut(choice, offset), unfit, seen, is_too_large=True)
        seen.append(opened)
        following = head.base_offset + head.last_delta + 1
        if Column.EXPIRES_AT in opened.body.numbers or head.message_count <= head.last_delta:
            unfit = _with_unfit(unfit, opened, offsets, now_ns)
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


def _parts(
    partition: Partition, delivery: Delivery, lease: int, found: list[Rows]
) -> list[LeasedPart]:
    place = Place(partition.topic, partition.number, delivery.group)
    parts = []
    for _, columns, is_bare, delay_ids in found:
        attempts: int | list[int] = 1
        errors: Mapping[int, str] = {}
        if delivery.failures:
            attempts = list(map(delivery.attempts_of, columns.offsets))
            failed = zip(columns.offsets, map(delivery.failures.get, columns.offsets), strict=True)
            errors = {offset: one.error for offset, one in failed if one is not None}
        parts.append(LeasedPart(place, lease, columns, attempts, is_bare, errors, delay_ids))
    return parts


def failing_of(partition: Partition, now: Now) -> FailureRules:
    return FailureRules(
        partition.rules, partition.entropy, partition.machine.outbox.next_sequence, now.wall_ns
    )


def ack(
    partition: Partition, delivery: Delivery, lease: int, offsets: BitMap64, now: Now
) -> AnswerResult:
    expire(partition, delivery, now)
    outcome = commands.ack(delivery, lease, offsets)
    partition.record(outcome.records, now)
    return outcome.reply


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
    if delay_ms is not None:
        check_delay(delay_ms)
    expire(partition, delivery, now)
    failing = failing_of(partition, now)
    outcome = commands.nack(delivery, lease, offsets, failing, error=error, delay_ms=delay_ms)
    partition.record(outcome.records, now)
    keep_order(partition, delivery, now)
    return outcome.reply


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
    outcome = commands.reject(delivery, lease, offsets, failing, error=error)
    partition.record(outcome.records, now)
    return outcome.reply


def extend(
    partition: Partition,
    delivery: Delivery,
    lease: int,
    offsets: BitMap64,
    now: Now,
    *,
    duration_ms: int,
) -> AnswerResult:
    check_duration(partition.rules, duration_ms)
    expire(partition, delivery, now)
    outcome = commands.extend(delivery, lease, offsets, duration_ms=duration_ms)
    partition.record(outcome.records, now)
    return outcome.reply


def check_duration(rules: DeliveryConfig, duration_ms: int) -> None:
    """Refused, unless a lease may be that long."""
    longest = rules.visibility_timeout_ms_max
    if not 0 < duration_ms <= longest:
        raise Refused(f"visibility timeout must be in 1..{longest} ms, got {duration_ms}")


def poll_all(
    places: Iterable[tuple[Partition, Delivery]], wanted: Wanted, now: Now
) -> LeasedMessages:
    """Lease messages of several partitions to a member: by priority over all of them, where any has lanes.

    A partition that cannot be read, or has no room for the record of a lease, does not keep the others from being
    served. Its error is raised if none of them had anything.
    """
    served = [*places]
    if len(served) == 1:
        return poll(*served[0], wanted, now)
    asked = _Asked(_worth_a_look(served, now), wanted, now)
    # Also where nothing is ready: a lane that is empty is not one that starves.
    if wanted.priority is None and any(map(_has_lanes, served)):
        asked.poll_by_lanes(min(served, key=lambda place: (place[0].topic, place[0].number)))
    asked.poll_in_turn()
    return asked.reply()


def _worth_a_look(
    places: Iterable[tuple[Partition, Delivery]], now: Now
) -> list[tuple[Partition, Delivery]]:
    """Where something may be ready. Of many partitions most have nothing, and to poll those costs three times more.

    One partition of each topic takes note of when the group asked: a stop writes what a partition has noted.
    """
    found = []
    first: dict[str, tuple[Partition, Delivery]] = {}
    for place in places:
        partition, delivery = place
        if partition.number < first.setdefault(partition.topic, place)[0].number:
            first[partition.topic] = place
        has_new = delivery.cursor < partition.messages.end_offset
        if has_new or delivery.ready or delivery.next_due_ns() <= now.monotonic_ns:
            found.append(place)
    for _, delivery in first.values():
        delivery.active_at_ns = max(delivery.active_at_ns, now.wall_ns)
    return found


def _has_lanes(place: tuple[Partition, Delivery]) -> bool:
    partition, delivery = place
    return not delivery.is_strict and (bool(delivery.ahead) or not partition.machine.lanes.is_flat)


class _Asked:
    """A poll of several partitions: what was found so far, and what is still wanted."""

    def __init__(self, places: list[tuple[Partition, Delivery]], wanted: Wanted, now: Now) -> None:
        self.places, self._wanted, self._now = places, wanted, now
        self._left: Wanted | None = wanted
        self._found = LeasedMessages()
        self._trouble: PenstockError | None = None

    def reply(self) -> LeasedMessages:
        if self._trouble is not None and not self._found:
            raise self._trouble.fresh()
        return self._found

    def poll_in_turn(self) -> None:
        """Take what is still wanted from one partition after the other."""
        for place in self.places:
            if self._left is None:
                return
            self._take(place, self._left)

    def poll_by_lanes(self, first: tuple[Partition, Delivery]) -> None:
        """Take the share of each lane over all partitions, the most urgent lane first.

        The turns are those of the group on the first of its partitions, whichever of them this poll begins with. What
        could not be handed out after all (its time is over, or it is damaged) is made up for in turn.
        """
        keeper, kept = first
        places = [place for place in self.places if self._is_settled(place)]
        waiting = [0] * len(Priority)
        for partition, delivery in places:
            by_priority, end = partition.machine.lanes, partition.messages.end_offset
            for lane in Priority:
                waiting[lane] += by_priority.count(lane, delivery, end)
        if any(delivery.is_strict for _, delivery in places):
            return
        turns, limit = kept.hints.turns.copy(), self._wanted.limit
        starvation_ns = keeper.rules.starvation_ms * _MS
        shares = turns.share(waiting, limit, self._now.monotonic_ns, starvation_ns)
        for lane, count in zip(Priority, shares, strict=True):
            self._take_of_lane(places, lane, count)
        kept.hints.turns = turns
        if len(self._found) >= sum(waiting):
            self._left = None

    def _take_of_lane(
        self, places: list[tuple[Partition, Delivery]], lane: Priority, count: int
    ) -> None:
        """Take the share of a lane, beginning with the partition of which it was served longest ago."""
        for place in sorted(places, key=lambda one: _last_served(one[1], lane)) if count else ():
            if self._left is None or count <= 0:
                return
            count -= self._take(place, self._left._replace(limit=count, priority=lane))

    def _is_settled(self, place: tuple[Partition, Delivery]) -> bool:
        """Bring a place up to date, so that what came back counts as waiting; False if it cannot be."""
        try:
            settle(*place, self._now)
        except (Damaged, Unavailable) as error:
            self._trouble = self._trouble or error.fresh()
            return False
        return True

    def _take(self, place: tuple[Partition, Delivery], wanted: Wanted) -> int:
        """Lease messages of one place. Returns how many."""
        try:
            some = poll(*place, wanted, self._now)
        except (Damaged, Unavailable) as error:
            self._trouble = self._trouble or error.fresh()
            return 0
        if some and self._left is not None:
            self._found += some
            self._left = self._left.after(some)
        return len(some)


def _last_served(delivery: Delivery, lane: Priority) -> tuple[int, int]:
    """When a lane of a partition was last served, and how often: at one time those come first that were served less."""
    average = delivery.hints.averages[lane]
    return -1 if average.served_at_ns is None else average.served_at_ns, average.served


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

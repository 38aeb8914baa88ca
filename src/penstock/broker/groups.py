"""Groups on the partitions of topics: how they begin, what they have finished, and when they are forgotten."""

from collections.abc import Iterable, Sequence
from contextlib import suppress

from ..api.groups import Mode, PartitionLag
from ..api.start import EARLIEST, Start
from ..config import OFF, Cleanup
from ..delivery import Delivery
from ..delivery.commands import commit as decide_commit
from ..errors import (
    Damaged,
    DamagedBatch,
    ModeConflict,
    NotFound,
    OffsetOutOfRange,
    Refused,
    TooManyGroups,
)
from ..log.lookup import messages_from
from ..model import check_name
from .catalogue import Catalogue, Topic
from .partition import Now, Partition, consumption
from .partition.records import ModeSet
from .partition.slots import Partitions
from .partition.start import offset_in, visible_end
from .shares import GROUPS
from .topics import INTERNAL_PREFIX
from .walks import Slices, is_open

_HOUR_NS = 3600 * 1_000_000_000


def check_group(name: str) -> str:
    """A name that users may give to a group."""
    found = check_name(name, "group")
    if found.startswith(INTERNAL_PREFIX):
        raise Refused(f"group names that start with {INTERNAL_PREFIX!r} are internal: {found}")
    return found


def open_on(
    catalogue: Catalogue,
    topics: Iterable[str],
    group: str,
    start: Start,
    now: Now,
    *,
    mode: Mode = Mode.UNDECIDED,
) -> Slices[None]:
    """Make sure that a group exists on every partition of some topics; a new one begins at `start`, in a mode.

    TooManyGroups, ShareFull, Refused for its name, NotFound: no topic is touched.
    """
    check_group(group)
    opened = [catalogue.topic(topic) for topic in topics]
    require_room(catalogue, opened, group)
    for topic in opened:
        now = yield from open_everywhere(catalogue, topic, group, start, now, mode=mode)


def require_room(catalogue: Catalogue, topics: Iterable[Topic], group: str) -> None:
    """TooManyGroups if a group that is new on some of these topics would be one too many, there or in all; ShareFull if
    it would be for the key that asks.

    Each group costs memory and a journal on every partition, and any consumer can make one.
    """
    limits, owners = catalogue.limits, catalogue.group_owners
    new = [topic for topic in topics if not owners.knows(topic.facts.topic_id, group)]
    for topic in new:
        if owners.of_topic(topic.facts.topic_id) >= limits.groups_per_topic_max:
            raise TooManyGroups(
                group,
                f"topic {topic.facts.name}",
                limit=limits.groups_per_topic_max,
                setting="limits.groups_per_topic_max",
            )
    GROUPS.require_room(limits, catalogue.principal, (owners.counts,), of_key=len(new), in_all=0)
    if new and owners.counts.total + len(new) > limits.groups_max:
        raise TooManyGroups(
            group, "all topics together", limit=limits.groups_max, setting="limits.groups_max"
        )


def open_everywhere(
    catalogue: Catalogue,
    topic: Topic,
    group: str,
    start: Start,
    now: Now,
    *,
    mode: Mode = Mode.UNDECIDED,
) -> Slices[Now]:
    """Make sure that a group exists on every partition; a new one begins at `start`, is of the key that asks, and reads
    in a mode.

    One that exists reads partitions that were added since from their first message, whatever its start was. One that
    is not open everywhere yet goes on to begin where the first command said.
    """
    owners, key = catalogue.group_owners, (topic.facts.topic_id, group)
    is_new = not owners.knows(*key)
    if not is_new:
        start = owners.starts.get(key, EARLIEST)
    missing = [one for one in topic.partitions if group not in one.machine.numbers]
    starts: list[int] = []
    for partition in missing:
        starts.append(offset_in(partition.messages, start))
        now = yield 1
    if is_new and owners.knows(*key):
        # Another command was first.
        return (yield from open_everywhere(catalogue, topic, group, start, now, mode=mode))
    if missing:
        owners.starts[key] = start
    mode = mode if is_new else Mode.UNDECIDED
    for partition, offset in zip(missing, starts, strict=True):
        if is_open(catalogue, partition):
            owner = catalogue.principal.key_id
            partition.open_group(group, offset, now, owner=owner, mode=mode)
        now = yield 1
    owners.starts.pop(key, None)
    return now


def places_of(partitions: Iterable[Partition], group: str) -> list[tuple[Partition, Delivery]]:
    """Where a group reads; nowhere, if it is one of our own."""
    found: list[tuple[Partition, Delivery]] = []
    if group.startswith(INTERNAL_PREFIX):
        return found
    for partition in partitions:
        number = partition.machine.numbers.get(group)
        if number is not None:
            found.append((partition, partition.machine.groups[number]))
    return found


def existing(partitions: Partitions, group: str) -> list[tuple[Partition, Delivery]]:
    """Where a group reads. NotFound: nowhere; PartitionFaulty: no partition serves that could know it."""
    found = places_of(partitions, group)
    if not found:
        partitions.require_serving()
        raise NotFound("group", group)
    return found


def mode_of(places: Iterable[tuple[Partition, Delivery]]) -> Mode:
    """How a group reads a topic. Partitions that were added since its first use may not know it yet."""
    for partition, delivery in places:
        found = partition.machine.modes.get(delivery.group)
        if found is not None:
            return found
    return Mode.UNDECIDED


def require_mode(
    places: Sequence[tuple[Partition, Delivery]], group: str, mode: Mode, now: Now
) -> None:
    """Let this be how the group reads the topic. ModeConflict: it reads it in another way.

    The mode is in the journal of every partition, where it lives and dies with the progress that it protects.
    """
    for partition, delivery in places:
        if partition.machine.modes.get(delivery.group) is not mode:
            break
    else:
        return
    found = mode_of(places)
    if found not in (Mode.UNDECIDED, mode):
        raise ModeConflict(group, places[0][0].topic, asked=str(mode), mode=str(found))
    for partition, delivery in places:
        set_mode(partition, delivery, mode, now)


def set_mode(partition: Partition, delivery: Delivery, mode: Mode, now: Now) -> None:
    """Have a partition know how the group reads its topic."""
    if partition.machine.modes.get(delivery.group) is not mode:
        partition.record((ModeSet(delivery.group, mode),), now)


def require_offset(partition: Partition, offset: int) -> None:
    """OffsetOutOfRange, unless a group can have finished everything below an offset."""
    log = partition.messages
    if not 0 <= offset <= log.end_offset:
        raise OffsetOutOfRange(offset, start=log.start_offset, end=log.end_offset)


def commit(
    partition: Partition,
    group: str,
    offset: int,
    now: Now,
    *,
    member: str = "",
    lake: str = "",
) -> bool:
    """Finish everything below an offset, whichever member holds it. False: the group was there already."""
    require_offset(partition, offset)
    delivery = partition.group(group)
    consumption.settle(partition, delivery, now)
    records = decide_commit(delivery, offset, member=member, lake=lake)
    partition.record(records, now)
    return bool(records)


def lag_of(partition: Partition, delivery: Delivery, now: Now) -> PartitionLag:
    progress, log = delivery.progress, partition.messages
    # Without min_isr 2 a group may have finished what is not committed yet.
    start, end = log.start_offset, max(visible_end(log), progress.floor)
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
    start, end = log.start_offset, visible_end(log)
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


def forget_idle(partitions: Partitions, group: str, now: Now) -> bool:
    """Forget a group of a topic, if no client has asked for it for a long time on any partition. True: it was."""
    places = places_of(partitions, group)
    if not places:
        return False
    hours = partitions[0].config.group_retention_hours
    if hours == OFF or not _is_idle(places, now, int(hours * _HOUR_NS)):
        return False
    for partition, _ in places:
        partition.close_group(group, now)
    return True


def _is_idle(places: Sequence[tuple[Partition, Delivery]], now: Now, retention_ns: int) -> bool:
    deliveries = [delivery for _, delivery in places]
    if any(delivery.leases.in_flight or delivery.commits for delivery in deliveries):
        return False
    active_at_ns = max(delivery.active_at_ns for delivery in deliveries)
    return now.wall_ns - active_at_ns > retention_ns

"""Groups: opened, closed and reset, what they have finished, how far they are behind, what their members hold."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...api.command import Command, ScopedCommand
from ...api.groups import (
    CLASSIC,
    LAKE_CHARACTERS_MAX,
    CloseGroup,
    Commit,
    DescribeBacklog,
    DescribeGroup,
    DescribeLag,
    DescribeLanes,
    FaultyPartition,
    GroupBacklog,
    GroupCommand,
    GroupFacts,
    GroupLag,
    InFlight,
    ListGroups,
    ListInFlight,
    ListRebalances,
    MemberFacts,
    Mode,
    Move,
    OpenGroup,
    PartitionLag,
    PartitionLanes,
    PartitionOffset,
    PlanReset,
    Rebalance,
    ResetGroup,
    TopicLanes,
)
from ...api.receipts import Place, write_receipt
from ...api.start import EARLIEST, Start
from ...delivery import Delivery
from ...delivery.commands import rewind
from ...delivery.leases import Lease
from ...delivery.offsets import each_offset
from ...errors import GroupBusy, NotFound, Refused
from ...groups import Membership
from ...groups.classic import ClassicMember
from .. import groups
from ..classic_members import STATES, member_facts, members_seen
from ..partition import Now, Partition, consumption
from ..partition.changes import Handler
from ..partition.records import ModeSet, PartitionRecord
from ..partition.start import offset_in, visible_end
from ..topics import INTERNAL_PREFIX
from ..walks import Slices, groups_in, is_open, names_on, partitions_in, topics_covered

if TYPE_CHECKING:
    from ..node import Node

_MS = 1_000_000


def _readings(
    node: "Node", topics: Iterable[str], group: str
) -> Iterator[tuple[Partition, Delivery | None]]:
    """The partitions of some topics, each with what a group has done there, looked up when it is asked for."""
    is_internal = group.startswith(INTERNAL_PREFIX)
    for partition in partitions_in(node, topics):
        number = None if is_internal else partition.machine.numbers.get(group)
        yield partition, None if number is None else partition.machine.groups[number]


def _topics_read(node: "Node", command: GroupCommand[Any]) -> Slices[list[str]]:
    """The topics that a group reads, of what the command covers. NotFound: none; PartitionFaulty: its topic cannot be
    read."""
    covered, read = (yield from topics_covered(node, command)), dict[str, None]()
    for partition, delivery in _readings(node, sorted(covered), command.group):
        if delivery is not None:
            read[partition.topic] = None
        yield 1
    if not read:
        raise NotFound("group", command.group)
    return [*read]


def _require_empty(node: "Node", group: str, topics: Iterable[str]) -> None:
    """GroupBusy: the group has members that read one of these topics."""
    for topic in topics:
        node.assigned.require_empty(group, topic)
    node.classic.require_empty(group)


def _require_known(node: "Node", command: GroupCommand[Any], *, is_reading: bool) -> None:
    """NotFound, unless the group reads something, or has members of Kafka's classic protocol, that have committed
    nothing."""
    if not is_reading and not _classic_members(node, command):
        raise NotFound("group", command.group)


def _classic_members(node: "Node", command: GroupCommand[Any]) -> Sequence[ClassicMember]:
    return members_seen(node.classic.groups.get(command.group), command)


def open_group(node: "Node", command: OpenGroup, now: Now) -> Slices[None]:
    yield from groups.open_on(node, command.topic_names, command.group, command.start, now)


def close_group(node: "Node", command: CloseGroup, now: Now) -> Slices[None]:
    group = command.group
    read = yield from _topics_read(node, command)
    _require_empty(node, group, read)
    for partition, delivery in _readings(node, read, group):
        if delivery is not None:
            # A member may have come in the slices before.
            _require_empty(node, group, (partition.topic,))
            partition.close_group(group, now)
        now = yield 1
    node.assigned.forget([group])
    node.pollers.forget_group(group)


def list_groups(node: "Node", command: ListGroups, _now: Now) -> Slices[dict[str, list[str]]]:
    topics_of: dict[str, set[str]] = {}
    for topic in (yield from topics_covered(node, command)):
        names = yield from names_on(node, topic)
        for name in names:
            topics_of.setdefault(name, set()).add(topic)
            yield 1
    for name in [*node.classic.groups]:
        members = members_seen(node.classic.groups.get(name), command)
        for member in members:
            topics = filter(command.covers, node.open.keys() & member.topics)
            topics_of.setdefault(name, set()).update(topics)
        yield 1 + len(members)
    return {name: sorted(topics) for name, topics in sorted(topics_of.items())}


def describe_group(node: "Node", command: DescribeGroup, now: Now) -> Slices[GroupFacts]:
    group, modes, held = command.group, dict[str, Mode](), Counter[str]()
    topics_read = yield from topics_covered(node, command)
    for partition, delivery in _readings(node, topics_read, command.group):
        if delivery is not None:
            mode = partition.machine.modes.get(delivery.group, Mode.UNDECIDED)
            if modes.setdefault(partition.topic, mode) is Mode.UNDECIDED:
                modes[partition.topic] = mode
            held.update(delivery.leases.held_by)
            yield len(delivery.leases.held_by)
        now = yield 1
    _require_known(node, command, is_reading=bool(modes))
    members: list[MemberFacts] = []
    for name in [*node.assigned.membership(group).members]:
        membership = node.assigned.membership(group)
        member = membership.members.get(name)
        if member is not None and command.covers_one_of(member.topics):
            members.append(_member_facts(node, membership, name, command, now))
            yield len(member.owned)
        now = yield 1
    membership = node.assigned.membership(group)
    facts = GroupFacts(
        group,
        membership.state,
        membership.generation,
        membership.assignor.value,
        {topic: str(mode) for topic, mode in sorted(modes.items())},
        tuple(members),
        tuple(_seen(membership, command)),
        dict(sorted(held.items())),
        node.pollers.of_group(group, command.covers, now),
    )
    return _with_classic(node, command, facts, now)


def _member_facts(
    node: "Node", membership: Membership, name: str, command: DescribeGroup, now: Now
) -> MemberFacts:
    member = membership.members[name]
    silence_ns = 0 if member.waits else now.monotonic_ns - member.seen_ns
    return MemberFacts(
        name,
        member.client,
        tuple(sorted(filter(command.covers, member.topics))),
        tuple(part for part in membership.readable(name) if command.covers(part.topic)),
        tuple(part for part in membership.to_release(name) if command.covers(part.topic)),
        *node.assigned.last_poll(command.group, name),
        now.wall_ns - silence_ns,
    )


def _with_classic(node: "Node", command: DescribeGroup, facts: GroupFacts, now: Now) -> GroupFacts:
    """The facts with the members of Kafka's classic protocol, if the group has some."""
    members = _classic_members(node, command)
    if not members:
        return facts
    group = node.classic.groups[command.group]
    topics = {topic for one in members for topic in one.topics if command.covers(topic)}
    return facts._replace(
        state=STATES[group.state],
        generation=group.generation,
        assignor=group.protocol,
        modes=dict(
            sorted((facts.modes | dict.fromkeys(topics & node.open.keys(), CLASSIC)).items())
        ),
        classic_members=tuple(member_facts(one, command, now) for one in members),
    )


def list_rebalances(
    node: "Node", command: ListRebalances, _now: Now
) -> Slices[dict[str, list[Rebalance]]]:
    reading: set[str] = set()
    for partition in partitions_in(node, (yield from topics_covered(node, command))):
        reading |= node.assigned.groups.keys() & partition.machine.numbers.keys()
        yield 1
    rebalances: dict[str, list[Rebalance]] = {}
    for name in [*node.assigned.groups]:
        membership = node.assigned.groups.get(name)
        if membership is not None and name in reading:
            rebalances[name] = [*_seen(membership, command)]
        yield 1
    return rebalances


def _seen(membership: Membership, command: ScopedCommand[Any]) -> Iterator[Rebalance]:
    """Copies, which stay as they are, of the rebalances that had to do with topics which the command covers.

    Of those they have the members that read such a topic, and the partitions of such topics.
    """
    for rebalance in membership.rebalances:
        members = tuple(
            name for name in rebalance.members if command.covers_one_of(rebalance.topics[name])
        )
        passed = tuple(one for one in rebalance.passed if command.covers(one.partition.topic))
        if members or passed or command.covers_all:
            yield Rebalance(
                rebalance.generation,
                rebalance.cause,
                members,
                rebalance.wall_ns,
                rebalance.began_ns,
                passed,
                rebalance.forced,
                rebalance.took_ms,
            )


def describe_lag(node: "Node", command: DescribeLag, now: Now) -> Slices[GroupLag]:
    lags: list[PartitionLag] = []
    topics: set[str] = set()
    topics_read = yield from topics_covered(node, command)
    for partition, delivery in _readings(node, topics_read, command.group):
        if delivery is not None:
            lags.append(groups.lag_of(partition, delivery, now))
            topics.add(partition.topic)
        now = yield 1
    _require_known(node, command, is_reading=bool(lags))
    return GroupLag(
        lags,
        [
            FaultyPartition(fault.topic, fault.number, fault.path, fault.reason)
            for fault in node.faults()
            if fault.topic in topics
        ],
    )


def describe_backlog(node: "Node", command: DescribeBacklog, _now: Now) -> GroupBacklog:
    partition = node.partition(command.topic, command.partition)
    delivery, log = partition.group(command.group), partition.messages
    return GroupBacklog(
        log.start_offset,
        visible_end(log),
        log.size,
        len(log.segments),
        delivery.progress.unfinished_below(visible_end(log)),
        delivery.leases.in_flight,
        delivery.expired_count,
        len(partition.machine.delays.pending),
    )


def describe_lanes(node: "Node", command: DescribeLanes, now: Now) -> Slices[dict[str, TopicLanes]]:
    lanes: dict[str, TopicLanes] = {}
    for topic in sorted((yield from topics_covered(node, command))):
        unfinished = Counter[str]()
        for partition in partitions_in(node, [topic]):
            for name, delivery in groups_in(node, partition, command.group):
                unfinished[name] += groups.unfinished(partition, delivery)
                yield 1
            now = yield 1
        if not unfinished:
            continue
        # Of the groups that are furthest behind, the first by name.
        furthest = min(unfinished, key=lambda name: (-unfinished[name], name))
        stats: list[PartitionLanes] = []
        for partition in partitions_in(node, [topic]):
            number = partition.machine.numbers.get(furthest)
            if number is not None:
                delivery = partition.machine.groups[number]
                stats.append(consumption.lane_stats(partition, delivery, now))
            now = yield 1
        lanes[topic] = TopicLanes(furthest, stats)
    if command.group is not None and not lanes:
        raise NotFound("group", command.group[:60])
    return lanes


def list_in_flight(node: "Node", command: ListInFlight, now: Now) -> Slices[list[InFlight]]:
    in_flight: list[InFlight] = []
    is_reading = False
    topics_read = yield from topics_covered(node, command)
    for partition, delivery in _readings(node, topics_read, command.group):
        is_reading = is_reading or delivery is not None
        leases = {} if delivery is None else delivery.leases.by_number
        for number in [*leases]:
            if delivery is not None and number in leases and is_open(node, partition):
                before = len(in_flight)
                in_flight += _in_flight(partition, delivery, leases[number], now)
                now = yield len(in_flight) - before
        now = yield 1
    _require_known(node, command, is_reading=is_reading)
    return in_flight


def _in_flight(
    partition: Partition, delivery: Delivery, lease: Lease, now: Now
) -> Iterator[InFlight]:
    place = Place(partition.topic, partition.number, delivery.group)
    for term in lease.terms:
        left_ms = max(0, term.deadline_ns - now.monotonic_ns) // _MS
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


def plan_reset(node: "Node", command: PlanReset, _now: Now) -> Slices[dict[str, list[Move]]]:
    moves: dict[str, list[Move]] = {}
    for partition in (yield from _partitions_to_reset(node, command)):
        if (delivery := _reading(node, partition, command.group)) is not None:
            move = _move(partition, delivery, command.to)
            moves.setdefault(partition.topic, []).append(move)
        yield 1
    return moves


def _partitions_to_reset(node: "Node", command: PlanReset | ResetGroup) -> Slices[list[Partition]]:
    """By topic and number. NotFound: there is no such partition, or the group does not read it; Refused: it is not said
    of which topic."""
    wanted = None if command.partitions is None else set(command.partitions)
    if wanted is not None and command.topic is None:
        raise Refused("partitions are of one topic: say which", field="topic")
    if wanted is not None and not wanted:
        raise Refused("partitions is empty", field="partitions")
    partitions: list[Partition] = []
    for partition, delivery in _readings(
        node, (yield from _topics_read(node, command)), command.group
    ):
        if delivery is not None and (wanted is None or partition.number in wanted):
            partitions.append(partition)
        yield 1
    if wanted is not None and command.topic is not None:
        for number in sorted(wanted.difference([partition.number for partition in partitions])):
            node.partition(command.topic, number)
            raise NotFound("group", f"{command.group} on {command.topic}/{number}")
    return partitions


def _reading(node: "Node", partition: Partition, group: str) -> Delivery | None:
    """What a group has done on a partition; None if one of the two went in the slices before."""
    number = partition.machine.numbers.get(group) if is_open(node, partition) else None
    return None if number is None else partition.machine.groups[number]


def _move(partition: Partition, delivery: Delivery, to: Start) -> Move:
    return Move(
        partition.number,
        delivery.progress.floor,
        offset_in(partition.messages, to),
        delivery.leases.in_flight,
    )


def reset_group(node: "Node", command: ResetGroup, now: Now) -> Slices[dict[str, list[Move]]]:
    group = command.group
    partitions = yield from _partitions_to_reset(node, command)
    if not command.is_forced:
        _require_empty(node, group, {partition.topic for partition in partitions})
    in_flight = commits = 0
    for partition in partitions:
        if (delivery := _reading(node, partition, group)) is not None:
            consumption.expire(partition, delivery, now)
            in_flight += _move(partition, delivery, command.to).in_flight
            commits += len(delivery.commits)
        now = yield 1
    if (in_flight or commits) and not command.is_forced:
        raise GroupBusy(group, in_flight=in_flight)
    moves: dict[str, list[Move]] = {}
    for partition in partitions:
        if (delivery := _reading(node, partition, group)) is not None:
            move = _reset(node, command, partition, delivery, now)
            moves.setdefault(partition.topic, []).append(move)
        now = yield 1
    return moves


def _reset(
    node: "Node", command: ResetGroup, partition: Partition, delivery: Delivery, now: Now
) -> Move:
    """GroupBusy: a member has come in the slices before."""
    group, move = command.group, _move(partition, delivery, command.to)
    if not command.is_forced:
        _require_empty(node, group, (partition.topic,))
        if move.in_flight or delivery.commits:
            raise GroupBusy(group, in_flight=move.in_flight)
    records: list[PartitionRecord] = [*rewind(delivery, move.floor_after)]
    is_mode_open = command.partitions is None and not node.assigned.members_of(
        group, partition.topic
    )
    if is_mode_open and delivery.group in partition.machine.modes:
        records.append(ModeSet(delivery.group, Mode.UNDECIDED))
    partition.record(records, now)
    return move


def commit(node: "Node", command: Commit, now: Now) -> Slices[bool]:
    if len(command.lake) > LAKE_CHARACTERS_MAX:
        raise Refused(f"lake has at most {LAKE_CHARACTERS_MAX} characters", field="lake")
    group, has_moved = command.group, False
    for place in command.offsets:
        require_offsets(node, (place,))
        node.assigned.require_unowned(group, place.topic, place.partition)
        now = yield 1
    if command.opens_group:
        yield from groups.open_on(node, command.topics(), group, EARLIEST, now)
    for topic, number, offset in command.offsets:
        # In the slices before, partitions may have gone, or got an owner.
        if node.open.get(topic) and (partition := node.open[topic].partitions.serving_at(number)):
            node.assigned.require_unowned(group, topic, number)
            has_moved |= groups.commit(partition, group, offset, now, lake=command.lake)
        now = yield 1
    return has_moved


def require_offsets(node: "Node", offsets: Sequence[PartitionOffset]) -> None:
    """Refuse a commit before any part of it is done: NotFound, PartitionFaulty, OffsetOutOfRange."""
    for topic, partition, offset in offsets:
        groups.require_offset(node.partition(topic, partition), offset)


HANDLERS: Mapping[type[Command[Any]], Handler] = {
    OpenGroup: open_group,
    CloseGroup: close_group,
    ListGroups: list_groups,
    DescribeGroup: describe_group,
    ListRebalances: list_rebalances,
    DescribeLag: describe_lag,
    DescribeBacklog: describe_backlog,
    DescribeLanes: describe_lanes,
    ListInFlight: list_in_flight,
    PlanReset: plan_reset,
    ResetGroup: reset_group,
    Commit: commit,
}

"""Groups: opened, closed and reset, what they have finished, how far they are behind, what their members hold."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
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
from ...delivery.offsets import each_offset
from ...errors import GroupBusy, NotFound, Refused
from ...groups import Membership
from ...groups.classic import ClassicMember
from .. import groups
from ..classic_members import STATES, member_facts, members_seen
from ..partition import Now, Partition, consumption
from ..partition.changes import Handler
from ..partition.records import ModeSet, PartitionRecord
from ..partition.slots import Partitions
from ..partition.start import offset_in, visible_end

if TYPE_CHECKING:
    from ..node import Node

_MS = 1_000_000

Places = Sequence[tuple[Partition, Delivery]]


def _partitions(node: "Node", command: ScopedCommand[Any]) -> Partitions:
    """The partitions that a command covers, without faulty ones.

    NotFound: there is no topic of the name given. PartitionFaulty: none of its partitions serves.
    """
    if command.topic is not None:
        partitions = node.topic(command.topic).partitions
        partitions.require_serving()
        return partitions
    return Partitions([one for one in node.partitions() if command.covers(one.topic)])


def _places(node: "Node", command: GroupCommand[Any]) -> Places:
    """Where a group reads, of what the command covers. NotFound: nowhere; PartitionFaulty: its topic cannot be read."""
    return groups.existing(_partitions(node, command), command.group)


def _places_known(node: "Node", command: GroupCommand[Any]) -> Places:
    """Where a group reads. Nowhere yet, if members of Kafka's classic protocol have committed nothing. NotFound."""
    if _classic_members(node, command):
        return groups.places_of(_partitions(node, command), command.group)
    return _places(node, command)


def _classic_members(node: "Node", command: GroupCommand[Any]) -> Sequence[ClassicMember]:
    return members_seen(node.classic.groups.get(command.group), command)


def _by_topic(places: Places) -> dict[str, Places]:
    names = sorted({partition.topic for partition, _ in places})
    return {name: [one for one in places if one[0].topic == name] for name in names}


def open_group(node: "Node", command: OpenGroup, now: Now) -> None:
    groups.open_on(node, command.topic_names, command.group, command.start, now)


def close_group(node: "Node", command: CloseGroup, now: Now) -> None:
    places = _places(node, command)
    for topic in _by_topic(places):
        node.assigned.require_empty(command.group, topic)
    node.classic.require_empty(command.group)
    for partition, _ in places:
        partition.close_group(command.group, now)
    node.assigned.forget([command.group])
    node.pollers.forget_group(command.group)


def list_groups(node: "Node", command: ListGroups, _now: Now) -> dict[str, list[str]]:
    found: dict[str, set[str]] = {}
    for partition in _partitions(node, command):
        for name, _ in partition.user_groups():
            found.setdefault(name, set()).add(partition.topic)
    for name, group in node.classic.groups.items():
        for member in members_seen(group, command):
            topics = filter(command.covers, node.open.keys() & member.topics)
            found.setdefault(name, set()).update(topics)
    return {name: sorted(topics) for name, topics in sorted(found.items())}


def describe_group(node: "Node", command: DescribeGroup, now: Now) -> GroupFacts:
    places = _places_known(node, command)
    membership = node.assigned.membership(command.group)
    held = Counter[str]()
    for _, delivery in places:
        held.update(delivery.leases.held_by)
    facts = GroupFacts(
        command.group,
        membership.state,
        membership.generation,
        membership.assignor.value,
        {topic: str(groups.mode_of(some)) for topic, some in _by_topic(places).items()},
        tuple(
            MemberFacts(
                one.id,
                one.client,
                tuple(sorted(filter(command.covers, one.topics))),
                tuple(part for part in membership.readable(one.id) if command.covers(part.topic)),
                tuple(part for part in membership.to_release(one.id) if command.covers(part.topic)),
                *node.assigned.last_poll(command.group, one.id),
            )
            for one in membership.members.values()
            if command.covers_one_of(one.topics)
        ),
        tuple(_seen(membership, command)),
        dict(sorted(held.items())),
        node.pollers.of_group(command.group, command.covers, now),
    )
    return _with_classic(node, command, facts)


def _with_classic(node: "Node", command: DescribeGroup, facts: GroupFacts) -> GroupFacts:
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
        classic_members=tuple(member_facts(one, command) for one in members),
    )


def list_rebalances(node: "Node", command: ListRebalances, _now: Now) -> dict[str, list[Rebalance]]:
    reading = {name for one in _partitions(node, command) for name, _ in one.user_groups()}
    return {
        name: [*_seen(membership, command)]
        for name, membership in node.assigned.groups.items()
        if name in reading
    }


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


def describe_lag(node: "Node", command: DescribeLag, now: Now) -> GroupLag:
    places = _places_known(node, command)
    topics = {partition.topic for partition, _ in places}
    return GroupLag(
        [groups.lag_of(partition, delivery, now) for partition, delivery in places],
        [
            FaultyPartition(one.topic, one.number, one.path, one.reason)
            for one in node.faults()
            if one.topic in topics
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


def describe_lanes(node: "Node", command: DescribeLanes, now: Now) -> dict[str, TopicLanes]:
    by_topic: dict[str, dict[str, list[tuple[Partition, Delivery]]]] = {}
    for partition in _partitions(node, command):
        for name, delivery in partition.user_groups():
            if command.group in (None, name):
                readers = by_topic.setdefault(partition.topic, {})
                readers.setdefault(name, []).append((partition, delivery))
    if command.group is not None and not by_topic:
        raise NotFound("group", command.group[:60])
    found: dict[str, TopicLanes] = {}
    for topic, readers in sorted(by_topic.items()):
        name = max(sorted(readers), key=lambda one: _unfinished(readers[one]))
        lanes = [consumption.lane_stats(*place, now) for place in readers[name]]
        found[topic] = TopicLanes(name, lanes)
    return found


def _unfinished(places: Places) -> int:
    return sum(groups.unfinished(*place) for place in places)


def list_in_flight(node: "Node", command: ListInFlight, now: Now) -> list[InFlight]:
    return [one for place in _places_known(node, command) for one in _in_flight(*place, now)]


def _in_flight(partition: Partition, delivery: Delivery, now: Now) -> Iterator[InFlight]:
    place = Place(partition.topic, partition.number, delivery.group)
    for lease in delivery.leases.by_number.values():
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


def plan_reset(node: "Node", command: PlanReset, _now: Now) -> dict[str, list[Move]]:
    return _planned(_places_to_reset(node, command), command.to)


def _places_to_reset(node: "Node", command: PlanReset | ResetGroup) -> Places:
    """NotFound: there is no such partition, or the group does not read it; Refused: it is not said of which topic."""
    places = _places(node, command)
    if command.partitions is None:
        return places
    if command.topic is None:
        raise Refused("partitions are of one topic: say which", field="topic")
    if not command.partitions:
        raise Refused("partitions is empty", field="partitions")
    by_number = {partition.number: (partition, delivery) for partition, delivery in places}
    for number in command.partitions:
        if node.partition(command.topic, number).number not in by_number:
            raise NotFound("group", f"{command.group} on {command.topic}/{number}")
    return [by_number[number] for number in sorted(set(command.partitions))]


def _planned(places: Places, to: Start) -> dict[str, list[Move]]:
    return {
        topic: [
            Move(
                partition.number,
                delivery.progress.floor,
                offset_in(partition.messages, to),
                delivery.leases.in_flight,
            )
            for partition, delivery in some
        ]
        for topic, some in _by_topic(places).items()
    }


def reset_group(node: "Node", command: ResetGroup, now: Now) -> dict[str, list[Move]]:
    group, places = command.group, _places_to_reset(node, command)
    topics = _by_topic(places)
    if not command.is_forced:
        for topic in topics:
            node.assigned.require_empty(group, topic)
        node.classic.require_empty(group)
    for partition, delivery in places:
        consumption.expire(partition, delivery, now)
    moves = _planned(places, command.to)
    in_flight = sum(one.in_flight for some in moves.values() for one in some)
    is_held = in_flight or any(delivery.commits for _, delivery in places)
    if is_held and not command.is_forced:
        raise GroupBusy(group, in_flight=in_flight)
    for topic, some in topics.items():
        is_whole = command.partitions is None
        is_mode_open = is_whole and not node.assigned.members_of(group, topic)
        for (partition, delivery), move in zip(some, moves[topic], strict=True):
            records: list[PartitionRecord] = [*rewind(delivery, move.floor_after)]
            if is_mode_open and delivery.group in partition.machine.modes:
                records.append(ModeSet(delivery.group, Mode.UNDECIDED))
            partition.record(records, now)
    return moves


def commit(node: "Node", command: Commit, now: Now) -> bool:
    if len(command.lake) > LAKE_CHARACTERS_MAX:
        raise Refused(f"lake has at most {LAKE_CHARACTERS_MAX} characters", field="lake")
    require_offsets(node, command.offsets)
    for topic, partition, _ in command.offsets:
        node.assigned.require_unowned(command.group, topic, partition)
    if command.opens_group:
        groups.open_on(node, command.topics(), command.group, EARLIEST, now)
    moved = [
        groups.commit(
            node.partition(topic, partition), command.group, offset, now, lake=command.lake
        )
        for topic, partition, offset in command.offsets
    ]
    return any(moved)


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

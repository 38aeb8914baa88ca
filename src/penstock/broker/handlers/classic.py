"""Groups whose members assign partitions themselves, and offsets that clients commit for a group."""

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ...api.classic import (
    AwaitJoin,
    ClassicGroupFacts,
    CommitOffsets,
    CommittedOffset,
    DescribeClassic,
    HeartbeatClassic,
    JoinClassic,
    JoinedClassic,
    JoinTicket,
    LeaveClassic,
    ListClassic,
    ListCommitted,
    Pending,
    SyncClassic,
)
from ...api.command import Command, ScopedCommand
from ...api.groups import Mode
from ...delivery.commands import commit as decide_commit
from ...delivery.commands import rewind
from ...errors import Fatal, Forbidden, NotFound, PenstockError
from ...groups.classic import ClassicMember, ClassicState, ProtocolConflict
from ...groups.commands import require_current, require_owner
from ...model import TopicPartition
from .. import groups
from ..partition import Now, Partition, consumption
from ..partition.changes import Handler
from ..partition.records import CommitNoted, PartitionRecord
from ..topics import INTERNAL_PREFIX
from ..walks import Slices, names_covered, names_on, partitions_in

if TYPE_CHECKING:
    from ..node import Node


_NEVER_COMMITTED = -1


def join(node: "Node", command: JoinClassic, now: Now) -> JoinTicket:
    _require_reach(node, command.group, _members(node, command.group))
    if node.assigned.membership(command.group).members:
        raise ProtocolConflict(command.group, "the broker assigns its partitions")
    for name in command.topic_names:
        topic = node.open.get(name)
        serving = () if topic is None else topic.partitions.serving
        if groups.mode_of(groups.places_of(serving, command.group)) is Mode.SHARED:
            raise ProtocolConflict(command.group, f"its members share {name}")
    return node.classic.join(command, now)


def await_join(node: "Node", command: AwaitJoin, _now: Now) -> JoinedClassic | Pending:
    _require_reach(node, command.group, _members(node, command.group))
    return node.classic.await_join(command)


def sync(node: "Node", command: SyncClassic, now: Now) -> bytes | Pending:
    _require_reach(node, command.group, _members(node, command.group))
    return node.classic.sync(command, now)


def heartbeat(node: "Node", command: HeartbeatClassic, now: Now) -> None:
    node.classic.heartbeat(command, now)


def leave(node: "Node", command: LeaveClassic, now: Now) -> None:
    """By its instance a member leaves without its id, by which the node authorises."""
    members = _members(node, command.group)
    named = [one for one in members if one.instance and one.instance == command.instance]
    _require_reach(node, command.group, named)
    node.classic.leave(command, now)


def _members(node: "Node", name: str) -> Collection[ClassicMember]:
    group = node.classic.groups.get(name)
    return () if group is None else group.members.values()


def _require_reach(node: "Node", group: str, members: Iterable[ClassicMember]) -> None:
    """Forbidden, unless the principal reaches every topic of these members.

    A round asks it for all members of the group, because the leader is told what they read, and assigns it.
    """
    principal = node.principal
    if principal.prefixes and not all(
        principal.reaches(topic) for one in members for topic in one.topics
    ):
        raise Forbidden(
            f"{principal.name} does not reach the topics of members of group {group[:60]}",
            principal=principal.name,
        )


def describe(node: "Node", command: DescribeClassic, _now: Now) -> Slices[ClassicGroupFacts]:
    group = command.group
    if not _has_member(node, command, group):
        topics = yield from _topics_of(node, group, command)
        if not topics or group.startswith(INTERNAL_PREFIX):
            raise NotFound("group", group)
    return _facts(node, group, command)


def _topics_of(node: "Node", group: str, command: ScopedCommand[Any]) -> Slices[list[str]]:
    """The topics that a group reads, of those that the command covers."""
    names: list[str] = []
    for topic_id in node.group_owners.topics_of(group):
        facts = node.topics.by_id.get(topic_id)
        if facts is not None and facts.name in node.open and command.covers(facts.name):
            names.append(facts.name)
        yield 1
    return names


def list_groups(node: "Node", command: ListClassic, _now: Now) -> Slices[list[ClassicGroupFacts]]:
    names: set[str] = set()
    for topic in (yield from names_covered(node, command)):
        names.update((yield from names_on(node, topic)))
    for name in [*node.classic.groups]:
        if _has_member(node, command, name):
            names.add(name)
        yield 1 + len(_members(node, name))
    facts: list[ClassicGroupFacts] = []
    for name in sorted(names):
        facts.append(_facts(node, name, command))
        yield 1 + len(facts[-1].members)
    return facts


def _facts(node: "Node", name: str, command: ScopedCommand[Any]) -> ClassicGroupFacts:
    """A group, with those of its members that read only topics which the command covers."""
    facts, membership = node.classic.facts(name), node.assigned.membership(name)
    if not facts.members and membership.members:
        return facts._replace(state=ClassicState.STABLE.value)
    seen = {one.id for one in _members(node, name) if all(map(command.covers, one.topics))}
    return facts._replace(members=tuple(one for one in facts.members if one.id in seen))


def _has_member(node: "Node", command: ScopedCommand[Any], name: str) -> bool:
    """Whether a group has a member that reads a topic which the command covers, or any, if it covers all."""
    group = node.classic.groups.get(name)
    if group is None:
        return False
    return command.covers_all or any(
        command.covers_one_of(member.topics) for member in group.members.values()
    )


def commit(node: "Node", command: CommitOffsets, now: Now) -> Slices[list[PenstockError | None]]:
    """Each offset by itself: what a change of the group forbids between two slices is refused from there on."""
    group = groups.check_group(command.group)
    _require_member(node, group, command)
    present = {one.topic for one in command.offsets if one.topic in node.open}
    groups.require_room(node, map(node.topic, present), group)
    refused: list[PenstockError | None] = []
    for committed in command.offsets:
        try:
            if _require_member(node, group, command):
                place = TopicPartition(committed.topic, committed.partition)
                require_owner(node.assigned.membership(group), command.member, place)
            else:
                node.assigned.require_unowned(group, committed.topic, committed.partition)
            _commit(node, group, committed, command.member, now)
            refused.append(None)
        except Fatal:
            raise
        except PenstockError as error:
            refused.append(error.fresh())
        now = yield 1
    return refused


def _require_member(node: "Node", group: str, command: CommitOffsets) -> bool:
    """Refused unless the member is one of now. True: of a group whose partitions the broker assigns."""
    membership = node.assigned.membership(group)
    if command.member in membership.members:
        require_current(membership, command.member, command.generation)
        return True
    node.classic.require_commit(group, command.member, command.generation, command.instance)
    return False


def _commit(node: "Node", group: str, committed: CommittedOffset, member: str, now: Now) -> None:
    topic, number, offset, note, _ = committed
    partition = node.partition(topic, number)
    groups.require_offset(partition, offset)
    start = max(offset, partition.messages.start_offset)
    delivery = partition.open_group(group, start, now, owner=node.principal.key_id)
    delivery.active_at_ns = max(delivery.active_at_ns, now.wall_ns)
    consumption.expire(partition, delivery, now)
    is_back = offset < delivery.progress.floor
    records: list[PartitionRecord] = [
        *(rewind(delivery, offset) if is_back else decide_commit(delivery, offset, member=member))
    ]
    if partition.machine.notes.get(delivery.group) != note:
        records.append(CommitNoted(delivery.group, note))
    if records:
        partition.record(records, now)


def list_committed(
    node: "Node", command: ListCommitted, _now: Now
) -> Slices[list[CommittedOffset]]:
    offsets: list[CommittedOffset] = []
    for partition in partitions_in(node, (yield from _topics_of(node, command.group, command))):
        committed = _committed(partition, command.group)
        if committed is not None:
            offsets.append(committed)
        yield 1
    return offsets


def _committed(partition: Partition, group: str) -> CommittedOffset | None:
    machine = partition.machine
    number = machine.numbers.get(group)
    if number is None:
        return None
    delivery = machine.groups[number]
    floor = delivery.progress.floor
    # Members of our own kinds of groups move the floor by what they finish.
    has_moved = number in machine.modes and floor > partition.messages.start_offset
    is_stable, is_known = not delivery.commits, number in machine.notes or has_moved
    if is_stable and not is_known:
        return None
    offset = floor if is_known else _NEVER_COMMITTED
    note = machine.notes.get(number, "")
    return CommittedOffset(partition.topic, partition.number, offset, note, is_stable)


HANDLERS: Mapping[type[Command[Any]], Handler] = {
    JoinClassic: join,
    AwaitJoin: await_join,
    SyncClassic: sync,
    HeartbeatClassic: heartbeat,
    LeaveClassic: leave,
    DescribeClassic: describe,
    ListClassic: list_groups,
    CommitOffsets: commit,
    ListCommitted: list_committed,
}

"""Members of assigned groups: `Memberships` decides, and lets what it decided take effect on the partitions."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...api.command import Command
from ...api.leased import LeasedMessages
from ...api.members import (
    CommitAsMember,
    DescribeMember,
    EndWaiting,
    Heartbeat,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    PollMember,
    ReleasePartitions,
    Standing,
    StartWaiting,
)
from ...groups.commands import standing
from ...model import TopicPartition
from ..partition import Now
from ..partition.changes import Handler
from ..walks import Slices

if TYPE_CHECKING:
    from ..node import Node


def join(node: "Node", command: JoinGroup, now: Now) -> Slices[JoinReply]:
    node.classic.require_no_reader(command.group, command.topic_names, asked="assigned")
    return (yield from node.assigned.join(command, now))


def leave(node: "Node", command: LeaveGroup, now: Now) -> None:
    node.assigned.leave(command, now)


def heartbeat(node: "Node", command: Heartbeat, now: Now) -> Standing:
    return node.assigned.heartbeat(command, now)


def describe(node: "Node", command: DescribeMember, _now: Now) -> Standing | None:
    membership = node.assigned.membership(command.group)
    if command.member not in membership.members:
        return None
    return standing(membership, command.member)


def release(node: "Node", command: ReleasePartitions, now: Now) -> tuple[TopicPartition, ...]:
    return node.assigned.release(command, now)


def commit(node: "Node", command: CommitAsMember, now: Now) -> Slices[bool]:
    return (yield from node.assigned.commit(command, now))


def poll(node: "Node", command: PollMember, now: Now) -> LeasedMessages:
    return node.assigned.poll(command, now)


def start_waiting(node: "Node", command: StartWaiting, now: Now) -> Standing | None:
    return node.assigned.start_waiting(command, now)


def end_waiting(node: "Node", command: EndWaiting, now: Now) -> None:
    node.assigned.end_waiting(command, now)


HANDLERS: Mapping[type[Command[Any]], Handler] = {
    JoinGroup: join,
    LeaveGroup: leave,
    Heartbeat: heartbeat,
    DescribeMember: describe,
    ReleasePartitions: release,
    CommitAsMember: commit,
    PollMember: poll,
    StartWaiting: start_waiting,
    EndWaiting: end_waiting,
}

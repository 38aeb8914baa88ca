"""Members of Kafka's classic groups as those of our own are described."""

import struct
from collections.abc import Collection, Iterator
from typing import Any

from ..api.command import ScopedCommand
from ..api.groups import MemberFacts
from ..groups.classic import ClassicGroup, ClassicMember, ClassicState
from ..model import TopicPartition
from .partition import Now

STATES = {
    ClassicState.EMPTY: "empty",
    ClassicState.JOINING: "rebalancing",
    ClassicState.SYNCING: "rebalancing",
    ClassicState.STABLE: "stable",
}
# An assignment of consumers: a version, a count of topics; of each its name, a count, and numbers of partitions.
_VERSION_BYTES = 2
_COUNT = struct.Struct(">I")
_NAME_BYTES = struct.Struct(">H")


def members_seen(group: ClassicGroup | None, command: ScopedCommand[Any]) -> list[ClassicMember]:
    """The members that read a topic which the command covers."""
    if group is None:
        return []
    return [member for member in group.members.values() if command.covers_one_of(member.topics)]


def member_facts(member: ClassicMember, command: ScopedCommand[Any], now: Now) -> MemberFacts:
    """A member, with what it reads and was assigned of what the command covers. When it polls is not known."""
    return MemberFacts(
        member.id,
        member.client,
        tuple(sorted(filter(command.covers, member.topics))),
        tuple(
            one
            for one in assigned_partitions(member.assignment, member.topics)
            if command.covers(one.topic)
        ),
        (),
        member.host.removeprefix("/"),
        last_heartbeat_ns=now.wall_ns - member.silence_ns(now.monotonic_ns),
    )


def assigned_partitions(assignment: bytes, topics: Collection[str]) -> tuple[TopicPartition, ...]:
    """The partitions in what the leader of a group of consumers assigned to a member that reads these topics.

    None, if the bytes say something else: the broker only passes them on.
    """
    try:
        return tuple(_partitions(assignment, set(topics)))
    except (struct.error, ValueError, KeyError):
        return ()


def _partitions(assignment: bytes, topics: set[str]) -> Iterator[TopicPartition]:
    """struct.error, ValueError: it ends too early, or has no names; KeyError: a topic is not the member's, or twice."""
    (count,) = _COUNT.unpack_from(assignment, _VERSION_BYTES)
    at = _VERSION_BYTES + _COUNT.size
    for _ in range(count):
        (size,) = _NAME_BYTES.unpack_from(assignment, at)
        at += _NAME_BYTES.size
        topic = str(assignment[at : at + size], "utf-8")
        topics.remove(topic)
        at += size
        (numbers,) = _COUNT.unpack_from(assignment, at)
        at += _COUNT.size
        for number in struct.unpack_from(f">{numbers}i", assignment, at):
            yield TopicPartition(topic, number)
        at += 4 * numbers

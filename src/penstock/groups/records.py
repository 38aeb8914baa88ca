"""The records about the membership of a group.

They are in memory only: after a restart a group has no members, because the broker cannot know which are still alive.
Progress is in the partitions, and a bound on the given generations in the meta journal. Times are monotonic
nanoseconds, except `wall_ns`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ..api.groups import Cause, Passed
from ..api.members import Assignor
from ..model import TopicPartition

Partitions = tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class MemberJoined:
    """A member joined. It replaces one of the same name and takes over its partitions."""

    member: str
    client: str
    topics: frozenset[str]
    session_ms: int
    generation: int
    at_ns: int


@dataclass(frozen=True, slots=True)
class MemberSeen:
    """A member made a call. `waits`: it begins (1) or ends (-1) to wait for messages."""

    member: str
    at_ns: int
    waits: int = 0


@dataclass(frozen=True, slots=True)
class MemberRemoved:
    """A member left or its session is over; its partitions have no owner."""

    member: str
    cause: Cause


@dataclass(frozen=True, slots=True)
class TargetSet:
    """A new generation: the target assignment, and which partitions move. The last record of its decision."""

    generation: int
    assignor: Assignor
    target: Mapping[TopicPartition, str]
    passed: tuple[Passed, ...]
    cause: Cause
    members: tuple[str, ...]
    at_ns: int
    wall_ns: int


@dataclass(frozen=True, slots=True)
class ReleaseAsked:
    """A member is asked to release partitions. It owns them until it does, or until the deadline."""

    member: str
    partitions: Partitions
    deadline_ns: int


@dataclass(frozen=True, slots=True)
class ReleaseWithdrawn:
    """A member keeps partitions that it was asked to release."""

    member: str
    partitions: Partitions


@dataclass(frozen=True, slots=True)
class PartitionsReleased:
    """A member no longer owns these partitions. `is_forced`: it did not release them itself."""

    member: str
    partitions: Partitions
    is_forced: bool
    at_ns: int


@dataclass(frozen=True, slots=True)
class PartitionsGiven:
    """A member owns partitions that had no owner."""

    member: str
    partitions: Partitions


GroupRecord = (
    MemberJoined
    | MemberSeen
    | MemberRemoved
    | TargetSet
    | ReleaseAsked
    | ReleaseWithdrawn
    | PartitionsReleased
    | PartitionsGiven
)

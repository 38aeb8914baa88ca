"""What happens to the membership of a group.

Kept in memory only: after a restart nobody is a member, because nobody can know who is still there. What has to outlive
a restart is elsewhere: progress in the partitions, and a bound on the generations that were given in the meta journal.
Times are monotonic nanoseconds, except `wall_ns`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ..api.groups import Cause, Passed
from ..api.members import Assignor
from ..model import TopicPartition

Partitions = tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Joined:
    """A member is there; one of the same name is replaced by it, and keeps its partitions."""

    member: str
    client: str
    topics: frozenset[str]
    session_ms: int
    generation: int
    at_ns: int


@dataclass(frozen=True, slots=True)
class Seen:
    """A member gave a sign of life. `waits`: it begins (1) or ends (-1) to wait for messages."""

    member: str
    at_ns: int
    waits: int = 0


@dataclass(frozen=True, slots=True)
class Gone:
    """A member is there no more, and its partitions are nobody's."""

    member: str
    cause: Cause


@dataclass(frozen=True, slots=True)
class Targeted:
    """A new generation: who should have what in the end, and what passes on for that. Last of its decision."""

    generation: int
    assignor: Assignor
    target: Mapping[TopicPartition, str]
    passed: tuple[Passed, ...]
    cause: Cause
    members: tuple[str, ...]
    at_ns: int
    wall_ns: int


@dataclass(frozen=True, slots=True)
class Asked:
    """A member shall release partitions. It stays their owner until it does, or until the deadline."""

    member: str
    partitions: Partitions
    deadline_ns: int


@dataclass(frozen=True, slots=True)
class Kept:
    """What a member was asked for is left to it after all."""

    member: str
    partitions: Partitions


@dataclass(frozen=True, slots=True)
class Released:
    """A member owns these no more. `is_forced`: it did not say so itself."""

    member: str
    partitions: Partitions
    is_forced: bool
    at_ns: int


@dataclass(frozen=True, slots=True)
class Given:
    """Partitions that were nobody's have an owner."""

    member: str
    partitions: Partitions


GroupRecord = Joined | Seen | Gone | Targeted | Asked | Kept | Released | Given

"""Members of assigned groups: each partition is read by one of them at a time."""

from collections.abc import Iterable
from enum import Enum
from typing import ClassVar, TypeVar

import msgspec

from ..model import TopicPartition
from .command import Command
from .groups import PartitionOffset
from .principals import Action

R = TypeVar("R")


class Assignor(Enum):
    """How the partitions of a group are assigned. Only sticky looks at what each member has now."""

    RANGE = "range"
    ROUND_ROBIN = "round_robin"
    STICKY = "sticky"


class Standing(msgspec.Struct, frozen=True):
    """What a member has to know: what it may read, and what it shall release, which waits for nothing else.

    `changes` is another number whenever one of the two is.
    """

    generation: int
    state: str
    assigned: tuple[TopicPartition, ...]
    to_release: tuple[TopicPartition, ...]
    changes: int


class MemberCommand(Command[R], frozen=True):
    """Something that a member asks. A principal with prefixes has to reach all topics of the member."""

    group: str
    member: str


class CommitAsMember(MemberCommand[bool], frozen=True):
    """Finish everything below some offsets, as the owner of all of their partitions; whether any floor moved.

    UnknownMember, NotOwner, OffsetOutOfRange, and StaleGeneration if another generation is given than the present one:
    nothing has happened.
    """

    action: ClassVar[Action] = Action.COMMIT
    offsets: tuple[PartitionOffset, ...]
    generation: int | None = None

    def topics(self) -> Iterable[str]:
        return {one.topic for one in self.offsets}

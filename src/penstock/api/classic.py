"""Groups whose members assign partitions among themselves, as Kafka's classic protocol has it, and their offsets."""

from collections.abc import Iterable, Mapping
from typing import Annotated, ClassVar, NamedTuple

import msgspec

from ..errors import PenstockError
from .bounds import NAMES_MAX, Names, items
from .command import Command, ScopedCommand
from .members import MemberCommand
from .principals import Action

PROTOCOLS_MAX = 100


class JoinTicket(NamedTuple):
    """The id of a member. Not `is_member`: the client has to join once more with it."""

    member: str
    is_member: bool


class JoinClassic(MemberCommand[JoinTicket], frozen=True, kw_only=True):
    """Join a round of a group; `AwaitJoin` has what came of it. Without a `member` id one is given.

    `needs_id`: a client without an id gets one and is no member before it comes back with it. `instance` names a member
    that keeps its place when its process is started again. `protocols` are the assignors that it knows, best first.

    UnknownMember, ProtocolConflict, FencedMember, InvalidName.
    """

    is_volatile: ClassVar[bool] = True
    protocol_type: str
    protocols: Annotated[tuple[tuple[str, bytes], ...], items(PROTOCOLS_MAX)]
    topic_names: Names = ()
    instance: str = ""
    client: str = ""
    host: str = ""
    session_ms: int = 30_000
    rebalance_ms: int = 60_000
    needs_id: bool = False

    def topics(self) -> Iterable[str]:
        return self.topic_names


class JoinedMember(NamedTuple):
    """What the leader is told of each member."""

    id: str
    instance: str
    metadata: bytes


class JoinedClassic(msgspec.Struct, frozen=True):
    """A round that is complete. Only its leader is told who the members are."""

    generation: int
    protocol_type: str
    protocol: str
    leader: str
    members: tuple[JoinedMember, ...]


class Pending(NamedTuple):
    """There is no answer yet; there may be one when the group has changed from these `changes`."""

    changes: int


class AwaitJoin(MemberCommand[JoinedClassic | Pending], frozen=True):
    """What came of a join. UnknownMember: it took too long."""

    is_query: ClassVar[bool] = True


class SyncClassic(MemberCommand[bytes | Pending], frozen=True, kw_only=True):
    """What the leader assigned to a member; the leader brings it for all of them.

    UnknownMember, StaleGeneration, FencedMember. RebalanceInProgress: join again. ProtocolConflict.
    """

    is_volatile: ClassVar[bool] = True
    generation: int
    instance: str = ""
    assignments: Annotated[Mapping[str, bytes], items(NAMES_MAX)] = {}
    # What the member takes the group's protocol for, as far as it says so.
    protocol_type: str | None = None
    protocol: str | None = None


class HeartbeatClassic(MemberCommand[None], frozen=True, kw_only=True):
    """Say that a member is alive. RebalanceInProgress: join again. UnknownMember, StaleGeneration, FencedMember."""

    is_volatile: ClassVar[bool] = True
    generation: int
    instance: str = ""


class LeaveClassic(MemberCommand[None], frozen=True, kw_only=True):
    """Leave a group; by the name of an instance also without the member's id. UnknownMember, FencedMember."""

    is_volatile: ClassVar[bool] = True
    instance: str = ""


class ClassicMemberFacts(NamedTuple):
    """One member of a group."""

    id: str
    instance: str
    client: str
    host: str
    metadata: bytes
    assignment: bytes


class ClassicGroupFacts(NamedTuple):
    """A group; one that has only offsets is empty."""

    group: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[ClassicMemberFacts, ...]


class DescribeClassic(ScopedCommand[ClassicGroupFacts], frozen=True):
    """A group with its members. NotFound: there is neither a member nor an offset of it."""

    action: ClassVar[Action] = Action.SEE_GROUPS
    is_query: ClassVar[bool] = True
    is_walk: ClassVar[bool] = True
    group: str


class ListClassic(ScopedCommand[list[ClassicGroupFacts]], frozen=True):
    """Every group with members or offsets."""

    action: ClassVar[Action] = Action.SEE_GROUPS
    is_query: ClassVar[bool] = True
    is_walk: ClassVar[bool] = True


class CommittedOffset(NamedTuple):
    """An offset that was committed, or is to be, with a text of the client's own."""

    topic: str
    partition: int
    offset: int
    note: str
    # False: a transaction that has not ended says how far the group is, and this may be older. -1: nothing was before.
    is_stable: bool = True


class CommitOffsets(Command[list[PenstockError | None]], frozen=True):
    """Set how far a group is, forward or back; for each offset what it was refused with.

    A group with members takes commits of its members in the present generation only; an empty one takes those of
    clients without a member id. UnknownMember, StaleGeneration, RebalanceInProgress, FencedMember.
    """

    action: ClassVar[Action] = Action.COMMIT
    is_walk: ClassVar[bool] = True
    group: str
    offsets: Annotated[tuple[CommittedOffset, ...], items(NAMES_MAX)]
    member: str = ""
    generation: int = -1
    instance: str = ""

    def topics(self) -> Iterable[str]:
        return {one.topic for one in self.offsets}


class ListCommitted(ScopedCommand[list[CommittedOffset]], frozen=True, kw_only=True):
    """What a group has committed, partition by partition; those without a commit are left out."""

    action: ClassVar[Action] = Action.SEE_GROUPS
    is_query: ClassVar[bool] = True
    is_walk: ClassVar[bool] = True
    group: str

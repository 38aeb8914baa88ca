"""Groups: opened, closed and reset, what they have finished, how far they are behind, what their members hold."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Annotated, ClassVar, NamedTuple, TypeVar

import msgspec

from ..model import Priority, TopicPartition
from .bounds import DISTINCT, NAMES_MAX, Names, items
from .command import Command, ScopedCommand
from .principals import Action
from .start import EARLIEST, Start

R = TypeVar("R")


class Mode(IntEnum):
    """How a group reads a topic: its first use decides. Numbers are journaled.

    The two last ones are assigned; they differ in the order inside a partition.
    """

    UNDECIDED = 0
    SHARED = 1
    RELAXED = 2
    STRICT = 3

    @property
    def is_assigned(self) -> bool:
        return self in (Mode.RELAXED, Mode.STRICT)

    def __str__(self) -> str:
        return _WORDS[self]


_WORDS = {
    Mode.UNDECIDED: "undecided",
    Mode.SHARED: "shared",
    Mode.RELAXED: "assigned, order relaxed",
    Mode.STRICT: "assigned, order strict",
}


CLASSIC = "classic"
"""The mode of a topic that members of a classic group of Kafka read."""


class GroupCommand(ScopedCommand[R], frozen=True):
    """Something that is asked of a group on those of its topics that the command covers.

    NotFound: it reads none. PartitionFaulty: no partition serves of the topic that is named.
    """

    group: str


class OpenGroup(Command[None], frozen=True):
    """Make sure that a group exists on every partition of some topics; a new one begins at `start`.

    TooManyGroups, ShareFull: there is no room for a new one on one of them, and none is touched.
    """

    action: ClassVar[Action] = Action.CONSUME
    is_walk: ClassVar[bool] = True
    group: str
    topic_names: Names
    start: Start = EARLIEST

    def topics(self) -> Iterable[str]:
        return self.topic_names


class CloseGroup(GroupCommand[None], frozen=True):
    """Forget a group: its progress, leases and attempts.

    GroupBusy: it has members, and nothing has happened, unless one came while many partitions forgot the group.
    """

    action: ClassVar[Action] = Action.CHANGE_GROUP
    is_walk: ClassVar[bool] = True
    is_repeatable: ClassVar[bool] = False
    audit_line: ClassVar[str] = "group {command.group} deleted"


class ListGroups(ScopedCommand[dict[str, list[str]]], frozen=True):
    """Every group, with those of its topics that the command covers."""

    action: ClassVar[Action] = Action.SEE_GROUPS
    is_query: ClassVar[bool] = True
    is_walk: ClassVar[bool] = True


class Passed(NamedTuple):
    """A partition that a rebalance takes from one member and gives to another; "" is no member."""

    partition: TopicPartition
    before: str
    after: str


class Cause(Enum):
    """Why a rebalance happened."""

    JOINED = "joined"
    REPLACED = "joined again under its name"
    LEFT = "left"
    TIMED_OUT = "was not heard of within its session timeout"
    PARTITIONS = "the partitions changed"


@dataclass(slots=True)
class Rebalance:
    """Why the assignment of a group changed, and how that went. Not settled yet: `took_ms` is None."""

    generation: int
    cause: Cause
    members: tuple[str, ...]
    wall_ns: int
    began_ns: int
    passed: tuple[Passed, ...]
    forced: int = 0
    took_ms: int | None = None

    def __str__(self) -> str:
        names = ", ".join(self.members)
        told = f"{names} {self.cause.value}" if names else self.cause.value
        return f"generation {self.generation}: {told}; {len(self.passed)} partitions pass on"


class MemberFacts(NamedTuple):
    """One member of an assigned group. What it shall release is not assigned to it any more, but still its own."""

    id: str
    client: str
    topics: tuple[str, ...]
    assigned: tuple[TopicPartition, ...]
    to_release: tuple[TopicPartition, ...]
    # Where it joined from, and when it polled last, in nanoseconds since 1970; None: not yet.
    host: str = ""
    last_poll_ns: int | None = None
    # When it was heard of last; None: not known.
    last_heartbeat_ns: int | None = None


class PollerFacts(NamedTuple):
    """One member of a shared group: the topics that it polls, where from, and when last."""

    id: str
    topics: tuple[str, ...]
    host: str
    last_poll_ns: int


class GroupFacts(NamedTuple):
    """A group: `modes` by topic; `rebalances` says why the assignment changed, newest last.

    `in_flight` is how many messages each member holds that holds any, also of a shared group. `pollers` are the members
    of a shared group that polled of late. `classic_members` are those of Kafka's classic protocol: `assigned` is what
    their leader said, and `state`, `generation` and `assignor` are theirs.
    """

    group: str
    state: str
    generation: int
    assignor: str
    modes: dict[str, str]
    members: tuple[MemberFacts, ...]
    rebalances: tuple[Rebalance, ...]
    in_flight: dict[str, int]
    pollers: tuple[PollerFacts, ...] = ()
    classic_members: tuple[MemberFacts, ...] = ()


class DescribeGroup(GroupCommand[GroupFacts], frozen=True):
    """Members, what each of them owns, and why the last rebalances happened."""

    action: ClassVar[Action] = Action.SEE_GROUPS
    is_query: ClassVar[bool] = True
    is_walk: ClassVar[bool] = True


class ListRebalances(ScopedCommand[dict[str, list[Rebalance]]], frozen=True):
    """The last rebalances of every assigned group that reads a topic which the command covers."""

    action: ClassVar[Action] = Action.SEE_STATS
    is_query: ClassVar[bool] = True
    is_walk: ClassVar[bool] = True


class PartitionLag(NamedTuple):
    """How far a group is behind on one partition. Seconds: the age of the oldest message it has not finished."""

    topic: str
    partition: int
    floor: int
    end: int
    lag: int
    lag_seconds: float
    in_flight: int
    finished_above: int


class GroupBacklog(NamedTuple):
    """A partition and how far one group has come with it, at one moment.

    `unfinished` counts what is ready, waits for a retry or is `in_flight`; `delayed` are to come later.
    """

    start: int
    end: int
    size_bytes: int
    segments: int
    unfinished: int
    in_flight: int
    expired: int
    delayed: int


class DescribeBacklog(Command[GroupBacklog], frozen=True):
    """How far a group has come with a partition. NotFound."""

    action: ClassVar[Action] = Action.SEE_GROUPS
    is_query: ClassVar[bool] = True
    topic: str
    partition: int
    group: str

    def topics(self) -> Iterable[str]:
        return (self.topic,)


class FaultyPartition(msgspec.Struct, frozen=True):
    """A partition that cannot be used."""

    topic: str
    partition: int
    path: str
    reason: str


class GroupLag(msgspec.Struct, frozen=True):
    """How far a group is behind; of the faulty partitions of its topics nothing is known."""

    partitions: list[PartitionLag]
    faulty: list[FaultyPartition]


class DescribeLag(GroupCommand[GroupLag], frozen=True):
    """What a group has finished on every partition that it reads, and how far it is behind."""

    action: ClassVar[Action] = Action.SEE_GROUPS
    is_query: ClassVar[bool] = True
    is_walk: ClassVar[bool] = True


class LaneStats(NamedTuple):
    """A lane of a group: how many wait, are held and were handed out; how many a second and after what wait, of late.

    `enqueued_per_second` came to the partition, for whichever group. `served_at_ns`: when the last one was handed out,
    in wall time; None: never since the start.
    """

    priority: Priority
    waiting: int
    served: int
    per_second: float
    wait_ms: float
    in_flight: int = 0
    enqueued_per_second: float = 0.0
    served_at_ns: int | None = None


class PartitionLanes(NamedTuple):
    """The lanes of a group on one partition, the most urgent first."""

    partition: int
    lanes: tuple[LaneStats, ...]


class TopicLanes(NamedTuple):
    """The lanes of a group on the partitions of one topic."""

    group: str
    partitions: list[PartitionLanes]


class DescribeLanes(ScopedCommand[dict[str, TopicLanes]], frozen=True, kw_only=True):
    """What waits in each priority lane, and how it is served, by topic.

    Of a group, or of the one that is furthest behind on each topic. NotFound: the group reads none of these topics.
    """

    action: ClassVar[Action] = Action.SEE_STATS
    is_query: ClassVar[bool] = True
    is_walk: ClassVar[bool] = True
    group: str | None = None


class InFlight(NamedTuple):
    """A message that a member holds."""

    receipt: str
    topic: str
    partition: int
    offset: int
    member: str
    attempts: int
    first_delivery_ns: int
    last_delivery_ns: int
    deadline_in_ms: int


class ListInFlight(GroupCommand[list[InFlight]], frozen=True):
    """What the members of a group hold."""

    action: ClassVar[Action] = Action.SEE_GROUPS
    is_query: ClassVar[bool] = True
    is_walk: ClassVar[bool] = True


class Move(NamedTuple):
    """What a reset does, or would do, to one partition."""

    partition: int
    floor_before: int
    floor_after: int
    in_flight: int


class PlanReset(GroupCommand[dict[str, list[Move]]], frozen=True, kw_only=True):
    """What a reset would do, by topic; of these `partitions` of one topic, or of all (None).

    OffsetOutOfRange: a partition does not have that offset. NotFound: there is no such partition.
    """

    action: ClassVar[Action] = Action.CHANGE_GROUP
    is_query: ClassVar[bool] = True
    is_walk: ClassVar[bool] = True
    to: Start
    partitions: Annotated[tuple[int, ...], items(NAMES_MAX), DISTINCT] | None = None


class ResetGroup(GroupCommand[dict[str, list[Move]]], frozen=True, kw_only=True):
    """Start a group again from another place: receipts and attempts are void. What was done, by topic.

    Of these `partitions` of one topic, or of all (None).

    GroupBusy while it has members or they hold messages, unless forced. A group without members may then be read in
    another mode, if all partitions are reset. OffsetOutOfRange: a partition does not have that offset. NotFound: there
    is no such partition. Refused, nothing is reset, unless a member came while many partitions were.
    """

    action: ClassVar[Action] = Action.CHANGE_GROUP
    is_walk: ClassVar[bool] = True
    audit_line: ClassVar[str] = "group {command.group} to {command.to}"
    to: Start
    partitions: Annotated[tuple[int, ...], items(NAMES_MAX), DISTINCT] | None = None
    is_forced: bool = False


class PartitionOffset(NamedTuple):
    topic: str
    partition: int
    offset: int


LAKE_CHARACTERS_MAX = 1000


class Commit(Command[bool], frozen=True):
    """Finish everything below some offsets for a group; whether any floor moved.

    With `opens_group` a group that is new is opened first. `lake` names where an archive has these messages, for their
    journeys; Refused if it is too long. NotOwner: a partition is assigned to a member, which has to
    commit itself. OffsetOutOfRange, NotFound, TooManyGroups, ShareFull: nothing has happened. Of many offsets some
    may be committed when another partition is gone or has an owner meanwhile.
    """

    action: ClassVar[Action] = Action.COMMIT
    is_walk: ClassVar[bool] = True
    group: str
    offsets: Annotated[tuple[PartitionOffset, ...], items(NAMES_MAX)]
    opens_group: bool = False
    lake: str = ""

    def topics(self) -> Iterable[str]:
        return {one.topic for one in self.offsets}

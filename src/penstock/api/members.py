"""Members of assigned groups: each partition is read by one of them at a time."""

from collections.abc import Iterable
from enum import Enum
from sys import maxsize
from typing import Annotated, ClassVar, TypeVar

import msgspec

from ..config import SESSION_MS_MIN
from ..model import Priority, TopicPartition
from .bounds import (
    DISTINCT,
    MESSAGES_MAX,
    NAMES_MAX,
    POLL_BYTES_MAX,
    REQUEST_ID_CHARACTERS_MAX,
    Bound,
    Unit,
    Within,
    items,
)
from .command import Command
from .groups import Mode, PartitionOffset
from .leased import LeasedMessages
from .principals import Action
from .start import EARLIEST, Start

R = TypeVar("R")
_SESSION_MS = Bound("session_ms", Unit.NUMBER, SESSION_MS_MIN, maxsize)


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
    """Something that a member asks. A principal with prefixes has to reach all topics of the member.

    UnknownMember: the group has no member of this name, or not any more.
    """

    action: ClassVar[Action] = Action.CONSUME
    group: str
    member: str


class JoinReply(msgspec.Struct, frozen=True):
    """`is_first`: no other member has been in the group for longer."""

    member: str
    standing: Standing
    is_first: bool


class JoinGroup(MemberCommand[JoinReply], frozen=True):
    """Become a member. Without a `member` name it is named after its client.

    Under a name that is taken it takes that member's place; `keeps_leases` says that it is the same one after all,
    which lost the broker for a while and still holds messages. `mode` None: as the group has it, relaxed for a new one,
    which begins at `start`. `session_ms` 0: as the broker is configured. `is_auto_commit`: the next poll finishes what
    the last one returned, and so does the broker's interval, 5 seconds if it does not say otherwise. `host`: where the
    member is, as the server sees it.

    `in_rounds`, of a shared group: the member works on all that it holds as one piece, so that its death says nothing
    of any message. What it holds then is ready again and no attempt counts. Its name is not taken while it lives:
    AlreadyExists.

    NotFound, ModeConflict, TooManyGroups, ShareFull, Refused: nothing has happened, unless what another client did
    meanwhile is why: then the group may have been opened on some topics.
    """

    is_walk: ClassVar[bool] = True
    # It may sync which generations are given.
    is_long: ClassVar[bool] = True
    is_completed: ClassVar[bool] = True
    topic_names: Annotated[tuple[str, ...], items(NAMES_MAX, least=1), DISTINCT]
    client: str = "member"
    session_ms: int = 0
    assignor: Assignor | None = None
    mode: Mode | None = None
    start: Start = EARLIEST
    is_auto_commit: bool = False
    keeps_leases: bool = False
    host: str = ""
    in_rounds: bool = False

    def topics(self) -> Iterable[str]:
        return self.topic_names

    def check_sums(self) -> None:
        if self.session_ms:
            _SESSION_MS.check(self.session_ms)


class LeaveGroup(MemberCommand[None], frozen=True):
    """Be a member no more: what it owns passes on at once, and so does what it holds.

    StaleGeneration: it joined after the generation given.
    """

    is_long: ClassVar[bool] = True
    generation: int | None = None


class Heartbeat(MemberCommand[Standing], frozen=True):
    """A sign of life, replied to with all that the member has to know.

    With `finishes_last`, a member that leaves that to the broker is done with what its last poll returned.
    StaleGeneration: it joined after the generation given.
    """

    is_volatile: ClassVar[bool] = True
    generation: int | None = None
    finishes_last: bool = False


class DescribeMember(MemberCommand[Standing | None], frozen=True):
    """What a member has to know, without a sign of life; None if there is no such member."""

    is_query: ClassVar[bool] = True


class ReleasePartitions(MemberCommand[tuple[TopicPartition, ...]], frozen=True):
    """Let go of partitions that were asked back; what the member still holds there is ready again. Those released.

    With `keeps_held` a partition of which the member holds messages stays with it. StaleGeneration: another generation
    is given than the present one. NotOwner: a partition is not its own, and none is released.
    """

    partitions: Annotated[tuple[TopicPartition, ...], items(NAMES_MAX), DISTINCT]
    generation: int | None = None
    keeps_held: bool = False


class CommitAsMember(MemberCommand[bool], frozen=True):
    """Finish everything below some offsets, as the owner of all of their partitions; whether any floor moved.

    UnknownMember, NotOwner, OffsetOutOfRange, and StaleGeneration if another generation is given than the present one:
    nothing has happened. Of many offsets some may be committed when the member loses a partition meanwhile.
    """

    action: ClassVar[Action] = Action.COMMIT
    is_walk: ClassVar[bool] = True
    offsets: Annotated[tuple[PartitionOffset, ...], items(NAMES_MAX)]
    generation: int | None = None

    def topics(self) -> Iterable[str]:
        return {one.topic for one in self.offsets}


class PollMember(MemberCommand[LeasedMessages], frozen=True):
    """Lease messages of a member's own partitions to it.

    `visibility_ms` None: as long as the topic says. `priority`: of this lane only. A poll that comes again with its
    `request_id` gets the same messages again. As many batches are opened as hold `bytes_max` together, at least one.
    `changes` is the `Standing.changes` that the member knows: with another one it is not made to wait for messages.

    StaleGeneration: another generation is given than the present one. DamagedBatch: the next message cannot be read.
    """

    is_completed: ClassVar[bool] = True
    counted: ClassVar[str] = "delivered"
    limit: Annotated[int, Within(0, MESSAGES_MAX, is_cut=True)]
    generation: int | None = None
    visibility_ms: int | None = None
    priority: Priority | None = None
    request_id: Annotated[str, items(REQUEST_ID_CHARACTERS_MAX)] = ""
    bytes_max: Annotated[int | None, Within(1, POLL_BYTES_MAX, is_cut=True)] = None
    changes: int | None = None


class StartWaiting(MemberCommand[Standing | None], frozen=True):
    """A member whose poll found nothing waits for messages from now on, and is not missed before `EndWaiting`.

    What it has to know; None if there is something that it does not know (see `PollMember.changes`): it does not wait.
    """

    is_volatile: ClassVar[bool] = True
    changes: int | None = None


class EndWaiting(MemberCommand[None], frozen=True):
    """A member waits no longer; its session lasts from now on. Of no effect if it is a member no more."""

    is_volatile: ClassVar[bool] = True

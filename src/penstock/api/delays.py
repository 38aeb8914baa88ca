"""Delayed messages: listed, looked at, cancelled, rescheduled.

A delayed message rests in the delay log of the partition that it will go to, and its offset there is its id.
"""

from collections.abc import Iterable
from enum import Enum
from typing import Annotated, ClassVar, NamedTuple

import msgspec

from ..errors import Damaged
from ..model import Message
from .bounds import PAGE_MAX, Within
from .command import Command
from .principals import Action


class DelayState(Enum):
    """What became of a delayed message. EXPIRED: it fired when its time to live was over already. LOST: the disk has
    damaged it, and its topic skips damage."""

    PENDING = "PENDING"
    DELIVERED = "DELIVERED"
    CANCELLED = "CANCELLED"
    EXPIRED = "EXPIRED"
    LOST = "LOST"


class DelayedId(NamedTuple):
    """Names a delayed message. Without a partition, the one in the first partition that knows the id."""

    partition: int | None
    id: int


class DelayPlace(NamedTuple):
    """A place in the order in which delayed messages come."""

    due_ns: int
    partition: int
    id: int


FIRST_PLACE = DelayPlace(0, 0, -1)


class DelayedMessage(msgspec.Struct, frozen=True):
    """A delayed message. `message` is None once it is finished and was cleared away.

    It is None, too, where the disk has damaged it: then `damage` says where. All else is known without reading it.
    """

    topic: str
    partition: int
    id: int
    state: DelayState
    due_ns: int
    delay_key: bytes | None
    message: Message | None
    damage: Damaged | None = None


class NextOccurrence(NamedTuple):
    """When the message of a schedule is published next."""

    key: str
    partition: int
    due_ns: int


class DelayedPage(msgspec.Struct, frozen=True):
    """Some delayed messages, and the place of the last of them if more come after it.

    The first page has the next occurrences of all schedules of the topic, too, earliest first.
    """

    messages: list[DelayedMessage]
    cursor: DelayPlace | None = None
    schedules: tuple[NextOccurrence, ...] = ()


class ListDelayed(Command[DelayedPage], frozen=True):
    """The pending messages of a topic that come after a place, earliest first."""

    action: ClassVar[Action] = Action.SEE_DELAYED
    is_query: ClassVar[bool] = True
    is_walk: ClassVar[bool] = True
    topic: str
    limit: Annotated[int, Within(1, PAGE_MAX, is_cut=True)] = 100
    after: DelayPlace = FIRST_PLACE

    def topics(self) -> Iterable[str]:
        return (self.topic,)


class GetDelayed(Command[DelayedMessage], frozen=True):
    """One delayed message, by its id also when it is finished, for as long as the delay log keeps it.

    `which` is its id, or its delay key while it is pending. NotFound: the partition does not know it.
    """

    action: ClassVar[Action] = Action.SEE_DELAYED
    is_query: ClassVar[bool] = True
    topic: str
    which: DelayedId | bytes

    def topics(self) -> Iterable[str]:
        return (self.topic,)


class CancelDelayed(Command[DelayedMessage], frozen=True):
    """Never deliver a message; what is known of it. NotFound: there is none. NotPending: it fired or was cancelled.

    Not `wants_message`: the message itself is not needed, and is not read.
    """

    action: ClassVar[Action] = Action.CHANGE_DELAYED
    is_repeatable: ClassVar[bool] = False
    topic: str
    which: DelayedId | bytes
    wants_message: bool = True

    def topics(self) -> Iterable[str]:
        return (self.topic,)


class RescheduleDelayed(Command[DelayedMessage], frozen=True):
    """Deliver a message at another time. NotFound: there is none. NotPending: it has fired, or was cancelled."""

    action: ClassVar[Action] = Action.CHANGE_DELAYED
    topic: str
    which: DelayedId | bytes
    due_ns: int

    def topics(self) -> Iterable[str]:
        return (self.topic,)


class Fired(NamedTuple):
    """How many delayed messages came, and where the partition ends now.

    `is_urgent`: one of them goes before messages of normal priority. `next_due_ns` is None while none is pending.
    """

    messages: int
    end_offset: int
    is_urgent: bool
    next_due_ns: int | None


class FireDelayed(Command[Fired], frozen=True):
    """Deliver the messages of a partition that are due, as many as are good to do at once. NoSpace: none was."""

    action: ClassVar[Action] = Action.CHANGE_DELAYED
    topic: str
    partition: int

    def topics(self) -> Iterable[str]:
        return (self.topic,)


class DelayStats(NamedTuple):
    """How many delayed messages a partition has, and has had; `next_due_ns` is None while none is pending.

    `wheel`: how many of them are due within 10 ms or overdue, and how many wait in each level of the timing wheel.
    """

    partition: int
    pending: int
    delivered: int
    expired: int
    cancelled: int
    lost: int
    unreadable: int
    next_due_ns: int | None
    size_bytes: int
    wheel: tuple[int, ...] = ()


class DescribeDelays(Command[dict[str, list[DelayStats]]], frozen=True):
    """What is pending on each partition, and what became of other delayed messages: of one topic, or of all."""

    action: ClassVar[Action] = Action.SEE_STATS
    is_query: ClassVar[bool] = True
    is_walk: ClassVar[bool] = True
    topic: str | None = None

    def topics(self) -> Iterable[str]:
        return () if self.topic is None else (self.topic,)

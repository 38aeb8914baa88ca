"""Polls of shared groups: any member gets any message."""

from collections.abc import Iterable
from typing import Annotated, ClassVar

from ..model import Priority
from .bounds import MESSAGES_MAX, POLL_BYTES_MAX, REQUEST_ID_CHARACTERS_MAX, Within, items
from .command import Command
from .leased import LeasedMessages
from .principals import Action
from .start import EARLIEST, Start


class Poll(Command[LeasedMessages], frozen=True):
    """Lease messages of a topic to a member of a group; a group that is new begins at `start`.

    `visibility_ms` None: as long as the topic says. `priority`: of this lane only. A poll that comes again with its
    `request_id` gets the same messages again. As many batches are opened as hold `bytes_max` together, at least one.
    `limit_with_lanes`: at most so many while the topic has messages of other priorities than normal. `host`: where the
    member is, as the server sees it.

    NotFound, ModeConflict, TooManyGroups, ShareFull, Refused: nothing was leased. DamagedBatch: the next
    message cannot be read.
    """

    action: ClassVar[Action] = Action.CONSUME
    is_completed: ClassVar[bool] = True
    counted: ClassVar[str] = "delivered"
    topic: str
    group: str
    member: str
    limit: Annotated[int, Within(0, MESSAGES_MAX, is_cut=True)]
    visibility_ms: int | None = None
    priority: Priority | None = None
    request_id: Annotated[str, items(REQUEST_ID_CHARACTERS_MAX)] = ""
    bytes_max: Annotated[int | None, Within(1, POLL_BYTES_MAX, is_cut=True)] = None
    limit_with_lanes: int | None = None
    start: Start = EARLIEST
    host: str = ""

    def topics(self) -> Iterable[str]:
        return (self.topic,)


class CountReady(Command[int], frozen=True):
    """How many messages of a topic a poll of a group could get now; some may turn out to be expired."""

    action: ClassVar[Action] = Action.CONSUME
    is_query: ClassVar[bool] = True
    topic: str
    group: str

    def topics(self) -> Iterable[str]:
        return (self.topic,)


class CountHeld(Command[int], frozen=True):
    """How many messages of a topic a member of a group holds."""

    action: ClassVar[Action] = Action.CONSUME
    is_query: ClassVar[bool] = True
    topic: str
    group: str
    member: str

    def topics(self) -> Iterable[str]:
        return (self.topic,)

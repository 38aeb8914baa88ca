"""Reading by offset or by time: no group, no lease, nothing is finished by it."""

from collections.abc import Iterable
from typing import Annotated, ClassVar, NamedTuple

import msgspec

from ..model import Message
from ..ports import Lent
from .bounds import PAGE_MAX, Within
from .command import Command
from .principals import Action
from .received import Received
from .start import EARLIEST, Start

FETCH_BYTES_DEFAULT = 1 << 20
FETCH_BYTES_MAX = 16 << 20
FetchBytes = Annotated[int, Within(0, FETCH_BYTES_MAX, is_cut=True)]


class FileRange(NamedTuple):
    """Bytes of a file that stays open as long as this is kept."""

    file: Lent
    position: int
    size: int


class SkippedRange(NamedTuple):
    """Offsets from `start` to before `end` that a read passed over, because they are damaged."""

    start: int
    end: int
    reason: str


class FetchReply(msgspec.Struct, frozen=True):
    """Whole batches, sealed with the seed of the log. The first one may begin before `offset`: readers trim.

    With `file_range` they lie there, and the broker has read no more than their heads. What was `skipped` lies before
    `offset`. The `epoch` of the log is not sent to clients of ours.
    """

    data: memoryview
    offset: int
    next_offset: int
    start_offset: int
    end_offset: int
    seed: int
    file_range: FileRange | None = None
    skipped: tuple[SkippedRange, ...] = ()
    epoch: int = -1

    @property
    def wake_at(self) -> int | None:
        """The end offset that the reader waits to see passed; None if there is something to read now."""
        is_empty = not self.data and self.file_range is None and not self.skipped
        return self.offset if is_empty else None


class Fetch(Command[FetchReply], frozen=True):
    """Stored batches from a place on: at least one if there is any, then while they fit and `limit` is not reached.

    Not `is_checked`: the client checks them, so that large ones may stay in their file.

    NotFound, OffsetOutOfRange. DamagedBatch: the first batch cannot be read, and the topic does not skip damage.
    """

    action: ClassVar[Action] = Action.FETCH
    is_query: ClassVar[bool] = True
    topic: str
    partition: int
    start: Start = EARLIEST
    bytes_max: FetchBytes = FETCH_BYTES_DEFAULT
    limit: int | None = None
    is_checked: bool = True

    def topics(self) -> Iterable[str]:
        return (self.topic,)


class ReadReply(msgspec.Struct, frozen=True):
    """Messages from an offset on, and where to go on. `delay_ids` are those of messages that were delayed, by offset.

    What was `skipped` is damaged and lies between the messages, or before or behind them.
    """

    messages: list[Message]
    delay_ids: dict[int, int]
    next_offset: int
    start_offset: int
    end_offset: int
    skipped: tuple[SkippedRange, ...] = ()

    @property
    def wake_at(self) -> int | None:
        """The end offset that the reader waits to see passed; None if there is something to read now."""
        is_at_end = self.next_offset == self.end_offset
        return self.next_offset if is_at_end and not self.messages and not self.skipped else None


class Read(Command[ReadReply], frozen=True):
    """Messages from a place on, at least one if there is any: at most `limit`, while their batches fit `bytes_max`.

    The reply goes on over the ends of segments and over offsets without a message, but gives up, with none, after 4 MiB
    of batches that hold nothing to be read.

    NotFound, OffsetOutOfRange. DamagedBatch: the first message cannot be read, and the topic does not skip damage.
    """

    action: ClassVar[Action] = Action.FETCH
    is_query: ClassVar[bool] = True
    topic: str
    partition: int
    start: Start = EARLIEST
    limit: Annotated[int, Within(1, PAGE_MAX, is_cut=True)] = 500
    bytes_max: FetchBytes = FETCH_BYTES_DEFAULT

    def topics(self) -> Iterable[str]:
        return (self.topic,)


class TimedOffset(NamedTuple):
    """A message by its own timestamp, in ns, and the epoch in which it was written."""

    offset: int
    timestamp: int
    epoch: int


class TimestampSearch(NamedTuple):
    """What a step of a search found, and where the next one begins; None: the search is over."""

    found: TimedOffset | None
    next_offset: int | None


class FindTimestamp(Command[TimestampSearch], frozen=True):
    """The first message whose own timestamp is at least a time; without one, the message with the latest timestamp.

    Producers may set timestamps as they like, so heads have to be looked at: those of one file a step, from `offset`
    on. Files that were looked through once are passed over if nothing in them is late enough. NotFound.
    """

    action: ClassVar[Action] = Action.FETCH
    is_query: ClassVar[bool] = True
    is_long: ClassVar[bool] = True
    topic: str
    partition: int
    time_ns: int | None = None
    offset: int = 0

    def topics(self) -> Iterable[str]:
        return (self.topic,)


class LogBounds(NamedTuple):
    """The first offset kept, the next one to be written, and the epoch of the log.

    And, if an offset was given, how many bytes are stored from there on.
    """

    start: int
    end: int
    epoch: int
    size: int = 0


class DescribeBounds(Command[LogBounds], frozen=True):
    """Where a partition begins and ends, and with an offset, how much is stored from there on. NotFound."""

    action: ClassVar[Action] = Action.FETCH
    is_query: ClassVar[bool] = True
    topic: str
    partition: int
    offset: int | None = None

    def topics(self) -> Iterable[str]:
        return (self.topic,)


class FindEpochEnd(Command[tuple[int, int]], frozen=True):
    """The largest epoch of a log that is not above the one given, and where it ends.

    An epoch before the first that the log knows ended where that one starts. (-1, -1): it is below zero. NotFound.
    """

    action: ClassVar[Action] = Action.FETCH
    is_query: ClassVar[bool] = True
    topic: str
    partition: int
    epoch: int

    def topics(self) -> Iterable[str]:
        return (self.topic,)


class Peek(Command[list[Received]], frozen=True):
    """What a poll would hand out next of a partition, as messages without a lease. NotFound: there is no such group."""

    action: ClassVar[Action] = Action.CONSUME
    is_query: ClassVar[bool] = True
    is_walk: ClassVar[bool] = True
    topic: str
    partition: int
    group: str
    limit: Annotated[int, Within(1, PAGE_MAX, is_cut=True)]

    def topics(self) -> Iterable[str]:
        return (self.topic,)

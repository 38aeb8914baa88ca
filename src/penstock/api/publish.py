"""Publishing: messages that are stored now, and messages that are to come later."""

from collections.abc import Iterable, Sequence
from typing import ClassVar, NamedTuple, overload

from ..errors import PenstockError
from ..model import Buffer, Message
from .command import Command
from .principals import Action


class Published(NamedTuple):
    """Where a message is, or where its first copy was."""

    partition: int
    offset: int
    is_duplicate: bool
    # The reply may leave once the log is durable to here, also for a duplicate that was answered from memory.
    durable_at: int
    # It waits for its time: both offsets are those of the delay log.
    is_delayed: bool = False


class Delayed(NamedTuple):
    """A message that is to come at a time. A later one with the same `delay_key` takes its place while it waits."""

    message: Message
    due_ns: int
    delay_key: bytes | None = None


class PublishedRun(Sequence[Published]):
    """The messages of one batch, stored one after the other: a `Published` is made when one is asked for."""

    __slots__ = ("_count", "first")

    def __init__(self, first: Published, count: int) -> None:
        self.first, self._count = first, count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> Published: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Published]: ...
    def __getitem__(self, place: int | slice) -> Published | Sequence[Published]:
        if isinstance(place, slice):
            return [self[one] for one in range(*place.indices(self._count))]
        if not -self._count <= place < self._count:
            raise IndexError(f"{self._count} messages, none at {place}")
        return self.first._replace(offset=self.first.offset + place % self._count)


PublishOutcome = Published | PenstockError


class _ToTopic(Command[Sequence[Published]], frozen=True):
    action: ClassVar[Action] = Action.PUBLISH
    topic: str

    def topics(self) -> Iterable[str]:
        return (self.topic,)


class Publish(_ToTopic, frozen=True):
    """Store all messages, or none of them; results in their order. All of one partition go as one batch.

    PartlyPublished: the disk filled up in the middle, and some partitions have theirs.
    """

    messages: Sequence[Message]
    partition: int | None = None


class PublishValues(_ToTopic, frozen=True):
    """Store bare values in the partition whose turn it is, as one batch, all or none; where each of them is."""

    values: Sequence[bytes]


class BatchStored(NamedTuple):
    """Where the messages of a batch are, and how many partitions the topic has by now."""

    stored: Sequence[Published]
    partitions: int


class PublishBatch(Command[BatchStored], frozen=True):
    """Store a batch that a client encoded, whole; with a producer's marks a repeat gets the first result."""

    action: ClassVar[Action] = Action.PUBLISH
    topic: str
    partition: int
    batch: Buffer

    def topics(self) -> Iterable[str]:
        return (self.topic,)


class Schedule(_ToTopic, frozen=True):
    """Store messages that are to come at a time each. Their offsets are those of the delay log."""

    delayed: Sequence[Delayed]
    partition: int | None = None


class PublishEach(Command[list[PublishOutcome]], frozen=True):
    """Store what can be stored; an answer or an error for each message."""

    action: ClassVar[Action] = Action.PUBLISH
    topic: str
    messages: Sequence[Message]
    partition: int | None = None

    def topics(self) -> Iterable[str]:
        return (self.topic,)

"""Publishing: messages that are stored now, and messages that are to come later."""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum, IntEnum
from typing import Annotated, ClassVar, NamedTuple, TypeVar, overload

import msgspec

from ..errors import PenstockError, SchemaViolation
from ..model import Buffer, Message
from .bounds import MESSAGES_MAX, PUBLISH_MESSAGES_MAX, SCHEDULE_MESSAGES_MAX, items
from .command import Command
from .principals import Action

R = TypeVar("R")


class Acks(IntEnum):
    """What a publish waits for: nothing, the leader's fsync policy, or everything there is to wait for."""

    NONE = 0
    LEADER = 1
    ALL = 2


class Guarantee(Enum):
    """What holds when a publish returns: buffered survives the end of the process, fsynced that of the power, and
    replicated the loss of a machine.
    """

    BUFFERED = "buffered"
    FSYNCED = "fsynced"
    REPLICATED = "replicated"


class Safety(msgspec.Struct, frozen=True):
    """What a reply to a publish says: what holds, and on how many machines the messages are.

    `copies` is 0 where no other machine ever has a copy: a broker without a standby.
    """

    guarantee: Guarantee
    copies: int = 0


BUFFERED = Safety(Guarantee.BUFFERED)
"""What a broker without a standby says of messages that it has not synced."""


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


# Some twenty milliseconds, if each goes to another partition.
LARGE_MESSAGES = 200
# The first one of each partition makes a log.
LARGE_DELAYED = 8


class Verdict:
    """What came of comparing the messages of a command with the schemas of its topic. Does not travel.

    `binding` is what they were compared with; the node compares again if it is another one by now. `wrong` has what
    is known of messages that do not fit, by their indexes: of the first, or of all. `count` is how many do not fit.
    """

    __slots__ = ("binding", "count", "wrong")

    def __init__(self, binding: object, wrong: Mapping[int, SchemaViolation], count: int) -> None:
        self.binding, self.wrong, self.count = binding, wrong, count


Messages = Annotated[Sequence[Message], items(PUBLISH_MESSAGES_MAX, least=1)]
Values = Annotated[Sequence[bytes], items(MESSAGES_MAX, least=1)]


class _Validated(Command[R], frozen=True, kw_only=True, omit_defaults=True):
    verdict: Verdict | None = None


class StoreMessages(_Validated[R], frozen=True):
    """Something that stores messages in a topic, which may ask for schemas: a driver then fills in the verdict."""

    action: ClassVar[Action] = Action.PUBLISH
    counted: ClassVar[str] = "published"
    packed_bytes_max: ClassVar[int | None] = None
    # The field that holds its messages: messages, values, delayed or batch.
    content_field: ClassVar[str] = "messages"
    is_each_answered: ClassVar[bool] = False
    # If it is refused, its messages are published again, each by itself.
    is_tried_again: ClassVar[bool] = False
    topic: str

    def topics(self) -> Iterable[str]:
        return (self.topic,)


class _ToTopic(StoreMessages[Sequence[Published]], frozen=True):
    pass


class Publish(_ToTopic, frozen=True):
    """Store all messages, or none of them; results in their order. All of one partition go as one batch.

    PartlyPublished: the disk filled up in the middle, and some partitions have theirs.
    """

    messages: Messages
    partition: int | None = None

    def may_be_repeated(self) -> bool:
        return all(message.idempotency_key for message in self.messages)


class PublishValues(_ToTopic, frozen=True):
    """Store bare values in the partition whose turn it is, as one batch, all or none; where each of them is."""

    is_repeatable: ClassVar[bool] = False
    content_field: ClassVar[str] = "values"
    is_tried_again: ClassVar[bool] = True
    values: Values


class PublishedTo(NamedTuple):
    """Where a partition ends now. `is_disk_full`: the disk guard refuses other messages."""

    next_offset: int
    is_disk_full: bool


class PublishAt(Command[PublishedTo], frozen=True):
    """Store bare values, or messages, that a writer has accepted and numbered: the first one has `offset`.

    They are one batch, written also where the disk guard would refuse them. What lies below the end of the log was
    stored by an earlier try: then nothing is stored, and the writer goes on from `next_offset`. NoSpace: nothing was
    stored. OffsetOutOfRange: `offset` lies beyond the end.
    """

    action: ClassVar[Action] = Action.PUBLISH_BELOW_RESERVE
    topic: str
    partition: int
    offset: int
    values: Sequence[bytes] = ()
    messages: Sequence[Message] = ()

    def topics(self) -> Iterable[str]:
        return (self.topic,)


class CheckBacklog(Command[None], frozen=True):
    """BacklogFull or NeverFits, unless the backlog of a partition has room for so many messages of so many bytes."""

    action: ClassVar[Action] = Action.PUBLISH
    is_query: ClassVar[bool] = True
    topic: str
    partition: int
    messages: int
    size_bytes: int

    def topics(self) -> Iterable[str]:
        return (self.topic,)


class BatchStored(NamedTuple):
    """Where the messages of a batch are, and how many partitions the topic has by now."""

    stored: Sequence[Published]
    partitions: int


class PublishBatch(StoreMessages[BatchStored], frozen=True):
    """Store a batch that a client encoded, whole; with a producer's marks a repeat gets the first result."""

    is_repeatable: ClassVar[bool] = False
    content_field: ClassVar[str] = "batch"
    partition: int
    batch: Buffer


class PublishRecords(StoreMessages[BatchStored], frozen=True):
    """Store one record batch of a Kafka producer, whole; a repeat gets the first result.

    MalformedBatch, ChecksumMismatch, UnsupportedFormat, TooLarge, Refused, OutOfSequence, NotFound, NoSpace.
    """

    content_field: ClassVar[str] = "batch"
    partition: int
    batch: Buffer


class Schedule(_ToTopic, frozen=True):
    """Store messages that are to come at a time each. Their offsets are those of the delay log.

    For many that go to several partitions, the delay logs that are not there yet are made first, with other commands in
    between.
    """

    may_be_large: ClassVar[bool] = True
    content_field: ClassVar[str] = "delayed"
    delayed: Annotated[Sequence[Delayed], items(SCHEDULE_MESSAGES_MAX, least=1)]
    partition: int | None = None

    def is_large(self) -> bool:
        return self.partition is None and len(self.delayed) > LARGE_DELAYED

    def may_be_repeated(self) -> bool:
        return all(delayed.message.idempotency_key for delayed in self.delayed)


class ScheduleValues(_ToTopic, frozen=True):
    """Store bare values that are to come at one time, in the partition whose turn it is; where each of them is."""

    is_repeatable: ClassVar[bool] = False
    content_field: ClassVar[str] = "values"
    values: Values
    due_ns: int


class PublishEach(StoreMessages[list[PublishOutcome]], frozen=True):
    """Store what can be stored; an answer or an error for each message.

    Many are stored partition by partition, with other commands in between. NotFound: there is no such topic, or no
    such partition.
    """

    may_be_large: ClassVar[bool] = True
    is_each_answered: ClassVar[bool] = True
    messages: Messages
    partition: int | None = None

    def is_large(self) -> bool:
        return len(self.messages) > LARGE_MESSAGES

    def may_be_repeated(self) -> bool:
        return all(message.idempotency_key for message in self.messages)

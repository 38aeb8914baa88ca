"""Dead letters: browsed, counted, sent back."""

from collections.abc import Iterable
from enum import Enum
from typing import Annotated, ClassVar

import msgspec

from ..errors import Refused
from ..model import DeadLetterMessage, Headers, Message, Provenance
from .bounds import HEADERS_MAX, PAGE_MAX, Within, items
from .command import Command
from .principals import Action

REDRIVE_LIMIT = 10_000


PROVENANCE_HEADER = "__penstock.dead_letter"
"""Header that carries the provenance in storage, always the last one. Readers take it out: it is not the user's."""

DEAD_LETTER_SUFFIX = ".dlq"
_PROVENANCE = msgspec.msgpack.Decoder(Provenance)


def split_headers(headers: Headers) -> tuple[Headers, Provenance | None]:
    """The headers that a producer gave a dead letter, and its provenance; None if they are of another message."""
    name, note = headers[-1] if headers else ("", None)
    if name != PROVENANCE_HEADER or note is None:
        return headers, None
    try:
        return tuple(headers[:-1]), _PROVENANCE.decode(note)
    except msgspec.DecodeError:
        # A producer's own header of that name.
        return headers, None


def dead_letter_message(message: Message) -> Message:
    """A message as it is stored in a topic of dead letters, as readers get it."""
    own, provenance = split_headers(message.headers)
    if provenance is None:
        return message
    fields = {name: getattr(message, name) for name in message.__struct_fields__}
    return DeadLetterMessage(**{**fields, "headers": own, "provenance": provenance})


class DeadLetter(msgspec.Struct, frozen=True):
    """A dead letter: its place in the dead-letter topic, the message as it was published, and its provenance."""

    partition: int
    offset: int
    message: Message
    provenance: Provenance


class Target(Enum):
    """Which consumers get a redriven dead letter: all groups of its topic, or the group that failed."""

    TOPIC = "topic"
    GROUP = "group"


class GroupBy(Enum):
    """What dead letters are counted by."""

    REASON = "reason"
    ERROR = "error"
    CONSUMER = "consumer"


def first_line(error: str) -> str:
    """What errors are counted by: the lines below the first say where it was raised."""
    return error.partition("\n")[0]


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which dead letters are meant: all, or those for which every condition that is given holds.

    `offsets` are pairs (partition, offset) of the dead-letter topic. `error` is the last error, or its first line.
    """

    is_all: bool = False
    reason: str | None = None
    group: str | None = None
    error: str | None = None
    offsets: Annotated[frozenset[tuple[int, int]], items(REDRIVE_LIMIT)] | None = None
    before_ns: int | None = None
    after_ns: int | None = None

    def __post_init__(self) -> None:
        conditions = (self.reason, self.group, self.error, self.offsets)
        times = (self.before_ns, self.after_ns)
        if not self.is_all and all(one is None for one in (*conditions, *times)):
            raise Refused("say which dead letters: a filter, or all of them")

    def takes(self, letter: DeadLetter) -> bool:
        died, place = letter.provenance, (letter.partition, letter.offset)
        return (
            (self.reason is None or died.dlq_reason == self.reason)
            and (self.group is None or died.group == self.group)
            and (self.error is None or self.error in (died.last_error, first_line(died.last_error)))
            and (self.offsets is None or place in self.offsets)
            and (self.before_ns is None or died.dlq_timestamp < self.before_ns)
            and (self.after_ns is None or died.dlq_timestamp > self.after_ns)
        )


ALL = Selection(is_all=True)


class Edit(msgspec.Struct, frozen=True, array_like=True):
    """What is changed in a dead letter before it goes back. Null is a value that can be set."""

    is_key_set: bool = False
    key: bytes | None = None
    is_value_set: bool = False
    value: bytes | None = None
    headers: Annotated[tuple[tuple[str, bytes | None], ...], items(HEADERS_MAX)] | None = None

    @property
    def size(self) -> int:
        headers = sum(len(name) + len(value or b"") for name, value in self.headers or ())
        return len(self.key or b"") + len(self.value or b"") + headers


class DeadLetterPage(msgspec.Struct, frozen=True):
    """Some dead letters, and the (partition, offset) where the next ones begin; None: these were the last."""

    letters: list[DeadLetter]
    cursor: tuple[int, int] | None = None


class BrowseDeadLetters(Command[DeadLetterPage], frozen=True):
    """The dead letters of a topic that were not redriven, partition by partition, oldest first."""

    action: ClassVar[Action] = Action.SEE_DEAD_LETTERS
    is_query: ClassVar[bool] = True
    is_walk: ClassVar[bool] = True
    topic: str
    selection: Selection = ALL
    limit: Annotated[int, Within(1, PAGE_MAX, is_cut=True)] = 100
    cursor: tuple[int, int] = (0, 0)

    def topics(self) -> Iterable[str]:
        return (self.topic,)


class DeadLetterCount(msgspec.Struct, frozen=True):
    """How many dead letters share a reason, an error or a consumer, and when the first and last of them died."""

    value: str
    count: int
    first_ns: int
    last_ns: int


class CountDeadLetters(Command[list[DeadLetterCount]], frozen=True):
    """How many dead letters of a topic share each reason, error or consumer; the most frequent first."""

    action: ClassVar[Action] = Action.SEE_DEAD_LETTERS
    is_query: ClassVar[bool] = True
    is_walk: ClassVar[bool] = True
    topic: str
    by: GroupBy
    selection: Selection = ALL

    def topics(self) -> Iterable[str]:
        return (self.topic,)


class DiscardReply(msgspec.Struct, frozen=True):
    """How many dead letters were meant, and how many of them are not listed any more."""

    matched: int = 0
    discarded: int = 0


class DiscardDeadLetters(Command[DiscardReply], frozen=True):
    """Finish dead letters of a topic without sending them anywhere: they are not listed any more, and the messages
    stay in the dead-letter topic for its retention. Refused: the limit is below 1.
    """

    action: ClassVar[Action] = Action.DISCARD
    is_walk: ClassVar[bool] = True
    audit_line: ClassVar[str] = "{command.topic}: {reply.discarded} dead letters discarded"
    topic: str
    selection: Selection = ALL
    limit: int = REDRIVE_LIMIT
    is_dry_run: bool = False

    def topics(self) -> Iterable[str]:
        return (self.topic,)

    def is_audited(self) -> bool:
        return not self.is_dry_run


class RedriveReply(msgspec.Struct, frozen=True):
    """How many dead letters were meant, how many are on their way, and why others cannot go: (partition, offset, why).

    `places` are those that a dry run found able to go, (partition, offset) each.
    """

    matched: int = 0
    redriven: int = 0
    failed: list[tuple[int, int, str]] = []
    places: list[tuple[int, int]] = []


class RedriveDeadLetters(Command[RedriveReply], frozen=True):
    """Send dead letters of a topic back, to the topic or to the group that failed. Each arrives once, after a sync.

    Refused, TooLarge: the limit is below 1, or the edit cannot be made.
    """

    action: ClassVar[Action] = Action.REDRIVE
    packed_bytes_max: ClassVar[int | None] = None
    is_walk: ClassVar[bool] = True
    is_repeatable: ClassVar[bool] = False
    audit_line: ClassVar[str] = (
        "{command.topic}: {reply.redriven} dead letters to the {command.target.value}"
    )
    topic: str
    selection: Selection = ALL
    target: Target = Target.TOPIC
    edit: Edit | None = None
    limit: int = REDRIVE_LIMIT
    is_dry_run: bool = False

    def topics(self) -> Iterable[str]:
        return (self.topic,)

    def is_audited(self) -> bool:
        return not self.is_dry_run

"""The words of the product: messages, places in a log, names, priorities.

Values only. Nothing here decides or stores.
"""

import re
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, NewType

import msgspec

from .errors import InvalidName, Refused

Offset = NewType("Offset", int)
"""Place of a message in its partition, counted from 0."""

Epoch = NewType("Epoch", int)
"""Number of one writer's reign over a log; a recovery that lost messages opens a new one."""

LogId = NewType("LogId", int)
"""64-bit identity of a log. It seeds the checksums, so bytes of another log never pass."""

ProducerId = NewType("ProducerId", int)

Buffer = bytes | bytearray | memoryview
"""Bytes whose memory another object may own: read them, never keep them without copying."""

Headers = Sequence[tuple[str, bytes | None]]
"""Ordered name and value pairs; a name may repeat or be empty, and a value may be null."""

OFFSET_NONE = Offset(-1)
PRODUCER_NONE = ProducerId(-1)


class Priority(IntEnum):
    """Lane of a message; the smaller number is served first."""

    CRITICAL = 0
    HIGH = 1
    NORMAL = 2
    LOW = 3
    BACKGROUND = 4


class Provenance(msgspec.Struct, frozen=True):
    """Where a dead letter came from and why it died, under the names that users see. Times are nanoseconds."""

    original_topic: str
    original_partition: int
    original_offset: int
    original_timestamp: int
    delivery_attempts: int
    first_delivery: int
    last_delivery: int
    last_consumer: str
    group: str
    last_error: str
    dlq_timestamp: int
    dlq_reason: str


class Valued(msgspec.Struct, frozen=True, gc=False):
    """What has a value, and the ways to read it."""

    value: bytes | None

    @property
    def dead_letter(self) -> Provenance | None:
        """Where it came from and why it died, if it was read from a topic of dead letters."""
        return None

    @property
    def data(self) -> bytes:
        """The value; of a tombstone, which has none, no bytes."""
        return self.value or b""

    def json(self, type: type[Any] = Any) -> Any:  # noqa: A002 - as msgspec calls it
        """The value, read as JSON; with `type`, what msgspec makes of it. Refused if it is something else."""
        try:
            return msgspec.json.decode(self.data, type=type)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Refused(f"the value cannot be read as JSON: {error}") from None


class Message(Valued, frozen=True, gc=False):
    """What a user sends and receives.

    A null key is not an empty key, and a null value (a tombstone) is not an empty value.
    Times are nanoseconds since 1970 in UTC; a `timestamp` of 0 lets the broker fill it in.
    """

    key: bytes | None = None
    headers: Headers = ()
    priority: int = Priority.NORMAL
    timestamp: int = 0
    expires_at: int | None = None
    idempotency_key: bytes | None = None
    schema_id: int | None = None
    offset: int = OFFSET_NONE


def content_bytes(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Bytes of a message's key, value and headers together."""
    size = len(key or b"") + len(value or b"")
    for name, content in headers:
        size += len(name) + len(content or b"")
    return size


class DeadLetterMessage(Message, frozen=True, gc=False):
    """A message of a topic of dead letters, with the headers that its producer gave it."""

    provenance: Provenance | None = None

    @property
    def dead_letter(self) -> Provenance | None:
        return self.provenance


class MessageColumns(NamedTuple):
    """Messages column by column, in the order of the fields of Message: message i is the i-th item of each column."""

    values: Sequence[bytes | None]
    keys: Sequence[bytes | None]
    headers: Sequence[Headers]
    priorities: Sequence[int]
    timestamps: Sequence[int]
    expires_at: Sequence[int | None]
    idempotency_keys: Sequence[bytes | None]
    schema_ids: Sequence[int | None]
    offsets: Sequence[int]

    def message(self, index: int) -> Message:
        fields: list[Any] = [column[index] for column in self]
        return Message(*fields)

    def rows(self, start: int, stop: int) -> "MessageColumns":
        """Messages `start` to `stop`."""
        return self.each(lambda column: column[start:stop])

    def each(self, change: Callable[[Sequence[Any]], Sequence[Any]]) -> "MessageColumns":
        """Every column changed in the same way."""
        return MessageColumns(*map(change, self))


class TopicPartition(NamedTuple):
    """A partition by its name, which users write as "orders/0"."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.number}"


class LogEnd(NamedTuple):
    """How far a log reaches: the next offset to be written, and by whom the last one was."""

    epoch: Epoch
    offset: Offset


NAME_LENGTH_MAX = 245  # Leaves room for ".<topic id>" inside the 255 bytes of a directory name.
_NAME = re.compile(r"[A-Za-z0-9._-]{1,245}", re.ASCII)


def check_name(name: str, kind: str) -> str:
    """Return `name` if it may be used for a topic, group, member or owner; it is then safe in a path.

    As bare text: an Enum that is text, too, is written into a path by its name in the program.
    """
    try:
        is_good = _NAME.fullmatch(name) and name not in {".", ".."}
    except TypeError:
        raise Refused(f"a {kind} name is text, not {type(name).__name__}") from None
    if not is_good:
        raise InvalidName(kind, name, length_max=NAME_LENGTH_MAX)
    return name if type(name) is str else str.__str__(name)

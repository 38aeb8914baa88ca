"""What a producer decides: how messages become batches, how batches are numbered, what a failure means. No I/O."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

import mmh3

from ..api.arguments import text, whole_number
from ..api.units import Duration, duration_s
from ..codec import Columns, Compression, Marks, encode
from ..codec.blobs import Blobs, Joined
from ..config import LimitsConfig
from ..errors import OutOfSequence, PenstockError, Refused, TooLarge, Unreachable
from ..model import Headers, Priority
from .calls import Call
from .publish import BatchStored, HeadersIn, append_batch
from .retry import may_repeat
from .value_appender import UNEVEN, BatchLimits, ValueAppender

_SEQUENCE_MASK = (1 << 31) - 1
_S_NS = 1_000_000_000
# A hundred years: what lies beyond is a mistake, and would not fit into a time of 64 bits.
_TTL_S_MAX = 100 * 366 * 24 * 3600
_LIMITS = LimitsConfig()
# What a message takes in memory beside its bytes, and what each of its headers does: about what the interpreter adds.
_MESSAGE_COST = 48
_HEADER_COST = 96


class Extra(NamedTuple):
    """What few messages have."""

    headers: Headers
    priority: int
    expires_at: int | None


NO_EXTRA = Extra((), Priority.NORMAL, None)


class CheckedMessage(NamedTuple):
    """A message that was found good."""

    value: bytes | None
    key: bytes | None
    extra: Extra

    @property
    def cost(self) -> int:
        """How much of a batch it takes."""
        size = len(self.value or b"") + len(self.key or b"")
        return size + sum(len(name) + len(one) for name, one in self.extra.headers)

    @property
    def is_plain(self) -> bool:
        """Whether it is bytes and nothing else."""
        return type(self.value) is bytes and self.key is None and self.extra is NO_EXTRA


class Batch:
    """Messages of one partition on their way: filled, then sealed, encoded and sent, then settled.

    Plain values come in by `append` without a lock (`value_appender.py`), until there is something else among them; all
    else with the producer's lock held.
    """

    __slots__ = (
        "_appender",
        "_made",
        "_room",
        "_size",
        "append",
        "count",
        "created_ns",
        "created_s",
        "error",
        "extras",
        "is_doubtful",
        "is_plain",
        "keys",
        "partition",
        "settled",
        "size",
        "stored",
        "tries",
        "values",
        "weight",
    )

    def __init__(
        self,
        partition: int,
        now: tuple[int, float],
        room: BatchLimits,
        settled: Any,
        made: Callable[["Batch", int], Any],
    ) -> None:
        """Whoever adds a message gets `made(this batch, its place)`."""
        self.partition = partition
        # All messages of a batch get the time of its first: they are at most a few milliseconds apart.
        self.created_ns, self.created_s = now
        self._room, self._made = room, made
        self._appender = ValueAppender(room, made, self)
        self.append, self.values = self._appender.append, self._appender.values
        self.is_plain = True
        self.keys: list[bytes | None] | None = None
        self.extras: dict[int, Extra] = {}
        # How many bytes and how many messages are in it: known once it is not plain, or sealed.
        self.size = self.count = 0
        # What it takes of a producer's buffer, once it is sealed: more than its bytes, which may be none.
        self.weight = 0
        # Of every single value, if they are all of one.
        self._size = UNEVEN
        self.tries = 0
        # Whether a try may have been carried out although we heard nothing.
        self.is_doubtful = False
        self.stored: BatchStored | None = None
        self.error: PenstockError | None = None
        self.settled = settled

    def add(self, one: CheckedMessage) -> Any | None:
        """Add a message; returns what was made for it, or None if it does not fit."""
        if self.is_plain and one.is_plain:
            return self._appender.append_waiting(one.value)  # type: ignore[arg-type]  # Plain ones have a value.
        self._stop_appender()
        index = len(self.values)
        if not self._fits(one.cost):
            return None
        if one.key is not None and self.keys is None:
            self.keys = [None] * index
        self.values.append(one.value)
        if self.keys is not None:
            self.keys.append(one.key)
        if one.extra is not NO_EXTRA:
            self.extras[index] = one.extra
        self._size = UNEVEN
        self.size += one.cost
        return self._made(self, index)

    def _fits(self, cost: int) -> bool:
        """Whether one more message has room. The first always has: a large one goes alone."""
        count = len(self.values)
        is_roomy = self.size + cost < self._room.bytes_max and count < self._room.messages_max
        return is_roomy or not count

    def _stop_appender(self) -> None:
        """From now on, messages come in by `add` alone."""
        if not self.is_plain:
            return
        self._appender.end()
        self.is_plain = False
        self._size = size = self._appender.size
        values: list[Any] = self.values
        self.size = sum(map(len, values)) if size == UNEVEN else size * len(values)

    def seal(self) -> None:
        """Take no more."""
        self._stop_appender()
        self.count = len(self.values)
        headers = sum([len(one.headers) for one in self.extras.values()])
        self.weight = self.size + _MESSAGE_COST * self.count + _HEADER_COST * headers

    def columns(self) -> Columns:
        rows = range(self.count) if self.extras else ()
        extras = [self.extras.get(one, NO_EXTRA) for one in rows]
        return Columns(
            values=self._joined() if self._size != UNEVEN else self.values,
            keys=self.keys,
            timestamps=self.created_ns,
            headers=[one.headers for one in extras] if extras else None,
            priorities=[one.priority for one in extras] if extras else Priority.NORMAL,
            expires_at=_times([one.expires_at for one in extras]),
        )

    def _joined(self) -> Joined:
        """Values of one size, so that nobody has to look for theirs."""
        values: list[Any] = self.values
        return Joined([(Blobs(self._size, None, b"".join(values)), self.count)])

    def clear(self) -> None:
        """It is settled: the messages are not needed any more."""
        self.values, self.keys, self.extras = [], None, {}
        self._appender.values = []


def _times(times: list[int | None]) -> list[int | None] | None:
    return times if any(one is not None for one in times) else None


@dataclass(slots=True)
class Numbering:
    """Who sends, and which number comes next. A server that sees a number twice stores it once."""

    producer_id: int
    epoch: int = 0
    next_sequence: int = 0

    def marks(self) -> Marks:
        return Marks(
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            first_sequence=self.next_sequence,
        )

    def stored(self, count: int) -> None:
        self.next_sequence = (self.next_sequence + count) & _SEQUENCE_MASK

    def start_again(self) -> None:
        """After a batch of which nobody knows whether it was stored: what still travels of it is refused."""
        self.epoch += 1
        self.next_sequence = 0


class Next(Enum):
    """What to do with a batch after a failure."""

    WAIT = "wait and send the same bytes again"
    RENUMBER = "the server has forgotten us: begin a new epoch"
    GIVE_UP = "it failed"


def after(error: PenstockError, batch: Batch, *, is_numbered: bool, is_late: bool) -> Next:
    """What a failed try means. Doubt is noted in the batch."""
    if isinstance(error, Unreachable) and error.is_sent:
        batch.is_doubtful = True
    if isinstance(error, OutOfSequence):
        # In doubt a new number could store it twice.
        return Next.GIVE_UP if batch.is_doubtful or batch.tries > 1 else Next.RENUMBER
    if is_late or not may_repeat(error, is_repeatable=is_numbered):
        return Next.GIVE_UP
    return Next.WAIT


class Wanted(NamedTuple):
    """Where batches go and how."""

    topic: str
    acks: str
    compression: Compression


def compression_of(name: str) -> Compression:
    try:
        return Compression[text("compression", name).upper()]
    except KeyError:
        known = ", ".join(one.name.lower() for one in Compression)
        raise Refused(f"compression is one of {known}, not {name!r}") from None


def call_of(batch: Batch, wanted: Wanted, numbering: Numbering | None) -> Call[BatchStored]:
    """The request that stores a batch."""
    marks = Marks() if numbering is None else numbering.marks()
    encoded = encode(batch.columns(), compression=wanted.compression, marks=marks)
    pieces, is_numbered = encoded.pieces(), numbering is not None
    return append_batch(wanted.topic, batch.partition, pieces, wanted.acks, is_numbered=is_numbered)


def room_of(bytes_max: int, messages_max: int) -> BatchLimits:
    return BatchLimits(bytes_max, messages_max, _LIMITS.value_bytes_max)


def partition_of(key: bytes, partitions: int) -> int:
    """As the server does it: docs/partitioner.md."""
    return int(mmh3.hash(key, 0, signed=False)) % partitions


def encoded(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise Refused(f"a {what} is text that UTF-8 cannot hold: {error.reason}") from None


def bytes_of(content: object, what: str, limit: int) -> bytes | None:
    """Checked where the caller still sees the error, so that one message cannot spoil a batch."""
    if isinstance(content, str):
        content = encoded(content, what)
    if content is None:
        return None
    if not isinstance(content, bytes):
        raise Refused(f"a {what} is bytes, text or None, not {type(content).__name__}")
    if len(content) > limit:
        raise TooLarge(f"{what} in bytes", found=len(content), limit=limit)
    return content


def given(value: object, key: object, extra: Extra) -> CheckedMessage:
    """A message, checked where the caller still sees the error."""
    content = bytes_of(value, "value", _LIMITS.value_bytes_max)
    return CheckedMessage(content, bytes_of(key, "key", _LIMITS.key_bytes_max), extra)


def extra_of(headers: HeadersIn, priority: int | None, ttl: Duration | None) -> Extra:
    chosen = Priority.NORMAL if priority is None else whole_number("priority", priority, 0)
    if not headers and chosen == Priority.NORMAL and ttl is None:
        return NO_EXTRA
    if not Priority.CRITICAL <= chosen <= Priority.BACKGROUND:
        raise Refused(f"priority must be in 0..4, got {chosen}")
    return Extra(_pairs(headers), chosen, None if ttl is None else _after(ttl))


def _after(ttl: Duration) -> int:
    """When a message expires, in nanoseconds since 1970."""
    seconds = duration_s(ttl, "ttl")
    if not 0 < seconds <= _TTL_S_MAX:
        raise Refused(f"ttl must be above 0 and at most {_TTL_S_MAX} s, got {ttl!r}")
    return time.time_ns() + int(seconds * _S_NS)


def _pairs(headers: HeadersIn) -> Sequence[tuple[str, bytes]]:
    found, size = [], 0
    try:
        for name, value in headers.items() if isinstance(headers, dict) else headers:
            content = bytes_of(value, "header value", _LIMITS.headers_bytes_max)
            if not name or content is None:
                raise Refused("a header needs a name of at least one character and a value")
            size += len(encoded(name, "header's name")) + len(content)
            found.append((name, content))
    except (TypeError, ValueError, AttributeError):
        raise Refused("headers are pairs of a name and a value, or a dict of them") from None
    if size > _LIMITS.headers_bytes_max:
        raise TooLarge("headers in bytes", found=size, limit=_LIMITS.headers_bytes_max)
    return tuple(found)


@dataclass(slots=True)
class Tally:
    """What has become of all messages so far."""

    stored: int = 0
    failed: int = 0
    first_error: PenstockError | None = None
    buffered_bytes: int = 0
    # Batches that are sealed and not settled, in the order in which they were sealed.
    unsettled: dict[Batch, None] = field(default_factory=dict)

    def sealed(self, batch: Batch) -> None:
        self.unsettled[batch] = None
        self.buffered_bytes += batch.weight

    def settled(self, batch: Batch) -> None:
        del self.unsettled[batch]
        self.buffered_bytes -= batch.weight
        if batch.error is None:
            self.stored += batch.count
        else:
            self.failed += batch.count
            self.first_error = self.first_error or batch.error

    def take_error(self) -> PenstockError | None:
        """The first error that nobody has been told of yet."""
        error, self.first_error = self.first_error, None
        return error

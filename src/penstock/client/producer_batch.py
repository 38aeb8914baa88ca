"""The messages of a producer, checked, and the batch that collects them. No I/O."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import mmh3

from ..api.contents import LIMITS, HeadersIn, bytes_of, pairs_of
from ..api.units import Duration, duration_s, priority_of
from ..codec import Columns
from ..codec.blobs import Blobs, JoinedBlobs
from ..config import LimitsConfig
from ..errors import PenstockError, Refused
from ..model import Headers, Priority
from .value_appender import UNEVEN, BatchLimits, ValueAppender

if TYPE_CHECKING:
    from .publish import BatchStored

_S_NS = 1_000_000_000
# A hundred years: a longer time is a mistake, and would not fit into a time of 64 bits.
_TTL_S_MAX = 100 * 366 * 24 * 3600
# The memory that a message takes beside its bytes, and that each of its headers does: about what the interpreter adds.
_MESSAGE_COST = 48
_HEADER_COST = 88
# What a header takes of a batch beside its bytes: two lengths.
_HEADER_LENGTHS = 8


class Extra(NamedTuple):
    """The fields that few messages have."""

    headers: Headers
    priority: int
    expires_at: int | None


NO_EXTRA = Extra((), Priority.NORMAL, None)


class CheckedMessage(NamedTuple):
    """A message of which every field was checked."""

    value: bytes | None
    key: bytes | None
    extra: Extra

    @property
    def cost(self) -> int:
        """How many bytes of a batch it takes."""
        size = len(self.value or b"") + len(self.key or b"")
        headers = self.extra.headers
        return size + sum(_HEADER_LENGTHS + len(name) + len(one or b"") for name, one in headers)

    @property
    def is_plain(self) -> bool:
        """Whether it is a value of bytes and nothing else."""
        return type(self.value) is bytes and self.key is None and self.extra is NO_EXTRA

    def require_within(self, limits: LimitsConfig) -> None:
        """TooLarge: a server with these limits would refuse the batch that has this message."""
        bytes_of(self.value, "value", limits.value_bytes_max)
        bytes_of(self.key, "key", limits.key_bytes_max)
        pairs_of(self.extra.headers, limits.headers_bytes_max)


class Batch:
    """Messages of one partition: filled, then sealed, encoded and sent, then settled.

    Plain values are appended without a lock (`value_appender.py`) until a message with more than a value comes.
    Everything else is done with the producer's lock held.
    """

    def __init__(
        self,
        partition: int,
        now: tuple[int, float],
        limits: BatchLimits,
        settled: Any,
        delivery_of: Callable[["Batch", int], Any],
    ) -> None:
        """`append` and `add` return `delivery_of(batch, index)`."""
        self.partition = partition
        # All messages of a batch have the time of the first: they are at most a few milliseconds apart.
        self.created_ns, self.created_s = now
        self._limits, self._delivery_of = limits, delivery_of
        self._appender = ValueAppender(limits, delivery_of, self)
        self.append, self.values = self._appender.append, self._appender.values
        self.is_plain = True
        self.keys: list[bytes | None] | None = None
        self.extras: dict[int, Extra] = {}
        # Bytes and messages: `size` is known once the batch is not plain, `count` once it is sealed.
        self.size = self.count = 0
        # The bytes that it takes of the producer's buffer, once it is sealed.
        self.weight = 0
        # The size of every value, if they are all of one size.
        self._value_size = UNEVEN
        self.tries = 0
        # Whether the server may have stored it although its answer did not come.
        self.is_doubtful = False
        # Whether the server refused its numbers, and it got others.
        self.is_renumbered = False
        self.stored: BatchStored | None = None
        self.error: PenstockError | None = None
        self.settled = settled

    def add(self, one: CheckedMessage) -> Any | None:
        """Add a message; returns its delivery, or None if it does not fit."""
        if self.is_plain and one.is_plain:
            return self._appender.append_waiting(one.value)  # type: ignore[arg-type]  # Plain ones have a value.
        self._stop_appender()
        index, limits = len(self.values), self._limits
        is_full = self.size + one.cost >= limits.bytes_max or index >= limits.messages_max
        # The first message always fits: a large one goes alone.
        if index and is_full:
            return None
        if one.key is not None and self.keys is None:
            self.keys = [None] * index
        self.values.append(one.value)
        if self.keys is not None:
            self.keys.append(one.key)
        if one.extra is not NO_EXTRA:
            self.extras[index] = one.extra
        self._value_size = UNEVEN
        self.size += one.cost
        return self._delivery_of(self, index)

    def _stop_appender(self) -> None:
        """End `append`: from now on messages come by `add` alone."""
        if not self.is_plain:
            return
        self._appender.end()
        self._value_size = size = self._appender.size
        values: list[Any] = self.values
        self.size = sum(map(len, values)) if size == UNEVEN else size * len(values)
        # Last: after a Ctrl-C before it, the next call counts them.
        self.is_plain = False

    def seal(self) -> None:
        """Take no more messages."""
        self._stop_appender()
        self.count = len(self.values)
        headers = sum([len(one.headers) for one in self.extras.values()])
        self.weight = self.size + _MESSAGE_COST * self.count + _HEADER_COST * headers

    def columns(self) -> Columns:
        rows = range(self.count) if self.extras else ()
        extras = [self.extras.get(one, NO_EXTRA) for one in rows]
        values: Any = self.values
        if self._value_size != UNEVEN:
            # Of one size: encoded as one blob.
            values = JoinedBlobs([(Blobs(self._value_size, None, b"".join(values)), self.count)])
        expires_at = [one.expires_at for one in extras]
        return Columns(
            values=values,
            keys=self.keys,
            timestamps=self.created_ns,
            headers=[one.headers for one in extras] if extras else None,
            priorities=[one.priority for one in extras] if extras else Priority.NORMAL,
            expires_at=None if all(one is None for one in expires_at) else expires_at,
        )

    def clear(self) -> None:
        """Free the messages: the batch is settled."""
        self.values, self.keys, self.extras = [], None, {}
        self._appender.values = []


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a key, by the rule of the server: docs/partitioner.md."""
    return int(mmh3.hash(key, 0, signed=False)) % partitions


def checked_message(value: object, key: object, extra: Extra) -> CheckedMessage:
    """A message; Refused or TooLarge here, before it can spoil a batch."""
    content = bytes_of(value, "value", LIMITS.value_bytes_max)
    return CheckedMessage(content, bytes_of(key, "key", LIMITS.key_bytes_max), extra)


def extra_of(headers: HeadersIn, priority: int | str | None, ttl: Duration | None) -> Extra:
    """The other fields of a message. Refused if one of them is wrong."""
    chosen = Priority.NORMAL if priority is None else priority_of(priority)
    if not headers and chosen == Priority.NORMAL and ttl is None:
        return NO_EXTRA
    return Extra(pairs_of(headers), chosen, None if ttl is None else expiry_ns(ttl, time.time_ns()))


def expiry_ns(ttl: Duration, now_ns: int) -> int:
    """The time at which a message expires that comes now, in nanoseconds since 1970. Refused if `ttl` is none."""
    seconds = duration_s(ttl, "ttl")
    if not 0 < seconds <= _TTL_S_MAX:
        raise Refused(f"ttl must be above 0 and at most {_TTL_S_MAX} s, got {ttl!r}")
    return now_ns + int(seconds * _S_NS)

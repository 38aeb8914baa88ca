"""Leased messages as bytes: batches, with their receipts beside them in columns (docs/formats/leased.md).

An answer is parts, one behind the other; a part holds messages of one lease.
"""

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import NamedTuple

import msgspec

from ..errors import MalformedBatch
from ..model import Buffer
from .encode import Encoded
from .head import Head, verify

MAGIC = b"PLS1"
_HEAD = Struct("<4sI")
# More than any poll hands out; keeps a hostile length from being believed.
_COLUMNS_BYTES_MAX = 16 << 20


class LeaseColumns(msgspec.Struct, frozen=True, array_like=True):
    """The receipts of all messages of a part: message i has the i-th offset and attempt.

    Equal attempts are written once; `errors` has the last error, by offset, of messages that failed before. The
        receipt of a message is `topic:partition:offset:attempts:group.lease`, the last two in hexadecimal.
    """

    topic: str
    partition: int
    group: int
    lease: int
    offsets: list[int]
    attempts: int | list[int]
    errors: dict[int, str] = {}

    def counts(self) -> list[int]:
        """Returns the attempts of each message."""
        attempts = self.attempts
        return [attempts] * len(self.offsets) if isinstance(attempts, int) else attempts

    def receipts(self) -> list[str]:
        start, end = f"{self.topic}:{self.partition}", f"{self.group:x}.{self.lease:x}"
        return [
            f"{start}:{offset}:{count}:{end}"
            for offset, count in zip(self.offsets, self.counts(), strict=True)
        ]


class LeasedBatch(NamedTuple):
    """A decoded part: its columns, and the batch that holds the messages."""

    lent: LeaseColumns
    head: Head
    batch: memoryview


_ENCODE = msgspec.msgpack.Encoder().encode
_DECODE = msgspec.msgpack.Decoder(LeaseColumns).decode


def encode_leased(parts: Iterable[tuple[LeaseColumns, Encoded]]) -> bytes:
    """Returns the bytes of parts."""
    pieces: list[Buffer] = []
    for lent, encoded in parts:
        columns = _ENCODE(lent)
        pieces += (_HEAD.pack(MAGIC, len(columns)), columns, bytes(-len(columns) % 8))
        pieces += encoded.pieces()
    return b"".join(pieces)


def collapsed(attempts: Sequence[int]) -> int | list[int]:
    """Returns a single number if all are equal."""
    return attempts[0] if len(set(attempts)) == 1 else list(attempts)


def decode_leased(data: Buffer) -> Iterator[LeasedBatch]:
    """Yields the parts of an answer. MalformedBatch: the bytes are no parts."""
    view, position = memoryview(data), 0
    while position < len(view):
        if len(view) - position < _HEAD.size:
            raise MalformedBatch(f"a part begins with {_HEAD.size} bytes")
        magic, size = _HEAD.unpack_from(view, position)
        if magic != MAGIC or size > _COLUMNS_BYTES_MAX:
            raise MalformedBatch("not a part of a leased answer")
        position += _HEAD.size
        lent = _columns(view[position : position + size], size)
        position += size + -size % 8
        head = verify(view, position)
        if head.message_count != len(lent.offsets):
            raise MalformedBatch(f"{len(lent.offsets)} offsets for {head.message_count} messages")
        yield LeasedBatch(lent, head, view[position : position + head.length])
        position += head.length


def _columns(raw: memoryview, size: int) -> LeaseColumns:
    try:
        if len(raw) < size:
            raise MalformedBatch(f"columns of {size} bytes, found {len(raw)}")
        lent = _DECODE(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedBatch(f"columns: {error}") from None
    if isinstance(lent.attempts, list) and len(lent.attempts) != len(lent.offsets):
        raise MalformedBatch("offsets and attempts differ in number")
    return lent

"""Decodes a batch to lists, or to messages that are made when they are used."""

import struct
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import overload

import numpy as np
import numpy.typing as npt

from ..config import LimitsConfig
from ..errors import MalformedBatch, TooLarge
from ..model import Buffer, Headers, Message, MessageColumns, Priority
from .blobs import Bools
from .body import FORMS_BYTES, Body, Column
from .compression import decompress
from .head import (
    COMPRESSION_MASK,
    ENCODING_KAFKA,
    HEAD_BYTES,
    PADDING_MASK,
    PADDING_SHIFT,
    PRIORITIES_SHIFT,
    Head,
)
from .numbers import ABSENT, CONSTANT, Numbers, as_array, moved
from .parse import parse_body
from .verbatim import open_verbatim

Int64s = npt.NDArray[np.int64]
BATCH_BYTES_MAX = LimitsConfig().batch_bytes_max
OFFSET_DELTA_BYTES = 4  # They are at most u32.
_NORMAL = int(Priority.NORMAL)
# A body of values of one size: the form of each column, the one column there is, their size, and then the values.
EVEN_COLUMNS = struct.Struct(f"<{FORMS_BYTES}sQ")
EVEN_FORMS = bytes(CONSTANT if column == Column.VALUES else ABSENT for column in range(FORMS_BYTES))
# Neither compressed nor marked.
EVEN_ATTRIBUTES = 1 << Priority.NORMAL << PRIORITIES_SHIFT


def open_body(
    batch: Buffer, head: Head, *, size_max: int = BATCH_BYTES_MAX, start: int = HEAD_BYTES
) -> Body:
    """Returns the columns of a verified batch, whatever its encoding. MalformedBatch, TooLarge.

    The body begins at `start`, which is 0 where it comes without its head. `size_max` bounds what a producer sent;
    offsets that compaction had to add come on top, or a full batch could not be compacted.
    """
    if head.last_delta + 1 != head.message_count:
        size_max += OFFSET_DELTA_BYTES * (head.message_count + 1)
    if head.body_size > size_max:
        raise TooLarge("body of a batch in bytes", found=head.body_size, limit=size_max)
    # `stored_size`, without a call: this is on the way of every batch that is read.
    padding = head.attributes >> PADDING_SHIFT & 0b111
    stored = memoryview(batch)[start : start + head.length - HEAD_BYTES - padding]
    if head.encoding == ENCODING_KAFKA:
        return open_verbatim(stored, head)
    raw: Buffer = stored
    if head.attributes & COMPRESSION_MASK:
        raw = decompress(raw, head.compression, size=head.body_size)
    if len(raw) != head.body_size:
        raise MalformedBatch(f"body size {head.body_size}, found {len(raw)} bytes")
    return parse_body(raw, head)


def decode_columns(batch: Buffer, head: Head, *, size_max: int = BATCH_BYTES_MAX) -> MessageColumns:
    """Returns every column of a verified batch as a list."""
    return message_columns(open_body(batch, head, size_max=size_max), head)


def message_columns(body: Body, head: Head) -> MessageColumns:
    """Returns every column as a list."""
    count, numbers, blobs = body.count, body.numbers, body.blobs
    nulls: list[None] = [None] * count
    base_time, base = head.base_timestamp, head.base_offset
    return MessageColumns(
        blobs[Column.VALUES].items(count, None) if Column.VALUES in blobs else nulls,
        blobs[Column.KEYS].items(count, None) if Column.KEYS in blobs else nulls,
        headers_of(body) if body.header_count else [()] * count,
        _list(numbers[Column.PRIORITIES], count)
        if Column.PRIORITIES in numbers
        else [_NORMAL] * count,
        _moved_list(numbers[Column.TIMESTAMPS], count, base_time)
        if Column.TIMESTAMPS in numbers
        else [base_time] * count,
        _optional_list(numbers[Column.EXPIRES_AT], count)
        if Column.EXPIRES_AT in numbers
        else nulls,
        blobs[Column.IDEMPOTENCY_KEYS].items(count, None)
        if Column.IDEMPOTENCY_KEYS in blobs
        else nulls,
        _optional_list(numbers[Column.SCHEMA_IDS], count)
        if Column.SCHEMA_IDS in numbers
        else nulls,
        offsets_of(body, head) if Column.OFFSET_DELTAS in numbers else range(base, base + count),
    )


def message_rows(body: Body, head: Head, positions: Int64s) -> MessageColumns:
    """Returns the columns of some messages only, by their positions in the batch."""
    count = len(positions)

    def numbers(column: int) -> Numbers:
        found = body.number(column)
        return found if isinstance(found, int) else found[positions]

    headers: Sequence[Headers] = [()] * count
    if body.header_count:
        all_headers = headers_of(body)
        headers = [all_headers[one] for one in positions.tolist()]
    deltas: Numbers = positions.view(np.uint64)
    if Column.OFFSET_DELTAS in body.numbers:
        deltas = numbers(Column.OFFSET_DELTAS)
    return MessageColumns(
        body.blob(Column.VALUES).picked(positions, body.count),
        body.blob(Column.KEYS).picked(positions, body.count),
        headers,
        _list(numbers(Column.PRIORITIES), count),
        _moved_list(numbers(Column.TIMESTAMPS), count, head.base_timestamp),
        _optional_list(numbers(Column.EXPIRES_AT), count),
        body.blob(Column.IDEMPOTENCY_KEYS).picked(positions, body.count),
        _optional_list(numbers(Column.SCHEMA_IDS), count),
        _moved_list(deltas, count, head.base_offset),
    )


def offsets_of(body: Body, head: Head) -> Sequence[int]:
    base = head.base_offset
    if Column.OFFSET_DELTAS not in body.numbers:
        return range(base, base + body.count)
    offsets: list[int] = moved(body.numbers[Column.OFFSET_DELTAS], body.count, base).tolist()
    return offsets


def _list(numbers: Numbers, count: int) -> list[int]:
    return [numbers] * count if isinstance(numbers, int) else numbers.tolist()


def _moved_list(numbers: Numbers, count: int, base: int) -> list[int]:
    if isinstance(numbers, int):
        return [base + numbers] * count
    moved_ones: list[int] = moved(numbers, count, base).tolist()
    return moved_ones


def _optional_list(numbers: Numbers, count: int) -> list[int | None]:
    if isinstance(numbers, int):
        return [numbers or None] * count
    return [number or None for number in numbers.tolist()]


def headers_of(body: Body) -> list[Headers]:
    """Returns the headers of every message."""
    items = body.header_count
    if items == 0:
        return [()] * body.count
    names = [str(name, "utf-8") for name in body.blob(Column.HEADER_NAMES).items(items, b"")]
    pairs = list(zip(names, body.blob(Column.HEADER_VALUES).items(items, None), strict=True))
    counts = _list(body.number(Column.HEADER_COUNTS), body.count)
    ends = list(accumulate(counts))
    return [tuple(pairs[end - size : end]) for end, size in zip(ends, counts, strict=True)]


class Messages(Sequence[Message]):
    """The messages of a batch. Columns are unpacked at the first access, and objects made one by one."""

    __slots__ = ("_body", "_columns", "_head")

    def __init__(self, body: Body, head: Head) -> None:
        self._body, self._head = body, head
        self._columns: MessageColumns | None = None

    def __len__(self) -> int:
        return self._body.count

    def __iter__(self) -> Iterator[Message]:
        return map(Message, *self._unpacked())

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        if not isinstance(index, slice):
            return self._unpacked().message(index)
        return list(map(Message, *self._unpacked().each(lambda column: column[index])))

    def _unpacked(self) -> MessageColumns:
        if self._columns is None:
            self._columns = message_columns(self._body, self._head)
        return self._columns


def decode_messages(
    batch: Buffer, head: Head, *, size_max: int = BATCH_BYTES_MAX
) -> Sequence[Message]:
    """Returns the messages of a verified batch. The body is checked now; objects are made when they are used.

    They copy their bytes. A batch in a writable buffer is copied at once, because it could change after the check.
    """
    single = _single_value(batch, head, size_max)
    if single is not None:
        return (single,)
    if not memoryview(batch).readonly:
        batch = bytes(batch)
    return Messages(open_body(batch, head, size_max=size_max), head)


def messages_of(batch: Buffer, head: Head, body: Body) -> Sequence[Message]:
    """Returns the messages of a batch that was opened already, and is unpacked no second time."""
    is_unpacked = head.encoding == ENCODING_KAFKA or head.attributes & COMPRESSION_MASK
    if is_unpacked or memoryview(batch).readonly:
        return Messages(body, head)
    return decode_messages(batch, head, size_max=head.body_size)


def _single_value(batch: Buffer, head: Head, size_max: int) -> Message | None:
    """Returns the message of a batch of one bare value, in a fifth of the time; None for any other batch."""
    size = head.body_size - EVEN_COLUMNS.size
    is_usual = head.attributes & ~PADDING_MASK == EVEN_ATTRIBUTES and head.message_count == 1
    is_usual = is_usual and not head.is_verbatim
    if not is_usual or size < 0 or not head.stored_size == head.body_size <= size_max:
        return None
    if head.last_delta or head.base_timestamp != head.max_timestamp:
        return None
    if EVEN_COLUMNS.unpack_from(batch, HEAD_BYTES) != (EVEN_FORMS, size):
        return None
    start = HEAD_BYTES + EVEN_COLUMNS.size
    value = bytes(memoryview(batch)[start : start + size])
    return Message(value, timestamp=head.base_timestamp, offset=head.base_offset)


def due_times(body: Body) -> Int64s:
    """Returns when each message of a delay log's batch is due, in ns since 1970."""
    return as_array(body.number(Column.DUE_AT), body.count, np.int64)


def delay_keys(body: Body) -> list[bytes | None] | None:
    """Returns the business key of each message of a delay log's batch, or None if no message has one."""
    if Column.DELAY_KEYS not in body.blobs:
        return None
    return body.blob(Column.DELAY_KEYS).items(body.count, None)


def expired_among(body: Body, at_ns: int) -> Bools:
    """Returns which messages had expired at this time."""
    expires_at = as_array(body.number(Column.EXPIRES_AT), body.count, np.int64)
    is_over: Bools = (expires_at != 0) & (expires_at <= at_ns)
    return is_over


def delay_ids(body: Body, head: Head) -> Int64s:
    """Returns the id of the delayed message for each message of a fired batch."""
    distances = as_array(body.number(Column.DELAY_IDS), body.count, np.int64)
    return distances + np.int64(head.origin_sequence)

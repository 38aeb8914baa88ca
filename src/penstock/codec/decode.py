"""From a batch to lists, or to messages that are made when touched."""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import overload

import numpy as np
import numpy.typing as npt

from ..config import LimitsConfig
from ..model import Buffer, Headers, Message, MessageColumns
from .body import (
    EXPIRES_AT,
    HEADER_COUNTS,
    HEADER_NAMES,
    HEADER_VALUES,
    IDEMPOTENCY_KEYS,
    KEYS,
    OFFSET_DELTAS,
    PRIORITIES,
    SCHEMA_IDS,
    TIMESTAMPS,
    VALUES,
    Body,
)
from .compression import decompress
from .head import HEAD_BYTES, Head
from .numbers import Numbers, moved
from .parse import parse_body

BATCH_BYTES_MAX = LimitsConfig().batch_bytes_max
OFFSET_DELTA_BYTES = 4  # They are at most u32.


def open_body(batch: Buffer, head: Head, *, size_max: int = BATCH_BYTES_MAX) -> Body:
    """The body of a verified batch, decompressed and parsed. See `open_stored`."""
    return open_stored(memoryview(batch)[HEAD_BYTES:], head, size_max=size_max)


def open_stored(body: Buffer, head: Head, *, size_max: int = BATCH_BYTES_MAX) -> Body:
    """Decompress and parse the bytes that follow a verified head.

    `size_max` bounds what a producer sent; offsets that compaction had to write down come on top, or a
    full batch could not be compacted.
    """
    if not head.is_dense:
        size_max += OFFSET_DELTA_BYTES * (head.message_count + 1)
    stored = memoryview(body)[: head.stored_size]
    raw = decompress(stored, head.compression, size=head.body_size, size_max=size_max)
    return parse_body(raw, head)


def decode_columns(batch: Buffer, head: Head, *, size_max: int = BATCH_BYTES_MAX) -> MessageColumns:
    """Every column of a verified batch as a list."""
    return message_columns(open_body(batch, head, size_max=size_max), head)


def message_columns(body: Body, head: Head) -> MessageColumns:
    """Every column as a list."""
    count = body.count
    return MessageColumns(
        body.blob(VALUES).items(count),
        body.blob(KEYS).items(count),
        _headers(body),
        _list(body.number(PRIORITIES), count),
        _moved_list(body.number(TIMESTAMPS), count, head.base_timestamp),
        _optional_list(body.number(EXPIRES_AT), count),
        body.blob(IDEMPOTENCY_KEYS).items(count),
        _optional_list(body.number(SCHEMA_IDS), count),
        offsets_of(body, head),
    )


def message_rows(body: Body, head: Head, positions: npt.NDArray[np.int64]) -> MessageColumns:
    """The columns of some messages only, by their places in the batch."""
    count = len(positions)

    def numbers(column: int) -> Numbers:
        found = body.number(column)
        return found if isinstance(found, int) else found[positions]

    headers: Sequence[Headers] = [()] * count
    if body.header_count:
        all_headers = _headers(body)
        headers = [all_headers[one] for one in positions.tolist()]
    deltas: Numbers = positions.view(np.uint64)
    if OFFSET_DELTAS in body.numbers:
        deltas = numbers(OFFSET_DELTAS)
    return MessageColumns(
        body.blob(VALUES).picked(positions, body.count),
        body.blob(KEYS).picked(positions, body.count),
        headers,
        _list(numbers(PRIORITIES), count),
        _moved_list(numbers(TIMESTAMPS), count, head.base_timestamp),
        _optional_list(numbers(EXPIRES_AT), count),
        body.blob(IDEMPOTENCY_KEYS).picked(positions, body.count),
        _optional_list(numbers(SCHEMA_IDS), count),
        _moved_list(deltas, count, head.base_offset),
    )


def offsets_of(body: Body, head: Head) -> Sequence[int]:
    base = head.base_offset
    if OFFSET_DELTAS not in body.numbers:
        return range(base, base + body.count)
    offsets: list[int] = moved(body.numbers[OFFSET_DELTAS], body.count, base).tolist()
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


def _headers(body: Body) -> list[Headers]:
    items = body.header_count
    if items == 0:
        return [()] * body.count
    names = [str(name, "utf-8") for name in body.blob(HEADER_NAMES).cut(items)]
    pairs = list(zip(names, body.blob(HEADER_VALUES).cut(items), strict=True))
    counts = _list(body.number(HEADER_COUNTS), body.count)
    ends = list(accumulate(counts))
    return [tuple(pairs[end - size : end]) for end, size in zip(ends, counts, strict=True)]


class Messages(Sequence[Message]):
    """The messages of a batch. Columns are unpacked at the first touch, objects made one by one."""

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


def decode_messages(batch: Buffer, head: Head, *, size_max: int = BATCH_BYTES_MAX) -> Messages:
    """The messages of a batch, checked now and made when touched.

    They copy what they hold. A batch that its owner could still change is copied at once, because it
    would no longer be what was checked.
    """
    if not memoryview(batch).readonly:
        batch = bytes(batch)
    return Messages(open_body(batch, head, size_max=size_max), head)

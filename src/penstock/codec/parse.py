"""Parses the bytes of a body, without trusting them.

A checksum says that the bytes are those that were sent, not that the sender was honest. After `parse_body` no
later access can fail, reach outside or need more memory than the limits say.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ..errors import MalformedBatch, UnsupportedFormat
from ..model import Buffer
from .blobs import Blobs, Bools
from .body import FORMS_BYTES, HAS_NULLS, HEADER_COLUMNS, RULES, Body, Column, padding_of
from .head import ALIGNMENT, Head
from .numbers import (
    ABSENT,
    CONSTANT_NUMBER,
    WIDTHS,
    Array,
    Numbers,
    total,
)

_NO_FORMS = bytes(FORMS_BYTES)
_WIDTH_MASK = HAS_NULLS - 1
_LARGEST = {size: (1 << 8 * size) - 1 for size in (1, 2, 4, 8)}


def parse_body(raw: Buffer, head: Head) -> Body:
    """Returns every column of a body, checked. MalformedBatch."""
    reader = _Reader(raw)
    forms = reader.take(FORMS_BYTES).tobytes()
    body = Body(head.message_count)
    if body.count == 0:
        _check_empty(forms, head)
    else:
        _parse_columns(reader, body, _layout(forms))
        if body.header_count or not HEADER_COLUMNS.isdisjoint(body.blobs):
            _check_headers(body)
        _check_against_head(body, head)
    if reader.position != len(reader.view):
        raise MalformedBatch(f"{len(reader.view) - reader.position} bytes after the last blob")
    return body


class _Column(NamedTuple):
    """A column of a body, as its form describes it."""

    number: int
    dtype: np.dtype[np.unsignedinteger] | None  # None: a constant.
    has_nulls: bool
    limit: int
    is_blob: bool
    is_header: bool


# Producers repeat themselves, so the forms of a batch have mostly been seen before.
@lru_cache(maxsize=256)
def _layout(forms: bytes) -> tuple[_Column, ...]:
    """Returns the columns of a body by their forms."""
    if any(forms[len(RULES) :]):
        raise UnsupportedFormat("a column that this reader does not know")
    return tuple(_column(column, forms[column]) for column in RULES if forms[column] != ABSENT)


def _column(column: int, form: int) -> _Column:
    rule = RULES[column]
    if form not in rule.forms:
        raise UnsupportedFormat(f"form {form:#04x} of column {column}")
    return _Column(
        column,
        WIDTHS.get(form & _WIDTH_MASK),
        bool(form & HAS_NULLS),
        rule.limit,
        rule.is_blob,
        column in HEADER_COLUMNS,
    )


class _Reader:
    """Reads the bytes in order. MalformedBatch: a column needs more than there are."""

    __slots__ = ("position", "view")

    def __init__(self, raw: Buffer) -> None:
        self.view, self.position = memoryview(raw), 0

    def take(self, size: int) -> memoryview:
        start = self.position
        self.position = end = start + size
        if end > len(self.view):
            raise MalformedBatch(f"the body ends {end - len(self.view)} bytes early")
        return self.view[start:end]

    def skip_padding(self, size: int) -> None:
        """Skip to the next multiple of 8 after a piece of `size` bytes."""
        if (padding := padding_of(size)) and any(self.take(padding)):
            raise MalformedBatch("padding between columns is not zero")

    def constant(self, limit: int) -> int:
        number: int
        (number,) = CONSTANT_NUMBER.unpack(self.take(CONSTANT_NUMBER.size))
        if number > limit:
            raise MalformedBatch(f"a number is {number}, the most here is {limit}")
        return number

    def array(self, dtype: np.dtype[np.unsignedinteger], items: int, limit: int) -> Array:
        size = dtype.itemsize * items
        array = np.frombuffer(self.take(size), dtype)
        if size % ALIGNMENT:
            self.skip_padding(size)
        # Most columns are too narrow to say more than their limit.
        if limit < _LARGEST[dtype.itemsize] and items and int(array.max()) > limit:
            raise MalformedBatch(f"a number is {int(array.max())}, the most here is {limit}")
        return array

    def bools(self, items: int) -> Bools:
        size = (items + 7) // 8
        bits = np.unpackbits(np.frombuffer(self.take(size), np.uint8), bitorder="little")
        if bits[items:].any():
            raise MalformedBatch("validity bits beyond the last message")
        self.skip_padding(size)
        return bits[:items].view(np.bool_)


def _check_empty(forms: bytes, head: Head) -> None:
    if forms != _NO_FORMS:
        raise MalformedBatch("columns in an empty batch")
    if head.priorities != 0 or head.base_timestamp != head.max_timestamp:
        raise MalformedBatch("priorities or a span of time in an empty batch")


def _parse_columns(reader: _Reader, body: Body, layout: Sequence[_Column]) -> None:
    """Lengths and numbers first, then the blobs: their sizes are sums, so a forged length ends here."""
    blobs = []
    for number, dtype, has_nulls, limit, is_blob, is_header in layout:
        items = body.header_count if is_header else body.count
        numbers = reader.constant(limit) if dtype is None else reader.array(dtype, items, limit)
        if is_blob:
            valid = reader.bools(items) if has_nulls else None
            size = numbers * items if isinstance(numbers, int) else total(numbers, items)
            blobs.append((number, numbers, valid, size))
        elif number == Column.HEADER_COUNTS:
            body.put_header_counts(numbers)
        else:
            body.numbers[number] = numbers
    for number, lengths, valid, size in blobs:
        if valid is not None:
            _check_nulls(lengths, valid)
        body.blobs[number] = Blobs(lengths, valid, reader.take(size))


def _check_nulls(lengths: Numbers, valid: Bools) -> None:
    null_lengths = lengths if isinstance(lengths, int) else lengths[~valid]
    if np.any(null_lengths) and not valid.all():
        raise MalformedBatch("a null item has bytes")


def _check_headers(body: Body) -> None:
    """MalformedBatch: a header has no name, or one that is not UTF-8."""
    if body.header_count == 0:
        if Column.HEADER_NAMES in body.blobs or Column.HEADER_VALUES in body.blobs:
            raise MalformedBatch("header columns without headers")
        return
    names = body.blob(Column.HEADER_NAMES)
    if names.lengths is None:
        raise MalformedBatch("headers without names")
    try:
        str(names.blob, "utf-8")
    except UnicodeDecodeError as error:
        raise MalformedBatch(f"header names are not UTF-8: {error.reason}") from None
    # The blob as a whole may be valid while a name starts inside a character.
    starts = names.starts(body.header_count)
    begun = starts[:-1][starts[:-1] < starts[1:]]
    first_bytes = np.frombuffer(names.blob, dtype=np.uint8)[begun]
    if bool(((first_bytes & 0xC0) == 0x80).any()):
        raise MalformedBatch("a header name starts inside a UTF-8 character")


def _check_against_head(body: Body, head: Head) -> None:
    """MalformedBatch: the head contradicts the body. Fields of the head are used without opening the body."""
    since = body.numbers.get(Column.TIMESTAMPS, 0)
    if isinstance(since, int):
        starts_late, latest = since != 0, since
    else:
        # The first one mostly has the base timestamp.
        starts_late, latest = bool(since[0]) and bool(since.all()), int(since.max())
    if starts_late:
        raise MalformedBatch("the smallest timestamp is not the head's")
    if head.base_timestamp + latest != head.max_timestamp:
        raise MalformedBatch("the largest timestamp is not the head's")
    if body.priorities_present() != head.priorities:
        raise MalformedBatch("the priorities are not the head's")
    if Column.OFFSET_DELTAS in body.numbers:
        _check_deltas(body.numbers[Column.OFFSET_DELTAS], head)
    elif not head.is_dense:
        raise MalformedBatch(
            f"{head.message_count} messages in {head.last_delta + 1} dense offsets"
        )


def _check_deltas(deltas: Numbers, head: Head) -> None:
    if isinstance(deltas, int):
        grows, last = head.message_count == 1, deltas
    else:
        grows, last = bool((deltas[1:] > deltas[:-1]).all()), int(deltas[-1])
    if not grows or last > head.last_delta:
        raise MalformedBatch("offset deltas do not grow inside the range")

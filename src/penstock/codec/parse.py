"""Parses the bytes of a body, without trusting them.

A checksum says that the bytes are those that were sent, not that the sender was honest. After `parse_body` no
later access can fail, reach outside or need more memory than the limits say.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ..errors import MalformedBatch, UnsupportedFormat
from ..model import Buffer
from .blobs import Blobs, Bools
from .body import (
    BARE_COLUMNS,
    FORMS_BYTES,
    HAS_NULLS,
    HEADER_COLUMNS,
    RULES,
    USUAL_PRIORITIES,
    Body,
    Column,
    priorities_in,
)
from .head import ALIGNMENT, PRIORITIES_SHIFT, Head
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
    """Returns every column of a body, checked. MalformedBatch.

    Lengths and numbers come first, then the blobs: their sizes are sums, so a forged length ends here.
    """
    view = memoryview(raw)
    if len(view) < FORMS_BYTES:
        raise _too_short(FORMS_BYTES - len(view))
    forms, position = view[:FORMS_BYTES].tobytes(), FORMS_BYTES
    body = Body(head.message_count)
    if body.count == 0 and forms != _NO_FORMS:
        raise MalformedBatch("columns in an empty batch")
    blobs: list[tuple[int, Numbers, Bools | None, int]] = []
    layout = _layout(forms)
    body.is_bare = layout.is_bare
    for number, dtype, has_nulls, limit, is_blob, is_header in layout.columns:
        items = body.header_count if is_header else body.count
        numbers: Numbers
        if dtype is not None:
            numbers, position = _array(view, position, dtype, items, limit)
        elif position + CONSTANT_NUMBER.size > len(view):
            raise _too_short(position + CONSTANT_NUMBER.size - len(view))
        else:
            (numbers,) = CONSTANT_NUMBER.unpack_from(view, position)
            position += CONSTANT_NUMBER.size
            if numbers > limit:
                raise MalformedBatch(f"a number is {numbers}, the most here is {limit}")
        if is_blob:
            valid = None
            if has_nulls:
                valid, position = _bools(view, position, items)
            size = numbers * items if isinstance(numbers, int) else total(numbers, items)
            blobs.append((number, numbers, valid, size))
        elif number == Column.HEADER_COUNTS:
            body.put_header_counts(numbers)
        else:
            body.numbers[number] = numbers
    for number, lengths, valid, size in blobs:
        if valid is not None:
            _check_nulls(lengths, valid)
        start, position = position, position + size
        body.blobs[number] = Blobs(lengths, valid, view[start:position])
    if position > len(view):
        raise _too_short(position - len(view))
    if position < len(view):
        raise MalformedBatch(f"{len(view) - position} bytes after the last blob")
    if body.header_count or not HEADER_COLUMNS.isdisjoint(body.blobs):
        _check_headers(body)
    _check_against_head(body, head)
    return body


def _too_short(missing: int) -> MalformedBatch:
    return MalformedBatch(f"the body ends {missing} bytes early")


class _Column(NamedTuple):
    """A column of a body, as its form describes it."""

    number: int
    dtype: np.dtype[np.unsignedinteger] | None  # None: a constant.
    has_nulls: bool
    limit: int
    is_blob: bool
    is_header: bool


class _Layout(NamedTuple):
    """The columns of a body, and whether there are only those of bare values."""

    columns: tuple[_Column, ...]
    is_bare: bool


# Producers repeat themselves, so the forms of a batch have mostly been seen before.
@lru_cache(maxsize=256)
def _layout(forms: bytes) -> _Layout:
    """Returns the columns of a body by their forms."""
    if any(forms[len(RULES) :]):
        raise UnsupportedFormat("a column that this reader does not know")
    present = [column for column in RULES if forms[column] != ABSENT]
    columns = tuple(_column(column, forms[column]) for column in present)
    return _Layout(columns, BARE_COLUMNS.issuperset(present))


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


def _array(
    view: memoryview,
    position: int,
    dtype: np.dtype[np.unsignedinteger],
    items: int,
    limit: int,
) -> tuple[Array, int]:
    """Returns a column of numbers, and where the next column begins."""
    size = dtype.itemsize * items
    array = np.frombuffer(_piece(view, position, size), dtype)
    # Most columns are too narrow to say more than their limit.
    if limit < _LARGEST[dtype.itemsize] and items and int(array.max()) > limit:
        raise MalformedBatch(f"a number is {int(array.max())}, the most here is {limit}")
    return array, position + size + -size % ALIGNMENT


def _bools(view: memoryview, position: int, items: int) -> tuple[Bools, int]:
    """Returns which items are not null, and where the next column begins."""
    size = (items + 7) // 8
    bits = np.unpackbits(np.frombuffer(_piece(view, position, size), np.uint8), bitorder="little")
    if bits[items:].any():
        raise MalformedBatch("validity bits beyond the last message")
    return bits[:items].view(np.bool_), position + size + -size % ALIGNMENT


def _piece(view: memoryview, position: int, size: int) -> memoryview:
    """Returns some bytes of a column. MalformedBatch: they, or the padding behind them, are not all there, or the
    padding is not zero."""
    end = position + size
    padded = end + -size % ALIGNMENT
    if padded > len(view):
        raise _too_short(padded - len(view))
    if any(view[end:padded]):
        raise MalformedBatch("padding between columns is not zero")
    return view[position:end]


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
    priorities = USUAL_PRIORITIES if body.count else 0
    if Column.PRIORITIES in body.numbers:
        priorities = priorities_in(body.numbers[Column.PRIORITIES])
    if priorities != head.attributes >> PRIORITIES_SHIFT & 0b11111:
        raise MalformedBatch("the priorities are not the head's")
    if Column.OFFSET_DELTAS in body.numbers:
        _check_deltas(body.numbers[Column.OFFSET_DELTAS], head)
    elif body.count and body.count != head.last_delta + 1:
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

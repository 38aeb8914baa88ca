"""The body of a batch: which columns there are, the columns, then the blobs.

    0   16 x u8   form of each column, by its number below
   16   columns   in order of number, each padded to 8 bytes; after a column with nulls its validity
                  bitmap (bit 1: not null, least significant first), padded to 8 bytes too
    .   blobs     keys, values, header names, header values, idempotency keys, delay keys, unpadded

A form is a width (0 absent, 1 constant in 8 bytes, 2 u8, 3 u16, 4 u32, 5 u64) plus 8 if a bitmap follows. An
absent column has its default for every message; an absent blob column is all null.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ..errors import TooLarge
from ..model import Buffer, Priority
from .blobs import Blobs
from .head import ALIGNMENT
from .numbers import (
    ABSENT,
    CONSTANT,
    FORM_U32,
    FORM_U64,
    I64_MAX,
    Numbers,
    total,
    write_numbers,
)

FORMS_BYTES = 16
HAS_NULLS = 8
U32_MAX = (1 << 32) - 1
U64_MAX = (1 << 64) - 1

# A header of one byte becomes some 200 bytes of Python objects: this bounds what a batch can ask for.
HEADERS_MAX = 1 << 20

(
    TIMESTAMPS,
    KEYS,
    VALUES,
    HEADER_COUNTS,
    HEADER_NAMES,
    HEADER_VALUES,
    PRIORITIES,
    EXPIRES_AT,
    IDEMPOTENCY_KEYS,
    SCHEMA_IDS,
    OFFSET_DELTAS,
    DUE_AT,
    DELAY_KEYS,
    DELAY_IDS,
) = range(14)
COLUMNS = range(14)
BLOB_COLUMNS = frozenset((KEYS, VALUES, HEADER_NAMES, HEADER_VALUES, IDEMPOTENCY_KEYS, DELAY_KEYS))
HEADER_COLUMNS = frozenset((HEADER_NAMES, HEADER_VALUES))
# What only a broker writes: into a delay log, and into a message log when a delay is over.
DELAY_COLUMNS = frozenset((DUE_AT, DELAY_KEYS, DELAY_IDS))
DEFAULTS = {
    TIMESTAMPS: 0,
    HEADER_COUNTS: 0,
    PRIORITIES: int(Priority.NORMAL),
    EXPIRES_AT: 0,
    SCHEMA_IDS: 0,
    DUE_AT: 0,
    DELAY_IDS: 0,
}
"""Offset deltas have none: without the column the offsets are dense, and a single delta of 0 says less."""

_NO_BLOBS = Blobs()
_BARE = frozenset((VALUES, TIMESTAMPS, OFFSET_DELTAS))


class Rule(NamedTuple):
    """What a column may look like."""

    forms: frozenset[int]
    limit: int


def _numbers_up_to(limit: int) -> Rule:
    return Rule(frozenset(range(ABSENT, FORM_U64 + 1)), limit)


def _blobs(flags: Sequence[int]) -> Rule:
    widths = range(CONSTANT, FORM_U32 + 1)
    return Rule(frozenset({ABSENT} | {width | flag for width in widths for flag in flags}), U32_MAX)


RULES = {
    TIMESTAMPS: _numbers_up_to(U64_MAX),
    KEYS: _blobs((0, HAS_NULLS)),
    VALUES: _blobs((0, HAS_NULLS)),
    HEADER_COUNTS: _numbers_up_to(U32_MAX),
    HEADER_NAMES: _blobs((0,)),
    HEADER_VALUES: _blobs((0,)),
    PRIORITIES: _numbers_up_to(max(Priority)),
    EXPIRES_AT: _numbers_up_to(I64_MAX),
    IDEMPOTENCY_KEYS: _blobs((0, HAS_NULLS)),
    SCHEMA_IDS: _numbers_up_to(U32_MAX),
    OFFSET_DELTAS: _numbers_up_to(U32_MAX),
    DUE_AT: _numbers_up_to(I64_MAX),
    DELAY_KEYS: _blobs((0, HAS_NULLS)),
    DELAY_IDS: _numbers_up_to(I64_MAX),
}


@dataclass(slots=True)
class Body:
    """Columns by number; one that is missing has its default.

    Timestamps are relative to the head's base timestamp; 0 means none for expiry and schema id.
    """

    count: int
    header_count: int = 0
    numbers: dict[int, Numbers] = field(default_factory=dict)
    blobs: dict[int, Blobs] = field(default_factory=dict)

    @property
    def is_bare(self) -> bool:
        """Whether no message has more than a value, a time and an offset."""
        return self.numbers.keys() <= _BARE and self.blobs.keys() <= _BARE

    def number(self, column: int) -> Numbers:
        found = self.numbers.get(column)
        return DEFAULTS[column] if found is None else found

    def blob(self, column: int) -> Blobs:
        return self.blobs.get(column, _NO_BLOBS)

    def put_numbers(self, column: int, numbers: Numbers) -> None:
        """Set a column, unless it says nothing."""
        if not isinstance(numbers, int) or numbers != DEFAULTS[column]:
            self.numbers[column] = numbers

    def put_blobs(self, column: int, blobs: Blobs) -> None:
        if blobs.lengths is not None:
            self.blobs[column] = blobs

    def put_header_counts(self, counts: Numbers) -> None:
        """Set how many headers each message has. Comes before the headers themselves."""
        self.header_count = total(counts, self.count)
        if self.header_count > HEADERS_MAX:
            raise TooLarge("batch in headers", found=self.header_count, limit=HEADERS_MAX)
        self.put_numbers(HEADER_COUNTS, counts)

    def items(self, column: int) -> int:
        """How many items a column has: one a message, or one a header."""
        return self.header_count if column in HEADER_COLUMNS else self.count

    def priorities_present(self) -> int:
        """One bit for each priority that occurs."""
        priorities = self.number(PRIORITIES)
        if isinstance(priorities, int):
            return 1 << priorities
        occurs = np.bincount(priorities.astype(np.uint8, copy=False)) > 0
        return int(np.packbits(occurs, bitorder="little")[0])


def padding_of(size: int) -> int:
    return -size % ALIGNMENT


def write_body(body: Body) -> list[Buffer]:
    """The body in pieces, so that the caller copies the blobs once and not twice."""
    forms = bytearray(FORMS_BYTES)
    columns: list[bytes] = []
    blobs: list[Buffer] = []
    for column in COLUMNS:
        if column in body.numbers:
            forms[column], raw = write_numbers(body.numbers[column])
            _append_padded(columns, raw)
        elif column in body.blobs:
            lengths, valid, blob = body.blobs[column]
            assert lengths is not None
            forms[column], raw = write_numbers(lengths)
            _append_padded(columns, raw)
            if valid is not None:
                forms[column] |= HAS_NULLS
                _append_padded(columns, np.packbits(valid, bitorder="little").tobytes())
            blobs.append(blob)
    return [b"".join((forms, *columns)), *blobs]


def _append_padded(columns: list[bytes], raw: bytes) -> None:
    columns.append(raw)
    if padding := padding_of(len(raw)):
        columns.append(bytes(padding))

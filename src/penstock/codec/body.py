"""The body of a batch: which columns there are, the columns, then the blobs.

    0   16 x u8   form of each column, by its number below
   16   columns   in order of number, each padded to 8 bytes; after a column with nulls its validity
                  bitmap (bit 1: not null, least significant first), padded to 8 bytes too
    .   blobs     keys, values, header names, header values, idempotency keys, delay keys, unpadded

A form is a width (0 absent, 1 constant in 8 bytes, 2 u8, 3 u16, 4 u32, 5 u64) plus 8 if a bitmap follows. An
absent column has its default for every message; an absent blob column is all null.
"""

from typing import NamedTuple

import msgspec
import numpy as np

from ..errors import TooLarge
from ..model import Priority
from .blobs import Blobs
from .numbers import (
    ABSENT,
    CONSTANT,
    FORM_U32,
    FORM_U64,
    I64_MAX,
    Numbers,
    total,
)

FORMS_BYTES = 16
HAS_NULLS = 8
U32_MAX = (1 << 32) - 1
U64_MAX = (1 << 64) - 1

# A header of one byte becomes some 200 bytes of Python objects: this bounds what a batch can ask for.
HEADERS_MAX = 1 << 20


class Column:
    """The columns by number."""

    TIMESTAMPS = 0
    KEYS = 1
    VALUES = 2
    HEADER_COUNTS = 3
    HEADER_NAMES = 4
    HEADER_VALUES = 5
    PRIORITIES = 6
    EXPIRES_AT = 7
    IDEMPOTENCY_KEYS = 8
    SCHEMA_IDS = 9
    OFFSET_DELTAS = 10
    DUE_AT = 11
    DELAY_KEYS = 12
    DELAY_IDS = 13


class Rule(NamedTuple):
    """The form and limits of a column."""

    forms: frozenset[int]
    limit: int
    is_blob: bool


def _numbers(limit: int) -> Rule:
    return Rule(frozenset(range(ABSENT, FORM_U64 + 1)), limit, is_blob=False)


def _blobs(*, may_be_null: bool) -> Rule:
    widths = range(CONSTANT, FORM_U32 + 1)
    with_nulls = [width | HAS_NULLS for width in widths if may_be_null]
    return Rule(frozenset((ABSENT, *widths, *with_nulls)), U32_MAX, is_blob=True)


RULES = {
    Column.TIMESTAMPS: _numbers(U64_MAX),
    Column.KEYS: _blobs(may_be_null=True),
    Column.VALUES: _blobs(may_be_null=True),
    Column.HEADER_COUNTS: _numbers(U32_MAX),
    Column.HEADER_NAMES: _blobs(may_be_null=False),
    Column.HEADER_VALUES: _blobs(may_be_null=True),
    Column.PRIORITIES: _numbers(max(Priority)),
    Column.EXPIRES_AT: _numbers(I64_MAX),
    Column.IDEMPOTENCY_KEYS: _blobs(may_be_null=True),
    Column.SCHEMA_IDS: _numbers(U32_MAX),
    Column.OFFSET_DELTAS: _numbers(U32_MAX),
    Column.DUE_AT: _numbers(I64_MAX),
    Column.DELAY_KEYS: _blobs(may_be_null=True),
    Column.DELAY_IDS: _numbers(I64_MAX),
}
HEADER_COLUMNS = frozenset((Column.HEADER_NAMES, Column.HEADER_VALUES))
# What only a broker writes: into a delay log, and into a message log when a delay is over.
DELAY_COLUMNS = frozenset((Column.DUE_AT, Column.DELAY_KEYS, Column.DELAY_IDS))
# What an absent column of numbers says. Offset deltas have none: without the column the offsets are dense.
DEFAULTS = {column: 0 for column, rule in RULES.items() if not rule.is_blob}
DEFAULTS[Column.PRIORITIES] = int(Priority.NORMAL)
del DEFAULTS[Column.OFFSET_DELTAS]

_NO_BLOBS = Blobs()
# As in a head, of messages that say nothing of it.
USUAL_PRIORITIES = 1 << Priority.NORMAL
BARE_COLUMNS = frozenset((Column.VALUES, Column.TIMESTAMPS, Column.OFFSET_DELTAS))


class Body(msgspec.Struct):
    """Columns by number; one that is missing has its default.

    Timestamps are relative to the head's base timestamp; 0 means none for expiry and schema id.
    """

    count: int
    header_count: int = 0
    numbers: dict[int, Numbers] = {}
    blobs: dict[int, Blobs] = {}
    # Of one that was parsed: whether no message has more than a value, a time and an offset.
    is_bare: bool = False

    def number(self, column: int) -> Numbers:
        found = self.numbers.get(column)
        return DEFAULTS[column] if found is None else found

    def blob(self, column: int) -> Blobs:
        return self.blobs.get(column, _NO_BLOBS)

    def put_numbers(self, column: int, numbers: Numbers) -> None:
        """Set a column, unless it has only the default."""
        if not isinstance(numbers, int) or numbers != DEFAULTS[column]:
            self.numbers[column] = numbers

    def put_blobs(self, column: int, blobs: Blobs) -> None:
        if blobs.lengths is not None:
            self.blobs[column] = blobs

    def put_header_counts(self, counts: Numbers) -> None:
        """Set how many headers each message has. To be called before the headers are set."""
        self.header_count = total(counts, self.count)
        if self.header_count > HEADERS_MAX:
            raise TooLarge("batch in headers", found=self.header_count, limit=HEADERS_MAX)
        self.put_numbers(Column.HEADER_COUNTS, counts)

    def items(self, column: int) -> int:
        """Returns how many items a column has: one a message, or one a header."""
        return self.header_count if column in HEADER_COLUMNS else self.count


def priorities_in(priorities: Numbers) -> int:
    """Returns one bit for each priority that occurs: bit 0 is CRITICAL."""
    if isinstance(priorities, int):
        return 1 << priorities
    occurs = np.bincount(priorities.astype(np.uint8, copy=False)) > 0
    return int(np.packbits(occurs, bitorder="little")[0])

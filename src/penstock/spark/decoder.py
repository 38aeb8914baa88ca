"""Makes Arrow record batches for Spark of stored batches, with as few copies as possible.

Keys and values point into the fetched bytes. Small stored batches are joined, which copies them once: a record batch
below some thousand rows costs Spark more than the copy. A column with the same value in every row is made once.

All arrays are made from buffers: `pa.array` and `pa.scalar` import pandas, which costs a new worker more than a second
before its first row.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..api.dead_letters import split_headers
from ..client.replies import REPLY_BYTES_MAX
from ..codec import Head, Origin
from ..codec.arrow import arrow_column, decode_arrow, int64s_of
from ..codec.body import Body, Column
from ..codec.decode import delay_ids, open_body
from ..codec.numbers import as_array, moved
from ..model import Priority, Provenance
from .columns import BY_NAME, DEAD_LETTER_FIELDS

# One record batch for Spark has at least so many rows, unless its range ends before, ...
ROWS_MIN = 10_000
ROWS_MAX = 50_000
# ... or so many bytes of large messages, once they are decompressed.
BYTES_MAX = 32 << 20

_NS_PER_US = 1000
_INSTANT = pa.timestamp("us", tz="UTC")
_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
_HEADERS = pa.list_(pa.field("element", _HEADER))
_TYPES: dict[str, pa.DataType] = {
    "binary": pa.binary(),
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "timestamp": _INSTANT,
}
_DEAD_LETTER = pa.struct([(name, _TYPES[kind]) for name, kind in DEAD_LETTER_FIELDS.items()])
_STRUCTURED = {"headers": _HEADERS, "dead_letter": _DEAD_LETTER}
_TRACE_HEADER = "traceparent"
# Version, trace id, span id, flags: the form of the W3C recommendation "Trace Context".
_TRACEPARENT = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
Int64s = npt.NDArray[np.int64]


class BatchPart(NamedTuple):
    """A stored batch, and which of its messages are wanted: those from `first` up to `last`, counted from 0."""

    head: Head
    data: memoryview
    first: int
    last: int


def parts_of(
    batches: Iterable[tuple[Head, memoryview]], start: int, end: int
) -> Iterator[BatchPart]:
    """Yields the batches that have messages in a range, each with the messages that are in it."""
    for head, data in batches:
        first, last = 0, head.message_count
        if head.base_offset < start or head.next_offset > end:
            if head.is_dense:
                first = max(start - head.base_offset, 0)
                last = min(end - head.base_offset, head.message_count)
            else:
                column = decode_arrow(data, head, columns=("offset",), size_max=REPLY_BYTES_MAX)
                offsets = int64s_of(column.column(0))
                first, last = np.searchsorted(offsets, [start, end]).tolist()
        if first < last:
            yield BatchPart(head, data, first, last)


class _OpenBatch(NamedTuple):
    """A stored batch with its body opened."""

    head: Head
    body: Body
    first: int
    last: int

    @property
    def rows(self) -> int:
        return self.last - self.first

    def column(self, name: str) -> pa.Array:
        whole = arrow_column(name, self.body, self.head)
        return whole if self.rows == self.body.count else whole.slice(self.first, self.rows)

    def numbers(self, column: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        numbers = self.body.number(column)
        return as_array(numbers, self.body.count, dtype)[self.first : self.last]


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """Returns the schema that Spark expects for these columns."""
    return pa.schema([pa.field(name, _type_of(name)) for name in columns])


def _type_of(name: str) -> pa.DataType:
    return _STRUCTURED.get(name) or _TYPES[BY_NAME[name].kind]


class Decoder:
    """Makes record batches of one partition's stored batches."""

    def __init__(self, topic: str, partition: int, columns: Sequence[str]) -> None:
        self.columns = tuple(columns)
        self.schema = arrow_schema(columns)
        self._same: dict[str, object] = {"topic": topic, "partition": partition, "timestampType": 0}
        # Columns with the same value in every row, for the number of rows of the last record batch. Most have as
        # many, and a lookup by type would take longer than all other work for such a column.
        self._constants: dict[str, pa.Array] = {}
        self._constant_rows = 0

    def record_batches(self, found: Iterable[BatchPart]) -> Iterator[pa.RecordBatch]:
        """Yields all wanted messages in order."""
        waiting: list[BatchPart] = []
        rows = size = 0
        for one in found:
            waiting.append(one)
            rows += one.last - one.first
            size += one.head.body_size
            if rows >= ROWS_MIN or size >= BYTES_MAX:
                yield from self._made(waiting, rows)
                waiting, rows, size = [], 0, 0
        if rows:
            yield from self._made(waiting, rows)

    def _made(self, stored: Sequence[BatchPart], rows: int) -> Iterator[pa.RecordBatch]:
        parts = [
            _OpenBatch(
                one.head,
                open_body(one.data, one.head, size_max=REPLY_BYTES_MAX),
                one.first,
                one.last,
            )
            for one in stored
        ]
        arrays = [self._column(name, parts, rows) for name in self.columns]
        whole = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        if rows <= ROWS_MAX:
            yield whole
            return
        for first in range(0, rows, ROWS_MAX):
            yield whole.slice(first, ROWS_MAX)

    def _constant(self, name: str, value: object, rows: int) -> pa.Array:
        if rows != self._constant_rows:
            self._constants, self._constant_rows = {}, rows
        found = self._constants.get(name)
        if found is None:
            found = self._constants[name] = _constant(value, _type_of(name), rows)
        return found

    def _column(self, name: str, parts: Sequence[_OpenBatch], rows: int) -> pa.Array:
        if name in self._same:
            return self._constant(name, self._same[name], rows)
        if name in _ABSENT and all(map(_ABSENT[name], parts)):
            return self._constant(name, _DEFAULTS.get(name), rows)
        arrays = [_MAKERS[name](one) for one in parts]
        return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _repeated(value: object, kind: pa.DataType, rows: int) -> pa.Array:
    if value is None:
        return pa.nulls(rows, kind)
    if isinstance(value, str):
        data = value.encode()
        ends = pa.py_buffer(np.arange(rows + 1, dtype=np.int32) * np.int32(len(data)))
        return pa.Array.from_buffers(kind, rows, [None, ends, pa.py_buffer(data * rows)])
    return _of_numbers(np.full(rows, value, np.int32 if kind == pa.int32() else np.int64), kind)


@lru_cache(maxsize=64)
def _constants(value: object, kind: pa.DataType) -> pa.Array:
    return _repeated(value, kind, ROWS_MAX)


def _constant(value: object, kind: pa.DataType, rows: int) -> pa.Array:
    """Returns an array with one value in every row; shorter ones are slices of a shared array."""
    if rows <= ROWS_MAX:
        return _constants(value, kind).slice(0, rows)
    return _repeated(value, kind, rows)


def _of_numbers(
    array: npt.NDArray[Any], kind: pa.DataType, is_there: npt.NDArray[np.bool_] | None = None
) -> pa.Array:
    """Returns an Arrow array of numbers. Copies only those that are not aligned in memory."""
    valid = None if is_there is None else pa.py_buffer(np.packbits(is_there, bitorder="little"))
    numbers = pa.py_buffer(array if array.flags.aligned else array.copy())
    return pa.Array.from_buffers(kind, len(array), [valid, numbers])


def _timestamps(one: _OpenBatch) -> pa.Array:
    """Returns timestamps in microseconds, rounded down; Spark has no finer time."""
    numbers, base = one.body.number(Column.TIMESTAMPS), one.head.base_timestamp
    if isinstance(numbers, int):
        micros: Int64s = np.full(one.rows, (base + numbers) // _NS_PER_US, np.int64)
    else:
        micros = moved(numbers, one.body.count, base)[one.first : one.last] // _NS_PER_US
    return _of_numbers(micros, _INSTANT)


def _expiry(one: _OpenBatch) -> pa.Array:
    found = one.numbers(Column.EXPIRES_AT, np.int64)
    return _of_numbers(found // _NS_PER_US, _INSTANT, found != 0)


def _schema_ids(one: _OpenBatch) -> pa.Array:
    found = one.numbers(Column.SCHEMA_IDS, np.int64)
    return _of_numbers(found, pa.int64(), found != 0)


def _priorities(one: _OpenBatch) -> pa.Array:
    return _of_numbers(one.numbers(Column.PRIORITIES, np.int32), pa.int32())


def _delay_ids(one: _OpenBatch) -> pa.Array:
    if one.head.origin is not Origin.DELAY:
        return pa.nulls(one.rows, pa.int64())
    found = delay_ids(one.body, one.head)[one.first : one.last]
    return _of_numbers(found.astype(np.int64, copy=False), pa.int64())


def _headers(one: _OpenBatch) -> pa.Array:
    """Returns headers with the field names of Spark's Kafka source."""
    found = one.column("headers")
    pairs = found.values
    named = pa.StructArray.from_arrays([pairs.field(0), pairs.field(1)], fields=list(_HEADER))
    return pa.ListArray.from_arrays(found.offsets, named, _HEADERS)


def _trace_ids(one: _OpenBatch) -> pa.Array:
    """Returns the trace id of each message's first valid header `traceparent`, or null."""
    found = one.column("headers")
    rows: list[str | None] = [None] * one.rows
    names, values = found.flatten().flatten()
    places = [place for place, name in enumerate(names.to_pylist()) if name == _TRACE_HEADER]
    starts = np.frombuffer(found.offsets.buffers()[1], np.int32)[found.offsets.offset :]
    owners = np.searchsorted(starts[: one.rows + 1] - starts[0], places, side="right") - 1
    for row, place in zip(owners.tolist(), places, strict=True):
        id_found = _TRACEPARENT.match(values[place].as_py() or b"")
        if rows[row] is None and id_found is not None:
            rows[row] = id_found[1].decode()
    return _texts(rows)


def _dead_letters(one: _OpenBatch) -> pa.Array:
    """Returns the provenance of each dead letter, and null for messages that are none."""
    rows: list[Provenance | None] = [None] * one.rows
    if one.head.origin is Origin.OUTBOX:
        named = one.column("headers").to_pylist()
        pairs = [tuple((header["name"], header["value"]) for header in row) for row in named]
        rows = [split_headers(headers)[1] for headers in pairs]
    is_there = np.array([found is not None for found in rows], np.bool_)
    fields = [_field_of_letters(name, rows) for name in DEAD_LETTER_FIELDS]
    valid = pa.py_buffer(np.packbits(is_there, bitorder="little"))
    return pa.Array.from_buffers(_DEAD_LETTER, len(rows), [valid], children=fields)


def _field_of_letters(name: str, rows: Sequence[Provenance | None]) -> pa.Array:
    found: list[Any] = [None if one is None else getattr(one, name) for one in rows]
    kind = _TYPES[DEAD_LETTER_FIELDS[name]]
    if kind == pa.string():
        return _texts(found)
    is_time = kind == _INSTANT
    # A time of 0: it was never delivered.
    is_there = np.array([one is not None and not (is_time and one == 0) for one in found], np.bool_)
    numbers = np.array([one or 0 for one in found], np.int64)
    if is_time:
        numbers //= _NS_PER_US
    return _of_numbers(numbers.astype(np.int32) if kind == pa.int32() else numbers, kind, is_there)


def _texts(rows: Sequence[str | None]) -> pa.Array:
    encoded = [(one or "").encode() for one in rows]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    is_there = np.array([one is not None for one in rows], np.bool_)
    valid = np.packbits(is_there, bitorder="little")
    buffers = [pa.py_buffer(one) for one in (valid, ends, b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(rows), buffers)


def _stored(name: str) -> Callable[[_OpenBatch], pa.Array]:
    return lambda one: one.column(name)


_MAKERS: dict[str, Callable[[_OpenBatch], pa.Array]] = {
    "key": _stored("key"),
    "value": _stored("value"),
    "offset": _stored("offset"),
    "timestamp": _timestamps,
    "headers": _headers,
    "priority": _priorities,
    "expires_at": _expiry,
    "delay_id": _delay_ids,
    "schema_id": _schema_ids,
    "trace_id": _trace_ids,
    "dead_letter": _dead_letters,
}
_ABSENT: dict[str, Callable[[_OpenBatch], bool]] = {
    "priority": lambda one: Column.PRIORITIES not in one.body.numbers,
    "expires_at": lambda one: Column.EXPIRES_AT not in one.body.numbers,
    "delay_id": lambda one: one.head.origin is not Origin.DELAY,
    "schema_id": lambda one: Column.SCHEMA_IDS not in one.body.numbers,
    "trace_id": lambda one: one.body.header_count == 0,
    "dead_letter": lambda one: one.head.origin is not Origin.OUTBOX,
}
_DEFAULTS: dict[str, object] = {"priority": int(Priority.NORMAL)}

"""Decodes a batch to Arrow without copying keys or values. The only module here that imports pyarrow."""

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..errors import Refused
from ..model import Buffer, Priority
from .blobs import Blobs, Bools
from .body import Body, Column
from .decode import BATCH_BYTES_MAX, open_body
from .head import Head
from .numbers import Numbers, as_array, moved

BYTES, TEXT, U8, I64 = pa.binary(), pa.string(), pa.uint8(), pa.int64()
INSTANT = pa.timestamp("ns", tz="UTC")
HEADER = pa.struct([pa.field("name", TEXT, nullable=False), pa.field("value", BYTES)])
HEADERS = pa.list_(pa.field("item", HEADER, nullable=False))
FIELDS = (
    pa.field("offset", I64, nullable=False),
    pa.field("timestamp", INSTANT, nullable=False),
    pa.field("key", BYTES),
    pa.field("value", BYTES),
    pa.field("headers", HEADERS, nullable=False),
    pa.field("priority", U8, nullable=False),
    pa.field("expires_at", INSTANT),
    pa.field("idempotency_key", BYTES),
    pa.field("schema_id", pa.uint32()),
)
ARROW_COLUMNS = tuple(field.name for field in FIELDS)
# As many messages of 100 bytes as fill a batch of 3 MiB. What is kept for all counts up to here takes about 3 MiB.
REMEMBERED_COUNT_MAX = 1 << 15
_REMEMBERED_LENGTHS = 16


def decode_arrow(
    batch: Buffer,
    head: Head,
    *,
    columns: Sequence[str] = ARROW_COLUMNS,
    size_max: int = BATCH_BYTES_MAX,
) -> pa.RecordBatch:
    """Returns some columns of a batch as an Arrow record batch.

    Keys and values point into `batch`, keep it alive and change if its owner changes it; everything else is
    at most one small array.
    """
    schema = _schema(tuple(columns))
    body = open_body(batch, head, size_max=size_max)
    return pa.RecordBatch.from_arrays(
        [_MAKERS[name](body, head) for name in columns], schema=schema
    )


def arrow_column(name: str, body: Body, head: Head) -> pa.Array:
    """Returns one of the columns of a body."""
    return _MAKERS[name](body, head)


@lru_cache(maxsize=64)
def _schema(columns: tuple[str, ...]) -> pa.Schema:
    by_name = {field.name: field for field in FIELDS}
    if unknown := [name for name in columns if name not in by_name]:
        raise Refused(f"unknown column {unknown[0]!r}; there are {', '.join(ARROW_COLUMNS)}")
    return pa.schema([by_name[name] for name in columns])


def _remembered(make: Callable[[int], pa.Array]) -> Callable[[int], pa.Array]:
    """Returns `make` with a cache, for arrays that depend on the number of messages only: it returns slices.

    Memory that is new for every batch costs more than what is written there. One array for each power of two is kept.
    """
    remembered = lru_cache(maxsize=None)(make)

    def made(count: int) -> pa.Array:
        if count > REMEMBERED_COUNT_MAX:
            return make(count)
        return remembered(_room_for(count)).slice(0, count)

    return made


def _room_for(count: int) -> int:
    return 1 << max(count - 1, 0).bit_length()


def _nulls_of(kind: pa.DataType) -> Callable[[int], pa.Array]:
    return _remembered(lambda count: pa.nulls(count, kind))


@_remembered
def _normal_priority(count: int) -> pa.Array:
    return of_numbers(np.full(count, Priority.NORMAL, np.uint8), U8)


@_remembered
def _no_headers(count: int) -> pa.Array:
    starts = of_numbers(np.zeros(count + 1, np.int32), pa.int32())
    return pa.ListArray.from_arrays(starts, _pairs(Blobs(0), Blobs(0), 0), HEADERS)


_NULL_BYTES = _nulls_of(BYTES)


def _offset(body: Body, head: Head) -> pa.Array:
    base = head.base_offset
    if Column.OFFSET_DELTAS in body.numbers:
        return of_numbers(moved(body.numbers[Column.OFFSET_DELTAS], body.count, base), I64)
    return of_numbers(np.arange(base, base + body.count, dtype=np.int64), I64)


def _timestamp(body: Body, head: Head) -> pa.Array:
    return of_numbers(
        moved(body.number(Column.TIMESTAMPS), body.count, head.base_timestamp), INSTANT
    )


def _headers(body: Body, _: Head) -> pa.Array:
    items = body.header_count
    if items == 0:
        return _no_headers(body.count)
    pairs = _pairs(body.blob(Column.HEADER_NAMES), body.blob(Column.HEADER_VALUES), items)
    starts = of_numbers(_starts(body.number(Column.HEADER_COUNTS), body.count), pa.int32())
    return pa.ListArray.from_arrays(starts, pairs, HEADERS)


def _pairs(names: Blobs, values: Blobs, items: int) -> pa.StructArray:
    contents = _NULL_BYTES(items) if values.lengths is None else _bytes(values, items, BYTES)
    arrays = [_bytes(names, items, TEXT), contents]
    return pa.StructArray.from_arrays(arrays, fields=list(HEADER))


def _priority(body: Body, _: Head) -> pa.Array:
    if Column.PRIORITIES not in body.numbers:
        return _normal_priority(body.count)
    return of_numbers(as_array(body.numbers[Column.PRIORITIES], body.count, np.uint8), U8)


def _blob_maker(column: int) -> "Maker":
    def make(body: Body, _: Head) -> pa.Array:
        blobs = body.blobs.get(column)
        return _NULL_BYTES(body.count) if blobs is None else _bytes(blobs, body.count, BYTES)

    return make


def _optional_maker(column: int, dtype: npt.DTypeLike, kind: pa.DataType) -> "Maker":
    nulls = _nulls_of(kind)

    def make(body: Body, _: Head) -> pa.Array:
        numbers = body.numbers.get(column)
        if numbers is None:
            return nulls(body.count)
        array = as_array(numbers, body.count, dtype)
        # Zero stands for none.
        return pa.Array.from_buffers(kind, body.count, [_bitmap(array != 0), _aligned(array)])

    return make


Maker = Callable[[Body, Head], pa.Array]
_MAKERS: dict[str, Maker] = {
    "offset": _offset,
    "timestamp": _timestamp,
    "key": _blob_maker(Column.KEYS),
    "value": _blob_maker(Column.VALUES),
    "headers": _headers,
    "priority": _priority,
    "expires_at": _optional_maker(Column.EXPIRES_AT, np.int64, INSTANT),
    "idempotency_key": _blob_maker(Column.IDEMPOTENCY_KEYS),
    "schema_id": _optional_maker(Column.SCHEMA_IDS, np.uint32, pa.uint32()),
}


def of_numbers(array: npt.NDArray[np.generic], kind: pa.DataType) -> pa.Array:
    """Returns an Arrow array, not copied. `pa.array` would import pandas, which takes a second."""
    return pa.Array.from_buffers(kind, len(array), [None, pa.py_buffer(array)])


def int64s_of(column: pa.Array) -> npt.NDArray[np.int64]:
    """Returns the numbers of a column of 64 bits without nulls, not copied, without pandas; times are numbers too."""
    found: npt.NDArray[np.int64] = np.frombuffer(column.buffers()[1] or b"", np.int64)
    return found[column.offset : column.offset + len(column)]


def _aligned(array: npt.NDArray[np.generic]) -> pa.Buffer:
    """Returns the numbers, copied only if they are not aligned in memory, which Arrow forbids."""
    return pa.py_buffer(np.require(array, requirements="A"))


def _bytes(column: Blobs, items: int, kind: pa.DataType) -> pa.Array:
    lengths, valid, blob = column
    assert lengths is not None
    if isinstance(lengths, int) and items <= REMEMBERED_COUNT_MAX:
        # There may be more starts than items; the rest is not used, and need not fit into i32.
        starts = _equal_starts(lengths, _room_for(items))
    else:
        starts = pa.py_buffer(_starts(lengths, items))
    validity = None if valid is None else _bitmap(valid)
    return pa.Array.from_buffers(kind, items, [validity, starts, pa.py_buffer(blob)])


@lru_cache(maxsize=_REMEMBERED_LENGTHS)
def _equal_starts(length: int, items: int) -> pa.Buffer:
    return pa.py_buffer(_starts(length, items))


def _starts(lengths: Numbers, items: int) -> npt.NDArray[np.int32]:
    """Returns where each item starts, and where the last one ends. A body is never longer than i32 can say."""
    if isinstance(lengths, int):
        return np.arange(items + 1, dtype=np.int32) * np.int32(lengths)
    starts = np.empty(items + 1, dtype=np.int32)
    starts[0], starts[1:] = 0, lengths
    np.add.accumulate(starts, out=starts)
    return starts


def _bitmap(valid: Bools) -> pa.Buffer:
    return pa.py_buffer(np.packbits(valid, bitorder="little"))

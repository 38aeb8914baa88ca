"""Converts messages in Arrow to the rows of a lake, and computes checksums of their content."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...codec.arrow import int64s_of, of_numbers
from ...codec.checksum import checksum
from ..typed import DATA
from .lake import Split
from .manifest import NO_VALUE

# The columns of a lake. Spark and Delta have neither nanoseconds nor unsigned numbers, so the part of a timestamp
# below the microsecond has its own column.
SCHEMA = pa.schema(
    [
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("nanos", pa.int16(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field(
            "headers",
            pa.list_(
                pa.field(
                    "element",
                    pa.struct(
                        [
                            pa.field("key", pa.string(), nullable=False),
                            pa.field("value", pa.binary()),
                        ]
                    ),
                    nullable=False,
                )
            ),
            nullable=False,
        ),
        pa.field("priority", pa.int32(), nullable=False),
        pa.field("expires_at", pa.timestamp("us", tz="UTC")),
        pa.field("idempotency_key", pa.binary()),
        pa.field("schema_id", pa.int64()),
        # Which log the offset counts in: a topic that was deleted and made again has another.
        pa.field("log", pa.int64(), nullable=False),
    ]
)
_NS_PER_US = 1000
# A folder's name has at most 255 bytes, and a byte of a value may take three of them.
_FOLDER_VALUE_BYTES_MAX = 64
_US_PER = {Split.DAY: 86_400_000_000, Split.HOUR: 3_600_000_000}


def lake_rows(found: pa.RecordBatch, partition: int, log: int) -> pa.RecordBatch:
    """Returns messages of a log with the columns of a lake. Keys and values are not copied."""
    count = found.num_rows
    moments_us, nanos = np.divmod(int64s_of(found.column("timestamp")), _NS_PER_US)
    columns = [
        of_numbers(np.full(count, partition, np.int32), pa.int32()),
        found.column("offset"),
        of_numbers(moments_us, SCHEMA.field("timestamp").type),
        of_numbers(nanos.astype(np.int16), pa.int16()),
        found.column("key"),
        found.column("value"),
        _headers(found.column("headers")),
        found.column("priority").cast(pa.int32()),
        found.column("expires_at").cast(SCHEMA.field("expires_at").type, safe=False),
        found.column("idempotency_key"),
        found.column("schema_id").cast(pa.int64()),
        of_numbers(np.full(count, log, np.int64), pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _headers(found: pa.ListArray) -> pa.ListArray:
    """Returns headers with the field names of a lake; a cast would go by names."""
    kind = SCHEMA.field("headers").type
    pairs = pa.StructArray.from_arrays(found.values.flatten(), fields=list(kind.value_field.type))
    return pa.ListArray.from_arrays(found.offsets, pairs, kind)


def moments_ns(rows: Any) -> "np.ndarray":
    """Returns the timestamps of a lake's rows in nanoseconds."""
    moments = np.asarray(rows.column("timestamp").cast(pa.int64()))
    return moments * _NS_PER_US + np.asarray(rows.column("nanos"), np.int64)


def by_time(batch: pa.RecordBatch, split: Split) -> list[tuple[int, pa.RecordBatch]]:
    """Returns the rows of a batch by day or hour since 1970, each part in the order of offsets."""
    if split is Split.NONE or batch.num_rows == 0:
        return [(0, batch)] if batch.num_rows else []
    numbers = int64s_of(batch.column("timestamp")) // _US_PER[split]
    low, high = int(numbers.min()), int(numbers.max())
    if low == high:
        return [(low, batch)]
    return [(int(one), batch.filter(_mask(numbers == one))) for one in np.unique(numbers)]


def by_value(batch: pa.RecordBatch, field: str) -> list[tuple[str, pa.RecordBatch]]:
    """Returns the rows of a batch by a field of their `data`, each part in the order of offsets.

    Rows without a value have `NO_VALUE`, and so do those with an empty one, or one that is no name of a folder.
    """
    if not field:
        return [("", batch)]
    texts = pc.struct_field(batch.column(DATA), field).cast(pa.string())
    size = pc.binary_length(texts)
    fits = pc.and_(pc.greater(size, 0), pc.less_equal(size, _FOLDER_VALUE_BYTES_MAX))
    values = pc.if_else(fits, texts, pa.scalar(None, pa.string()))
    known = values.fill_null(NO_VALUE).dictionary_encode()
    names, places = known.dictionary.to_pylist(), known.indices.to_numpy()
    if len(names) == 1:
        return [(names[0], batch)]
    return [(name, batch.filter(_mask(places == place))) for place, name in enumerate(names)]


def _mask(is_wanted: np.ndarray) -> pa.BooleanArray:
    bits = pa.py_buffer(np.packbits(is_wanted, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(is_wanted), [None, bits])


def folders_of(number: int, split: Split, field: str = "", value: str = "") -> dict[str, str]:
    """Returns the folders for a day or hour since 1970, and for a value of a field, by the name of their column."""
    own = {field: value} if field else {}
    if split is Split.NONE:
        return own
    days, hour = (number, 0) if split is Split.DAY else divmod(number, 24)
    folders = {"date": str(np.datetime64(days, "D"))}
    return {**folders, **own} if split is Split.DAY else {**folders, "hour": f"{hour:02d}", **own}


def content_checksum(column: pa.Array, before: int = 0) -> int:
    """Returns the CRC32C of all bytes of a binary column, continued from that of another column."""
    _, starts, data = column.buffers()
    if data is None or starts is None or len(column) == 0:
        return before
    width: Any = np.int64 if pa.types.is_large_binary(column.type) else np.int32
    places = np.frombuffer(starts, width)[column.offset : column.offset + len(column) + 1]
    return checksum(memoryview(data)[int(places[0]) : int(places[-1])], before)


def gaps_in(offsets: np.ndarray, expected: int) -> list[tuple[int, int]]:
    """Returns the half-open ranges that are missing between `expected` and the last of some rising offsets."""
    befores = np.concatenate(([expected - 1], offsets[:-1]))
    places = np.flatnonzero(offsets - befores != 1)
    return [(int(befores[one]) + 1, int(offsets[one])) for one in places]

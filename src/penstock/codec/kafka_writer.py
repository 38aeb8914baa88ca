"""Columns as a record batch of Kafka, for its consumers: without compression."""

import struct
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ..model import PRODUCER_NONE, Headers, MessageColumns
from .body import Body, Column
from .checksum import checksum
from .decode import message_columns
from .head import Head, head_of
from .kafka_header import CHECKED_FROM, HEADER, HEADER_BYTES, LENGTH_END, MAGIC
from .numbers import moved

Bytes = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]
_MS = 1_000_000
_NULL = b"\x01"  # -1
# Fewer equal records are written one by one as fast.
_RUN_MIN = 16


def _written(number: int) -> bytes:
    """A zigzag varint."""
    if 0 <= number < _SMALL_MAX:
        return _SMALL[number]
    found, left = bytearray(), number << 1 ^ number >> 63
    while left >= 0x80:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    found.append(left)
    return bytes(found)


_SMALL_MAX = 0
_SMALL = [_written(number) for number in range(1 << 13)]
_SMALL_MAX = len(_SMALL)


def kafka_batch_of(
    head: Head, body: Body, told_headers: Callable[[Headers], Headers] | None = None
) -> bytes:
    """A stored batch as Kafka's clients read it, without compression; gaps that compaction left stay gaps.

    `told_headers` says which headers of a message a client gets; without it all of them.
    """
    base_ms = head.base_timestamp // _MS
    records = _even_records(head, body, base_ms)
    if records is None:
        columns = message_columns(body, head)
        if told_headers is not None:
            columns = columns._replace(headers=[*map(told_headers, columns.headers)])
        records = _records(head, columns, base_ms)
    return _sealed(head, body.count, base_ms, records)


def kafka_batch_of_rows(columns: MessageColumns) -> bytes:
    """Messages of one partition, in the order of their offsets, as a record batch; offsets between them stay gaps."""
    first, times = columns.offsets[0], columns.timestamps
    head = head_of((0,) * len(Head._fields))._replace(
        base_offset=first,
        last_delta=columns.offsets[-1] - first,
        base_timestamp=min(times),
        max_timestamp=max(times),
        producer_id=PRODUCER_NONE,
    )
    base_ms = head.base_timestamp // _MS
    return _sealed(head, len(columns.values), base_ms, _records(head, columns, base_ms))


def _even_records(head: Head, body: Body, base_ms: int) -> bytes | None:
    """Records of values of one size and nothing else, in runs whose numbers take as many bytes; None: other records."""
    values, count = body.blob(Column.VALUES), body.count
    is_bare = Column.KEYS not in body.blobs and not body.header_count and head.is_dense
    size = values.lengths
    if not is_bare or not isinstance(size, int) or values.valid is not None or count < _RUN_MIN:
        return None
    times = moved(body.number(Column.TIMESTAMPS), count, head.base_timestamp) // _MS - base_ms
    offsets = np.arange(count, dtype=np.int64)
    widths = _width(times) * 16 + _width(offsets)
    changes = np.flatnonzero(np.diff(widths)) + 1
    if len(changes) * _RUN_MIN > count:
        return None
    blob = np.frombuffer(values.blob, dtype=np.uint8).reshape(count, size)
    edges = [0, *changes.tolist(), count]
    return b"".join(
        _run(times[first:last], offsets[first:last], blob[first:last])
        for first, last in pairwise(edges)
    )


def _width(numbers: Int64s) -> Int64s:
    """How many bytes each number takes as a zigzag varint. None of them is below zero."""
    found = np.ones(len(numbers), dtype=np.int64)
    for bits in range(6, 63, 7):
        found += numbers >= 1 << bits
    return found


def _run(times: Int64s, offsets: Int64s, values: Bytes) -> bytes:
    """Records whose times, offsets and values take as many bytes as those of the first."""
    parts = [
        np.zeros((len(times), 1), dtype=np.uint8),
        _columns_of(times),
        _columns_of(offsets),
        _repeated(_NULL + _written(values.shape[1]), len(times)),
        values,
        np.zeros((len(times), 1), dtype=np.uint8),
    ]
    length = _written(sum(part.shape[1] for part in parts))
    return np.hstack([_repeated(length, len(times)), *parts]).tobytes()


def _columns_of(numbers: Int64s) -> Bytes:
    """Zigzag varints of equal width, one in each row."""
    width = len(_written(int(numbers[0])))
    shifts = np.arange(width, dtype=np.int64) * 7
    found = ((numbers[:, None] << 1) >> shifts & 0x7F).astype(np.uint8)
    found[:, :-1] |= 0x80
    return found


def _repeated(row: bytes, count: int) -> Bytes:
    return np.broadcast_to(np.frombuffer(row, dtype=np.uint8), (count, len(row)))


def _records(head: Head, columns: MessageColumns, base_ms: int) -> bytes:
    base_offset = head.base_offset
    pieces: list[bytes] = []
    add, written = pieces.append, _written
    no_headers: Headers = ()
    rows = zip(
        columns.offsets,
        columns.timestamps,
        columns.keys,
        columns.values,
        columns.headers or [no_headers] * len(columns.values),
        strict=True,
    )
    for offset, time, key, value, pairs in rows:
        record = b"".join(
            (
                b"\0",
                written(time // _MS - base_ms),
                written(offset - base_offset),
                _NULL if key is None else written(len(key)) + key,
                _NULL if value is None else written(len(value)) + value,
                _headers_of(pairs) if pairs else b"\0",
            )
        )
        add(written(len(record)))
        add(record)
    return b"".join(pieces)


def _headers_of(pairs: Headers) -> bytes:
    found = [_written(len(pairs))]
    for name, content in pairs:
        encoded = name.encode()
        found += (_written(len(encoded)), encoded)
        found += (_NULL,) if content is None else (_written(len(content)), content)
    return b"".join(found)


def _sealed(head: Head, count: int, base_ms: int, records: bytes) -> bytes:
    has_producer = head.producer_id >= 0
    fields = (
        head.base_offset,
        HEADER_BYTES - LENGTH_END + len(records),
        head.epoch,
        MAGIC,
        0,
        0,
        head.last_delta,
        base_ms,
        head.max_timestamp // _MS,
        head.producer_id if has_producer else -1,
        # Ours are wider. What a Kafka client sent comes back as it was.
        min(head.producer_epoch, 0x7FFF) if has_producer else -1,
        head.first_sequence if has_producer else -1,
        count,
    )
    sealed = bytearray(HEADER.pack(*fields))
    sealed += records
    struct.pack_into(">I", sealed, 17, checksum(memoryview(sealed)[CHECKED_FROM:]))
    return bytes(sealed)

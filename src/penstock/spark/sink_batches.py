"""Record batches of Spark as batches of messages, by topic and partition. Knows Arrow and the codec, and does no I/O.

Nothing here loops over rows in Python, but for headers and times to live.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..client.stagings import BATCH_BYTES
from ..codec import COUNT_MAX, Columns
from ..codec.blobs import Blobs, JoinedBlobs
from ..errors import Refused
from ..model import Headers, Priority
from .key_hashes import key_hashes

Ints = npt.NDArray[np.int64]
_NS_PER_US = 1000
_MICROS_MAX = ((1 << 63) - 1) // _NS_PER_US


class PlacedColumns(NamedTuple):
    """Messages for one partition, no more than a batch should have."""

    topic: str
    partition: int
    columns: Columns


class Placement:
    """Chooses the partitions of rows: the one that the row names, or that of its key, or the one that has its turn."""

    def __init__(self, topic: str | None, partition_count: Callable[[str], int], turn: int) -> None:
        """`topic` is that of all rows; None: each row names one. `partition_count` may raise NotFound."""
        self._topic, self._partition_count, self._turn = topic, partition_count, turn

    def placed(
        self, rows: pa.RecordBatch, now_ns: int, bytes_max: int = BATCH_BYTES
    ) -> Iterator[PlacedColumns]:
        """Returns the rows as messages, of about so many bytes together. Refused names a partition that a topic does
        not have, or a missing topic."""
        for topic, part in self._by_topic(rows):
            for partition, placed in _by_partition(part, self._places(topic, part)):
                for piece in _pieces(placed, bytes_max):
                    yield PlacedColumns(topic, partition, columns_of_rows(piece, now_ns))
        # Rows without a key go to one partition after the other, a record batch to each.
        self._turn += 1

    def _by_topic(self, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if self._topic is not None:
            yield self._topic, rows
            return
        column = rows.column("topic")
        if column.null_count:
            raise Refused(f"column topic is null in {column.null_count} rows")
        topics = column.unique().to_pylist()
        for topic in topics:
            yield topic, rows if len(topics) == 1 else rows.filter(pc.equal(column, topic))

    def _places(self, topic: str, rows: pa.RecordBatch) -> Ints:
        count = self._partition_count(topic)
        places = np.full(rows.num_rows, self._turn % count, np.int64)
        keys = _column(rows, "key")
        if keys is not None and keys.null_count < len(keys):
            has_key = _valid(keys)
            places[has_key] = _hashes(keys.drop_null().cast(pa.binary())) % count
        named = _column(rows, "partition")
        if named is not None and named.null_count < len(named):
            numbers = named.drop_null().cast(pa.int64()).to_numpy(zero_copy_only=False)
            lowest, highest = int(numbers.min()), int(numbers.max())
            if lowest < 0 or highest >= count:
                wrong = lowest if lowest < 0 else highest
                raise Refused(
                    f"column partition: topic {topic} has partitions 0 to {count - 1}, not {wrong}"
                )
            places[_valid(named)] = numbers
        return places


def _by_partition(rows: pa.RecordBatch, places: Ints) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Returns the rows of each partition, in their order."""
    if bool((places == places[0]).all()):
        yield int(places[0]), rows
        return
    # Numbers of 16 bits are sorted by their digits, in a sixth of the time.
    small = places.astype(np.uint16) if int(places.max()) < 1 << 16 else places
    order = np.argsort(small, kind="stable")
    ordered, sorted_rows = places[order], rows.take(pa.array(order))
    starts = [0, *(np.flatnonzero(np.diff(ordered)) + 1).tolist()]
    for start, end in zip(starts, [*starts[1:], rows.num_rows], strict=True):
        yield int(ordered[start]), sorted_rows.slice(start, end - start)


def columns_of_rows(rows: pa.RecordBatch, now_ns: int) -> Columns:
    """Returns rows as columns of the codec. Bytes of keys and values are not copied."""
    keys, headers = _column(rows, "key"), _column(rows, "headers")
    timestamps, priorities = _column(rows, "timestamp"), _column(rows, "priority")
    lives = _column(rows, "ttl")
    return Columns(
        values=_joined(rows.column("value")),
        keys=None if keys is None or keys.null_count == len(keys) else _joined(keys),
        timestamps=now_ns if timestamps is None else _times_ns(timestamps, now_ns),
        headers=None if headers is None else _headers(headers),
        priorities=Priority.NORMAL if priorities is None else _numbers(priorities, Priority.NORMAL),
        expires_at=None if lives is None else _ends(lives, now_ns),
    )


def _column(rows: pa.RecordBatch, name: str) -> pa.Array | None:
    place = rows.schema.get_field_index(name)
    return None if place < 0 else rows.column(place)


def _valid(column: pa.Array) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = column.is_valid().to_numpy(zero_copy_only=False)
    return found


def _numbers(column: pa.Array, null: int) -> Ints:
    found: Ints = column.cast(pa.int64()).fill_null(null).to_numpy(zero_copy_only=False)
    return found


def _times_ns(column: pa.Array, now_ns: int) -> Ints:
    micros = _numbers(column.cast(pa.timestamp("us", column.type.tz)), now_ns // _NS_PER_US)
    # Spark's years go up to 294247; nanoseconds in 64 bits are over in 2262.
    for wrong in micros[np.abs(micros) > _MICROS_MAX][:1]:
        raise Refused(
            f"column timestamp: {np.datetime64(int(wrong), 'us')} is not between 1677-09-22 and 2262-04-11"
        )
    return micros * _NS_PER_US


def _ends(column: pa.Array, now_ns: int) -> list[int | None] | None:
    if column.null_count == len(column):
        return None
    lives_us = column.cast(pa.duration("us")).cast(pa.int64())
    shortest = pc.min(lives_us).as_py()
    if shortest <= 0:
        raise Refused(f"column ttl: a time to live is longer than nothing, got {shortest} us")
    return [None if one is None else now_ns + one * _NS_PER_US for one in lives_us.to_pylist()]


def _joined(column: pa.Array) -> JoinedBlobs:
    """Returns a column of byte strings as the encoder takes it, with the bytes where Arrow has them."""
    column = column.cast(pa.binary())
    valid = None
    if column.null_count:
        valid = _valid(column)
        # An array may have bytes behind a null, which the codec does not expect.
        column = column.fill_null(b"")
    offsets, data = _offsets(column), column.buffers()[2]
    blob = b"" if data is None else memoryview(data)[int(offsets[0]) : int(offsets[-1])]
    lengths = np.diff(offsets).astype(np.uint32)
    return JoinedBlobs([(Blobs(lengths, valid, blob), len(column))])


def _offsets(column: pa.Array) -> npt.NDArray[np.int32]:
    """Returns where the items of a binary or a list array begin, and where the last one ends."""
    whole = np.frombuffer(column.buffers()[1], np.int32)
    return whole[column.offset : column.offset + len(column) + 1]


def _hashes(keys: pa.Array) -> Ints:
    data = keys.buffers()[2]
    found = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return key_hashes(found, _offsets(keys)).astype(np.int64)


def _headers(column: pa.Array) -> list[Headers] | None:
    pairs = column.flatten()
    if not len(pairs):
        return None
    names = pairs.field("key")
    if pairs.null_count or names.null_count:
        raise Refused("column headers: a header or its key is null")
    values = pairs.field("value").cast(pa.binary()).to_pylist()
    every = list(zip(names.to_pylist(), values, strict=True))
    ends = np.cumsum(_numbers(pc.list_value_length(column), 0)).tolist()
    starts = [0, *ends[:-1]]
    return [tuple(every[start:end]) for start, end in zip(starts, ends, strict=True)]


def _pieces(rows: pa.RecordBatch, bytes_max: int) -> Iterator[pa.RecordBatch]:
    """Cut rows into pieces of about so many bytes, none of them with more messages than a batch may have."""
    if rows.nbytes <= bytes_max and rows.num_rows <= COUNT_MAX:
        yield rows
        return
    ends = np.cumsum(_sizes(rows))
    start = 0
    while start < rows.num_rows:
        before = int(ends[start - 1]) if start else 0
        end = int(np.searchsorted(ends, before + bytes_max, side="right"))
        end = min(max(end, start + 1), start + COUNT_MAX)
        yield rows.slice(start, end - start)
        start = end


def _sizes(rows: pa.RecordBatch) -> npt.NDArray[Any]:
    """Returns the bytes of each row: value, key and headers."""
    sizes = _lengths(rows.column("value"))
    keys, headers = _column(rows, "key"), _column(rows, "headers")
    if keys is not None:
        sizes = sizes + _lengths(keys)
    if headers is not None:
        pairs = headers.flatten()
        each = _lengths(pairs.field("key")) + _lengths(pairs.field("value"))
        sums = np.concatenate(([0], np.cumsum(each)))
        ends = np.cumsum(_numbers(pc.list_value_length(headers), 0))
        sizes = sizes + np.diff(sums[np.concatenate(([0], ends))])
    return sizes


def _lengths(column: pa.Array) -> Ints:
    return _numbers(pc.binary_length(column), 0)

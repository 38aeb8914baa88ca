"""The records of Kafka's record batch: checked as they arrive, and made columns for readers that want those.

A record is its length, a byte of attributes, the time and the offset as distances from those of the header, key, value,
and headers. Numbers are zigzag varints; a length of -1 is null. The lengths of records are a linked list, so finding
them is a loop over records.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..config import LimitsConfig
from ..errors import MalformedBatch, TooLarge
from ..model import Headers
from .blobs import Blobs, JoinedBlobs, blobs_of
from .body import HEADERS_MAX, Body, Column
from .columns import Columns
from .head import BODY_BYTES_MAX
from .kafka_header import KafkaHeader
from .numbers import narrow

_MS = 1_000_000
_TIME_MS_MAX = ((1 << 63) - 1) // _MS
_VARINT_BITS_MAX = 63
# Up to here a loop over the records costs less than some eighty calls of numpy do, whatever the records are.
_FEW_MAX = 64
# Fewer equal records are found one by one as fast.
_RUN_MIN = 16
_FOLLOWED = 256

Bytes = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]


class _Fields(NamedTuple):
    """Where the parts of each record are, by record. Sizes are -1 for null; times are in ms after the header's."""

    times: Int64s
    keys_at: Int64s
    key_sizes: Int64s
    values_at: Int64s
    value_sizes: Int64s
    headers_at: Int64s
    header_counts: Int64s
    ends: Int64s


class Records(NamedTuple):
    """The records of a batch, of which every length and number was checked."""

    data: bytes
    fields: _Fields
    # Of all records together, in their order.
    header_names: list[bytes]
    header_values: list[bytes | None]
    # In ms since 1970.
    first_ms: int
    last_ms: int
    base_ms: int

    @property
    def record_count(self) -> int:
        return len(self.fields.times)

    def check_limits(self, limits: LimitsConfig) -> None:
        """TooLarge: a key, a value or the headers of a record are over their limit."""
        fields = self.fields
        for sizes, what, limit in (
            (fields.value_sizes, "value", limits.value_bytes_max),
            (fields.key_sizes, "key", limits.key_bytes_max),
        ):
            largest = int(sizes.max())
            if largest > limit:
                raise TooLarge(f"{what} in bytes", found=largest, limit=limit)
        limit = limits.headers_bytes_max
        # What Kafka writes between the names and values only adds to it.
        if self.header_names and int((fields.ends - fields.headers_at).max()) > limit:
            pairs = zip(self.header_names, self.header_values, strict=True)
            totals = [0, *accumulate(len(name) + len(value or b"") for name, value in pairs)]
            ends = [0, *accumulate(fields.header_counts.tolist())]
            largest = int(np.diff(np.array(totals)[ends]).max())
            if largest > limit:
                raise TooLarge("headers of a message in bytes", found=largest, limit=limit)

    def body(self) -> Body:
        """Returns the records as columns; times count from the first."""
        count, fields = self.record_count, self.fields
        found = Body(count)
        if self.first_ms != self.last_ms:
            since = fields.times - (self.first_ms - self.base_ms)
            found.numbers[Column.TIMESTAMPS] = (since * _MS).view(np.uint64)
        found.put_blobs(Column.KEYS, self._blobs(fields.keys_at, fields.key_sizes))
        found.put_blobs(Column.VALUES, self._blobs(fields.values_at, fields.value_sizes))
        found.is_bare = Column.KEYS not in found.blobs and not self.header_names
        if self.header_names:
            found.put_header_counts(narrow(fields.header_counts.view(np.uint64)))
            for column, items in (
                (Column.HEADER_NAMES, self.header_names),
                (Column.HEADER_VALUES, self.header_values),
            ):
                found.put_blobs(column, blobs_of(items, "header", limit=BODY_BYTES_MAX))
        return found

    def columns(self, *, now_ns: int) -> Columns:
        """Returns the records for an encoder, with the time of arrival where the producer left it out."""
        count, fields = self.record_count, self.fields
        times: Int64s | int = self.first_ms * _MS
        if self.first_ms != self.last_ms:
            times = (fields.times + self.base_ms) * _MS
        if self.first_ms <= 0:
            times = now_ns if isinstance(times, int) else np.where(times <= 0, now_ns, times)
        values = _items(self._blobs(fields.values_at, fields.value_sizes), count)
        return Columns(
            values=[None] * count if values is None else values,
            keys=_items(self._blobs(fields.keys_at, fields.key_sizes), count),
            timestamps=times,
            headers=self._headers() if self.header_names else None,
        )

    def _blobs(self, starts: Int64s, sizes: Int64s) -> Blobs:
        size = int(sizes[0])
        if (sizes == size).all():
            if size == -1:
                return Blobs()
            if size > 0:
                # Copied row by row without making an object of each.
                array: Bytes = np.frombuffer(self.data, dtype=np.uint8)
                rows = np.lib.stride_tricks.sliding_window_view(array, size)[starts]
                return Blobs(size, None, rows.tobytes())
        lengths = np.maximum(sizes, 0)
        data, places = self.data, zip(starts.tolist(), (starts + lengths).tolist(), strict=True)
        blob = b"".join([data[start:end] for start, end in places])
        is_there = sizes >= 0
        return Blobs(narrow(lengths.view(np.uint64)), None if is_there.all() else is_there, blob)

    def _headers(self) -> list[Headers]:
        names = [str(name, "utf-8") for name in self.header_names]
        pairs = list(zip(names, self.header_values, strict=True))
        counts = self.fields.header_counts.tolist()
        ends = accumulate(counts)
        return [pairs[end - count : end] for end, count in zip(ends, counts, strict=True)]


def _items(blobs: Blobs, count: int) -> Sequence[bytes | None] | None:
    if blobs.lengths is None:
        return None
    return JoinedBlobs([(blobs, count)]) if blobs.valid is None else blobs.items(count, None)


def read_records(data: bytes, header: KafkaHeader) -> Records:
    """Returns the unpacked records of a batch. MalformedBatch: they are not what the header says.

    TooLarge: they have more headers than a batch of ours may have.
    """
    count = header.record_count
    try:
        fields = _few(data, count) if count <= _FEW_MAX else _many(data, count)
        names, values = _read_headers(data, fields)
    except IndexError:
        raise MalformedBatch("a record is cut short") from None
    base = header.base_timestamp
    first, last = int(fields.times.min()) + base, int(fields.times.max()) + base
    if first < -_TIME_MS_MAX or last > _TIME_MS_MAX:
        raise MalformedBatch(f"timestamps beyond {_TIME_MS_MAX} ms")
    return Records(data, fields, names, values, first, last, base)


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Returns a zigzag varint, and where the next one begins."""
    found = shift = 0
    while True:
        byte = data[position]
        position += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            if found >> 64:
                raise MalformedBatch("a number of more than 64 bits")
            return found >> 1 ^ -(found & 1), position
        shift += 7
        if shift > _VARINT_BITS_MAX:
            raise MalformedBatch("a number of more than ten bytes")


# What a varint of one byte says.
_ZIGZAG = [byte >> 1 ^ -(byte & 1) for byte in range(0x80)]


def _few(data: bytes, count: int) -> _Fields:
    """Record by record. Most numbers have one byte, and are read here without a call."""
    zigzag, size = _ZIGZAG, len(data)
    rows: list[tuple[int, ...]] = []
    at = 0
    for index in range(count):
        byte = data[at]
        length, at = (zigzag[byte], at + 1) if byte < 0x80 else _varint(data, at)
        end = at + length
        if not at < end <= size:
            raise MalformedBatch(f"record {index} has {length} bytes")
        # The first byte has attributes, which no version uses.
        byte = data[at + 1]
        time, at = (zigzag[byte], at + 2) if byte < 0x80 else _varint(data, at + 1)
        byte = data[at]
        offset, at = (zigzag[byte], at + 1) if byte < 0x80 else _varint(data, at)
        if offset != index:
            raise MalformedBatch("offset deltas do not count from 0")
        byte = data[at]
        key_size, key_at = (zigzag[byte], at + 1) if byte < 0x80 else _varint(data, at)
        at = key_at + key_size if key_size > 0 else key_at
        byte = data[at]
        value_size, value_at = (zigzag[byte], at + 1) if byte < 0x80 else _varint(data, at)
        at = value_at + value_size if value_size > 0 else value_at
        byte = data[at]
        headers, at = (zigzag[byte], at + 1) if byte < 0x80 else _varint(data, at)
        if key_size < -1 or value_size < -1:
            raise MalformedBatch(f"record {index} has a key or a value of a negative length")
        # Positions only grow, so what went beyond the record is found here.
        if headers or at != end:
            _check_end(headers, at, end)
        rows.append((time, key_at, key_size, value_at, value_size, at, headers, end))
        at = end
    if at != size:
        raise MalformedBatch(f"{size - at} bytes after the last record")
    return _Fields(*np.array(rows, dtype=np.int64).T)


def _check_end(headers: int, at: int, end: int) -> None:
    """MalformedBatch: the fields of a record before its headers leave no room for so many, or room without any."""
    if headers < 0 or (at != end if headers == 0 else headers > end - at):
        raise MalformedBatch(f"{headers} headers in {end - at} bytes at the end of a record")


def _varints(data: Bytes, positions: Int64s) -> tuple[Int64s, Int64s]:
    """Returns the zigzag varints at some positions, and where each of them ends."""
    byte = data[positions]
    after = positions + 1
    if (byte == byte[0]).all() and byte[0] < 0x80:
        # Most fields are the same for all records, such as the length of a key that is not there.
        return np.broadcast_to(np.int64(_ZIGZAG[byte[0]]), len(byte)), after
    found = (byte & 0x7F).astype(np.int64)
    more, shift = np.flatnonzero(byte >= 0x80), 7
    while len(more):
        if shift > _VARINT_BITS_MAX:
            raise MalformedBatch("a number of more than ten bytes")
        byte = data[after[more]]
        if shift == _VARINT_BITS_MAX and (byte > 1).any():
            raise MalformedBatch("a number of more than 64 bits")
        found[more] |= (byte & 0x7F).astype(np.int64) << shift
        after[more] += 1
        more, shift = more[byte >= 0x80], shift + 7
    # Shifted as if unsigned, or the highest bit would be taken for a sign.
    halves = (found.view(np.uint64) >> np.uint64(1)).view(np.int64)
    return halves ^ -(found & 1), after


def _many(data: bytes, count: int) -> _Fields:
    """All records at once, field by field; only their lengths have to be followed one by one."""
    array: Bytes = np.frombuffer(data, dtype=np.uint8)
    starts, ends = _bounds(data, array, count)
    times, at = _varints(array, starts + 1)
    offsets, at = _varints(array, at)
    if (offsets != np.arange(count)).any():
        raise MalformedBatch("offset deltas do not count from 0")
    key_sizes, keys_at = _varints(array, at)
    if (key_sizes < -1).any() or (key_sizes > ends - keys_at).any():
        raise MalformedBatch("the length of a key goes beyond its record")
    value_sizes, values_at = _varints(array, keys_at + np.maximum(key_sizes, 0))
    if (value_sizes < -1).any() or (value_sizes > ends - values_at).any():
        raise MalformedBatch("the length of a value goes beyond its record")
    counts, at = _varints(array, values_at + np.maximum(value_sizes, 0))
    room = ends - at
    is_wrong = (counts < 0) | (counts > room) | ((counts == 0) & (room != 0))
    if is_wrong.any():
        first = int(is_wrong.argmax())
        _check_end(int(counts[first]), int(at[first]), int(ends[first]))
    return _Fields(times, keys_at, key_sizes, values_at, value_sizes, at, counts, ends)


def _bounds(data: bytes, array: Bytes, count: int) -> tuple[Int64s, Int64s]:
    """Returns where each record begins, behind its length, and ends. Together they are all of the data."""
    starts, ends = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    done = position = 0
    while done < count:
        length, start = _varint(data, position)
        end = start + length
        if not start < end <= len(data):
            raise MalformedBatch(f"record {done} has {length} bytes")
        # Records of one size follow each other at equal distances, as long as their lengths are the same bytes.
        stride, width = end - position, start - position
        most = min(count - done, (len(data) - position) // stride)
        equal = 1
        if most > _RUN_MIN and data[end : end + width] == data[position:start]:
            rows = array[position : position + most * stride].reshape(most, stride)
            is_other = rows[:, 0] != rows[0, 0]
            for place in range(1, width):
                is_other |= rows[:, place] != rows[0, place]
            equal = int(is_other.argmax()) if is_other.any() else most
        steps = position + np.arange(equal, dtype=np.int64) * stride
        starts[done : done + equal] = steps + width
        ends[done : done + equal] = steps + stride
        done, position = done + equal, position + equal * stride
        if equal == 1:
            done, position = _follow(data, starts, ends, done, position)
    if position != len(data):
        raise MalformedBatch(f"{len(data) - position} bytes after the last record")
    return starts, ends


def _follow(data: bytes, starts: Int64s, ends: Int64s, done: int, position: int) -> tuple[int, int]:
    """Note the bounds of the next records, which differ in size. Returns how many there are then, and where."""
    last = min(len(starts), done + _FOLLOWED)
    begins: list[int] = []
    finishes: list[int] = []
    size = len(data)
    for index in range(done, last):
        byte = data[position]
        if byte < 0x80:
            length, start = _ZIGZAG[byte], position + 1
        else:
            length, start = _varint(data, position)
        position = start + length
        if not start < position <= size:
            raise MalformedBatch(f"record {index} has {length} bytes")
        begins.append(start)
        finishes.append(position)
    starts[done:last], ends[done:last] = begins, finishes
    return last, position


def _read_headers(data: bytes, fields: _Fields) -> tuple[list[bytes], list[bytes | None]]:
    """Returns the names and values of all headers. A loop over headers, paid only by records that have some."""
    names: list[bytes] = []
    values: list[bytes | None] = []
    total = int(fields.header_counts.sum())
    if total == 0:
        return names, values
    if total > HEADERS_MAX:
        raise TooLarge("batch in headers", found=total, limit=HEADERS_MAX)
    rows = np.flatnonzero(fields.header_counts)
    columns = (fields.headers_at[rows], fields.header_counts[rows], fields.ends[rows])
    for at, count, end in zip(*(column.tolist() for column in columns), strict=True):
        position = at
        for _ in range(count):
            name, position = _blob(data, position, end)
            if name is None:
                raise MalformedBatch("a header whose name is null")
            value, position = _blob(data, position, end)
            names.append(name)
            values.append(value)
        if position != end:
            raise MalformedBatch("a record does not end where its length says")
    try:
        # A name that ends inside a character is not mended by the one behind it, because of the byte between them.
        str(b"\0".join(names), "utf-8")
    except UnicodeDecodeError:
        raise MalformedBatch("a header name that is not UTF-8") from None
    return names, values


def _blob(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    """Returns bytes behind their length, or None for -1, and where the next ones begin."""
    byte = data[position]
    size, position = (_ZIGZAG[byte], position + 1) if byte < 0x80 else _varint(data, position)
    if size < -1 or size > end - position:
        raise MalformedBatch(f"a length of {size} with {end - position} bytes left in the record")
    if size == -1:
        return None, position
    return data[position : position + size], position + size

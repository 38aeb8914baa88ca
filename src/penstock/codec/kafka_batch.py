"""Kafka's record batch, version 2: its header, its records as our columns, and our columns as its records.

     0  i64  base offset        written by the broker
     8  i32  length             of what follows
    12  i32  leader epoch       written by the broker
    16  i8   magic              2
    17  u32  checksum           CRC32C of everything behind it
    21  i16  attributes         bits 0-2 compression, 3 append time, 4 transactional, 5 control
    23  i32  last offset delta
    27  i64  base timestamp     ms since 1970
    35  i64  max timestamp
    43  i64  producer id        -1 none
    51  i16  producer epoch
    53  i32  base sequence
    57  i32  record count
    61       records, compressed as a whole

All numbers are big-endian, those of the records are zigzag varints. The lengths of records are a linked list, so
reading them is a loop over messages.
"""

import struct
import zlib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import cramjam
import numpy as np
import numpy.typing as npt

from ..errors import ChecksumMismatch, MalformedBatch, TooLarge, UnsupportedFormat
from ..model import PRODUCER_NONE, Buffer, Headers, MessageColumns
from .blobs import Blobs, JoinedBlobs
from .body import Body, Column
from .checksum import checksum
from .columns import Columns
from .compression import Compression
from .decode import message_columns
from .head import COUNT_MAX, Head, head_of
from .numbers import moved

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = HEADER.size
assert HEADER_BYTES == 61
MAGIC = 2
# Behind the length field: the length counts from here.
_LENGTH_END = 12
_CHECKED_FROM = 21
_COMPRESSION_MASK = 0b111
_TRANSACTIONAL = 1 << 4
_CONTROL = 1 << 5
_NONE, _GZIP, _SNAPPY, _LZ4, _ZSTD = range(5)
_MS = 1_000_000
_TIME_MS_MAX = ((1 << 63) - 1) // _MS
# What a batch unpacks to is not said, so the room grows from here to the limit.
_UNPACK_BYTES_MIN = 1 << 16
_GROWTH = 4
_GZIP_WINDOW = 31  # zlib's largest, with gzip's header.
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16
_VARINT_BITS_MAX = 63
_I32 = struct.Struct(">i")
_NULL = b"\x01"  # -1
# Fewer equal records are found one by one as fast.
_RUN_MIN = 16
_FOLLOWED = 256

Bytes = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]


class KafkaHeader(NamedTuple):
    """The fields in the order of the bytes."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    checksum: int
    attributes: int
    last_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def compression(self) -> Compression:
        """How we store what the producer compressed: by what costs and saves about as much."""
        kind = self.attributes & _COMPRESSION_MASK
        if kind == _NONE:
            return Compression.NONE
        return Compression.LZ4 if kind in (_SNAPPY, _LZ4) else Compression.ZSTD


def kafka_batches(data: Buffer) -> Iterator[tuple[KafkaHeader, memoryview]]:
    """The batches of a produce request, each with its header, both checked. See `read_kafka_batch`."""
    view, position = memoryview(data), 0
    while position < len(view):
        header = _read_header(view[position:])
        end = position + _LENGTH_END + header.length
        batch = view[position:end]
        found = checksum(batch[_CHECKED_FROM:])
        if found != header.checksum:
            raise ChecksumMismatch("record batch", found=header.checksum, expected=found)
        yield header, batch
        position = end


def _read_header(data: memoryview) -> KafkaHeader:
    """MalformedBatch: no header, or one that a producer cannot have meant. UnsupportedFormat: an older magic."""
    if len(data) < HEADER_BYTES:
        if len(data) > _LENGTH_END + 4 and data[_LENGTH_END + 4] < MAGIC:
            raise UnsupportedFormat(f"magic {data[_LENGTH_END + 4]}, this broker knows {MAGIC}")
        raise MalformedBatch(f"a record batch has {HEADER_BYTES} bytes at least, found {len(data)}")
    header = KafkaHeader(*HEADER.unpack_from(data))
    if header.magic != MAGIC:
        raise UnsupportedFormat(f"magic {header.magic}, this broker knows {MAGIC}")
    if not HEADER_BYTES <= _LENGTH_END + header.length <= len(data):
        raise MalformedBatch(f"length {header.length} in {len(data)} bytes")
    if not 0 < header.record_count <= COUNT_MAX:
        raise MalformedBatch(f"{header.record_count} records, not 1 to {COUNT_MAX}")
    if header.last_delta != header.record_count - 1:
        raise MalformedBatch(
            f"last offset delta {header.last_delta} with {header.record_count} records"
        )
    if header.attributes & _COMPRESSION_MASK > _ZSTD:
        raise UnsupportedFormat(f"compression {header.attributes & _COMPRESSION_MASK}")
    if header.attributes & _CONTROL:
        raise MalformedBatch("control batches are not a producer's to send")
    # Without a producer the sequence means nothing: aiokafka sends 0.
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise MalformedBatch("a producer that has an id has an epoch and a sequence, too")
    return header


def kafka_columns(header: KafkaHeader, batch: Buffer, *, size_max: int) -> Columns:
    """The records of a checked batch. MalformedBatch: they are not what the header says; TooLarge: over `size_max`."""
    stored = memoryview(batch)[HEADER_BYTES:]
    records = _unpack(stored, header.attributes & _COMPRESSION_MASK, size_max)
    try:
        return _read_records(bytes(records), header)
    except IndexError:
        raise MalformedBatch("a record is cut short") from None


def _unpack(stored: memoryview, kind: int, size_max: int) -> Buffer:
    """Unpacked records; no more than `size_max` bytes are ever allocated."""
    if kind == _NONE:
        return stored
    try:
        if kind == _GZIP:
            return _unpack_gzip(stored, size_max)
        if kind == _SNAPPY:
            return _unpack_snappy(stored, size_max)
        return _unpack_growing(stored, kind, size_max)
    except (cramjam.DecompressionError, zlib.error) as error:
        raise MalformedBatch(f"records do not unpack: {error}") from None


def _unpack_gzip(stored: memoryview, size_max: int) -> bytes:
    machine = zlib.decompressobj(_GZIP_WINDOW)
    found = machine.decompress(stored, size_max + 1)
    if len(found) > size_max:
        raise TooLarge("records in bytes", found=len(found), limit=size_max)
    if not machine.eof:
        raise MalformedBatch("records do not unpack: the gzip data is cut short")
    return found


def _unpack_snappy(stored: memoryview, size_max: int) -> bytes:
    """A bare block, or blocks in the framing of the Java library, each behind its size."""
    if bytes(stored[: len(_XERIAL)]) != _XERIAL:
        return _unpack_block(stored, size_max)
    found, room, position = [], size_max, _XERIAL_HEADER_BYTES
    while position + _I32.size <= len(stored):
        (size,) = _I32.unpack_from(stored, position)
        position += _I32.size
        if not 0 <= size <= len(stored) - position:
            raise MalformedBatch(f"a snappy block of {size} bytes")
        found.append(_unpack_block(stored[position : position + size], room))
        room, position = room - len(found[-1]), position + size
    return b"".join(found)


def _unpack_block(block: memoryview, size_max: int) -> bytes:
    size = cramjam.snappy.decompress_raw_len(block)
    if size > size_max:
        raise TooLarge("records in bytes", found=size, limit=size_max)
    return bytes(cramjam.snappy.decompress_raw(block))


def _unpack_growing(stored: memoryview, kind: int, size_max: int) -> memoryview:
    unpack = cramjam.lz4.decompress_into if kind == _LZ4 else cramjam.zstd.decompress_into
    size = min(size_max, max(_UNPACK_BYTES_MIN, _GROWTH * len(stored)))
    while True:
        room = bytearray(size)
        try:
            return memoryview(room)[: unpack(stored, room)]
        except cramjam.DecompressionError:
            # Bytes that are wrong and room that is too small look the same.
            if size == size_max:
                raise
            size = min(size_max, size * _GROWTH)


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """A zigzag varint, and where the next one begins."""
    found = shift = 0
    while True:
        byte = data[position]
        position += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return found >> 1 ^ -(found & 1), position
        shift += 7
        if shift > _VARINT_BITS_MAX:
            raise MalformedBatch("a number of more than ten bytes")


def _varints(data: Bytes, positions: Int64s) -> tuple[Int64s, Int64s]:
    """The zigzag varints at some positions, and where each of them ends."""
    byte = data[positions]
    found = (byte & 0x7F).astype(np.int64)
    after = positions + 1
    more, shift = np.flatnonzero(byte >= 0x80), 7
    while len(more):
        if shift > _VARINT_BITS_MAX:
            raise MalformedBatch("a number of more than ten bytes")
        byte = data[after[more]]
        found[more] |= (byte & 0x7F).astype(np.int64) << shift
        after[more] += 1
        more, shift = more[byte >= 0x80], shift + 7
    # Shifted as it were unsigned, or the highest bit would be taken for a sign.
    halves = (found.view(np.uint64) >> np.uint64(1)).view(np.int64)
    return halves ^ -(found & 1), after


def _read_records(data: bytes, header: KafkaHeader) -> Columns:
    """All records at once, field by field; only their lengths have to be followed one by one."""
    array: Bytes = np.frombuffer(data, dtype=np.uint8)
    starts, ends = _bounds(data, array, header.record_count)
    # The first byte has attributes, which no version uses.
    times, position = _varints(array, starts + 1)
    offsets, position = _varints(array, position)
    if (offsets != np.arange(len(offsets))).any():
        raise MalformedBatch("offset deltas do not count from 0")
    keys, position = _blobs(data, array, position, ends)
    values, position = _blobs(data, array, position, ends)
    counts, position = _varints(array, position)
    headers: list[Headers] | None = None
    if counts.any():
        if (counts < 0).any():
            raise MalformedBatch("a negative number of headers")
        headers, position = _headers(data, counts, position, ends)
    if (position != ends).any():
        raise MalformedBatch("a record does not end where its length says")
    return Columns(
        values=[None] * len(counts) if values is None else values,
        keys=keys,
        timestamps=_times(times, header.base_timestamp),
        headers=headers,
    )


def _bounds(data: bytes, array: Bytes, count: int) -> tuple[Int64s, Int64s]:
    """Where each record begins, behind its length, and ends. Together they are all of the data."""
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
            is_other = (rows[:, :width] != rows[0, :width]).any(axis=1)
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
    """The bounds of the next records, which differ in size, one by one; how many there are then, and where."""
    last = min(len(starts), done + _FOLLOWED)
    found: list[tuple[int, int]] = []
    for index in range(done, last):
        length, start = _varint(data, position)
        position = start + length
        if not start < position <= len(data):
            raise MalformedBatch(f"record {index} has {length} bytes")
        found.append((start, position))
    if found:
        starts[done:last], ends[done:last] = np.array(found, dtype=np.int64).T
    return last, position


def _times(deltas: Int64s, base_ms: int) -> Int64s | int:
    """Times in ns; one number if all are equal. MalformedBatch: one is beyond what 64 bits hold."""
    first, last = int(deltas.min()) + base_ms, int(deltas.max()) + base_ms
    if first < -_TIME_MS_MAX or last > _TIME_MS_MAX:
        raise MalformedBatch(f"timestamps beyond {_TIME_MS_MAX} ms")
    if first == last:
        return first * _MS
    return (deltas + base_ms) * _MS


def _blobs(
    data: bytes, array: Bytes, position: Int64s, ends: Int64s
) -> tuple[Sequence[bytes | None] | None, Int64s]:
    """Bytes behind their lengths, of which -1 is null; None if all are. And where each ends."""
    sizes, position = _varints(array, position)
    if (sizes < -1).any() or (sizes > ends - position).any():
        raise MalformedBatch("a length goes beyond its record")
    after = position + np.maximum(sizes, 0)
    size = int(sizes[0])
    if (sizes == size).all():
        if size == -1:
            return None, after
        if size > 0:
            # Copied row by row without making an object of each.
            rows = np.lib.stride_tricks.sliding_window_view(array, size)[position]
            return JoinedBlobs([(Blobs(size, None, rows.tobytes()), len(sizes))]), after
    places = zip(position.tolist(), after.tolist(), strict=True)
    found: list[bytes | None] = [data[start:end] for start, end in places]
    for index in np.flatnonzero(sizes == -1).tolist():
        found[index] = None
    return found, after


def _headers(
    data: bytes, counts: Int64s, position: Int64s, ends: Int64s
) -> tuple[list[Headers], Int64s]:
    """The headers of each record, and where they end. A loop over headers, paid only by records that have some."""
    found: list[Headers] = [()] * len(counts)
    after = position.copy()
    for index in np.flatnonzero(counts).tolist():
        found[index], after[index] = _record_headers(
            data, int(counts[index]), int(position[index]), int(ends[index])
        )
    return found, after


def _record_headers(data: bytes, count: int, position: int, end: int) -> tuple[Headers, int]:
    if count > end - position:
        raise MalformedBatch(f"{count} headers in {end - position} bytes")
    found = []
    for _ in range(count):
        name, position = _blob(data, position, end)
        value, position = _blob(data, position, end)
        if not name or value is None:
            raise MalformedBatch("a header without a name, or with a null value, cannot be stored")
        try:
            found.append((str(name, "utf-8"), value))
        except UnicodeDecodeError:
            raise MalformedBatch("a header name that is not UTF-8") from None
    return found, position


def _blob(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    """Bytes behind their length, or None for -1."""
    size, position = _varint(data, position)
    if size < -1 or size > end - position:
        raise MalformedBatch(f"a length of {size} with {end - position} bytes left in the record")
    if size == -1:
        return None, position
    return data[position : position + size], position + size


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


def kafka_batch_of(head: Head, body: Body) -> bytes:
    """A stored batch as Kafka's clients read it, without compression; gaps that compaction left stay gaps."""
    base_ms = head.base_timestamp // _MS
    records = _even_records(head, body, base_ms)
    if records is None:
        records = _records(head, message_columns(body, head), base_ms)
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
        found += (_written(len(encoded)), encoded, _written(len(content)), content)
    return b"".join(found)


def _sealed(head: Head, count: int, base_ms: int, records: bytes) -> bytes:
    has_producer = head.producer_id >= 0
    fields = (
        head.base_offset,
        HEADER_BYTES - _LENGTH_END + len(records),
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
    struct.pack_into(">I", sealed, 17, checksum(memoryview(sealed)[_CHECKED_FROM:]))
    return bytes(sealed)

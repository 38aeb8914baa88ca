"""Kafka's record batches against aiokafka's reader and writer."""

import gzip
import random
import struct
from typing import Any

import cramjam
import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from penstock.codec import decode_columns, encode, stamp, verify
from penstock.codec.checksum import checksum
from penstock.codec.columns import Columns
from penstock.codec.decode import open_body
from penstock.codec.head import Marks
from penstock.codec.kafka_header import HEADER_BYTES, read_header
from penstock.codec.kafka_writer import kafka_batch_of
from penstock.codec.verbatim import records_of
from penstock.errors import ChecksumMismatch, MalformedBatch, TooLarge, UnsupportedFormat

MIB = 1 << 20
NOW_MS = 1_767_268_800_123
Rows = list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes]]]]


def rows(count: int, seed: int = 1) -> Rows:
    chance = random.Random(seed)
    return [
        (
            NOW_MS + chance.randrange(-500, 500),
            chance.choice([None, b"", b"k", chance.randbytes(70)]),
            chance.choice([None, b"", b"value", chance.randbytes(300)]),
            chance.choice([[], [], [("a", b"1"), ("größe", b"")]]),
        )
        for _ in range(count)
    ]


def built(sent: Rows, *, compression: int = 0, **producer: int) -> bytes:
    marks = {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1, **producer}
    builder = DefaultRecordBatchBuilder(
        2, compression, is_transactional=False, batch_size=1 << 30, **marks
    )
    for offset, (time, key, value, headers) in enumerate(sent):
        builder.append(offset, time, key, value, headers)
    return bytes(builder.build())


def columns_in(data: bytes, size_max: int = MIB) -> Columns:
    batch = memoryview(data)
    return records_of(read_header(batch), batch, size_max=size_max).columns(now_ns=1)


def resealed(data: bytes | bytearray) -> bytes:
    """A batch that was changed, with a good checksum."""
    changed = bytearray(data)
    struct.pack_into(">I", changed, 17, checksum(bytes(changed[21:])))
    return bytes(changed)


def with_records(data: bytes, records: bytes, compression: int) -> bytes:
    changed = bytearray(data[:HEADER_BYTES] + records)
    struct.pack_into(">i", changed, 8, len(changed) - 12)
    struct.pack_into(">h", changed, 21, compression)
    return resealed(changed)


@pytest.mark.parametrize("compression", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("count", [1, 2, 150])
def test_records_become_columns(compression: int, count: int) -> None:
    sent = rows(count)
    columns = columns_in(built(sent, compression=compression))
    batch = encode(columns).to_bytes()
    found = decode_columns(batch, verify(batch))
    for index, (time, key, value, headers) in enumerate(sent):
        assert found.timestamps[index] == time * 1_000_000
        assert (found.keys[index], found.values[index]) == (key, value)
        assert list(found.headers[index]) == headers


@pytest.mark.parametrize("count", [1, 3, 200])
def test_columns_become_records(count: int) -> None:
    sent = rows(count, seed=count)
    batch = encode(columns_in(built(sent)), marks=Marks(False, 7, 3, 41)).to_bytes()
    head = verify(batch)
    placed = verify(
        stamp(head, base_offset=900, epoch=2, append_time=1) + batch[112:],
    )
    data = kafka_batch_of(placed, open_body(batch, placed))
    read = DefaultRecordBatch(data)
    assert read.validate_crc()
    assert (read.base_offset, read.producer_id, read.producer_epoch) == (900, 7, 3)
    assert read.base_sequence == 41
    got = [(one.offset, one.timestamp, one.key, one.value, one.headers) for one in read]
    want = [(900 + at, *one[:3], tuple(one[3])) for at, one in enumerate(sent)]
    assert [(*one[:4], tuple(one[4])) for one in got] == want


def test_the_same_bytes_come_back_as_aiokafka_writes_them() -> None:
    sent = sorted(rows(40), key=lambda row: row[0])
    data = built(sent, producer_id=5, producer_epoch=0, base_sequence=10)
    batch = encode(columns_in(data), marks=Marks(False, 5, 0, 10)).to_bytes()
    head = verify(batch)
    found = kafka_batch_of(head, open_body(batch, head))
    # The leader epoch is the broker's, and outside of what the checksum covers.
    assert found[:12] + found[16:] == data[:12] + data[16:]


@pytest.mark.parametrize("count", [17, 63, 64, 65, 200, 9000])
def test_records_of_one_size_are_found_without_following_them(count: int) -> None:
    sent: Rows = [(NOW_MS, None, b"%06d" % number, []) for number in range(count)]
    for odd in (0, count // 2, count - 1):
        changed = [*sent]
        changed[odd] = (NOW_MS, b"key", b"longer than the others", [])
        assert list(columns_in(built(changed)).values) == [row[2] for row in changed]
    assert columns_in(built(sent)).values[:] == [row[2] for row in sent]


@pytest.mark.parametrize("count", [1, 15, 16, 64, 65, 300, 9000])
@pytest.mark.parametrize("step", [0, 0.01, 1, 50])
def test_values_of_one_size_are_written_as_aiokafka_writes_them(count: int, step: float) -> None:
    sent: Rows = [
        (NOW_MS + int(number * step), None, b"%06d" % number, []) for number in range(count)
    ]
    data = built(sent)
    batch = encode(columns_in(data)).to_bytes()
    head = verify(batch)
    found = kafka_batch_of(head, open_body(batch, head))
    assert found[:12] + found[16:53] + found[57:] == data[:12] + data[16:53] + data[57:]


def test_there_is_one_batch() -> None:
    for data in (b"", built(rows(3)) + built(rows(5))):
        with pytest.raises(MalformedBatch):
            columns_in(data)


@pytest.mark.parametrize(
    ("at", "form", "value", "error"),
    [
        (8, ">i", 10, MalformedBatch),
        (8, ">i", 1 << 30, MalformedBatch),
        (8, ">i", -1, MalformedBatch),
        (16, ">b", 1, UnsupportedFormat),
        (21, ">h", 5, UnsupportedFormat),
        (21, ">h", 1 << 5, MalformedBatch),
        (23, ">i", 7, MalformedBatch),
        (43, ">q", 9, MalformedBatch),
        (57, ">i", 0, MalformedBatch),
        (57, ">i", -1, MalformedBatch),
        (57, ">i", 1 << 30, MalformedBatch),
    ],
)
def test_a_header_that_lies_is_refused(
    at: int, form: str, value: int, error: type[Exception]
) -> None:
    changed = bytearray(built(rows(3)))
    struct.pack_into(form, changed, at, value)
    with pytest.raises(error):
        columns_in(resealed(changed))


def test_a_count_that_lies_is_refused() -> None:
    for count in (2, 4):
        changed = bytearray(built(rows(3)))
        struct.pack_into(">i", changed, 57, count)
        struct.pack_into(">i", changed, 23, count - 1)
        with pytest.raises(MalformedBatch):
            columns_in(resealed(changed))


def test_a_wrong_checksum_is_refused() -> None:
    changed = bytearray(built(rows(3)))
    changed[-1] ^= 1
    with pytest.raises(ChecksumMismatch):
        columns_in(bytes(changed))


def test_records_changed_anywhere_are_read_or_refused() -> None:
    chance, good = random.Random(3), built(rows(12))
    for _ in range(2000):
        changed = bytearray(good)
        changed[chance.randrange(HEADER_BYTES, len(good))] = chance.choice([0, 1, 0x7F, 0x80, 0xFF])
        try:
            columns = columns_in(resealed(changed))
        except MalformedBatch:
            continue
        assert len(columns.values) == 12


@pytest.mark.parametrize("cut", range(0, 400, 7))
def test_a_batch_that_is_cut_is_refused(cut: int) -> None:
    data = built(rows(6))
    if cut and cut < len(data):
        with pytest.raises(MalformedBatch):
            columns_in(data[:cut])


def packed(kind: int, data: bytes) -> bytes:
    pack: dict[int, Any] = {
        1: gzip.compress,
        2: cramjam.snappy.compress_raw,
        3: cramjam.lz4.compress,
        4: cramjam.zstd.compress,
    }
    return bytes(pack[kind](data))


@pytest.mark.parametrize("kind", [1, 2, 3, 4])
def test_a_bomb_is_refused_before_it_grows(kind: int) -> None:
    bomb = with_records(built(rows(1)), packed(kind, bytes(40 * MIB)), kind)
    with pytest.raises((TooLarge, MalformedBatch)):
        columns_in(bomb, size_max=MIB)


def test_snappy_in_the_framing_of_java_and_bare() -> None:
    plain = built(rows(20))
    records = plain[HEADER_BYTES:]
    parts = [records[:100], records[100:]]
    blocks = [bytes(cramjam.snappy.compress_raw(one)) for one in parts]
    framed = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    framed += b"".join(struct.pack(">i", len(one)) + one for one in blocks)
    bare = packed(2, records)
    for stored in (framed, bare):
        found, wanted = columns_in(with_records(plain, stored, 2)), columns_in(plain)
        assert encode(found).to_bytes() == encode(wanted).to_bytes()


def test_headers_may_have_null_values_and_empty_names() -> None:
    headers: Any = [("", b"x"), ("a", None), ("", None), ("a", b"")]
    found = columns_in(built([(NOW_MS, None, b"v", headers), (NOW_MS, None, b"w", [])]))
    batch = encode(found).to_bytes()
    read = decode_columns(batch, verify(batch))
    assert [list(one) for one in read.headers] == [headers, []]
    head = verify(batch)
    again = DefaultRecordBatch(kafka_batch_of(head, open_body(batch, head)))
    assert [list(one.headers) for one in again] == [headers, []]

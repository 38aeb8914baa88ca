"""Record batches of Kafka as they came: kept byte for byte, and read as columns as a naive reader reads them."""

import random
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.codec import (
    HEAD_BYTES,
    Encoded,
    Head,
    decode_arrow,
    decode_columns,
    decode_messages,
    select,
    stamp,
    verify,
)
from penstock.codec.checksum import checksum
from penstock.codec.edit import expiring
from penstock.codec.head import HEAD, Origin, pack_head
from penstock.codec.kafka_header import read_header
from penstock.codec.verbatim import as_fetched, is_faithful, keep_verbatim, records_of
from penstock.config import LimitsConfig
from penstock.errors import ChecksumMismatch, MalformedBatch, PenstockError, TooLarge
from penstock.model import Message

from .kafka_twin import Producer, Record, batch, read, record, sealed, varint
from .strategies import BLOBS, NAMES

MIB = 1 << 20
NOW_MS = 1_767_268_800_123
# Later times do not fit into 64 bits of nanoseconds.
TIME_MS_MAX = (2**63 - 1) // 1_000_000
HEADERS = st.lists(st.tuples(NAMES, st.one_of(st.none(), BLOBS)), max_size=3)
RECORDS = st.builds(
    Record,
    st.one_of(st.integers(NOW_MS - 70, NOW_MS + 70), st.integers(1, 1 << 42)),
    st.one_of(st.none(), BLOBS),
    st.one_of(st.none(), BLOBS),
    HEADERS,
)
# Few are read one by one, many at once; equal ones by their distance.
MANY = st.one_of(st.integers(1, 8), st.sampled_from([63, 64, 65, 66, 130]))


@st.composite
def sent_records(draw: st.DrawFn) -> list[Record]:
    drawn = draw(st.lists(RECORDS, min_size=1, max_size=6))
    return (drawn * (draw(MANY) // len(drawn) + 1))[: max(1, draw(MANY))]


def kept(data: bytes, size_max: int = MIB) -> Encoded:
    view = memoryview(data)
    header = read_header(view)
    return keep_verbatim(header, view, records_of(header, view, size_max=size_max))


def expected(sent: list[Record], first: int = 0) -> list[Message]:
    return [
        Message(
            one.value,
            one.key,
            tuple(one.headers),
            timestamp=one.time_ms * 1_000_000,
            offset=first + index,
        )
        for index, one in enumerate(sent)
    ]


@given(sent=sent_records(), packing=st.integers(0, 4))
def test_columns_are_what_a_naive_reader_finds(sent: list[Record], packing: int) -> None:
    data = batch(sent, packing=packing, producer_id=7, epoch=1, sequence=40)
    assert read(data) == [one._replace(headers=list(one.headers)) for one in sent]
    stored = kept(data).to_bytes()
    head = verify(stored)
    assert (head.encoding, head.message_count, head.last_delta) == (1, len(sent), len(sent) - 1)
    assert (head.producer_id, head.producer_epoch, head.first_sequence) == (7, 1, 40)
    times = [one.time_ms * 1_000_000 for one in sent]
    assert (head.base_timestamp, head.max_timestamp) == (min(times), max(times))
    assert list(decode_messages(stored, head)) == expected(sent)
    rows = decode_arrow(stored, head).to_pylist()
    assert [(row["key"], row["value"]) for row in rows] == [(one.key, one.value) for one in sent]
    got = [[(pair["name"], pair["value"]) for pair in row["headers"]] for row in rows]
    assert got == [list(one.headers) for one in sent]


@given(sent=sent_records(), packing=st.integers(0, 4), offset=st.integers(0, 2**62))
def test_kafka_gets_the_same_bytes_back(sent: list[Record], packing: int, offset: int) -> None:
    data = batch(sent, packing=packing)
    stored = kept(data).to_bytes()
    placed = stamp(verify(stored), base_offset=offset, epoch=3, append_time=1)
    head = verify(placed + stored[HEAD_BYTES:])
    found = b"".join(as_fetched(memoryview(stored), head))
    assert struct.unpack_from(">q", found) == (offset,)
    assert struct.unpack_from(">i", found, 12) == (3,)
    assert bytes(found[8:12] + found[16:]) == data[8:12] + data[16:]
    assert read(bytes(found)) == read(data)


@given(sent=sent_records(), change=st.data())
def test_records_that_were_changed_are_read_as_a_naive_reader_reads_them(
    sent: list[Record], change: st.DataObject
) -> None:
    base = sent[0].time_ms
    raw = bytearray(b"".join(record(one, index, base) for index, one in enumerate(sent)))
    for _ in range(change.draw(st.integers(1, 3))):
        place = change.draw(st.integers(0, len(raw) - 1))
        raw[place] = change.draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0x81, 0xFF]))
    data = sealed(bytes(raw), len(sent), (base, base))
    view = memoryview(data)
    try:
        wanted = read(data)
    except ValueError:
        with pytest.raises((MalformedBatch, TooLarge)):
            records_of(read_header(view), view, size_max=MIB)
        return
    if not all(abs(one.time_ms) <= TIME_MS_MAX for one in wanted):
        with pytest.raises(MalformedBatch):
            records_of(read_header(view), view, size_max=MIB)
        return
    found = records_of(read_header(view), view, size_max=MIB)
    columns = found.columns(now_ns=5)
    assert [*columns.values] == [one.value for one in wanted]
    assert [*(columns.keys or [None] * len(wanted))] == [one.key for one in wanted]
    assert [list(one) for one in columns.headers or [()] * len(wanted)] == [
        one.headers for one in wanted
    ]


def raw_record(index: int, *, key: int = -1, value: int = 3, headers: int = 0) -> bytes:
    """A record whose lengths may lie; three bytes follow that of its value."""
    body = b"\0" + varint(0) + varint(index) + varint(key) + varint(value) + b"ab\0"
    body += varint(headers)
    return varint(len(body)) + body


@pytest.mark.parametrize("count", [1, 3, 64, 65, 200])
@pytest.mark.parametrize(
    "wrong",
    [
        {"index": 1000},
        {"index": -1},
        {"key": -2},
        {"key": 1},
        {"key": 2**62},
        {"value": -2},
        {"value": -1},
        {"value": 2},
        {"value": 4},
        {"value": 90},
        {"value": 2**63 - 1},
        {"headers": 1},
        {"headers": -1},
    ],
)
def test_a_record_that_lies_is_refused_wherever_it_is(count: int, wrong: dict[str, int]) -> None:
    good = [raw_record(index) for index in range(count)]
    times = NOW_MS, NOW_MS
    assert kept(sealed(b"".join(good), count, times)).head.message_count == count
    for place in {0, count // 2, count - 1}:
        lying = [*good]
        lying[place] = raw_record(**{"index": place, **wrong})
        view = memoryview(sealed(b"".join(lying), count, times))
        with pytest.raises(MalformedBatch):
            records_of(read_header(view), view, size_max=MIB)


SENT = [Record(NOW_MS + index, b"k%d" % index, b"v" * index) for index in range(5)]


@pytest.mark.parametrize(
    "more",
    [{"attributes": 1 << 3}, {"attributes": 1 << 6}, {"count": 4}, {"last_delta": 3}],
)
def test_only_what_says_no_more_than_our_head_is_kept(more: dict[str, int]) -> None:
    view = memoryview(batch(SENT, **more))
    try:
        header = read_header(view)
        assert not is_faithful(header, records_of(header, view, size_max=MIB))
    except MalformedBatch:
        assert set(more) & {"count", "last_delta"}


@pytest.mark.parametrize("times", [(NOW_MS, NOW_MS), (NOW_MS, NOW_MS + 9), (NOW_MS, -1)])
def test_a_latest_time_that_lies_is_not_kept(times: tuple[int, int]) -> None:
    raw = b"".join(record(one, index, NOW_MS) for index, one in enumerate(SENT))
    view = memoryview(sealed(raw, len(SENT), times))
    header = read_header(view)
    assert not is_faithful(header, records_of(header, view, size_max=MIB))


@pytest.mark.parametrize("time_ms", [0, -1])
def test_records_without_a_time_are_not_kept_and_get_that_of_arrival(time_ms: int) -> None:
    view = memoryview(batch([Record(NOW_MS, None, b"a"), Record(time_ms, None, b"b")]))
    header = read_header(view)
    records = records_of(header, view, size_max=MIB)
    assert not is_faithful(header, records)
    assert list(records.columns(now_ns=77).timestamps) == [NOW_MS * 1_000_000, 77]


def forged(stored: bytes, **fields: int) -> bytes:
    """A batch with other fields in its head, and a good checksum."""
    head = Head(*HEAD.unpack(stored[:HEAD_BYTES]))._replace(**fields)
    return pack_head(head) + stored[HEAD_BYTES:]


@pytest.mark.parametrize(
    "fields",
    [
        {"message_count": 4},
        {"message_count": 6, "last_delta": 5},
        {"last_delta": 9},
        {"base_timestamp": 1},
        {"max_timestamp": (NOW_MS + 5) * 1_000_000},
        {"producer_id": 8},
        {"first_sequence": 41},
        {"transaction_id": 1},
        {"body_size": 60},
        {"body_size": 0},
    ],
)
@pytest.mark.parametrize("packing", [0, 1, 2, 3, 4])
def test_a_head_that_lies_about_its_records_is_refused(
    fields: dict[str, int], packing: int
) -> None:
    producer = {"producer_id": 7, "epoch": 1, "sequence": 40}
    stored = kept(batch(SENT, packing=packing, **producer)).to_bytes()
    lying = forged(stored, **fields)
    with pytest.raises(MalformedBatch):
        decode_messages(lying, verify(lying))
    head = verify(stored)
    for size in (head.body_size - 1, head.body_size + 1):
        lying = forged(stored, body_size=size)
        with pytest.raises(MalformedBatch):
            decode_messages(lying, verify(lying))
    for attributes in (head.attributes ^ 1, head.attributes ^ 1 << 6, head.attributes | 1 << 4):
        lying = forged(stored, attributes=attributes)
        with pytest.raises(MalformedBatch):
            decode_messages(lying, verify(lying))


def test_a_size_over_the_limit_is_refused_before_anything_is_unpacked() -> None:
    stored = kept(batch([Record(NOW_MS, None, bytes(200_000))], packing=4)).to_bytes()
    head = verify(stored)
    assert head.length < 1000 < 200_000 < head.body_size
    with pytest.raises(TooLarge):
        decode_messages(stored, head, size_max=head.body_size - 1)
    assert len(decode_messages(stored, head, size_max=head.body_size)) == 1


def test_a_wrong_checksum_of_kafka_is_refused_by_readers_too() -> None:
    data = bytearray(batch(SENT))
    stored = bytearray(kept(bytes(data)).to_bytes())
    stored[HEAD_BYTES + 17] ^= 1
    size = verify_size(stored)
    lying = forged(bytes(stored), body_checksum=checksum(bytes(stored[HEAD_BYTES:size])))
    with pytest.raises(ChecksumMismatch):
        decode_messages(lying, verify(lying))


def verify_size(stored: bytearray) -> int:
    return HEAD_BYTES + Head(*HEAD.unpack(stored[:HEAD_BYTES])).stored_size


def test_limits_of_a_message_hold() -> None:
    limits = LimitsConfig(value_bytes_max=100, key_bytes_max=10, headers_bytes_max=20)
    good = Record(NOW_MS, b"k" * 10, b"v" * 100, [("h" * 15, b"12345")])
    for one in (
        good._replace(key=b"k" * 11),
        good._replace(value=b"v" * 101),
        good._replace(headers=[("h" * 15, b"123456")]),
        good._replace(headers=[("h", b"1")] * 11),
    ):
        view = memoryview(batch([good, one]))
        with pytest.raises(TooLarge):
            records_of(read_header(view), view, size_max=MIB).check_limits(limits)
    view = memoryview(batch([good, good]))
    records_of(read_header(view), view, size_max=MIB).check_limits(limits)


def test_too_many_headers_are_refused_before_they_are_read() -> None:
    many = b"\0" + varint(0) + varint(0) + varint(-1) + varint(-1) + varint(3 << 19)
    raw = many + b"\0\1" * (3 << 19)
    view = memoryview(sealed(varint(len(raw)) + raw, 1, (NOW_MS, NOW_MS)))
    with pytest.raises(TooLarge):
        records_of(read_header(view), view, size_max=16 * MIB)


def test_what_is_chosen_of_it_is_columnar_and_keeps_its_place() -> None:
    stored = kept(batch(SENT, packing=3, producer_id=7, epoch=1, sequence=40)).to_bytes()
    head = verify(stamp(verify(stored), base_offset=90, epoch=2, append_time=5) + stored[112:])
    made = select(stored, head, np.array([0, 1, 0, 0, 1], dtype=bool), last_offset=94)
    assert (made.head.encoding, made.head.base_offset, made.head.last_delta) == (0, 90, 4)
    assert made.head.first_sequence == 40
    again = made.to_bytes()
    wanted = expected(SENT, 90)
    assert list(decode_messages(again, verify(again))) == [wanted[1], wanted[4]]
    late = expiring(kept(batch(SENT)), 99, size_max=MIB)
    columns = decode_columns(late.to_bytes(), late.head)
    assert (late.head.encoding, columns.expires_at) == (0, [99] * 5)
    assert late.head.origin is Origin.NONE


def test_bytes_at_random_are_never_more_than_refused() -> None:
    chance = random.Random(5)
    good = kept(batch(SENT * 20, packing=0)).to_bytes()
    for _ in range(1500):
        changed = bytearray(good)
        for _ in range(chance.randrange(1, 4)):
            changed[chance.randrange(HEAD_BYTES, len(good))] = chance.randrange(256)
        size = verify_size(changed)
        body = changed[HEAD_BYTES:size]
        struct.pack_into(">I", body, 17, checksum(bytes(body[21:])))
        raw = bytes(changed[:HEAD_BYTES] + body + good[size:])
        lying = forged(raw, body_checksum=checksum(bytes(body)))
        try:
            found = list(decode_messages(lying, verify(lying)))
        except PenstockError:
            continue
        assert len(found) == 100


def test_producers_without_an_id_have_no_marks() -> None:
    head = kept(batch(SENT, **Producer(-1, -1, 0)._asdict())).head
    assert (head.producer_id, head.producer_epoch, head.first_sequence) == (-1, -1, -1)

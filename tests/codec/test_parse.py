"""Parsing: every lie that a body with right checksums can tell, one by one."""

import struct
from collections.abc import Sequence

import pytest
from crc32c import crc32c

from penstock.codec import (
    COUNT_MAX,
    HEAD_BYTES,
    Columns,
    decode_arrow,
    decode_columns,
    decode_messages,
    encode,
    read_head,
    verify,
)
from penstock.codec.body import HEADERS_MAX
from penstock.codec.head import pack_head
from penstock.errors import MalformedBatch, TooLarge, UnsupportedFormat

U8, U16, U32, U64, NULLS = 2, 3, 4, 5, 8
PADDING_BITS = 0b111 << 11
PRIORITIES_BITS = 0b11111 << 6


def batch_of(body: bytes, count: int = 2, **fields: int) -> bytes:
    """A batch with this body, right in everything that the body does not contradict."""
    fresh = read_head(encode(Columns(values=[None] * max(count, 1))).to_bytes())
    padding = -len(body) % 8
    head = fresh._replace(
        length=HEAD_BYTES + len(body) + padding,
        attributes=fresh.attributes & ~PADDING_BITS | padding << 11,
        message_count=count,
        body_size=len(body),
        body_checksum=crc32c(body),
    )
    return pack_head(head._replace(**fields)) + body + bytes(padding)


def body_of(forms: dict[int, int], columns: Sequence[bytes] = (), blobs: bytes = b"") -> bytes:
    listed = bytes(forms.get(column, 0) for column in range(16))
    return listed + b"".join(raw + bytes(-len(raw) % 8) for raw in columns) + blobs


def u64(number: int) -> bytes:
    return struct.pack("<Q", number)


def decode_all(batch: bytes) -> None:
    head = verify(batch)
    decode_columns(batch, head)
    list(decode_messages(batch, head))
    decode_arrow(batch, head).validate(full=True)


TIME, KEY, VALUE, COUNTS, NAMES, HEADER_VALUES, LANE, EXPIRY, IDEMPOTENCY, SCHEMA, DELTA = range(11)
HEADERS = {COUNTS: 1, NAMES: 1, HEADER_VALUES: 1}


@pytest.mark.parametrize(
    "body",
    [
        body_of({}),
        body_of({VALUE: 1}, [u64(1)], b"ab"),
        body_of({VALUE: U8}, [b"\1\2"], b"abb"),
        body_of({VALUE: U32}, [struct.pack("<2I", 1, 2)], b"abb"),
        body_of({VALUE: U8 | NULLS}, [b"\1\0", b"\1"], b"a"),
        body_of({VALUE: 1 | NULLS}, [u64(0), b"\2"]),
        body_of({VALUE: 1 | NULLS}, [u64(3), b"\3"], b"abcabc"),
        body_of({LANE: U64}, [u64(2) * 2]),
        body_of({SCHEMA: U64}, [u64(7) + u64(0)]),
        body_of({COUNTS: 1}, [u64(0)]),
        body_of(HEADERS, [u64(1), u64(2), u64(0)], "éé".encode()),
        body_of({COUNTS: 1, NAMES: 1}, [u64(1), u64(1)], b"ab"),
        body_of(HEADERS, [u64(1), u64(0), u64(1)], b"ab"),
        body_of({**HEADERS, NAMES: U8}, [u64(1), b"\0\2", u64(0)], b"ab"),
        body_of({**HEADERS, NAMES: U8}, [u64(1), b"\2\0", u64(0)], b"ab"),
        body_of({**HEADERS, HEADER_VALUES: U8 | NULLS}, [u64(1), u64(1), b"\0\1", b"\2"], b"abc"),
        body_of({COUNTS: 1, NAMES: 1}, [u64(2**19), u64(0)]),
        body_of({DELTA: U8}, [b"\0\1"]),
    ],
)
def test_a_body_that_another_writer_may_have_made_is_read(body):
    decode_all(batch_of(body))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        bytes(15),
        bytes(17),
        body_of({VALUE: 1}),
        body_of({VALUE: 1}, [u64(1)], b"a"),
        body_of({VALUE: 1}, [u64(1)], b"abc"),
        body_of({VALUE: 1}, [u64(2**32)]),
        body_of({VALUE: 1}, [u64(2**64 - 1)]),
        body_of({VALUE: U32}, [struct.pack("<2I", 2**32 - 1, 2**32 - 1)], b"ab"),
        body_of({VALUE: U8}, [b"\1\1\0\0\0\0\0\1"], b"ab"),
        body_of({VALUE: U8}, [b"\1"], b""),
        body_of({VALUE: U8 | NULLS}, [b"\1\1", b"\1"], b"ab"),
        body_of({VALUE: 1 | NULLS}, [u64(1), b"\1"], b"ab"),
        body_of({VALUE: U8 | NULLS}, [b"\1\0", b"\5"], b"a"),
        body_of({VALUE: U8 | NULLS}, [b"\1\0", b"\1\1"], b"a"),
        body_of({VALUE: U8 | NULLS}, [b"\1\0"], b""),
        body_of({TIME: 1}, [u64(1)]),
        body_of({TIME: U8}, [b"\0\1"]),
        body_of({TIME: U64}, [u64(0) + u64(2**64 - 1)]),
        body_of({TIME: 1}, [u64(2**64 - 1)]),
        body_of({LANE: 1}, [u64(5)]),
        body_of({LANE: 1}, [u64(1)]),
        body_of({LANE: 1}, [u64(2**64 - 1)]),
        body_of({LANE: U8}, [b"\2\5"]),
        body_of({LANE: U8}, [b"\2\1"]),
        body_of({LANE: U64}, [u64(2) + u64(2**64 - 1)]),
        body_of({EXPIRY: 1}, [u64(2**63)]),
        body_of({EXPIRY: U64}, [u64(1) + u64(2**63)]),
        body_of({SCHEMA: 1}, [u64(2**32)]),
        body_of({SCHEMA: U64}, [u64(1) + u64(2**32)]),
        body_of({COUNTS: 1}, [u64(1)]),
        body_of({COUNTS: 1}, [u64(2**32)]),
        body_of({NAMES: 1, HEADER_VALUES: 1}, [u64(1), u64(1)], b""),
        body_of({NAMES: U8}, [b""], b""),
        body_of({COUNTS: 1, HEADER_VALUES: 1}, [u64(1), u64(1)], b"ab"),
        body_of({**HEADERS, HEADER_VALUES: 1 | NULLS}, [u64(1), u64(0), u64(1), b"\1"], b"ab"),
        body_of({**HEADERS, NAMES: U8}, [u64(2), b"\1\0\1\0", u64(0)], "é".encode()),
        body_of(HEADERS, [u64(1), u64(1), u64(0)], "é".encode()),
        body_of({**HEADERS, NAMES: U8}, [u64(1), b"\1\3", u64(0)], "éé".encode()),
        body_of(HEADERS, [u64(1), u64(1), u64(0)], b"a\xff"),
        body_of(HEADERS, [u64(1), u64(3), u64(0)], b"\xed\xa0\x80abc"),
        body_of({DELTA: 1}, [u64(0)]),
        body_of({DELTA: U8}, [b"\1\0"]),
        body_of({DELTA: U8}, [b"\0\0"]),
        body_of({DELTA: U8}, [b"\0\2"]),
        body_of({DELTA: U64}, [u64(0) + u64(2**32)]),
    ],
)
def test_a_body_that_lies_is_malformed(body):
    with pytest.raises(MalformedBatch) as refusal:
        decode_all(batch_of(body))
    assert type(refusal.value) is MalformedBatch


@pytest.mark.parametrize(
    "forms",
    [
        {14: 1},
        {15: 1},
        {15: 255},
        {VALUE: 5},
        {VALUE: 6},
        {VALUE: 7},
        {VALUE: 8},
        {VALUE: 16 | 1},
        {VALUE: 128 | 1},
        {TIME: 6},
        {TIME: 9},
        {NAMES: 9},
        {HEADER_VALUES: 13},
        {LANE: 10},
        {DELTA: 13},
    ],
)
def test_a_form_of_the_future_is_unsupported(forms):
    with pytest.raises(UnsupportedFormat):
        decode_all(batch_of(body_of(forms, [bytes(64)])))


@pytest.mark.parametrize(
    "fields",
    [
        {"last_delta": 2},
        {"max_timestamp": 1},
        {"base_timestamp": -1},
        {"attributes": 0},
        {"attributes": PRIORITIES_BITS},
        {"body_size": 15},
        {"body_size": 17},
        {"body_size": 0},
    ],
)
def test_a_head_that_the_body_contradicts_is_malformed(fields):
    with pytest.raises(MalformedBatch):
        decode_all(batch_of(body_of({}), **fields))


def test_the_earliest_message_need_not_be_the_first():
    body = body_of({TIME: U8}, [b"\2\0"])
    decode_all(batch_of(body, max_timestamp=2))


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        (body_of({VALUE: 1}, [u64(0)]), {}),
        (body_of({}), {"max_timestamp": 1}),
        (body_of({}), {"attributes": 1 << 6}),
        (body_of({}) + b"more", {}),
    ],
)
def test_an_empty_range_holds_nothing(body, fields):
    attributes = -len(body) % 8 << 11
    decode_all(batch_of(body_of({}), count=0, attributes=0))
    with pytest.raises(MalformedBatch):
        decode_all(batch_of(body, count=0, **{"attributes": attributes, **fields}))


def test_more_headers_than_a_batch_may_have_are_too_large():
    most = HEADERS_MAX // 2
    decode_all(batch_of(body_of(HEADERS, [u64(most), u64(1), u64(0)], b"n" * HEADERS_MAX)))
    for count in (most + 1, 2**32 - 1):
        with pytest.raises(TooLarge):
            decode_all(batch_of(body_of(HEADERS, [u64(count), u64(1), u64(0)], b"n" * 100)))


def test_every_message_may_be_null_and_takes_no_bytes():
    decode_all(batch_of(body_of({}), count=COUNT_MAX))


def test_a_delta_needs_a_range_that_holds_it():
    body = body_of({DELTA: U32}, [struct.pack("<2I", 5, 2**32 - 1)])
    decode_all(batch_of(body, last_delta=2**32 - 1))
    with pytest.raises(MalformedBatch):
        decode_all(batch_of(body, last_delta=2**32 - 2))

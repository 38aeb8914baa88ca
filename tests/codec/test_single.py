"""One value alone is encoded by hand, and nobody can tell."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.codec import (
    HEAD_BYTES,
    Columns,
    Compression,
    Encoded,
    decode_messages,
    encode,
    verify,
)
from penstock.codec.blobs import Blobs, Joined
from penstock.codec.checksum import checksum
from penstock.codec.head import Head, pack_head, read_head, stamp
from penstock.codec.single import decode_value, read_value
from penstock.config import LimitsConfig
from penstock.errors import MalformedBatch, Refused, TooLarge
from penstock.model import Message

from . import twin

LIMITS = LimitsConfig()
SMALL = LimitsConfig(
    value_bytes_max=10, key_bytes_max=10, headers_bytes_max=10, batch_bytes_max=140
)


def encode_value(value: bytes, timestamp: int) -> Encoded:
    return encode(Columns(values=[value], timestamps=timestamp), limits=LIMITS)


@given(st.binary(max_size=100), st.integers(-(1 << 63), (1 << 63) - 1))
def test_it_is_a_batch_like_any_other(value, timestamp):
    batch = encode_value(value, timestamp).to_bytes()
    assert batch == twin.encode([Message(value, timestamp=timestamp)])
    (message,) = decode_messages(batch, verify(batch))
    assert (message.value, message.timestamp) == (value, timestamp)
    assert decode_value(batch, verify(batch)) == message


@given(st.integers(0, 20), st.integers(1, 30), st.data())
def test_several_of_one_size_are_a_batch_like_any_other(size, count, data):
    blob = data.draw(st.binary(min_size=size * count, max_size=size * count))
    values = [blob[size * one : size * (one + 1)] for one in range(count)]
    expected = twin.encode([Message(value, timestamp=5) for value in values])
    for given_as in (values, Joined([(Blobs(size, None, blob), count)])):
        assert encode(Columns(values=given_as, timestamps=5)).to_bytes() == expected


@pytest.mark.parametrize("size", [65_511, 65_512, 65_513, 70_000])
def test_a_long_one_is_not_copied_and_a_batch_like_any_other(size):
    value = bytes(range(256)) * 300
    encoded = encode_value(value[:size], 5)
    assert len(encoded.body) == (1 if size <= 65_512 else 3)
    assert encoded.to_bytes() == twin.encode([Message(value[:size], timestamp=5)])


@pytest.mark.parametrize("limits", [LimitsConfig(value_bytes_max=9), SMALL])
def test_it_is_refused_in_the_same_words_as_one_with_a_key(limits):
    said = []
    for keys in (None, [b""]):
        with pytest.raises(TooLarge) as error:
            encode(Columns(values=[b"0123456789"], keys=keys, timestamps=5), limits=limits)
        said.append((error.value.fields["what"], error.value.fields["limit"]))
    assert said[0] == said[1]


def test_a_time_beyond_64_bits_is_refused():
    with pytest.raises(Refused, match="64 bits"):
        encode_value(b"", 1 << 63)


OTHERS = {
    "two": Columns(values=[b"a", b"b"], timestamps=5),
    "a key": Columns(values=[b"a"], keys=[b"k"], timestamps=5),
    "headers": Columns(values=[b"a"], headers=[(("n", b"v"),)], timestamps=5),
    "null": Columns(values=[None], timestamps=5),
    "urgent": Columns(values=[b"a"], priorities=[0], timestamps=5),
    "it ends": Columns(values=[b"a"], expires_at=[9], timestamps=5),
    "an idempotency key": Columns(values=[b"a"], idempotency_keys=[b"i"], timestamps=5),
    "a schema": Columns(values=[b"a"], schema_ids=[3], timestamps=5),
}


@pytest.mark.parametrize("columns", OTHERS.values(), ids=OTHERS)
def test_what_has_more_to_it_is_left_to_the_decoder(columns):
    batch = encode(columns, limits=LIMITS).to_bytes()
    assert decode_value(batch, verify(batch)) is None


def test_what_is_compressed_is_left_to_the_decoder():
    batch = encode(
        Columns(values=[b"a" * 1000], timestamps=5), compression=Compression.ZSTD
    ).to_bytes()
    assert decode_value(batch, verify(batch)) is None


@pytest.mark.parametrize(
    "wrong", [{"last_delta": 1}, {"body_size": 9}, {"body_size": 26}, {"max_timestamp": 6}]
)
def test_a_head_that_does_not_fit_its_body_is_left_to_the_decoder(wrong):
    batch = encode_value(b"a", 5).to_bytes()
    assert decode_value(batch, verify(batch)._replace(**wrong)) is None


SEED = 77
# Where attributes say how much padding follows the body.
PADDING_AT = 11


def stored(value: bytes, offset: int = 5) -> bytes:
    """A batch as a log has it."""
    encoded = encode_value(value, 9)
    head = stamp(encoded.head, base_offset=offset, epoch=3, append_time=4, seed=SEED)
    return b"".join((head, *encoded.body))


def usual(batch: bytes) -> tuple[Head, Message] | None:
    """The same in more steps; None if there is anything else to say."""
    try:
        head = verify(batch, seed=SEED)
    except MalformedBatch:
        return None
    message = decode_value(batch, head) if head.length == len(batch) else None
    return None if message is None else (head, message)


@given(st.binary(max_size=100), st.integers(0, (1 << 63) - 2))
def test_it_is_read_as_in_more_steps(value, offset):
    batch = stored(value, offset)
    assert read_value(batch, SEED) == usual(batch)
    assert read_value(batch, SEED + 1) is None
    assert read_value(batch + batch, SEED) is None
    assert read_value(batch[:-1], SEED) is None


def sealed(batch: bytes) -> bytes:
    """With the checksums that whoever forges a batch computes, too."""
    body_size = int.from_bytes(batch[36:40], "little")
    body = checksum(batch[HEAD_BYTES : HEAD_BYTES + body_size]).to_bytes(4, "little")
    fields = batch[:104] + body
    return fields + checksum(fields, SEED).to_bytes(4, "little") + batch[HEAD_BYTES:]


@pytest.mark.parametrize("value", [b"", b"12345", b"12345678"])
def test_whatever_is_wrong_with_it_is_left_to_who_says_what(value):
    good = stored(value)
    assert sealed(good) == good
    for place in range(len(good)):
        for bit in range(8):
            wrong = bytearray(good)
            wrong[place] ^= 1 << bit
            assert read_value(bytes(wrong), SEED) is None
            forged = sealed(bytes(wrong))
            assert read_value(forged, SEED) == usual(forged), (place, bit)


@pytest.mark.parametrize("padding", range(1, 8))
def test_a_body_that_ends_inside_the_columns_is_left_to_who_says_what(padding):
    """With the zeros of a length taken for padding."""
    good = stored(b"")
    head = read_head(good, seed=SEED)
    short = head._replace(
        body_size=head.body_size - padding, attributes=head.attributes | padding << PADDING_AT
    )
    forged = sealed(pack_head(short, seed=SEED) + good[HEAD_BYTES:])
    verify(forged, seed=SEED)
    assert read_value(forged, SEED) is None


@pytest.mark.parametrize("body_size", [8, 16, 1 << 31])
def test_a_body_that_ends_behind_the_batch_is_left_to_who_says_what(body_size):
    good = stored(b"12345678")
    head = read_head(good, seed=SEED)
    columns = good[HEAD_BYTES:-16] + (8 + body_size).to_bytes(8, "little") + good[-8:]
    long = head._replace(body_size=head.body_size + body_size)
    forged = sealed(pack_head(long, seed=SEED) + columns)
    assert read_value(forged, SEED) is None


@pytest.mark.parametrize("columns", OTHERS.values(), ids=OTHERS)
def test_another_kind_is_left_to_who_reads_all(columns):
    assert read_value(encode(columns, limits=LIMITS).to_bytes(), 0) is None

"""Values of one size, and one alone above all, have ways of their own, and make and read the same bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.codec import (
    HEAD_BYTES,
    Columns,
    Compression,
    Encoded,
    decode_columns,
    decode_messages,
    encode,
    verify,
)
from penstock.codec.blobs import Blobs, JoinedBlobs
from penstock.codec.checksum import checksum
from penstock.codec.decode import EVEN_COLUMNS, EVEN_FORMS
from penstock.codec.head import pack_head
from penstock.config import LimitsConfig
from penstock.errors import MalformedBatch, Refused, TooLarge
from penstock.model import Message

from . import twin
from .strategies import messages_of

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


@given(st.integers(0, 20), st.integers(1, 30), st.data())
def test_several_of_one_size_are_a_batch_like_any_other(size, count, data):
    blob = data.draw(st.binary(min_size=size * count, max_size=size * count))
    values = [blob[size * one : size * (one + 1)] for one in range(count)]
    expected = twin.encode([Message(value, timestamp=5) for value in values])
    for given_as in (values, JoinedBlobs([(Blobs(size, None, blob), count)])):
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


@pytest.mark.parametrize("compression", Compression)
@pytest.mark.parametrize("columns", OTHERS.values(), ids=OTHERS)
def test_what_has_more_to_it_is_read_whole(columns, compression):
    batch = encode(columns, compression=compression, limits=LIMITS).to_bytes()
    head = verify(batch)
    assert list(decode_messages(batch, head)) == messages_of(decode_columns(batch, head))


@pytest.mark.parametrize("size", [0, 1, 1000])
def test_a_single_value_is_not_read_beyond_a_limit(size):
    batch = encode_value(bytes(size), 5).to_bytes()
    head = verify(batch)
    assert len(decode_messages(batch, head, size_max=head.body_size)) == 1
    with pytest.raises(TooLarge):
        decode_messages(batch, head, size_max=head.body_size - 1)


@pytest.mark.parametrize("wrong", [{"body_size": 9}, {"body_size": 26}, {"max_timestamp": 6}])
def test_a_head_that_does_not_fit_its_body_is_refused(wrong):
    encoded = encode_value(b"a", 5)
    forged = encoded.head._replace(**wrong)
    batch = pack_head(forged) + encoded.whole_body()
    with pytest.raises(MalformedBatch):
        decode_messages(batch, verify(batch))


@given(st.binary(max_size=30), st.integers(0, 7), st.integers(0, 200))
def test_a_forged_length_is_refused(value, shift, size):
    """The checksum of a body says nothing about its length: a forger computes it, too."""
    body = EVEN_COLUMNS.pack(EVEN_FORMS, size << shift) + value
    padding = -len(body) % 8
    head = encode_value(value, 5).head._replace(body_checksum=checksum(body))
    assert (head.body_size, head.length) == (len(body), HEAD_BYTES + len(body) + padding)
    batch = pack_head(head) + body + bytes(padding)
    if size << shift == len(value):
        assert decode_messages(batch, verify(batch))[0].value == value
    else:
        with pytest.raises(MalformedBatch):
            decode_messages(batch, verify(batch))

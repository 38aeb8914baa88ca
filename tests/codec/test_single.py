"""One value alone is encoded by hand, and nobody can tell."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.codec import Columns, Compression, decode_messages, encode, verify
from penstock.codec.encode import encode_in_pieces
from penstock.codec.single import decode_value, encode_even, encode_value
from penstock.config import LimitsConfig
from penstock.errors import Refused, TooLarge

LIMITS = LimitsConfig()
SMALL = LimitsConfig(
    value_bytes_max=10, key_bytes_max=10, headers_bytes_max=10, batch_bytes_max=140
)


@given(st.binary(max_size=100), st.integers(-(1 << 63), (1 << 63) - 1))
def test_it_is_the_batch_that_the_encoder_makes(value, timestamp):
    usual = encode_in_pieces(Columns(values=[value], timestamps=timestamp), limits=LIMITS)
    found = encode_value(value, timestamp, LIMITS)
    assert found.head == usual.head
    assert found.joined() == usual.joined()
    batch = found.joined()
    (message,) = decode_messages(batch, verify(batch))
    assert (message.value, message.timestamp) == (value, timestamp)
    assert decode_value(batch, verify(batch)) == message


@given(st.integers(0, 20), st.integers(1, 30), st.data())
def test_several_of_one_size_are_the_batch_that_the_encoder_makes(size, count, data):
    blob = data.draw(st.binary(min_size=size * count, max_size=size * count))
    values = [blob[size * one : size * (one + 1)] for one in range(count)]
    usual = encode_in_pieces(Columns(values=values, timestamps=5), limits=LIMITS)
    found = encode_even(blob, size, count, 5, LIMITS)
    assert found.head == usual.head
    assert found.joined() == usual.joined()


@pytest.mark.parametrize(
    "limits",
    [LimitsConfig(value_bytes_max=9), SMALL],
)
def test_it_is_refused_in_the_same_words(limits):
    said = []
    for encoded in (
        lambda: encode_in_pieces(Columns(values=[b"0123456789"], timestamps=5), limits=limits),
        lambda: encode_value(b"0123456789", 5, limits),
        lambda: encode_even(b"0123456789", 10, 1, 5, limits),
    ):
        with pytest.raises(TooLarge) as error:
            encoded()
        said.append((str(error.value), error.value.fields))
    assert said[0] == said[1] == said[2]


def test_a_time_beyond_64_bits_is_refused():
    with pytest.raises(Refused, match="64 bits"):
        encode_value(b"", 1 << 63, LIMITS)


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
    batch = encode(columns, limits=LIMITS)
    assert decode_value(batch, verify(batch)) is None


def test_what_is_compressed_is_left_to_the_decoder():
    batch = encode(Columns(values=[b"a" * 1000], timestamps=5), compression=Compression.ZSTD)
    assert decode_value(batch, verify(batch)) is None


@pytest.mark.parametrize(
    "wrong", [{"last_delta": 1}, {"body_size": 9}, {"body_size": 26}, {"max_timestamp": 6}]
)
def test_a_head_that_does_not_fit_its_body_is_left_to_the_decoder(wrong):
    batch = encode_value(b"a", 5, LIMITS).joined()
    assert decode_value(batch, verify(batch)._replace(**wrong)) is None

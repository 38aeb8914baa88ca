"""One value alone is encoded by hand, and nobody can tell."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.codec import Columns, decode_messages, verify
from penstock.codec.encode import encode_in_pieces
from penstock.codec.single import encode_value
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
    (message,) = decode_messages(found.joined(), verify(found.joined()))
    assert (message.value, message.timestamp) == (value, timestamp)


@pytest.mark.parametrize(
    "limits",
    [LimitsConfig(value_bytes_max=9), SMALL],
)
def test_it_is_refused_in_the_same_words(limits):
    said = []
    for encode in (
        lambda: encode_in_pieces(Columns(values=[b"0123456789"], timestamps=5), limits=limits),
        lambda: encode_value(b"0123456789", 5, limits),
    ):
        with pytest.raises(TooLarge) as error:
            encode()
        said.append((str(error.value), error.value.fields))
    assert said[0] == said[1]


def test_a_time_beyond_64_bits_is_refused():
    with pytest.raises(Refused, match="64 bits"):
        encode_value(b"", 1 << 63, LIMITS)

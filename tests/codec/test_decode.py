"""Decoding: what the twin reads, in lists and in messages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.codec import (
    Columns,
    Compression,
    decode_columns,
    decode_messages,
    encode,
    encode_messages,
    seed_of,
    verify,
)
from penstock.codec.columns import without_empty
from penstock.errors import TooLarge
from penstock.model import Message

from . import twin
from .strategies import fresh, message_lists, messages_of, placed_batches


def seed_for(place: twin.Place) -> int:
    return 0 if place.log_id is None else seed_of(place.log_id)


@given(placed_batches())
def test_a_batch_of_the_twin_decodes_to_what_the_twin_reads(placed):
    messages, place, marks = placed
    batch = twin.encode(messages, marks=marks, place=place)
    assert twin.decode(batch) == messages
    head = verify(batch, seed=seed_for(place))
    assert messages_of(decode_columns(batch, head)) == messages
    assert list(decode_messages(batch, head)) == messages
    assert (head.marks, head.epoch, head.append_time) == (marks, place.epoch, place.append_time)
    assert (head.base_offset, head.last_offset) == (place.base_offset, place.last_offset)


@given(message_lists(), st.sampled_from(Compression))
def test_messages_survive_a_round_trip(messages, compression):
    batch = encode_messages(messages, compression=compression).to_bytes()
    assert fresh(decode_messages(batch, verify(batch))) == messages


@given(message_lists(), st.sampled_from(Compression))
def test_columns_survive_a_round_trip(messages, compression):
    batch = encode_messages(messages, compression=compression).to_bytes()
    columns = decode_columns(batch, verify(batch))
    assert fresh(messages_of(columns)) == messages
    assert encode(without_empty(columns), compression=compression).to_bytes() == batch


@given(message_lists(max_size=9), st.integers(-12, 12), st.integers(-12, 12))
def test_messages_are_a_sequence_like_a_list(messages, start, stop):
    batch = encode_messages(messages).to_bytes()
    decoded, listed = decode_messages(batch, verify(batch)), list(messages)
    assert len(decoded) == len(listed)
    assert fresh(decoded[start:stop]) == listed[start:stop]
    assert fresh(decoded[::-1]) == listed[::-1]
    if -len(listed) <= start < len(listed):
        assert fresh([decoded[start]]) == [listed[start]]
    else:
        with pytest.raises(IndexError):
            decoded[start]


@given(message_lists(), st.integers(0, 40))
def test_a_batch_decodes_wherever_it_lies_in_a_file(messages, position):
    batch = encode_messages(messages).to_bytes()
    lying = bytes(position) + batch + b"next"
    head = verify(lying, position)
    assert fresh(decode_messages(memoryview(lying)[position:], head)) == messages


def test_messages_do_not_change_when_the_buffer_is_used_again():
    batch = bytearray(encode_messages([Message(b"kept", headers=(("name", b"kept"),))]).to_bytes())
    messages = decode_messages(batch, verify(batch))
    batch[112:] = b"\xff" * len(batch[112:])
    assert messages[0].value == b"kept"
    assert messages[0].headers == (("name", b"kept"),)


def test_messages_are_plain_bytes_and_not_views():
    for values in ([b"a", b"b"], [b"a", b"bc"], [b"a", None]):
        batch = encode(Columns(values=values, keys=values)).to_bytes()
        for message in decode_messages(bytearray(batch), verify(batch)):
            assert type(message.value) in (bytes, type(None))
            assert type(message.key) in (bytes, type(None))


def test_offsets_follow_the_base():
    batch = twin.encode(
        [Message(b"a", offset=10), Message(b"b", offset=12)],
        place=twin.Place(base_offset=9, last_offset=20),
    )
    assert list(decode_columns(batch, verify(batch)).offsets) == [10, 12]


def test_the_largest_offset_of_all_can_be_read():
    last = 2**63 - 2
    batch = twin.encode(
        [Message(None, offset=last - 1), Message(None, offset=last)],
        place=twin.Place(base_offset=last - 1, last_offset=last),
    )
    head = verify(batch)
    assert head.next_offset == 2**63 - 1
    assert list(decode_columns(batch, head).offsets) == [last - 1, last]


@pytest.mark.parametrize("compression", Compression)
def test_a_body_over_the_limit_is_refused_before_it_is_unpacked(compression):
    batch = encode(Columns(values=[bytes(10_000)]), compression=compression).to_bytes()
    head = verify(batch)
    assert len(decode_columns(batch, head, size_max=head.body_size).values[0]) == 10_000
    for decode in (decode_columns, decode_messages):
        with pytest.raises(TooLarge) as refusal:
            decode(batch, head, size_max=head.body_size - 1)
        assert refusal.value.fields["limit"] == head.body_size - 1

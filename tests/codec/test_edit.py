"""Selecting messages and setting when they expire, each against what it does to a list."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from penstock.codec import (
    Columns,
    Compression,
    Marks,
    decode_columns,
    decode_messages,
    encode,
    encode_messages,
    select,
    verify,
)
from penstock.codec.edit import expiring
from penstock.config import LimitsConfig
from penstock.errors import TooLarge
from penstock.model import Message

from . import twin
from .strategies import message_lists, placed_batches
from .test_decode import seed_for

BATCH_BYTES_MAX = LimitsConfig().batch_bytes_max


@given(
    message_lists(min_size=1),
    st.integers(1, 2**63 - 1),
    st.sampled_from(Compression),
    st.sampled_from([Marks(), Marks(producer_id=7, producer_epoch=1, first_sequence=9)]),
)
def test_what_did_not_say_when_it_expires_does_so_then(messages, expires_at, compression, marks):
    encoded = encode_messages(messages, compression=compression, marks=marks)
    batch = encoded.to_bytes()
    made = expiring(encoded, expires_at, size_max=BATCH_BYTES_MAX).to_bytes()
    head = verify(made)
    assert head.marks == marks
    expected = [
        one if one.expires_at is not None else structs.replace(one, expires_at=expires_at)
        for one in decode_messages(batch, verify(batch))
    ]
    assert list(decode_messages(made, head)) == expected


def test_a_batch_without_room_to_say_when_it_expires_is_refused():
    encoded = encode(Columns(values=[b"x" * 1000], timestamps=1))
    with pytest.raises(TooLarge):
        expiring(encoded, 2, size_max=encoded.head.length)


@given(placed_batches(), st.data())
def test_a_selection_is_the_batch_of_the_filtered_list(placed, data):
    messages, place, marks = placed
    batch = twin.encode(messages, marks=marks, place=place)
    head = verify(batch, seed=seed_for(place))
    picks = data.draw(st.lists(st.booleans(), min_size=len(messages), max_size=len(messages)))
    last = head.last_offset + data.draw(st.sampled_from([0, 1, 1000]))
    expected = twin.encode(
        [message for message, picked in zip(messages, picks, strict=True) if picked],
        marks=marks,
        place=replace(place, last_offset=last, empty_timestamp=head.max_timestamp, log_id=None),
    )
    kept = select(batch, head, np.array(picks, dtype=bool), last_offset=last)
    assert kept.to_bytes() == expected


@pytest.mark.parametrize("compression", Compression)
def test_what_compaction_keeps_stays_compressed(compression):
    batch = encode(Columns(values=[b"repeat" * 50] * 20), compression=compression).to_bytes()
    kept = select(batch, verify(batch), np.arange(20) % 2 == 0, last_offset=19).to_bytes()
    head = verify(kept)
    assert head.compression is compression
    assert decode_columns(kept, head).values == [b"repeat" * 50] * 10


def test_a_larger_configured_limit_holds_for_edits_too():
    limits = LimitsConfig(value_bytes_max=20 * 2**20, batch_bytes_max=32 * 2**20)
    batch = encode(Columns(values=[bytes(9 * 2**20), bytes(9 * 2**20)]), limits=limits).to_bytes()
    head, size_max = verify(batch), limits.batch_bytes_max
    mask = np.array([False, True])
    kept = select(batch, head, mask, last_offset=1, size_max=size_max)
    assert verify(kept.to_bytes()).message_count == 1
    with pytest.raises(TooLarge):
        select(batch, head, mask, last_offset=1)


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.LZ4])
def test_a_full_batch_can_be_compacted_and_read_again(compression):
    # The offsets that have to be written down now are longer than the message that goes.
    count = 200_000
    lengths, longest = 4 * count, 70_000
    size, rest = divmod(BATCH_BYTES_MAX - 112 - 16 - lengths - longest, count - 1)
    values = [bytes(size)] * count
    values[1] = bytes(longest + rest)
    batch = encode(Columns(values=values), compression=compression).to_bytes()
    assert verify(batch).body_size > BATCH_BYTES_MAX - 120
    mask = np.arange(count) != 0
    kept = select(batch, verify(batch), mask, last_offset=count - 1).to_bytes()
    head = verify(kept)
    assert head.body_size > BATCH_BYTES_MAX
    assert decode_columns(kept, head).values == values[1:]


def test_an_empty_range_has_no_messages_and_keeps_its_place():
    batch = encode_messages([Message(b"a", timestamp=5), Message(b"b", timestamp=9)]).to_bytes()
    empty = select(batch, verify(batch), np.array([False, False]), last_offset=1).to_bytes()
    head = verify(empty)
    assert len(empty) == 112 + 16
    assert (head.message_count, head.last_offset, head.max_timestamp) == (0, 1, 9)
    assert list(decode_messages(empty, head)) == []

"""Slicing, selecting and merging, each against the same thing done to a list."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec import structs

from penstock.codec import (
    COUNT_MAX,
    Columns,
    Compression,
    Marks,
    Origin,
    decode_columns,
    decode_messages,
    encode,
    encode_messages,
    merge,
    select,
    slice_batch,
    verify,
)
from penstock.codec.body import HEADERS_MAX
from penstock.codec.edit import expiring
from penstock.config import LimitsConfig
from penstock.errors import ChecksumMismatch, OffsetOutOfRange, Refused, TooLarge
from penstock.model import Message

from . import twin
from .strategies import message_lists, placed_batches
from .test_decode import seed_for

UNSYNCED_MAX = 2**32 - 1
BATCH_BYTES_MAX = LimitsConfig().batch_bytes_max


@given(placed_batches(), st.data())
def test_a_slice_is_the_batch_of_the_sliced_list(placed, data):
    messages, place, marks = placed
    batch = twin.encode(messages, marks=marks, place=place)
    head = verify(batch, seed=seed_for(place))
    first = data.draw(st.integers(head.base_offset, head.last_offset))
    end = data.draw(st.integers(first + 1, head.next_offset))
    sequence = marks.first_sequence
    if sequence >= 0:
        sequence = (sequence + first - place.base_offset) % 2**31
    expected = twin.encode(
        [message for message in messages if first <= message.offset < end],
        marks=marks._replace(first_sequence=sequence),
        place=replace(
            place,
            base_offset=first,
            last_offset=end - 1,
            unsynced=min(place.unsynced + first - place.base_offset, UNSYNCED_MAX),
            empty_timestamp=head.max_timestamp,
            log_id=None,
        ),
    )
    assert slice_batch(batch, head, first, end) == expected


@given(
    message_lists(min_size=1),
    st.integers(1, 2**63 - 1),
    st.sampled_from(Compression),
    st.sampled_from([Marks(), Marks(producer_id=7, producer_epoch=1, first_sequence=9)]),
)
def test_what_did_not_say_when_it_expires_does_so_then(messages, expires_at, compression, marks):
    batch = encode_messages(messages, compression=compression, marks=marks)
    made = expiring(batch, verify(batch), expires_at, size_max=BATCH_BYTES_MAX)
    head = verify(made)
    assert head.marks == marks
    expected = [
        one if one.expires_at is not None else structs.replace(one, expires_at=expires_at)
        for one in decode_messages(batch, verify(batch))
    ]
    assert list(decode_messages(made, head)) == expected


def test_a_batch_without_room_to_say_when_it_expires_is_refused():
    batch = encode(Columns(values=[b"x" * 1000], timestamps=1))
    with pytest.raises(TooLarge):
        expiring(batch, verify(batch), 2, size_max=len(batch))


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
    assert select(batch, head, np.array(picks, dtype=bool), last_offset=last) == expected


@given(st.lists(message_lists(max_size=6), min_size=1, max_size=4), st.data())
def test_merged_batches_are_the_batch_of_the_joined_lists(lists, data):
    batches = [
        encode_messages(messages, compression=data.draw(st.sampled_from(Compression)))
        for messages in lists
    ]
    assert merge(batches) == twin.encode([message for messages in lists for message in messages])


@given(message_lists(min_size=2), st.sampled_from(Compression))
def test_a_compressed_batch_can_be_sliced(messages, compression):
    batch = encode_messages(messages, compression=compression)
    part = slice_batch(batch, verify(batch), 1, len(messages))
    head = verify(part)
    assert head.compression is Compression.NONE
    assert [message.value for message in decode_messages(part, head)] == [
        message.value for message in messages[1:]
    ]


@pytest.mark.parametrize("compression", Compression)
def test_what_compaction_keeps_stays_compressed(compression):
    batch = encode(Columns(values=[b"repeat" * 50] * 20), compression=compression)
    kept = select(batch, verify(batch), np.arange(20) % 2 == 0, last_offset=19)
    head = verify(kept)
    assert head.compression is compression
    assert decode_columns(kept, head).values == [b"repeat" * 50] * 10


@given(placed_batches(max_size=2))
def test_a_slice_outside_the_range_is_refused(placed):
    messages, place, marks = placed
    batch = twin.encode(messages, marks=marks, place=replace(place, log_id=None))
    head = verify(batch)
    for first, end in (
        (head.base_offset - 1, head.next_offset),
        (head.base_offset, head.next_offset + 1),
        (head.next_offset, head.next_offset + 1),
        (head.base_offset, head.base_offset),
    ):
        with pytest.raises(OffsetOutOfRange):
            slice_batch(batch, head, first, end)


def test_a_sequence_counts_offsets_that_compaction_took_away():
    batch = encode(Columns(values=[b"a", b"b", b"c", b"d"]), marks=Marks(first_sequence=100))
    kept = select(batch, verify(batch), np.array([True, False, False, True]), last_offset=3)
    part = slice_batch(kept, verify(kept), 3, 4)
    assert verify(part).first_sequence == 103


def test_a_sequence_starts_again_after_the_largest():
    batch = encode(Columns(values=[b"a", b"b", b"c"]), marks=Marks(first_sequence=2**31 - 2))
    assert verify(slice_batch(batch, verify(batch), 2, 3)).first_sequence == 0


@given(message_lists(max_size=3), message_lists(max_size=3))
def test_a_batch_with_a_mark_is_not_merged(plain, marked):
    for marks in (
        Marks(control=True),
        Marks(producer_id=5, producer_epoch=0, first_sequence=0),
        Marks(transaction_id=1),
        Marks(origin=Origin.DELAY, origin_sequence=3),
    ):
        batches = [encode_messages(plain), encode_messages(marked, marks=marks)]
        with pytest.raises(Refused):
            merge(batches)


def test_nothing_is_not_merged():
    with pytest.raises(Refused):
        merge([])


def test_a_batch_with_gaps_is_not_merged():
    batch = encode(Columns(values=[b"a", b"b"]))
    for mask in ([False, False], [True, False]):
        with pytest.raises(Refused):
            merge([batch, select(batch, verify(batch), np.array(mask), last_offset=1)])


def test_a_broken_body_does_not_become_whole_by_merging():
    batch = bytearray(encode(Columns(values=[b"whole"])))
    batch[batch.index(b"whole")] ^= 1
    with pytest.raises(ChecksumMismatch):
        merge([encode(Columns(values=[b"other"])), batch])


def test_merging_keeps_the_limits():
    limits = LimitsConfig(
        value_bytes_max=2000, key_bytes_max=10, headers_bytes_max=10, batch_bytes_max=2048
    )
    batch = encode(Columns(values=[bytes(1000)]), limits=limits)
    with pytest.raises(TooLarge):
        merge([batch, batch], limits=limits)
    many = encode(Columns(values=[None] * COUNT_MAX))
    with pytest.raises(TooLarge):
        merge([many, batch])
    pairs = [("n", b"")] * (HEADERS_MAX // 32)
    headers = encode(Columns(values=[None] * 20, headers=[pairs] * 20))
    with pytest.raises(TooLarge):
        merge([headers, headers])


def test_a_larger_configured_limit_holds_for_edits_too():
    limits = LimitsConfig(value_bytes_max=20 * 2**20, batch_bytes_max=32 * 2**20)
    batch = encode(Columns(values=[bytes(9 * 2**20), bytes(9 * 2**20)]), limits=limits)
    head, size_max = verify(batch), limits.batch_bytes_max
    assert verify(merge([batch], limits=limits)).message_count == 2
    assert verify(slice_batch(batch, head, 0, 1, size_max=size_max)).message_count == 1
    mask = np.array([False, True])
    assert verify(select(batch, head, mask, last_offset=1, size_max=size_max)).message_count == 1
    with pytest.raises(TooLarge):
        slice_batch(batch, head, 0, 1)


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.LZ4])
def test_a_full_batch_can_be_compacted_and_read_again(compression):
    # The offsets that have to be written down now are longer than the message that goes.
    count = 200_000
    lengths, longest = 4 * count, 70_000
    size, rest = divmod(BATCH_BYTES_MAX - 112 - 16 - lengths - longest, count - 1)
    values = [bytes(size)] * count
    values[1] = bytes(longest + rest)
    batch = encode(Columns(values=values), compression=compression)
    assert verify(batch).body_size > BATCH_BYTES_MAX - 120
    mask = np.arange(count) != 0
    kept = select(batch, verify(batch), mask, last_offset=count - 1)
    head = verify(kept)
    assert head.body_size > BATCH_BYTES_MAX
    assert decode_columns(kept, head).values == values[1:]
    assert verify(slice_batch(kept, head, 5, 7)).message_count == 2


@given(message_lists(min_size=1, max_size=6))
def test_a_slice_of_everything_is_the_batch_itself(messages):
    batch = encode_messages(messages)
    assert slice_batch(batch, verify(batch), 0, len(messages)) == batch


@given(message_lists(min_size=2, max_size=8), st.data())
def test_slices_put_together_are_the_whole(messages, data):
    assume(len(messages) > 1)
    cut = data.draw(st.integers(1, len(messages) - 1))
    batch = encode_messages(messages)
    head = verify(batch)
    parts = [slice_batch(batch, head, 0, cut), slice_batch(batch, head, cut, len(messages))]
    assert [message for part in parts for message in decode_messages(part, verify(part))] == list(
        decode_messages(batch, head)
    )


def test_an_empty_range_has_no_messages_and_keeps_its_place():
    batch = encode_messages([Message(b"a", timestamp=5), Message(b"b", timestamp=9)])
    empty = select(batch, verify(batch), np.array([False, False]), last_offset=1)
    head = verify(empty)
    assert len(empty) == 112 + 16
    assert (head.message_count, head.last_offset, head.max_timestamp) == (0, 1, 9)
    assert list(decode_messages(empty, head)) == []

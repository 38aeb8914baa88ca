"""The head: what a log stamps, what binds it to its log, and which fields are believed."""

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from penstock.codec import (
    HEAD_BYTES,
    Columns,
    Marks,
    Origin,
    encode,
    read_head,
    seed_of,
    stamp,
    verify,
)
from penstock.codec.head import UNSYNCED_MAX, pack_head
from penstock.errors import ChecksumMismatch, MalformedBatch, Refused, UnsupportedFormat

from . import twin
from .strategies import NOW, message_lists, placed_batches
from .test_decode import seed_for

LOG_IDS = st.integers(0, 2**64 - 1)
BATCH = encode(
    Columns(values=[b"a", b"bc"], timestamps=[NOW, NOW + 5], priorities=[0, 4])
).to_bytes()


def forged(**fields: int) -> bytes:
    return pack_head(read_head(BATCH)._replace(**fields)) + BATCH[HEAD_BYTES:]


@given(placed_batches(max_size=3), st.integers(0, 2**40), st.integers(0, UNSYNCED_MAX), LOG_IDS)
def test_a_stamped_batch_is_the_twins_batch_at_that_place(placed, base_offset, unsynced, log_id):
    messages, _, marks = placed
    if not messages:
        return
    fresh = twin.encode(messages, marks=marks)
    stamped = stamp(
        read_head(fresh),
        base_offset=base_offset,
        epoch=7,
        append_time=-5,
        unsynced=unsynced,
        seed=seed_of(log_id),
    )
    place = twin.Place(
        base_offset=base_offset, epoch=7, append_time=-5, unsynced=unsynced, log_id=log_id
    )
    assert stamped + fresh[HEAD_BYTES:] == twin.encode(messages, marks=marks, place=place)


@given(message_lists(max_size=5), LOG_IDS, LOG_IDS)
def test_a_batch_of_another_log_never_verifies(messages, here, there):
    batch = twin.encode(messages, place=twin.Place(log_id=here))
    assert verify(batch, seed=seed_of(here)).message_count == len(messages)
    if seed_of(here) != seed_of(there):
        with pytest.raises(ChecksumMismatch):
            verify(batch, seed=seed_of(there))
        with pytest.raises(ChecksumMismatch):
            read_head(batch, seed=seed_of(there))


def test_the_seed_is_the_checksum_of_the_log_id_in_front():
    head = BATCH[: HEAD_BYTES - 4]
    for log_id in (0, 1, 2**64 - 1, 0x0123456789ABCDEF):
        raw = log_id.to_bytes(8, "little")
        assert seed_of(log_id) == crc32c(raw)
        assert pack_head(read_head(BATCH), seed=seed_of(log_id)) == head + crc32c(
            raw + head
        ).to_bytes(4, "little")


def test_the_checksum_is_crc32c():
    assert crc32c(b"123456789") == 0xE3069283


@given(st.integers(0, 8 * len(BATCH) - 1))
def test_any_flipped_bit_is_noticed(bit):
    broken = bytearray(BATCH)
    broken[bit // 8] ^= 1 << bit % 8
    with pytest.raises(MalformedBatch):
        verify(broken)


@given(st.integers(0, len(BATCH) - 1))
def test_a_batch_cut_short_is_noticed(size):
    with pytest.raises(MalformedBatch):
        verify(BATCH[:size])


@given(st.integers(0, 100), st.integers(0, 100))
def test_a_batch_is_found_at_its_position(before, after):
    lying = bytes(before) + BATCH + bytes(after)
    assert verify(lying, before) == read_head(lying, before) == verify(BATCH)


@given(placed_batches(max_size=2))
def test_a_head_is_packed_as_it_was_read(placed):
    messages, place, marks = placed
    batch = twin.encode(messages, marks=marks, place=place)
    head = read_head(batch, seed=seed_for(place))
    assert pack_head(head, seed=seed_for(place)) == batch[:HEAD_BYTES]


def test_a_head_says_what_is_in_the_batch():
    head = verify(BATCH)
    assert (head.message_count, head.base_offset, head.last_offset, head.next_offset) == (
        2,
        0,
        1,
        2,
    )
    assert (head.base_timestamp, head.max_timestamp) == (NOW, NOW + 5)
    assert head.priorities == 0b10001
    assert head.is_dense
    assert head.stored_size == head.body_size == len(BATCH.rstrip(b"\0")) - HEAD_BYTES


def test_a_head_carries_its_marks():
    marks = Marks(True, 1, 2, 3, 4, Origin.OUTBOX, 5, 6)
    head = verify(encode(Columns(values=[b""]), marks=marks).to_bytes())
    assert head.marks == marks
    assert head.is_control
    assert head.origin is Origin.OUTBOX


def test_the_durable_end_is_kept_as_a_distance():
    fresh = read_head(BATCH)
    stamped = read_head(stamp(fresh, base_offset=100, epoch=0, append_time=0, unsynced=30))
    assert stamped.durable_end == 70


def test_a_durable_end_too_far_away_is_the_farthest_that_can_be_said():
    raw = stamp(read_head(BATCH), base_offset=2**40, epoch=0, append_time=0, unsynced=2**40)
    assert read_head(raw).unsynced == UNSYNCED_MAX


@pytest.mark.parametrize(
    "place",
    [
        {"base_offset": 2**63},
        {"epoch": 2**32},
        {"epoch": -1},
        {"append_time": 2**63},
        {"unsynced": -1},
    ],
)
def test_a_stamp_that_does_not_fit_is_refused(place):
    with pytest.raises(Refused):
        stamp(read_head(BATCH), **{"base_offset": 0, "epoch": 0, "append_time": 0, **place})


@pytest.mark.parametrize(
    "fields",
    [
        {"magic": 0},
        {"length": len(BATCH) + 4},
        {"length": 104},
        {"length": 0},
        {"message_count": (1 << 18) + 1},
        {"message_count": 3},
        {"message_count": 2**32 - 1},
        {"base_offset": -1},
        {"base_offset": 2**63 - 1},
        {"base_offset": 2**63 - 2},
        {"body_size": 2**31},
        {"body_size": 2**32 - 1},
        {"base_timestamp": NOW + 6},
    ],
)
def test_a_head_that_lies_about_itself_is_malformed(fields):
    with pytest.raises(MalformedBatch):
        read_head(forged(**fields))


@pytest.mark.parametrize(
    "fields",
    [
        {"version": 0},
        {"version": 3},
        {"version": 1, "encoding": 1},
        {"encoding": 2},
        {"encoding": 255},
        {"attributes": 3},
        {"attributes": 7},
        {"attributes": 1 << 14},
        {"attributes": 1 << 15},
    ],
)
def test_a_head_of_the_future_is_unsupported(fields):
    with pytest.raises(UnsupportedFormat):
        read_head(forged(**fields))


def test_padding_is_zero():
    assert BATCH[-1] == 0
    with pytest.raises(MalformedBatch):
        verify(BATCH[:-1] + b"\1")


def test_a_cut_batch_still_has_a_readable_head():
    assert read_head(BATCH[:HEAD_BYTES]) == verify(BATCH)

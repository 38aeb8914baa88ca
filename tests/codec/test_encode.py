"""Encoding: the bytes of the twin, the price of a column, and what is refused."""

import itertools
from array import array

import msgspec
import numpy as np
import pytest
from hypothesis import given

from penstock.codec import (
    COUNT_MAX,
    Columns,
    Compression,
    Marks,
    decode_columns,
    decode_messages,
    encode,
    encode_messages,
    verify,
)
from penstock.codec.body import HEADERS_MAX
from penstock.config import LimitsConfig
from penstock.errors import Refused, TooLarge
from penstock.model import Message

from . import twin
from .strategies import NOW, columns_of, fresh, marks, message_lists

LIMITS = LimitsConfig(
    value_bytes_max=100, key_bytes_max=10, headers_bytes_max=20, batch_bytes_max=2048
)


@given(message_lists(), marks())
def test_messages_encode_to_the_bytes_of_the_twin(messages, some_marks):
    assert encode_messages(messages, marks=some_marks).to_bytes() == twin.encode(
        messages, marks=some_marks
    )


@given(message_lists())
def test_columns_encode_to_the_bytes_of_the_twin(messages):
    assert encode(columns_of(messages)).to_bytes() == twin.encode(messages)


@given(message_lists())
def test_what_the_bytes_are_kept_in_does_not_change_the_batch(messages):
    columns = columns_of(messages)
    for kind in (bytearray, memoryview):
        kept = [None if value is None else kind(value) for value in columns.values]
        assert (
            encode(msgspec.structs.replace(columns, values=kept)).to_bytes()
            == encode(columns).to_bytes()
        )


def test_arrays_of_numbers_encode_like_lists():
    values, times, lanes = [b"a", b"b", b"c"], [NOW + 2, NOW, NOW + 1], [0, 4, 2]
    expected = encode(Columns(values=values, timestamps=times, priorities=lanes)).to_bytes()
    for dtype in (np.int64, np.uint64, ">i8"):
        columns = Columns(
            values=values,
            timestamps=np.array(times, dtype=dtype),
            priorities=np.array(lanes, dtype=np.int8),
        )
        assert encode(columns).to_bytes() == expected
    every_second = np.array([NOW + 2, 0, NOW, 0, NOW + 1, 0])[::2]
    assert (
        encode(Columns(values=values, timestamps=every_second, priorities=lanes)).to_bytes()
        == expected
    )


def test_one_value_stands_for_a_list_of_equal_ones():
    values = [b"a", b"b"]
    single = Columns(values=values, timestamps=5, priorities=1, expires_at=9, schema_ids=3)
    listed = Columns(
        values=values, timestamps=[5, 5], priorities=[1, 1], expires_at=[9, 9], schema_ids=[3, 3]
    )
    assert encode(single).to_bytes() == encode(listed).to_bytes()


def test_null_and_empty_are_four_different_things():
    # Every combination for up to three messages, so no collapse of a column can confuse two of them.
    choices = list(itertools.product([None, b"", b"k"], [None, b"", b"v"]))
    seen = set()
    for count in (1, 2, 3):
        for picks in itertools.product(choices, repeat=count):
            messages = [Message(value, key) for key, value in picks]
            batch = encode_messages(messages).to_bytes()
            assert batch == twin.encode(messages)
            decoded = decode_columns(batch, verify(batch))
            assert list(zip(decoded.keys, decoded.values, strict=True)) == list(picks)
            seen.add(batch)
    assert len(seen) == 9 + 9**2 + 9**3


def test_every_byte_survives_in_every_field():
    every_byte = bytes(range(256))
    for rotation in range(256):
        raw = every_byte[rotation:] + every_byte[:rotation]
        message = Message(raw, raw, (("n", raw), ("n", raw[::-1])), idempotency_key=raw, offset=0)
        batch = encode_messages([message]).to_bytes()
        assert list(decode_messages(batch, verify(batch))) == [message]


def test_an_absent_column_costs_nothing():
    bare = len(encode(Columns(values=[None] * 1000)).to_bytes())
    assert bare == 112 + 16
    columns = Columns(
        values=[None] * 1000,
        keys=[None] * 1000,
        timestamps=[NOW] * 1000,
        headers=[()] * 1000,
        priorities=[2] * 1000,
        expires_at=[None] * 1000,
        idempotency_keys=[None] * 1000,
        schema_ids=[None] * 1000,
    )
    assert len(encode(columns).to_bytes()) == bare


@pytest.mark.parametrize(
    "columns",
    [
        {"values": [b""] * 1000},
        {"keys": [b""] * 1000},
        {"idempotency_keys": [b""] * 1000},
        {"priorities": [0] * 1000},
        {"expires_at": [NOW] * 1000},
        {"schema_ids": [2**32 - 1] * 1000},
    ],
)
def test_a_constant_column_costs_eight_bytes(columns):
    batch = encode(Columns(**{"values": [None] * 1000, **columns})).to_bytes()
    assert len(batch) == 112 + 16 + 8


@pytest.mark.parametrize(("largest", "width"), [(255, 1), (256, 2), (65_536, 4), (2**32, 8)])
def test_a_column_is_as_wide_as_its_largest_number(largest, width):
    batch = encode(Columns(values=[None] * 1000, timestamps=[0] * 999 + [largest])).to_bytes()
    assert len(batch) == 112 + 16 + 1000 * width


@pytest.mark.parametrize("largest", [255, 256, 65_535, 65_536])
def test_long_items_encode_to_the_bytes_of_the_twin(largest):
    messages = [Message(bytes(largest), key=b"k"), Message(None, key=None), Message(b"", key=b"")]
    batch = encode_messages(messages).to_bytes()
    assert batch == twin.encode(messages)
    assert fresh(decode_messages(batch, verify(batch))) == messages


def test_nulls_cost_one_bit_each():
    some = [b"x", *[None] * 999]
    lengths, bits, blob = 1000, 128, 1
    assert len(encode(Columns(values=some)).to_bytes()) == 112 + 16 + lengths + bits + blob + 7


def test_a_batch_of_one_is_small():
    batch = encode_messages([Message(b"x" * 100, b"k" * 10, timestamp=NOW)]).to_bytes()
    assert len(batch) <= 260


@pytest.mark.parametrize(
    "columns",
    [
        {"values": []},
        {"values": ["text"]},
        {"values": b"bytes"},
        {"values": [None, 5]},
        {"values": [memoryview(array("I", [1, 2]))]},
        {"values": [None, memoryview(array("I", [1, 2]))]},
        {"values": [None, memoryview(b"abcd")[::2]]},
        {"values": [memoryview(b"abcd").cast("B", (2, 2))]},
        {"values": [array("H", [1])]},
        {"keys": [b"a", b"b"]},
        {"keys": []},
        {"timestamps": [1, 2]},
        {"timestamps": ["now"]},
        {"timestamps": [1.5]},
        {"timestamps": [2**63]},
        {"timestamps": 2**63},
        {"timestamps": -(2**63) - 1},
        {"timestamps": np.array([2**63], dtype=np.uint64)},
        {"timestamps": np.array([1.0])},
        {"timestamps": np.array([[1]])},
        {"priorities": 5},
        {"priorities": -1},
        {"priorities": [5]},
        {"priorities": [-1]},
        {"priorities": [2**64]},
        {"expires_at": 0},
        {"expires_at": [0]},
        {"expires_at": [-1]},
        {"expires_at": [2**63]},
        {"expires_at": [""]},
        {"schema_ids": 2**32},
        {"schema_ids": [2**32]},
        {"schema_ids": [1, None]},
        {"headers": []},
        {"headers": [None]},
        {"headers": [{"name": b"value"}]},
        {"headers": [[("name",)]]},
        {"headers": [[(b"name", b"value")]]},
        {"headers": [[("name", "value")]]},
        {"headers": [[("\ud800", b"value")]]},
        {"headers": [[("name", np.array([1, 2]))]]},
    ],
)
def test_what_cannot_be_said_is_refused(columns):
    with pytest.raises(Refused):
        encode(Columns(**{"values": [b""], **columns})).to_bytes()


@pytest.mark.parametrize(
    "message",
    [
        Message("text"),
        Message(b"", timestamp=1.5),
        Message(b"", timestamp=2**63),
        Message(b"", priority=5),
        Message(b"", expires_at=0),
        Message(b"", schema_id=0),
        Message(b"", headers=None),
    ],
)
def test_a_message_with_a_wrong_field_is_refused(message):
    with pytest.raises(Refused):
        encode_messages([message]).to_bytes()
    with pytest.raises(Refused):
        encode_messages([Message(b""), message]).to_bytes()


def test_no_messages_are_refused():
    with pytest.raises(Refused):
        encode_messages([]).to_bytes()


@pytest.mark.parametrize(
    "some_marks",
    [
        Marks(producer_id=2**63),
        Marks(producer_epoch=2**31),
        Marks(first_sequence=-(2**31) - 1),
        Marks(transaction_id=-1),
        Marks(origin_source=2**64),
    ],
)
def test_a_mark_that_does_not_fit_its_field_is_refused(some_marks):
    with pytest.raises(Refused):
        encode(Columns(values=[b""]), marks=some_marks).to_bytes()


@pytest.mark.parametrize("timestamp", [-(2**63), -1, 0, 2**63 - 1])
def test_a_timestamp_is_any_integer_of_64_bits(timestamp):
    for timestamps in (timestamp, [timestamp], [timestamp, 2**63 - 1, -(2**63)]):
        count = 1 if isinstance(timestamps, int) else len(timestamps)
        batch = encode(Columns(values=[None] * count, timestamps=timestamps)).to_bytes()
        decoded = decode_columns(batch, verify(batch)).timestamps
        assert decoded == ([timestamps] if isinstance(timestamps, int) else timestamps)


@pytest.mark.parametrize(
    ("columns", "limit"),
    [
        ({"values": [bytes(101)]}, 100),
        ({"values": [bytes(101), b"", None]}, 100),
        ({"keys": [bytes(11)]}, 10),
        ({"idempotency_keys": [bytes(11)]}, 10),
        ({"headers": [[("n", bytes(21))]]}, 20),
        ({"headers": [[("n" * 10, bytes(5)), ("n", bytes(5))]]}, 20),
        ({"values": [bytes(100)] * 20}, 2048),
    ],
)
def test_over_a_limit_is_refused_with_the_limit(columns, limit):
    count = len(columns.get("values", [b""]))
    with pytest.raises(TooLarge) as refusal:
        encode(Columns(**{"values": [b""] * count, **columns}), limits=LIMITS).to_bytes()
    assert refusal.value.fields["limit"] == limit


def test_at_a_limit_is_accepted():
    columns = Columns(
        values=[bytes(100)], keys=[bytes(10)], headers=[[("n" * 10, bytes(5)), ("n", bytes(4))]]
    )
    encode(columns, limits=LIMITS).to_bytes()


@pytest.mark.parametrize("compression", Compression)
def test_the_batch_limit_counts_what_unpacks(compression):
    limits = LimitsConfig(batch_bytes_max=10 * 1024 * 1024)
    fits, does_not = 10 * 1024 * 1024 - 112 - 16 - 8, 10 * 1024 * 1024 - 112 - 16 - 7
    encode(Columns(values=[bytes(fits)]), compression=compression, limits=limits).to_bytes()
    with pytest.raises(TooLarge):
        encode(Columns(values=[bytes(does_not)]), compression=compression, limits=limits).to_bytes()


def test_the_most_messages_are_accepted_and_one_more_is_not():
    batch = encode(Columns(values=[None] * COUNT_MAX)).to_bytes()
    assert verify(batch).message_count == COUNT_MAX
    with pytest.raises(TooLarge):
        encode(Columns(values=[None] * (COUNT_MAX + 1))).to_bytes()


def test_the_most_headers_are_accepted_and_one_more_is_not():
    pairs = [("n", b"")] * (HEADERS_MAX // 16)
    batch = encode(Columns(values=[None] * 16, headers=[pairs] * 16)).to_bytes()
    assert len(decode_columns(batch, verify(batch)).headers[15]) == HEADERS_MAX // 16
    with pytest.raises(TooLarge) as refusal:
        encode(Columns(values=[None] * 17, headers=[pairs] * 16 + [[("n", b"")]])).to_bytes()
    assert refusal.value.fields["limit"] == HEADERS_MAX

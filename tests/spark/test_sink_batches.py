"""Rows of Spark become the messages that they say, in the partitions where a client would have put them."""

from collections import defaultdict
from datetime import UTC, datetime, timedelta

import mmh3
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.partition.partitioner import partition_of
from penstock.client.stagings import BATCH_BYTES
from penstock.codec import decode_messages, encode, verify
from penstock.errors import Refused
from penstock.spark.key_hashes import key_hashes
from penstock.spark.sink_batches import Placement, _offsets

NOW_NS = 1_790_000_000_000_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
PARTITIONS = {"orders": 3, "bills": 1}
HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
SCHEMA = pa.schema(
    {
        "topic": pa.string(),
        "value": pa.binary(),
        "key": pa.binary(),
        "partition": pa.int32(),
        "headers": pa.list_(HEADER),
        "timestamp": pa.timestamp("us", tz="Etc/UTC"),
        "priority": pa.int32(),
        "ttl": pa.duration("us"),
    }
)
contents = st.none() | st.binary(max_size=9)
row = st.fixed_dictionaries(
    {
        "topic": st.sampled_from(sorted(PARTITIONS)),
        "value": contents,
        "key": contents,
        "partition": st.none() | st.just(0),
        "headers": st.none()
        | st.lists(st.fixed_dictionaries({"key": st.text(max_size=3), "value": contents})),
        "timestamp": st.none()
        | st.integers(0, 10**15).map(lambda us: EPOCH + timedelta(microseconds=us)),
        "priority": st.none() | st.integers(0, 4),
        "ttl": st.none() | st.integers(1, 10**12).map(lambda us: timedelta(microseconds=us)),
    }
)


def messages_by_place(placement, rows):
    found = defaultdict(list)
    for topic, partition, columns in placement.placed(rows, NOW_NS):
        batch = encode(columns).to_bytes()
        found[topic, partition] += decode_messages(batch, verify(batch))
    return found


def placement(topic=None, turn=0):
    return Placement(topic, PARTITIONS.__getitem__, turn)


def expected_place(one, turn):
    count = PARTITIONS[one["topic"]]
    if one["partition"] is not None:
        return one["partition"]
    return turn % count if one["key"] is None else partition_of(one["key"], count)


def expected_message(one):
    us = timedelta(microseconds=1)
    when, ttl = one["timestamp"], one["ttl"]
    return (
        one["value"],
        one["key"],
        tuple((pair["key"], pair["value"]) for pair in one["headers"] or ()),
        2 if one["priority"] is None else one["priority"],
        NOW_NS if when is None else (when - EPOCH) // us * 1000,
        None if ttl is None else NOW_NS + ttl // us * 1000,
    )


@given(st.lists(row, min_size=1, max_size=40), st.integers(0, 3), st.integers(0, 5))
def test_rows_are_the_messages_that_a_loop_over_them_would_make(rows, before, turn):
    expected = defaultdict(list)
    for one in rows:
        expected[one["topic"], expected_place(one, turn)].append(expected_message(one))
    # Behind other rows of the same buffers, as a part of a larger batch.
    whole = pa.RecordBatch.from_pylist([*rows[:1] * before, *rows], schema=SCHEMA)
    found = messages_by_place(placement(turn=turn), whole.slice(before))
    assert {
        place: [
            (m.value, m.key, tuple(m.headers), m.priority, m.timestamp, m.expires_at)
            for m in messages
        ]
        for place, messages in found.items()
    } == expected


def test_text_is_utf_8_and_the_option_wins_over_the_column():
    rows = pa.RecordBatch.from_pydict({"value": ["é", None], "topic": ["bills", "no-such-topic"]})
    found = messages_by_place(placement("orders", turn=5), rows)
    assert [one.value for one in found["orders", 2]] == ["é".encode(), None]


def test_rows_without_a_key_take_turns_by_record_batch():
    rows, turns = pa.RecordBatch.from_pydict({"value": [b"a", b"b"]}), placement("orders", turn=2)
    assert [list(messages_by_place(turns, rows)) for _ in range(3)] == [
        [("orders", 2)],
        [("orders", 0)],
        [("orders", 1)],
    ]


@pytest.mark.parametrize("large", ["value", "headers"])
def test_large_rows_are_cut_into_batches_that_a_broker_takes(large):
    many = 60
    content = {"value": bytes(50_000), "headers": [{"key": "k", "value": bytes(50_000)}]}[large]
    rows = [{"value": b"", "headers": [], large: content} for _ in range(many)]
    schema = pa.schema([SCHEMA.field("value"), SCHEMA.field("headers")])
    batch = pa.RecordBatch.from_pylist(rows, schema=schema)
    pieces = list(placement("orders").placed(batch, NOW_NS))
    sizes = [len(encode(one.columns).to_bytes()) for one in pieces]
    assert sum(len(one.columns.values) for one in pieces) == many
    assert max(sizes) < BATCH_BYTES * 1.1
    assert len(sizes) == 3


def test_one_value_may_be_larger_than_a_batch_should_be():
    values = [b"", bytes(2 * BATCH_BYTES), b"", bytes(2 * BATCH_BYTES)]
    found = messages_by_place(placement("orders"), pa.RecordBatch.from_pydict({"value": values}))
    assert [one.value for one in found["orders", 0]] == values


@pytest.mark.parametrize(
    ("column", "says"),
    [
        ({"partition": [0, 3]}, "has partitions 0 to 2, not 3"),
        ({"partition": [None, -1]}, "not -1"),
        ({"topic": ["orders", None]}, "column topic is null in 1 rows"),
        ({"headers": [[], [{"key": None, "value": b""}]]}, "column headers"),
        ({"ttl": [timedelta(0), None]}, "column ttl"),
        ({"priority": [0, 5]}, "priority must be in 0..4, got 5"),
        (
            {"timestamp": [EPOCH, datetime(9999, 12, 31, tzinfo=UTC)]},
            "column timestamp: 9999-12-31",
        ),
        ({"timestamp": [datetime(1, 1, 1, tzinfo=UTC), None]}, "column timestamp: 0001-01-01"),
    ],
)
def test_a_wrong_row_is_refused_with_its_column(column, says):
    given = {"value": [b"a", b"b"], "topic": ["orders", "orders"], **column}
    schema = pa.schema([SCHEMA.field(name) for name in given])
    rows = pa.RecordBatch.from_pydict(given, schema=schema)
    with pytest.raises(Refused, match=says):
        messages_by_place(placement(), rows)


@pytest.mark.parametrize("sizes", [[0], [4], [7, 1, 7], range(40), [300]], ids=str)
def test_keys_are_hashed_as_every_client_does_whatever_their_lengths(sizes):
    keys = [b"%c" % (number % 251) * size for number, size in enumerate(sizes)]
    found = pa.array([b"not one of them", *keys], pa.binary()).slice(1)
    hashes = key_hashes(np.frombuffer(found.buffers()[2], np.uint8), _offsets(found))
    assert hashes.tolist() == [mmh3.mmh3_32_uintdigest(key) for key in keys]

"""Fingerprints of rows: equal for the same rows, in any order and any tasks, and different for others."""

import datetime as dt
from decimal import Decimal
from functools import reduce
from operator import add
from random import Random

import pyarrow as pa
import pytest

from penstock.spark.fingerprint import Fingerprint
from penstock.spark.row_hashes import fingerprint_of

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = pa.schema(
    [("key", pa.binary()), ("value", pa.binary()), ("partition", pa.int32()), ("headers", HEADERS)]
)


def batch(rows, schema=SCHEMA):
    return pa.RecordBatch.from_pylist(rows, schema)


def some_bytes(random):
    length = random.choice((0, 1, 7, 8, 9, 30, 64, 65, 100, 512, 513, 700))
    return random.choice((None, random.randbytes(length), b"x" * length, bytes(length)))


def some_row(random):
    pairs = [
        {"key": str(place), "value": some_bytes(random)} for place in range(random.randrange(3))
    ]
    return {
        "key": some_bytes(random),
        "value": some_bytes(random),
        "partition": random.choice((None, 0, 7)),
        "headers": random.choice((None, pairs)),
    }


@pytest.mark.parametrize("seed", range(30))
def test_rows_in_another_order_and_in_other_batches_are_the_same(seed):
    random = Random(seed)
    rows = [some_row(random) for _ in range(random.randrange(40))]
    known = fingerprint_of(batch(rows))
    assert known.rows == len(rows)
    random.shuffle(rows)
    # Slices begin in the middle of their buffers.
    whole, size = batch(rows), random.randint(1, 9)
    parts = [whole.slice(at, size) for at in range(0, len(rows), size)]
    assert reduce(add, map(fingerprint_of, parts), Fingerprint()) == known
    assert fingerprint_of(batch(rows, pa.schema([*reversed(SCHEMA)]))) == known


@pytest.mark.parametrize("seed", range(30))
def test_rows_with_one_that_is_another_are_others(seed):
    random = Random(seed)
    rows = [some_row(random) for _ in range(10)]
    known, place, other = fingerprint_of(batch(rows)), random.randrange(10), some_row(random)
    is_same = rows[place] == other
    rows[place] = other
    assert (fingerprint_of(batch(rows)) == known) is is_same
    assert fingerprint_of(batch(rows[1:])) != fingerprint_of(batch(rows))


def only(value, kind):
    return fingerprint_of(pa.RecordBatch.from_arrays([pa.array([value], kind)], ["column"]))


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.binary(), [None, b"", b"\0", b"\0\0", b"\0" * 8, b"\0" * 9, b"a" * 8, b"a" * 16]),
        (
            pa.binary(),
            [b"a" * 8 + b"b" * 8, b"b" * 8 + b"a" * 8, b"x" * 512, b"x" * 513, b"x" * 514],
        ),
        (pa.float64(), [None, 0.0, 1.0, -1.0, float("inf"), float("nan")]),
        (pa.bool_(), [None, False, True]),
        (pa.decimal128(10, 2), [None, Decimal("1.00"), Decimal("1.01")]),
        (pa.date32(), [None, dt.date(2026, 1, 1), dt.date(2026, 1, 2)]),
        (pa.timestamp("us", "UTC"), [None, dt.datetime(2026, 1, 1, tzinfo=dt.UTC)]),
        (pa.map_(pa.string(), pa.int64()), [None, [("a", 1)], [("a", 2)], []]),
        (pa.list_(pa.int64()), [None, [], [0], [0, 0], [1, 2], [2, 1]]),
        (pa.struct([("a", pa.int64()), ("b", pa.int64())]), [{"a": 1, "b": 2}, {"a": 2, "b": 1}]),
    ],
    ids=str,
)
def test_values_that_differ_have_other_fingerprints(kind, values):
    assert len({only(value, kind) for value in values}) == len(values)


def test_the_text_has_the_count_and_the_sum_and_stays_as_it_is():
    """It is kept in the broker for as long as a name is."""
    rows = [
        {"key": b"k", "value": b"value", "partition": 1, "headers": [{"key": "h", "value": b"v"}]}
    ]
    assert str(fingerprint_of(batch([]))) == "0 rows, 0000000000000000"
    assert str(fingerprint_of(batch(rows))) == "1 rows, 5da87b270ca7033b"

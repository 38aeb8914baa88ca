"""Filters that Spark hands down: they may leave too much, never too little. No broker, no session."""

from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from penstock.spark.filters import read_bounds
from penstock.spark.offsets import OffsetRange

KINDS = {
    EqualTo: lambda found, asked: found == asked,
    GreaterThan: lambda found, asked: found > asked,
    GreaterThanOrEqual: lambda found, asked: found >= asked,
    LessThan: lambda found, asked: found < asked,
    LessThanOrEqual: lambda found, asked: found <= asked,
}
EACH = pytest.mark.parametrize("kind", KINDS)
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
NOON_NS = int(NOON.timestamp()) * 1_000_000_000


@EACH
def test_no_message_is_left_out_whose_microsecond_is_wanted(kind):
    """Spark sees microseconds, and messages have nanoseconds."""
    times = read_bounds([kind(("timestamp",), NOON)]).times
    for distance_ns in range(-2001, 3002, 250):
        moment = NOON + timedelta(microseconds=distance_ns // 1000)
        is_read = times.low <= NOON_NS + distance_ns <= times.high
        assert is_read == KINDS[kind](moment, NOON), distance_ns


@EACH
def test_offsets_are_narrowed_to_those_that_are_wanted(kind):
    whole = [OffsetRange("t", 0, 3, 9)]
    for asked in range(12):
        found = [*read_bounds([kind(("offset",), asked)]).ranges(whole)]
        read = [one for part in found for one in range(part.start, part.end)]
        assert read == [one for one in range(3, 9) if KINDS[kind](one, asked)]


def test_several_filters_and_lists_narrow_together():
    whole = [OffsetRange("t", number, 0, 100) for number in range(4)]
    filters = [
        In(("partition",), (1, 2, 9)),
        EqualTo(("partition",), 2),
        GreaterThan(("offset",), 10),
        In(("offset",), (5, 20, 30)),
        EqualTo(("value",), b"nothing that we can use"),
    ]
    assert [*read_bounds(filters).ranges(whole)] == [OffsetRange("t", 2, 11, 31)]

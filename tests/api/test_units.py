"""Durations, times, sizes and priorities mean the same wherever they stand; only a bare number is the way's own."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api.units import (
    DURATION_NS_MAX,
    Bare,
    datetime_ns,
    duration_ms,
    duration_ns,
    moment_ns,
    priority_of,
    setting_number,
    size_bytes,
    time_ns,
    time_text,
)
from penstock.errors import Refused

S = 1_000_000_000


@pytest.mark.parametrize("bare", Bare)
@pytest.mark.parametrize(
    ("written", "seconds"),
    [("500ms", 0.5), ("30s", 30), ("1.5s", 1.5), (" 5 m ", 300), ("2h", 7200), ("3d", 259_200)],
)
def test_a_duration_with_its_unit_means_the_same_everywhere(written, seconds, bare):
    assert duration_ns(written, bare=bare) == int(seconds * S)


def test_a_bare_number_is_what_the_way_says():
    assert duration_ns(30) == duration_ns(Decimal(30)) == duration_ns(np.int64(30)) == 30 * S
    assert duration_ns(30, bare=Bare.MILLISECONDS) == 30_000_000
    assert duration_ns("30", bare=Bare.MILLISECONDS) == 30_000_000
    assert duration_ns(timedelta(seconds=2), bare=Bare.MILLISECONDS) == 2 * S
    for written in ("30", 30):
        with pytest.raises(Refused):
            duration_ns(written, bare=Bare.REFUSED)
    with pytest.raises(Refused):
        duration_ns("30")


@pytest.mark.parametrize(
    "wrong", [None, True, b"5", [None], float("nan"), "", "5x", "-1s", -1, -1e400]
)
def test_what_is_no_duration_is_refused_by_its_name(wrong):
    with pytest.raises(Refused, match="patience") as caught:
        duration_ns(wrong, "patience")
    assert caught.value.fields["field"] == "patience"


def test_for_ever_is_as_long_as_the_system_can_wait():
    for written in (float("inf"), 10**400, "9" * 400 + "d", timedelta.max):
        assert duration_ns(written) == DURATION_NS_MAX


def test_what_is_short_does_not_become_nothing():
    assert duration_ms(0.0001) == 1
    assert duration_ms(0) == 0


@given(st.integers(0, (1 << 63) - 1))
def test_a_time_that_was_written_is_read_again(time):
    assert time_ns(time_text(time), "at") == time
    assert time_ns(str(time), "at") == time


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "soon",
        "2026-13-01T00:00:00Z",
        "1969-12-31T23:59:59Z",
        "2026-01-01T00:00:00",
        str(1 << 63),
        "9" * 30,
    ],
)
def test_what_is_no_time_is_refused(wrong):
    with pytest.raises(Refused, match="deliver_at"):
        time_ns(wrong, "deliver_at")


def test_a_datetime_needs_a_zone():
    assert datetime_ns(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), "at") == S
    for wrong in (datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None), "2026-01-01"):
        with pytest.raises(Refused, match="at"):
            datetime_ns(wrong, "at")


@pytest.mark.parametrize("year", [1, 1969, 2263, 9999])
def test_a_moment_is_one_that_a_message_may_have(year):
    for outside in (datetime(year, 1, 1, tzinfo=UTC), f"{year:04}-01-01T00:00:00Z"):
        with pytest.raises(Refused, match=r"start is outside 1970\.\.2262"):
            moment_ns(outside, "start")
    assert moment_ns(datetime(1970, 1, 1, tzinfo=UTC)) == moment_ns("1970-01-01T00:00:00Z") == 0


def test_priorities_by_name_and_number():
    assert [priority_of(one) for one in ("critical", "HIGH", "medium", 3, "4", np.int8(1))] == [
        0,
        1,
        2,
        3,
        4,
        1,
    ]
    for wrong in (None, True, 5, -1, "5", "huge", 2.0, "9" * 5000):
        with pytest.raises(Refused, match="critical"):
            priority_of(wrong)


@pytest.mark.parametrize(
    ("written", "size"),
    [
        ("7B", 7),
        ("512KiB", 512 << 10),
        (" 64 MiB", 64 << 20),
        ("1.5GiB", 3 << 29),
        ("2TiB", 2 << 40),
        ("3KB", 3000),
        ("10MB", 10_000_000),
        ("2GB", 2_000_000_000),
        ("0.5TB", 500_000_000_000),
        ("2.01GB", 2_010_000_000),
        ("1.001KB", 1001),
    ],
)
def test_a_size_with_its_unit(written, size):
    assert size_bytes(written) == size
    assert type(size_bytes(written)) is int


@pytest.mark.parametrize("written", ["", "7", "7iB", "7 apples", "MiB", "-1KiB", "7kib", "1e3KB"])
def test_what_is_no_size_is_refused(written):
    with pytest.raises(Refused) as refusal:
        size_bytes(written, "retention_bytes")
    assert refusal.value.fields["field"] == "retention_bytes"


@pytest.mark.parametrize(
    ("name", "written", "found"),
    [
        ("retention_bytes", "10GiB", 10 << 30),
        ("catch_up_bytes_per_s", "5MB", 5_000_000),
        ("visibility_timeout_ms", "30s", 30_000),
        ("poll_timeout_ms_max", "1m", 60_000),
        ("linger_ms", "0.5ms", 0.5),
        ("ttl_ms", "1.001s", 1001),
        ("retention_hours", "7d", 168),
        ("retention_hours", "90m", 1.5),
        ("retention_bytes", "-1", "-1"),
        ("retention_bytes", "1e9", "1e9"),
        ("retention_bytes", 5, 5),
        ("max_retries", "3", "3"),
        ("compression", "zstd", "zstd"),
    ],
)
def test_a_setting_counts_what_its_name_says(name, written, found):
    assert setting_number(name, written) == found

"""When schedules are due: a model that looks at every minute, across the changes of real time zones."""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.api.schedules import Timing
from penstock.errors import Refused
from penstock.runtime.zones import SystemZones
from penstock.schedules.cron import parse_cron
from penstock.schedules.timing import last_due, next_due

S_NS = 1_000_000_000
ZONES = SystemZones()
# A week or so around changes: an hour, half an hour, a day that is left out, and no change at all.
WINDOWS = (
    ("Europe/Berlin", datetime(2026, 3, 27, tzinfo=UTC)),
    ("Europe/Berlin", datetime(2026, 10, 23, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 3, 6, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 10, 30, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 4, 3, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 10, 2, tzinfo=UTC)),
    ("Pacific/Apia", datetime(2011, 12, 28, tzinfo=UTC)),
    ("Asia/Kolkata", datetime(2026, 1, 1, tzinfo=UTC)),
)
WINDOW_MINUTES = 4 * 1440
# An expression with every minute has thousands.
COMPARED_MAX = 200


def meant(text: str, low: int, high: int) -> set[int]:
    """What a field of plain numbers, lists and steps means. Written without the code under test."""
    found: set[int] = set()
    for item in text.split(","):
        given, _, step = item.partition("/")
        if given == "*":
            first, last = low, high
        elif "-" in given:
            first, last = map(int, given.split("-"))
        else:
            first, last = int(given), high if step else int(given)
        found.update(range(first, last + 1, int(step or 1)))
    return found


class Minute(NamedTuple):
    """A minute of real time: what a clock of the zone shows, whether it did before, and what it has left out."""

    instant: datetime
    local: datetime
    is_repeated: bool
    left_out: list[datetime]


@lru_cache
def minutes_of(zone: str, begin: datetime) -> list[Minute]:
    tz = ZoneInfo(zone)
    found: list[Minute] = []
    seen: set[datetime] = set()
    # Local times that were there before the window began may come again inside of it.
    instant, last = begin - timedelta(days=1), None
    while instant < begin + timedelta(minutes=WINDOW_MINUTES):
        local = instant.astimezone(tz).replace(tzinfo=None)
        gap = 0 if last is None else int((local - last).total_seconds()) // 60
        left_out = [last + timedelta(minutes=one) for one in range(1, gap)]
        found.append(Minute(instant, local, local in seen, left_out))
        seen.add(local)
        instant, last = instant + timedelta(minutes=1), local
    return [one for one in found if one.instant > begin]


def model(written: list[str], zone: str, begin: datetime) -> list[datetime]:
    """Every due time of a window, minute by minute."""
    bounds = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
    fields = [meant(text, *bound) for text, bound in zip(written, bounds, strict=True)]
    is_either_day = not written[2].startswith("*") and not written[4].startswith("*")
    is_any_hour = written[1].startswith("*")

    def fits(local: datetime) -> bool:
        if local.minute not in fields[0] or local.hour not in fields[1]:
            return False
        days = [local.day in fields[2], local.isoweekday() % 7 in fields[4]]
        return local.month in fields[3] and (any(days) if is_either_day else all(days))

    return [
        one.instant
        for one in minutes_of(zone, begin)
        if (fits(one.local) and (is_any_hour or not one.is_repeated))
        or (not is_any_hour and any(map(fits, one.left_out)))
    ]


def number_or_range(low: int, high: int) -> st.SearchStrategy[str]:
    pairs = st.tuples(st.integers(low, high), st.integers(low, high)).map(sorted)
    return st.one_of(
        st.integers(low, high).map(str),
        pairs.map(lambda pair: f"{pair[0]}-{pair[1]}"),
        st.integers(1, 6).map(lambda step: f"*/{step}"),
        st.tuples(st.integers(low, high), st.integers(1, 6)).map(lambda one: f"{one[0]}/{one[1]}"),
    )


def field(low: int, high: int) -> st.SearchStrategy[str]:
    lists = st.lists(number_or_range(low, high), min_size=1, max_size=3).map(",".join)
    return st.one_of(st.just("*"), lists)


def test_an_hourly_schedule_has_no_run_more_when_clocks_are_set_forward():
    begin = datetime(2026, 3, 29, tzinfo=UTC)
    found, after_ns = [], int(begin.timestamp()) * S_NS
    for _ in range(3):
        due_ns = next_due(Timing("11 * * * *", 0, "Europe/Berlin"), 0, after_ns, ZONES)
        assert due_ns is not None
        found.append(datetime.fromtimestamp(due_ns // S_NS, UTC))
        after_ns = due_ns
    assert found == [begin + timedelta(hours=hour, minutes=11) for hour in range(3)]


CRONS = st.tuples(field(0, 59), field(0, 5), field(1, 31), st.just("*"), field(0, 6)).map(list)


@given(CRONS, st.sampled_from(WINDOWS), st.integers(0, WINDOW_MINUTES))
@example(["30", "2", "*", "*", "*"], WINDOWS[0], 0)
@example(["30", "2", "*", "*", "*"], WINDOWS[1], 0)
@example(["30", "*", "*", "*", "*"], WINDOWS[1], 0)
@example(["*/15", "2", "*", "*", "*"], WINDOWS[4], 0)
@example(["15", "2", "*", "*", "*"], WINDOWS[5], 0)
@example(["0", "12", "30", "12", "*"], WINDOWS[6], 0)
# It begins ten minutes into the hour that comes a second time.
@example(["30", "2", "*", "*", "*"], WINDOWS[1], 2 * 1440 + 70)
def test_every_due_time_is_that_of_the_model(written, window, later) -> None:
    zone, begin = window
    timing, end = Timing(" ".join(written), 0, zone), begin + timedelta(minutes=WINDOW_MINUTES)
    start = begin + timedelta(minutes=later)
    expected = [one for one in model(written, zone, begin) if one > start]
    found: list[datetime] = []
    after_ns = int(start.timestamp()) * S_NS
    # One more than there should be, if all are looked at.
    while len(found) <= min(len(expected), COMPARED_MAX):
        due_ns = next_due(timing, 0, after_ns, ZONES)
        if due_ns is None or due_ns >= int(end.timestamp()) * S_NS:
            break
        found.append(datetime.fromtimestamp(due_ns // S_NS, UTC))
        after_ns = due_ns
    assert found == expected[: COMPARED_MAX + 1]
    if found:
        first_ns, now_ns = (int(one.timestamp()) * S_NS for one in (found[0], end))
        last_ns = last_due(timing, 0, first_ns, now_ns - 1, ZONES)
        assert last_ns == int(expected[-1].timestamp()) * S_NS


@given(st.integers(1000, 10_000_000), st.integers(0, 10**15), st.integers(0, 10**12))
def test_an_interval_is_counted_from_its_anchor(every_ms, anchor_ns, gone_ns) -> None:
    timing, after_ns = Timing("", every_ms), anchor_ns + gone_ns
    due_ns = next_due(timing, anchor_ns, after_ns, ZONES)
    assert due_ns is not None
    assert after_ns < due_ns <= after_ns + every_ms * 1_000_000
    assert (due_ns - anchor_ns) % (every_ms * 1_000_000) == 0


@pytest.mark.parametrize(
    ("cron", "same"),
    [
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@weekly", "0 0 * * sun"),
        ("0 9 * * mon-fri", "0 9 * * 1-5"),
        ("0 9 * * sat-sun", "0 9 * * 6,0"),
        ("0 9 * jan,DEC 7", "0 9 * 1,12 0"),
        ("5/20 0 1 * *", "5,25,45 0 1 * *"),
    ],
)
def test_names_and_short_forms(cron, same) -> None:
    assert parse_cron(cron) == parse_cron(same)


def test_a_day_that_comes_every_four_years_is_found_beyond_2100() -> None:
    after_ns = int(datetime(2096, 3, 1, tzinfo=UTC).timestamp()) * S_NS
    due_ns = next_due(Timing("0 0 29 2 *"), 0, after_ns, ZONES)
    assert due_ns == int(datetime(2104, 2, 29, tzinfo=UTC).timestamp()) * S_NS


@pytest.mark.parametrize(
    ("cron", "named"),
    [
        ("60 * * * *", "minute is 0 to 59"),
        ("* 24 * * *", "hour is 0 to 23"),
        ("* * 0 * *", "day of month is 1 to 31"),
        ("* * * 13 *", "month is 1 to 12"),
        ("* * * * 8", "day of week is 0 to 7"),
        ("* * * * funday", "day of week is 0 to 7"),
        ("*/0 * * * *", "minute: a step is 1 to 59"),
        ("9-5 * * * *", "minute: '9-5'"),
        ("* * * *", "5 fields"),
        ("* * * * * *", "5 fields"),
        ("", "5 fields"),
        (",", "5 fields"),
        ("1,,2 * * * *", "minute is 0 to 59"),
        ("@reboot", "@hourly"),
        ("0 0 30 2 *", "never"),
        ("0 0 31 4,6 *", "never"),
        ("٣ * * * *", "minute is 0 to 59"),
        ("99999999999999999999 * * * *", "minute is 0 to 59"),
        ("* * * * *" + " " * 300, "200 characters"),
    ],
)
def test_a_wrong_expression_is_refused_with_its_field_and_its_limits(cron, named) -> None:
    with pytest.raises(Refused, match="cron") as caught:
        parse_cron(cron)
    assert named in str(caught.value)
    assert caught.value.fields["field"] == "cron"


@pytest.mark.parametrize(
    "zone", ["Mars/Olympus", "", "../../etc/passwd", "America", "/etc/passwd", "a\0b"]
)
def test_an_unknown_zone_is_refused(zone) -> None:
    with pytest.raises(Refused, match="timezone"):
        next_due(Timing("0 * * * *", 0, zone), 0, 0, ZONES)

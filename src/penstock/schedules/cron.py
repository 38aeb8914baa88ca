"""Cron expressions: five fields that say which minutes of a local clock are meant. Knows no time zones."""

from bisect import bisect_left
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from ..api.schedules import CRON_CHARACTERS_MAX
from ..errors import Refused

_DAY_MINUTES = 1440
# The 29th of February on a given weekday comes after 40 years at the latest, also around the year 2100.
_MONTHS_AHEAD = 12 * 41
_MONTH_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAY_NAMES = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_DIGITS_MAX = 4
_ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


class _Field(NamedTuple):
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()


# 7 is Sunday, too.
_WEEKDAY = _Field("day of week", 0, 7, _DAY_NAMES)
_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31),
    _Field("month", 1, 12, _MONTH_NAMES),
    _WEEKDAY,
)


class Cron(NamedTuple):
    """The minutes of a day, counted from midnight, and the days that an expression names.

    `is_any_hour`: the hour begins with a `*`. `is_either_day`: day of month and day of week are both given, and a day
    that is one of either is meant.
    """

    times: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    is_any_hour: bool
    is_either_day: bool

    def next_from(self, minute: int) -> int | None:
        """The first minute from this one on, both counted from 1970 on a local clock; None: there will be none."""
        today, time = divmod(minute, _DAY_MINUTES)
        for day in self._days_from(today):
            place = bisect_left(self.times, time) if day == today else 0
            if place < len(self.times):
                return day * _DAY_MINUTES + self.times[place]
        return None

    def _days_from(self, today: int) -> Iterator[int]:
        year, month, first = _date_of(today)
        for _ in range(_MONTHS_AHEAD):
            if month in self.months:
                begin = _days_before(year, month)
                for date in range(first, _days_in(year, month) + 1):
                    day = begin + date - 1
                    if self._has_day(date, (day + 4) % 7):
                        yield day
            year, month, first = (year, month + 1, 1) if month < 12 else (year + 1, 1, 1)

    def _has_day(self, date: int, weekday: int) -> bool:
        is_date, is_weekday = date in self.days, weekday in self.weekdays
        return is_date or is_weekday if self.is_either_day else is_date and is_weekday


@lru_cache(maxsize=1024)
def parse_cron(text: str) -> Cron:
    """Refused, with the field and its limits, if the text is no expression, or one that never comes."""
    if len(text) > CRON_CHARACTERS_MAX:
        raise _wrong(f"has at most {CRON_CHARACTERS_MAX} characters, got {len(text)}")
    if text.startswith("@"):
        if text.lower() not in _ALIASES:
            raise _wrong(f"knows {', '.join(_ALIASES)}, not {text[:40]!r}")
        text = _ALIASES[text.lower()]
    written = text.split()
    if len(written) != len(_FIELDS):
        names = ", ".join(one.name for one in _FIELDS)
        raise _wrong(f"has {len(_FIELDS)} fields ({names}), got {len(written)}")
    minutes, hours, days, months, weekdays = (
        _values(field, one) for field, one in zip(_FIELDS, written, strict=True)
    )
    is_star = [one.startswith("*") for one in written]
    found = Cron(
        tuple(sorted(hour * 60 + minute for hour in hours for minute in minutes)),
        days,
        months,
        frozenset(one % 7 for one in weekdays),
        is_star[1],
        not (is_star[2] or is_star[4]),
    )
    if found.next_from(0) is None:
        raise _wrong(f"never comes: no month of {written[3]!r} has a day {written[2]!r}")
    return found


def _values(field: _Field, text: str) -> frozenset[int]:
    return frozenset(value for item in text.split(",") for value in _range(field, item))


def _range(field: _Field, item: str) -> range:
    """`*`, `5`, `1-5`, `mon-fri`, each with a step or without: `*/15`, `5/15` from 5 on, `9-17/2`."""
    given, slash, written_step = item.partition("/")
    step = _number(written_step) if slash else 1
    if step is None or not 1 <= step <= field.high:
        raise _wrong(f"{field.name}: a step is 1 to {field.high}, got {item[:40]!r}")
    if given == "*":
        return range(field.low, _top(field) + 1, step)
    begin, dash, end = given.partition("-")
    first = _value(field, begin, item)
    last = _value(field, end, item) if dash else _top(field) if slash else first
    if field is _WEEKDAY and dash and last == 0 < first:
        last = 7
    if last < first:
        raise _wrong(f"{field.name}: {item[:40]!r} ends before it begins")
    return range(first, last + 1, step)


def _top(field: _Field) -> int:
    return 6 if field is _WEEKDAY else field.high


def _value(field: _Field, text: str, item: str) -> int:
    if text.lower() in field.names:
        return field.names.index(text.lower()) + field.low
    found = _number(text)
    if found is None or not field.low <= found <= field.high:
        names = f" or {field.names[0]} to {field.names[-1]}" if field.names else ""
        raise _wrong(f"{field.name} is {field.low} to {field.high}{names}, got {item[:40]!r}")
    return found


def _number(text: str) -> int | None:
    is_number = text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX
    return int(text) if is_number else None


def _wrong(reason: str) -> Refused:
    return Refused(f"cron: {reason}", field="cron")


# Dates of the Gregorian calendar. The standard library has them beside its clock, which the core does not know.


# Days of a year before each month, and before the next year.
_BEFORE = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365)


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def _days_in(year: int, month: int) -> int:
    return _BEFORE[month] - _BEFORE[month - 1] + (month == 2 and _is_leap(year))


def _days_before(year: int, month: int) -> int:
    """Days from 1970 to the first of a month."""
    last = year - 1
    days = last * 365 + last // 4 - last // 100 + last // 400 - 719_162
    return days + _BEFORE[month - 1] + (month > 2 and _is_leap(year))


def _date_of(day: int) -> tuple[int, int, int]:
    """Year, month and day of a day that is counted from 1970."""
    year = 1970 + day // 366
    while _days_before(year + 1, 1) <= day:
        year += 1
    month = 1 + (day - _days_before(year, 1)) // 31
    if month < 12 and _days_before(year, month + 1) <= day:
        month += 1
    return year, month, day - _days_before(year, month) + 1

"""Durations, times, sizes and priorities as people and programs write them: one parser each, for every way in.

What a number without a unit means is the way's own convention, and `Bare` names it: seconds in Python, milliseconds in
HTTP and in YAML. A command line refuses it, because its reader cannot know which of the two was meant.
"""

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache

from ..errors import Refused
from ..model import Priority
from .arguments import shown, text, whole_number

Moment = datetime | str | int
"""A datetime, RFC 3339 text, or nanoseconds since 1970."""

_TIME_NS_MAX = (1 << 63) - 1

Duration = float | str | timedelta
"""A number of seconds, text with a unit, or a timedelta."""

_S_NS = 1_000_000_000
_MS_NS = 1_000_000
# A moment less than 292 years, the longest that the system waits: a longer duration means for ever.
DURATION_NS_MAX = (1 << 63) - 2 * _S_NS
_UNITS_NS = {
    "ms": _MS_NS,
    "s": _S_NS,
    "m": 60 * _S_NS,
    "h": 3600 * _S_NS,
    "d": 24 * 3600 * _S_NS,
}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|)", re.ASCII)
_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B", re.ASCII)
_BARE_NUMBER = re.compile(r"\s*-?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?\s*", re.ASCII)
_SIZE_BEYOND = 1 << 64
_HOUR_NS = 3600 * _S_NS
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SHOWN_MAX = 40
PRIORITIES = {one.name.lower(): int(one) for one in Priority} | {"medium": int(Priority.NORMAL)}
"""By name; `medium` is what some call normal."""


class Bare(Enum):
    """What a number without a unit counts, where a duration is written."""

    SECONDS = "30 (seconds)"
    MILLISECONDS = "1500 (milliseconds)"
    REFUSED = ""


def duration_ns(given: Duration, what: str = "a duration", *, bare: Bare = Bare.SECONDS) -> int:
    """A duration in nanoseconds, at most 292 years; Refused if it is none, or below zero.

    In text a number needs its unit, except where a bare one counts milliseconds.
    """
    if isinstance(given, str):
        found_ns = _duration_in_text(given, what, bare)
    elif isinstance(given, timedelta):
        found_ns = given // timedelta(microseconds=1) * 1000
    else:
        found_ns = _of_number(given, what, bare)
    if found_ns < 0:
        raise Refused(f"{what} cannot be below zero, got {shown(given)}", field=what)
    return min(found_ns, DURATION_NS_MAX)


def _duration_in_text(given: str, what: str, bare: Bare) -> int:
    written = _DURATION.fullmatch(given.strip())
    unit = written[2] if written else ""
    if written is None or (not unit and bare is not Bare.MILLISECONDS):
        others = f" or {bare.value}" if bare is Bare.MILLISECONDS else ""
        raise Refused(
            f'{what} must look like "500ms", "30s", "5m", "2h", "3d"{others}, got {given[:_SHOWN_MAX]!r}',
            field=what,
        )
    # Not a float: of that 1.001 s are less than 1001 ms.
    return int(min(Decimal(written[1]), Decimal(DURATION_NS_MAX)) * _UNITS_NS[unit or "ms"])


def _of_number(given: object, what: str, bare: Bare) -> int:
    # Looked at first: a list, too, can be multiplied, and a thousand million times [None] fills the memory. A number
    # that is neither whole nor a float, such as one of numpy's or a Decimal, is made one.
    if bare is not Bare.REFUSED and not isinstance(given, bool | bytes | bytearray | memoryview):
        scale = _S_NS if bare is Bare.SECONDS else _MS_NS
        with suppress(TypeError, ValueError):  # None; not a number.
            number = given if isinstance(given, int) else float(given)  # type: ignore[arg-type]  # What is none is refused.
            with suppress(OverflowError):
                return int(number * scale)
            return DURATION_NS_MAX if number > 0 else -1
    counted = "seconds" if bare is Bare.SECONDS else "milliseconds"
    raise Refused(
        f'{what} is a number of {counted}, text like "30s", or a timedelta, not {shown(given)}',
        field=what,
    )


def duration_ms(given: Duration, what: str = "a duration", *, bare: Bare = Bare.SECONDS) -> int:
    """A duration in milliseconds, rounded up, so that what is short does not become nothing."""
    return -(-duration_ns(given, what, bare=bare) // _MS_NS)


def duration_s(given: Duration, what: str = "a duration") -> float:
    """A duration in seconds."""
    return duration_ns(given, what) / _S_NS


def size_bytes(given: str, what: str = "a size") -> float:
    """A size in bytes from text with a unit: KB, MB, GB and TB are powers of 1000, KiB, MiB, GiB and TiB of 1024."""
    written = _SIZE.fullmatch(given.strip())
    if written is None or (written[3] and not written[2]):
        raise Refused(
            f'{what} must look like "512KiB", "64MiB", "10GB" or a number of bytes, got {given[:_SHOWN_MAX]!r}',
            field=what,
        )
    unit = (1024 if written[3] else 1000) ** " KMGT".index(written[2] or " ")
    return _whole(min(Decimal(written[1]), Decimal(_SIZE_BEYOND)) * unit)


def setting_number(name: str, given: object) -> object:
    """A setting in what its name says that it counts, from text with a unit; anything else as it is. Refused."""
    if not isinstance(given, str) or _BARE_NUMBER.fullmatch(given):
        return given
    words = name.split("_")
    if "bytes" in words:
        return size_bytes(given, name)
    if "ms" in words:
        return _setting_span(given, name, Bare.MILLISECONDS, _MS_NS)
    if "hours" in words:
        return _setting_span(given, name, Bare.REFUSED, _HOUR_NS)
    return given


def _setting_span(given: str, name: str, bare: Bare, unit_ns: int) -> float:
    found_ns = duration_ns(given, name, bare=bare)
    if found_ns == DURATION_NS_MAX:
        raise Refused(f"{name} is at most 292 years, got {given[:_SHOWN_MAX]!r}", field=name)
    return _whole(Decimal(found_ns) / unit_ns)


def _whole(number: Decimal) -> float:
    return int(number) if number == number.to_integral_value() else float(number)


def time_ns(written: str, what: str) -> int:
    """A time in nanoseconds since 1970, from RFC 3339 or from the number itself; Refused outside 1970..2262."""
    if written.isascii() and written.isdecimal() and int(written[:20]) < 1 << 63:
        return int(written)
    found = _TIME.fullmatch(written.strip())
    try:
        if found is None:
            raise ValueError
        zone = "+00:00" if found[4] in "Zz" else found[4]
        whole = datetime.fromisoformat(f"{found[1]}T{found[2]}{zone}")
    except ValueError:
        raise Refused(
            f"{what} must look like 2026-01-31T12:00:00.5Z, got {written[:_SHOWN_MAX]!r}",
            field=what,
        ) from None
    time = int(whole.timestamp()) * _S_NS + int((found[3] or "0").ljust(9, "0"))
    return _storable_ns(time, what)


def _storable_ns(time: int, what: str) -> int:
    if not 0 <= time <= _TIME_NS_MAX:
        raise Refused(f"{what} is outside 1970..2262", field=what)
    return time


def datetime_ns(given: object, what: str) -> int:
    """A datetime in nanoseconds since 1970. Refused without a time zone: the same digits are hours apart."""
    if not isinstance(given, datetime):
        raise Refused(f"{what} is a datetime, not {shown(given)}", field=what)
    if given.utcoffset() is None:
        raise Refused(
            f"{what}: {shown(given)} has no time zone; write datetime.now(UTC) + timedelta(hours=1),"
            " or add .astimezone() to a local time",
            field=what,
        )
    try:
        since = given - _EPOCH
    except OverflowError:
        raise Refused(f"{what}: {shown(given)} is beyond all calendars", field=what) from None
    return since // timedelta(microseconds=1) * 1000


@lru_cache(maxsize=1024)
def _second_text(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def time_text(time: int) -> str:
    """RFC 3339 with nanoseconds. Messages of one batch mostly share their second, so that part is kept."""
    seconds, rest = divmod(time, _S_NS)
    return f"{_second_text(seconds)}.{rest:09d}Z"


def priority_of(given: object) -> int:
    """A priority by name or by number; Refused otherwise."""
    found: object = given
    if isinstance(given, str):
        found = PRIORITIES.get(given.lower())
        if found is None and given.isascii() and given.isdecimal():
            found = int(given[:_SHOWN_MAX])
    elif hasattr(given, "__index__") and not isinstance(given, bool):
        found = given.__index__()
    if type(found) is int and Priority.CRITICAL <= found <= Priority.BACKGROUND:
        return found
    names = ", ".join(f"{one.name.lower()} ({one.value})" for one in Priority)
    raise Refused(f"priority must be one of {names}, got {shown(given)}", field="priority")


def moment_ns(when: Moment, what: str = "a moment") -> int:
    """A moment in nanoseconds since 1970. Refused outside 1970..2262, or if it is none, or has no time zone."""
    if isinstance(when, datetime):
        return _storable_ns(datetime_ns(when, what), what)
    if isinstance(when, str):
        return time_ns(text(what, when), what)
    return whole_number(what, when, 0, _TIME_NS_MAX)

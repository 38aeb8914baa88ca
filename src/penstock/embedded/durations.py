"""Spans of time as people write them: 30, 0.5, "30s", "5m", "3d", or a timedelta. Bare numbers are seconds."""

import re
from datetime import timedelta

from ..errors import Refused

Duration = float | str | timedelta

_UNITS_NS = {
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60 * 1_000_000_000,
    "h": 3600 * 1_000_000_000,
    "d": 24 * 3600 * 1_000_000_000,
}
_WRITTEN = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)", re.ASCII)


def nanoseconds(duration: Duration) -> int:
    """A duration in nanoseconds; Refused if it is none, or below zero."""
    if isinstance(duration, timedelta):
        found_ns = duration // timedelta(microseconds=1) * 1000
    elif isinstance(duration, str):
        written = _WRITTEN.fullmatch(duration.strip())
        if written is None:
            raise Refused(f'a duration looks like 30, "30s", "5m", "2h" or "3d", not {duration!r}')
        found_ns = int(float(written[1]) * _UNITS_NS[written[2]])
    else:
        try:
            found_ns = int(duration * 1_000_000_000)
        except (TypeError, ValueError, OverflowError):
            raise Refused(f"a duration is a number of seconds or text, not {duration!r}") from None
    if found_ns < 0:
        raise Refused(f"a duration cannot be below zero, got {duration!r}")
    return found_ns


def milliseconds(duration: Duration) -> int:
    """The same in milliseconds, rounded up, so that what is short does not become nothing."""
    return -(-nanoseconds(duration) // 1_000_000)

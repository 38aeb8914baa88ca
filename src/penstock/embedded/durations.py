"""Spans of time as people write them: 30, 0.5, "30s", "5m", "3d", or a timedelta. Bare numbers are seconds."""

import re
from contextlib import suppress
from datetime import timedelta

from ..errors import Refused
from .arguments import shown

Duration = float | str | timedelta
# A moment less than 292 years, the longest that the system waits: who says more means for ever.
_MOST_NS = (1 << 63) - 2_000_000_000

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
        # Digits beyond all numbers are infinity, which is no number of nanoseconds.
        found_ns = int(min(float(written[1]), _MOST_NS) * _UNITS_NS[written[2]])
    else:
        found_ns = _of_seconds(duration)
    if found_ns < 0:
        raise Refused(f"a duration cannot be below zero, got {duration!r}")
    return min(found_ns, _MOST_NS)


def _of_seconds(seconds: object) -> int:
    # Looked at first: a list, too, can be multiplied, and a thousand million times [None] fills the memory. A number
    # that is neither whole nor a float, such as one of numpy's or a Decimal, is made one.
    if not isinstance(seconds, bool | bytes | bytearray | memoryview):
        with suppress(TypeError, ValueError, OverflowError):  # None; not a number; infinity.
            number = seconds if isinstance(seconds, int) else float(seconds)  # type: ignore[arg-type]  # What is none is refused.
            return int(number * 1_000_000_000)
    raise Refused(
        f'a duration is a number of seconds, text like "30s", or a timedelta, not {shown(seconds)}'
    )


def milliseconds(duration: Duration) -> int:
    """The same in milliseconds, rounded up, so that what is short does not become nothing."""
    return -(-nanoseconds(duration) // 1_000_000)

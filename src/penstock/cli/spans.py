"""Times as people write them on a command line."""

import re
import time

import click

_SPAN = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)(ms|s|m|h|d)", re.ASCII)
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
# The server knows the rest of it; nanoseconds are a number.
_TIME_BEGINS = re.compile(r"\s*(\d{4}-|\d+$)", re.ASCII)
_PLACE = re.compile(r"(\d{1,9})/(\d{1,18})")


def span(value: str) -> str:
    """A span with its unit. A bare number is seconds in Python and milliseconds in HTTP, so here it is neither."""
    from ..api.units import Bare, duration_ns
    from ..errors import Refused

    try:
        duration_ns(value, bare=Bare.REFUSED)
    except Refused:
        raise click.BadParameter(
            f'{value[:60]!r} does not look like "500ms", "30s", "5m", "2h" or "3d"'
        ) from None
    return value.strip()


def seconds_in(span: str) -> float:
    """The seconds of a span that was checked."""
    found = _SPAN.fullmatch(span)
    assert found is not None, "an option of this type"
    return float(found[1]) * _SECONDS[found[2]]


def moment_of(option: str, written: str, other: str = "") -> str:
    """A moment for the server: RFC 3339 as it is, and a span as so long ago. `other` is what else could be said."""
    found = _SPAN.fullmatch(written.strip())
    if found is None and _TIME_BEGINS.match(written) is None:
        said = f"{option}: {written[:60]!r} is not {other}"
        raise click.UsageError(f"{said}a time such as 2026-01-31T12:00:00Z, or a span such as 15m")
    if found is None:
        return written
    return str(max(1, time.time_ns() - int(seconds_in(found[0]) * 1_000_000_000)))


def place_in(written: str) -> tuple[int, int]:
    """PARTITION/OFFSET, as lists print it."""
    found = _PLACE.fullmatch(written.strip())
    if found is None:
        raise click.UsageError(f"{written[:60]!r} is not PARTITION/OFFSET, such as 0/17")
    return int(found[1]), int(found[2])

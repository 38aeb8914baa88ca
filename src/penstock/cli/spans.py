"""Times as people write them on a command line."""

import re
import time

import click

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
    from ..api.units import duration_s

    return duration_s(span)


def moment_of(option: str, written: str, other: str = "") -> str:
    """A moment for the server: RFC 3339 as it is, and a span as so long ago. `other` is what else could be said."""
    from ..api.units import Bare, duration_ns
    from ..errors import Refused

    try:
        ago_ns = duration_ns(written, bare=Bare.REFUSED)
    except Refused:
        if _TIME_BEGINS.match(written) is not None:
            return written
        said = f"{option}: {written[:60]!r} is not {other}"
        raise click.UsageError(
            f"{said}a time such as 2026-01-31T12:00:00Z, or a span such as 15m"
        ) from None
    return str(max(1, time.time_ns() - ago_ns))


def place_in(written: str) -> tuple[int, int]:
    """PARTITION/OFFSET, as lists print it."""
    found = _PLACE.fullmatch(written.strip())
    if found is None:
        raise click.UsageError(f"{written[:60]!r} is not PARTITION/OFFSET, such as 0/17")
    return int(found[1]), int(found[2])

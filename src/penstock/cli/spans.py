"""Times as people write them on a command line."""

import re
import time

import click

_SPAN = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_PLACE = re.compile(r"(\d{1,9})/(\d{1,18})")


def moment_of(written: str) -> str:
    """A moment for the server: RFC 3339 as it is, and a span as so long ago."""
    found = _SPAN.fullmatch(written.strip())
    if found is None:
        return written
    return str(max(1, time.time_ns() - int(float(found[1]) * _SECONDS[found[2]] * 1_000_000_000)))


def place_in(written: str) -> tuple[int, int]:
    """PARTITION/OFFSET, as lists print it."""
    found = _PLACE.fullmatch(written.strip())
    if found is None:
        raise click.UsageError(f"{written[:60]!r} is not PARTITION/OFFSET, such as 0/17")
    return int(found[1]), int(found[2])

"""Values of command lines: spans, times, PARTITION/OFFSET, headers."""

import re
import time

import click

# The server parses the rest; a bare number is nanoseconds.
_TIME_BEGINS = re.compile(r"\s*(\d{4}-|\d+$)", re.ASCII)
_PLACE = re.compile(r"(\d{1,9})/(\d{1,18})")


def span(value: str) -> str:
    """Returns a span with its unit. BadParameter: it has none; a bare number means other units elsewhere."""
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
    """Returns the seconds of a span that `span` has checked."""
    from ..api.units import duration_s

    return duration_s(span)


def time_argument(option: str, written: str, other: str = "") -> str:
    """Returns a time for the server: RFC 3339 unchanged, a span as the time so long ago.

    UsageError: it is neither. `other` names what else the option takes.
    """
    from ..api.units import Bare, duration_ns
    from ..errors import Refused

    try:
        ago_ns = duration_ns(written, bare=Bare.REFUSED)
    except Refused:
        if _TIME_BEGINS.match(written) is not None:
            return written
        raise click.UsageError(
            f"{option}: {written[:60]!r} is not {other}a time such as 2026-01-31T12:00:00Z, or a span such as 15m"
        ) from None
    return str(max(1, time.time_ns() - ago_ns))


def partition_offset(written: str) -> tuple[int, int]:
    """Returns the two numbers of PARTITION/OFFSET. UsageError: it is something else."""
    found = _PLACE.fullmatch(written.strip())
    if found is None:
        raise click.UsageError(f"{written[:60]!r} is not PARTITION/OFFSET, such as 0/17")
    return int(found[1]), int(found[2])


def header_pairs(headers: tuple[str, ...]) -> list[tuple[str, str]]:
    """Returns headers of the command line as pairs. UsageError: one is not NAME=VALUE."""
    for header in headers:
        if "=" not in header:
            raise click.UsageError(f"--header: {header!r} is not NAME=VALUE")
    return [(name, value) for name, _, value in (header.partition("=") for header in headers)]

"""Where a group that is new, or is reset, begins, in JSON and in queries."""

from ...errors import BadRequest
from ..start import EARLIEST, LATEST, Start
from .times import time_ns

# Nanoseconds since 1970 are longer, unless they are of that year's first days.
_OFFSET_DIGITS_MAX = 15


def start_of(to: str | int, field: str = "to") -> Start:
    """Where a group begins: earliest, latest, an offset, or a time. BadRequest names the field otherwise."""
    if isinstance(to, int):
        if to < 0:
            raise BadRequest(f"an offset is not negative, got {to}", field=field)
        return Start.at_offset(to)
    named = {"earliest": EARLIEST, "latest": LATEST}
    return named.get(to) or Start.at_time(time_ns(field, to))


def start_in(query: str) -> Start:
    """Where a group begins, from a query string: up to 15 digits are an offset. BadRequest names `start`."""
    is_offset = query.isascii() and query.isdecimal() and len(query) <= _OFFSET_DIGITS_MAX
    return start_of(int(query) if is_offset else query, "start")

"""Times and spans of HTTP requests: RFC 3339, "30s" or bare milliseconds. What is none is a bad request."""

from typing import Annotated

import msgspec

from ...errors import BadRequest, Refused
from ..arguments import shown
from ..units import Bare, duration_ms, time_text
from ..units import time_ns as parsed_time

Span = Annotated[
    str | int | float,
    msgspec.Meta(
        description="A span of time: text with its unit (ms, s, m, h, d). A bare number is milliseconds.",
        examples=["30s", "5m", 1500],
    ),
]

# 400 days and more are legal; what does not fit into 64 bits of nanoseconds is not.
SPAN_MS_MAX = 100 * 366 * 86_400_000


def span_ms(name: str, written: Span) -> int:
    """A span in milliseconds, rounded up; BadRequest if it is none, or longer than a century."""
    try:
        milliseconds = duration_ms(written, name, bare=Bare.MILLISECONDS)
    except Refused as error:
        raise BadRequest(str(error), field=name) from None
    if milliseconds > SPAN_MS_MAX:
        raise BadRequest(f"{name} must be in 0..{SPAN_MS_MAX} ms, got {shown(written)}", field=name)
    return milliseconds


def time_ns(name: str, written: str) -> int:
    """A moment in nanoseconds since 1970: RFC 3339, or the number itself."""
    try:
        return parsed_time(written, name)
    except Refused as error:
        raise BadRequest(str(error), field=name) from None


def time_text_or_none(moment_ns: int | None) -> str | None:
    return None if moment_ns is None else time_text(moment_ns)

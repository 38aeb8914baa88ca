"""Times and spans as HTTP clients write them: RFC 3339 with nanoseconds, "30s" or bare milliseconds."""

import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated

import msgspec

from ...errors import BadRequest

Span = Annotated[
    str | int | float,
    msgspec.Meta(
        description="A span of time: text with its unit (ms, s, m, h, d). A bare number is milliseconds.",
        examples=["30s", "5m", 1500],
    ),
]

_MS = 1_000_000
_S = 1_000_000_000
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "": 1}
_SPAN = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)\s*(ms|s|m|h|d|)", re.ASCII)
_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)
# 400 days and more are legal; what does not fit into 64 bits of nanoseconds is not.
SPAN_MS_MAX = 100 * 366 * 86_400_000


def span_ms(name: str, written: Span) -> int:
    """A span in milliseconds, rounded up; BadRequest if it is none, or longer than a century."""
    if isinstance(written, str):
        found = _SPAN.fullmatch(written.strip())
        if found is None:
            raise BadRequest(
                f'{name} must look like "500ms", "30s", "5m", "2h", "3d" or 1500 (milliseconds),'
                f" got {written[:40]!r}",
                field=name,
            )
        milliseconds = float(found[1]) * _UNITS_MS[found[2]]
    else:
        milliseconds = written
    if not 0 <= milliseconds <= SPAN_MS_MAX:
        raise BadRequest(f"{name} must be in 0..{SPAN_MS_MAX} ms, got {written!r}", field=name)
    return -int(-milliseconds // 1)


def time_ns(name: str, written: str) -> int:
    """A moment in nanoseconds since 1970: RFC 3339, or the number itself."""
    if written.isascii() and written.isdecimal() and len(written) <= 19:
        return int(written)
    found = _TIME.fullmatch(written.strip())
    try:
        if found is None:
            raise ValueError
        zone = "+00:00" if found[4] in "Zz" else found[4]
        whole = datetime.fromisoformat(f"{found[1]}T{found[2]}{zone}")
    except ValueError:
        raise BadRequest(
            f"{name} must look like 2026-01-31T12:00:00.5Z, got {written[:40]!r}", field=name
        ) from None
    seconds = int(whole.timestamp())
    moment = seconds * _S + int((found[3] or "0").ljust(9, "0"))
    if not 0 <= moment < 1 << 63:
        raise BadRequest(f"{name} is outside 1970..2262", field=name)
    return moment


@lru_cache(maxsize=1024)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def time_text(moment_ns: int) -> str:
    """RFC 3339 with nanoseconds. Messages of one batch mostly share their second, so that part is kept."""
    seconds, rest = divmod(moment_ns, _S)
    return f"{_second(seconds)}.{rest:09d}Z"


def time_text_or_none(moment_ns: int | None) -> str | None:
    return None if moment_ns is None else time_text(moment_ns)

"""Reads of a partition as JSON."""

import msgspec

from ...errors import BadRequest
from ..start import EARLIEST, Start
from .messages import Int64, MessageOut, Strict
from .times import Span, time_ns


class FetchQuery(Strict):
    """From where (the earliest, if neither is said), how much, and how long to wait at the end."""

    offset: Int64 | None = None
    from_time: str | None = None
    limit: Int64 = 500
    max_bytes: Int64 = 1 << 20
    timeout: Span = 0
    encoding: str | None = None


class SkippedOut(msgspec.Struct, rename={"start": "from", "end": "to"}):
    """Offsets from `from` to before `to` that are damaged, and that the topic says to skip."""

    start: int
    end: int
    reason: str


class FetchOut(msgspec.Struct, omit_defaults=True):
    """`latest` is the next offset to be written. `skipped` is there if something was."""

    messages: list[MessageOut]
    next_offset: int
    earliest: int
    latest: int
    skipped: list[SkippedOut] = []


def start_of(asked: FetchQuery) -> Start:
    if asked.offset is not None and asked.from_time is not None:
        raise BadRequest("give one of offset and from_time", field="offset")
    if asked.offset is not None:
        if asked.offset < 0:
            raise BadRequest(f"an offset is not negative, got {asked.offset}", field="offset")
        return Start.at_offset(asked.offset)
    if asked.from_time is not None:
        return Start.at_time(time_ns("from_time", asked.from_time))
    return EARLIEST

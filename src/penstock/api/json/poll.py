"""Polls and streams of shared groups as JSON."""

import msgspec

from ...errors import TooLarge
from ...model import Priority
from .messages import Int64, ReceivedOut, Strict, priority_of
from .times import Span, span_ms

_STREAM_LEASE_MS = 2000


_STREAM_UNANSWERED = 32


_OWNER = "http"


_REQUEST_ID_MAX = 128


class PollQuery(Strict):
    """A poll of a group: how many, how long to wait, how long to lend, of one priority only.

    `start` is where a group that is new begins: earliest, latest, an offset, or a time.
    Repeated with its `request_id` it gets the same answer: a response that was lost costs no attempt.
    """

    group: str
    max: Int64 = 100
    timeout: Span = 0
    owner: str = _OWNER
    visibility_timeout: Span | None = None
    priority: str | None = None
    request_id: str = ""
    encoding: str | None = None
    start: str = "earliest"


class PollOut(msgspec.Struct):
    messages: list[ReceivedOut]


class ConsumeQuery(Strict):
    """A stream: `max` messages may be unanswered at once, each lent for `lease_ms`. `start` as for a poll."""

    topic: str
    group: str
    owner: str | None = None
    lease_ms: Int64 = _STREAM_LEASE_MS
    max: Int64 = _STREAM_UNANSWERED
    priority: str | None = None
    encoding: str | None = None
    start: str = "earliest"


def lane_of(written: str | None) -> Priority | None:
    return None if written is None else Priority(priority_of(written))


def checked_request_id(written: str) -> str:
    if len(written) > _REQUEST_ID_MAX:
        raise TooLarge("request_id in characters", found=len(written), limit=_REQUEST_ID_MAX)
    return written


def lease_ms(written: Span | None) -> int | None:
    """None: as long as the topic says."""
    return None if written is None else span_ms("visibility_timeout", written)

"""Delayed messages as JSON."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ...errors import BadRequest
from ..delays import (
    FIRST_PLACE,
    DelayedMessage,
    DelayPlace,
    DelayState,
    DelayStats,
    NextOccurrence,
)
from ..units import time_text
from .messages import PRIORITY_NAMES, ContentOut, Int64, Strict, content_of
from .times import Span, span_ms, time_ns

MS = 1_000_000
_COUNTED = ("pending", "delivered", "cancelled", "expired", "lost")


class DelayedQuery(Strict):
    """The next to come first; or only the one with this business key."""

    delay_key: str | None = None
    limit: Int64 = 100
    cursor: str = ""
    encoding: str | None = None


class KeyQuery(Strict):
    delay_key: str


class DelayedOut(msgspec.Struct, kw_only=True, rename={"deliver_at_too": "deliverAt"}):
    """A delayed message; `offset` is its place in the delay log, `time_remaining` in milliseconds.

    `damage`: why and where it cannot be read; then key, value and priority are null.
    """

    topic: str
    partition: int
    offset: int
    deliver_at: str
    deliver_at_too: str
    time_remaining: int
    state: str
    priority: str | None
    delay_key: ContentOut
    key: ContentOut
    value: ContentOut
    damage: str | None


class NextOccurrenceOut(msgspec.Struct):
    """When the message of a schedule is published next."""

    key: str
    partition: int
    next_due: str


class DelayedListOut(msgspec.Struct):
    """`count` is how many messages are on this page, `unreadable` how many of them are damaged.

    `schedules`, on the first page: the next occurrences of all schedules of the topic, earliest first.
    """

    messages: list[DelayedOut]
    count: int
    unreadable: int
    cursor: str | None
    schedules: list[NextOccurrenceOut]


class MoveIn(Strict):
    """Another time: from now, or as a moment."""

    delay: Span | None = None
    deliver_at: str | None = None


class DelayStatsOut(msgspec.Struct):
    """`lost`: damaged, in topics that skip damage.

    `wheel`: how many are due within 10 ms or overdue, and how many wait in each level of the timing wheel.
    """

    pending: int
    delivered: int
    cancelled: int
    expired: int
    lost: int
    wheel: list[int]
    by_topic: dict[str, dict[str, Any]]


def due_ns(delay: Span | None, deliver_at: str | None, now_ns: int) -> int | None:
    """When a message is to come; None: at once."""
    if delay is not None and deliver_at is not None:
        raise BadRequest("give one of delay and deliver_at", field="delay")
    if deliver_at is not None:
        return max(1, time_ns("deliver_at", deliver_at))
    return None if delay is None else now_ns + span_ms("delay", delay) * MS


def next_out(one: NextOccurrence) -> NextOccurrenceOut:
    return NextOccurrenceOut(one.key, one.partition, time_text(one.due_ns))


def cursor_of(written: str) -> DelayPlace:
    if not written:
        return FIRST_PLACE
    parts = written.split("-")
    if len(parts) != 3 or not all(
        one.isascii() and one.isdecimal() and len(one) < 20 for one in parts
    ):
        raise BadRequest("cursor is not one of ours", field="cursor")
    return DelayPlace(*map(int, parts))


def _stats_of_topic(partitions: Sequence[DelayStats]) -> dict[str, Any]:
    dues = [one.next_due_ns for one in partitions if one.next_due_ns is not None]
    return {
        "pending": sum(one.pending for one in partitions),
        "delivered": sum(one.delivered for one in partitions),
        "cancelled": sum(one.cancelled for one in partitions),
        "expired": sum(one.expired for one in partitions),
        "lost": sum(one.lost for one in partitions),
        "unreadable": sum(one.unreadable for one in partitions),
        "next": time_text(min(dues)) if dues else None,
        "wheel": [sum(level) for level in zip(*(one.wheel for one in partitions), strict=True)],
        "size_bytes": sum(one.size_bytes for one in partitions),
    }


def delay_stats_out(
    found: Mapping[str, Sequence[DelayStats]], empty_wheel: Sequence[int] = ()
) -> DelayStatsOut:
    """Of topics that ever had a delayed message; `empty_wheel` is the wheel of none of them."""
    by_topic = {
        topic: _stats_of_topic(partitions)
        for topic, partitions in found.items()
        if any(one.size_bytes for one in partitions)
    }
    wheels = [one["wheel"] for one in by_topic.values()] or [empty_wheel]
    return DelayStatsOut(
        **{name: sum(one[name] for one in by_topic.values()) for name in _COUNTED},
        wheel=[sum(level) for level in zip(*wheels, strict=True)],
        by_topic=by_topic,
    )


def delayed_out(one: DelayedMessage, now_ns: int, *, is_base64: bool = False) -> DelayedOut:
    message, remaining_ns = one.message, 0
    if one.state is DelayState.PENDING:
        remaining_ns = max(0, one.due_ns - now_ns)
    return DelayedOut(
        topic=one.topic,
        partition=one.partition,
        offset=one.id,
        deliver_at=time_text(one.due_ns),
        deliver_at_too=time_text(one.due_ns),
        time_remaining=remaining_ns // MS,
        state=one.state.value,
        priority=None if message is None else PRIORITY_NAMES[message.priority],
        delay_key=content_of(one.delay_key, is_base64=is_base64),
        key=None if message is None else content_of(message.key, is_base64=is_base64),
        value=None if message is None else content_of(message.value, is_base64=is_base64),
        damage=None if one.damage is None else str(one.damage),
    )

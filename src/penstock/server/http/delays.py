"""Delayed messages: listed, looked at, cancelled, rescheduled; by their place or by a business key."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from ...api.delays import (
    FIRST_PLACE,
    CancelDelayed,
    DelayedId,
    DelayedMessage,
    DelayedPage,
    DelayPlace,
    DelayState,
    DelayStats,
    DescribeDelays,
    GetDelayed,
    ListDelayed,
    RescheduleDelayed,
)
from ...api.principals import Action
from ...api.publish import Published
from ...api.units import time_text
from ...broker.delaying import due_of
from ...broker.publishing import Answer as Stored
from ...delivery.wheel import WHEEL_COUNTS
from ...errors import BadRequest, NotFound, NotPending
from .paging import page_limit
from .requests import Request
from .responses import Answer, json_response
from .routing import Route, TopicIn
from .shapes import ContentOut, Int64, Strict, content_of, is_base64_wanted
from .times import Span, span_ms, time_ns

_MS = 1_000_000


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
    priority: int | None
    delay_key: ContentOut
    key: ContentOut
    value: ContentOut
    damage: str | None


class DelayedListOut(msgspec.Struct):
    """`count` is how many are on this page, `unreadable` how many of them are damaged."""

    messages: list[DelayedOut]
    count: int
    unreadable: int
    cursor: str | None


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


_EMPTY_WHEEL = (0,) * WHEEL_COUNTS
_MOVE = msgspec.json.Decoder(MoveIn)


def moments_of_first(
    request: Request, topic: str, results: Sequence[Stored]
) -> dict[int, int | None]:
    """For those that repeat an earlier message: when that one comes, by the index of the repeat."""
    repeats = {
        index: one
        for index, one in enumerate(results)
        if isinstance(one, Published) and one.is_duplicate
    }
    moments: dict[int, int | None] = dict.fromkeys(repeats)
    delayed = {index: one for index, one in repeats.items() if one.is_delayed}
    if delayed:
        node = request.node
        with suppress(NotFound):
            found = request.door.driver.look(
                lambda _now: {
                    index: due_of(node.partition(topic, one.partition), one.offset)
                    for index, one in delayed.items()
                }
            )
            moments.update(found)
    return moments


def due_ns(delay: Span | None, deliver_at: str | None, now_ns: int) -> int | None:
    """When a message is to come; None: at once."""
    if delay is not None and deliver_at is not None:
        raise BadRequest("give one of delay and deliver_at", field="delay")
    if deliver_at is not None:
        return max(1, time_ns("deliver_at", deliver_at))
    return None if delay is None else now_ns + span_ms("delay", delay) * _MS


def _delayed_out(request: Request, one: DelayedMessage, *, is_base64: bool) -> DelayedOut:
    message, remaining_ns = one.message, 0
    if one.state is DelayState.PENDING:
        remaining_ns = max(0, one.due_ns - request.door.driver.driver.clock.now_ns())
    return DelayedOut(
        topic=one.topic,
        partition=one.partition,
        offset=one.id,
        deliver_at=time_text(one.due_ns),
        deliver_at_too=time_text(one.due_ns),
        time_remaining=remaining_ns // _MS,
        state=one.state.value,
        priority=None if message is None else message.priority,
        delay_key=content_of(one.delay_key, is_base64=is_base64),
        key=None if message is None else content_of(message.key, is_base64=is_base64),
        value=None if message is None else content_of(message.value, is_base64=is_base64),
        damage=None if one.damage is None else str(one.damage),
    )


async def list_delayed(request: Request) -> Answer:
    asked, topic = request.query(DelayedQuery), request.params["topic"]
    is_base64, limit = is_base64_wanted(asked.encoding), page_limit(asked.limit)
    after = _cursor(asked.cursor)
    if asked.delay_key is not None:
        page = DelayedPage([await request.execute(GetDelayed(topic, asked.delay_key.encode()))])
    else:
        page = await request.execute(ListDelayed(topic, limit, after))
    shown = [_delayed_out(request, one, is_base64=is_base64) for one in page.messages]
    following = None if page.cursor is None else "-".join(map(str, page.cursor))
    unreadable = sum(one.damage is not None for one in shown)
    return json_response(DelayedListOut(shown, len(shown), unreadable, following))


def _cursor(written: str) -> DelayPlace:
    if not written:
        return FIRST_PLACE
    parts = written.split("-")
    if len(parts) != 3 or not all(
        one.isascii() and one.isdecimal() and len(one) < 20 for one in parts
    ):
        raise BadRequest("cursor is not one of ours", field="cursor")
    return DelayPlace(*map(int, parts))


async def get(request: Request) -> Answer:
    """The delayed message of the path; without a partition there, the first that has the offset."""
    return await _get(request, _of_path(request))


async def cancel(request: Request) -> Answer:
    return await _cancel(request, _of_path(request))


async def cancel_by_key(request: Request) -> Answer:
    return await _cancel(request, _of_query(request))


async def reschedule(request: Request) -> Answer:
    return await _reschedule(request, _of_path(request))


async def reschedule_by_key(request: Request) -> Answer:
    return await _reschedule(request, _of_query(request))


def _of_path(request: Request) -> DelayedId:
    partition = request.params.get("partition")
    return DelayedId(None if partition is None else int(partition), int(request.params["offset"]))


def _of_query(request: Request) -> bytes:
    return request.query(KeyQuery).delay_key.encode()


async def _get(request: Request, which: DelayedId) -> Answer:
    found = await request.execute(GetDelayed(request.params["topic"], which))
    return json_response(_delayed_out(request, found, is_base64=False))


async def _cancel(request: Request, which: DelayedId | bytes) -> Answer:
    found = await request.execute(CancelDelayed(request.params["topic"], which))
    return json_response(_delayed_out(request, found, is_base64=False))


async def _reschedule(request: Request, which: DelayedId | bytes) -> Answer:
    sent = await request.json(_MOVE)
    moment = due_ns(sent.delay, sent.deliver_at, request.door.driver.driver.clock.now_ns())
    if moment is None:
        raise BadRequest("give one of delay and deliver_at", field="delay")
    moved = await request.execute(RescheduleDelayed(request.params["topic"], which, moment))
    return json_response(_delayed_out(request, moved, is_base64=False))


async def stats(request: Request) -> Answer:
    found = await request.execute(DescribeDelays())
    by_topic = {
        topic: _stats_of_topic(partitions)
        for topic, partitions in found.items()
        if request.principal.reaches(topic) and any(one.size_bytes for one in partitions)
    }
    totals = {
        name: sum(one[name] for one in by_topic.values())
        for name in ("pending", "delivered", "cancelled", "expired", "lost")
    }
    wheels = (one["wheel"] for one in by_topic.values())
    wheel = [sum(level) for level in zip(_EMPTY_WHEEL, *wheels, strict=True)]
    return json_response(DelayStatsOut(**totals, wheel=wheel, by_topic=by_topic))


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


_TAG = "delay"
_LIST, _ONE = "/topics/{topic}/delayed", "/topics/{topic}/delayed/{partition}/{offset}"


def _route(method: str, path: str, call: Any, summary: str, **more: Any) -> Route:
    is_change = method != "GET"
    return Route(
        method=method,
        path=path,
        call=call,
        action=Action.CHANGE_DELAYED if is_change else Action.SEE_DELAYED,
        summary=summary,
        tag=_TAG,
        errors=(NotFound, NotPending) if is_change else (NotFound,),
        topic_in=TopicIn.PATH,
        **{"answer": DelayedOut, **more},
    )


ROUTES = (
    _route(
        "GET",
        _LIST,
        list_delayed,
        "Delayed messages, the next to come first",
        query=DelayedQuery,
        answer=DelayedListOut,
    ),
    _route("DELETE", _LIST, cancel_by_key, "Cancel by business key", query=KeyQuery),
    _route(
        "PATCH", _LIST, reschedule_by_key, "Reschedule by business key", query=KeyQuery, body=MoveIn
    ),
    _route("GET", _ONE, get, "A delayed message, also if it is finished"),
    _route("DELETE", _ONE, cancel, "Cancel; 409 once it has fired"),
    _route(
        "PATCH", _ONE, reschedule, "Deliver at another time; 409 once it has fired", body=MoveIn
    ),
    _route("GET", "/topics/{topic}/delayed/{offset}", get, "The first that has this offset"),
    Route(
        method="GET",
        path="/delay/stats",
        call=stats,
        action=Action.SEE_STATS,
        summary="How many messages wait for their time, and what became of others",
        tag=_TAG,
        answer=DelayStatsOut,
    ),
)

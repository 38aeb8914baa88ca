"""Delayed messages: listed, looked at, cancelled, rescheduled; by their place or by a business key."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from ...api.delays import (
    CancelDelayed,
    DelayedId,
    DelayedPage,
    DescribeDelays,
    GetDelayed,
    ListDelayed,
    RescheduleDelayed,
)
from ...api.json.delays import (
    DelayedListOut,
    DelayedOut,
    DelayedQuery,
    DelayStatsOut,
    KeyQuery,
    MoveIn,
    cursor_of,
    delay_stats_out,
    delayed_out,
    due_ns,
    next_out,
)
from ...api.json.messages import is_base64_wanted
from ...api.json.paging import page_limit
from ...api.principals import LOCAL, Action
from ...api.publish import Published, PublishOutcome
from ...delivery.timing_wheel import WHEEL_COUNTS
from ...errors import BadRequest, Damaged, NotFound, NotPending, OffsetOutOfRange
from .requests import Request
from .responses import Answer, json_response
from .routing import Route, TopicIn

_EMPTY_WHEEL = (0,) * WHEEL_COUNTS
_MOVE = msgspec.json.Decoder(MoveIn)


async def moments_of_first(
    request: Request, topic: str, results: Sequence[PublishOutcome]
) -> dict[int, int | None]:
    """For messages that repeat an earlier one: when that one comes, by the index of the repeat."""
    moments: dict[int, int | None] = {}
    for index, one in enumerate(results):
        if not isinstance(one, Published) or not one.is_duplicate:
            continue
        moments[index] = None
        if one.is_delayed:
            # The client published it, so it may know, whatever else its key is for.
            command = GetDelayed(topic, DelayedId(one.partition, one.offset))
            with suppress(NotFound, OffsetOutOfRange, Damaged):
                found = await request.app.driver.execute(command, LOCAL)
                moments[index] = found.due_ns or None
    return moments


async def list_delayed(request: Request) -> Answer:
    asked, topic = request.query(DelayedQuery), request.params["topic"]
    is_base64, limit = is_base64_wanted(asked.encoding), page_limit(asked.limit)
    after = cursor_of(asked.cursor)
    if asked.delay_key is not None:
        page = DelayedPage([await request.execute(GetDelayed(topic, asked.delay_key.encode()))])
    else:
        page = await request.execute(ListDelayed(topic, limit, after))
    now_ns = request.now_ns()
    shown = [delayed_out(one, now_ns, is_base64=is_base64) for one in page.messages]
    following = None if page.cursor is None else "-".join(map(str, page.cursor))
    unreadable = sum(one.damage is not None for one in shown)
    schedules = [*map(next_out, page.schedules)]
    return json_response(DelayedListOut(shown, len(shown), unreadable, following, schedules))


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
    return json_response(delayed_out(found, request.now_ns()))


async def _cancel(request: Request, which: DelayedId | bytes) -> Answer:
    found = await request.execute(CancelDelayed(request.params["topic"], which))
    return json_response(delayed_out(found, request.now_ns()))


async def _reschedule(request: Request, which: DelayedId | bytes) -> Answer:
    sent = request.json(_MOVE)
    moment = due_ns(sent.delay, sent.deliver_at, request.now_ns())
    if moment is None:
        raise BadRequest("give one of delay and deliver_at", field="delay")
    moved = await request.execute(RescheduleDelayed(request.params["topic"], which, moment))
    return json_response(delayed_out(moved, request.now_ns()))


async def stats(request: Request) -> Answer:
    found = await request.execute(DescribeDelays())
    reached = {topic: one for topic, one in found.items() if request.principal.reaches(topic)}
    return json_response(delay_stats_out(reached, _EMPTY_WHEEL))


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

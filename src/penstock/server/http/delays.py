"""Delayed messages: listed, looked at, cancelled, rescheduled; by their place or by a business key."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from ...api.principals import Action
from ...api.units import time_text
from ...broker.delaying import Waiting, describe, due_of, find_by_key
from ...broker.partition import Now, Partition, Published
from ...broker.publishing import Answer as Stored
from ...delivery.wheel import WHEEL_COUNTS
from ...errors import BadRequest, NotFound, NotPending, PartitionFaulty
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


def delayed_out(one: Waiting, now_ns: int, *, is_base64: bool) -> DelayedOut:
    message = one.message
    return DelayedOut(
        topic=one.topic,
        partition=one.partition,
        offset=one.id,
        deliver_at=time_text(one.due_ns),
        deliver_at_too=time_text(one.due_ns),
        time_remaining=max(0, one.due_ns - now_ns) // _MS if one.state.value == "PENDING" else 0,
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

    def look(now: Now) -> tuple[Sequence[Waiting], int]:
        if asked.delay_key is not None:
            return [request.node.delayed_find(topic, asked.delay_key.encode())], now.wall_ns
        return _behind(request, topic, after, limit + 1), now.wall_ns

    found, now_ns = request.door.driver.look(look)
    shown = [delayed_out(one, now_ns, is_base64=is_base64) for one in found[:limit]]
    following = "-".join(map(str, _place(found[limit - 1]))) if len(found) > limit else None
    unreadable = sum(one.damage is not None for one in shown)
    return json_response(DelayedListOut(shown, len(shown), unreadable, following))


def _place(one: Waiting) -> tuple[int, int, int]:
    return one.due_ns, one.partition, one.id


def _behind(
    request: Request, topic: str, after: tuple[int, int, int], wanted: int
) -> Sequence[Waiting]:
    """So many behind a place. Several may be due at the same time, so some of them are asked for once more."""
    asked = wanted
    while True:
        found = request.node.delayed(topic, limit=asked, after_ns=max(0, after[0] - 1))
        behind = [one for one in found if _place(one) > after]
        if len(behind) >= wanted or len(found) < asked:
            return behind[:wanted]
        asked *= 2


def _cursor(written: str) -> tuple[int, int, int]:
    if not written:
        return (0, 0, -1)
    parts = written.split("-")
    if len(parts) != 3 or not all(
        one.isascii() and one.isdecimal() and len(one) < 20 for one in parts
    ):
        raise BadRequest("cursor is not one of ours", field="cursor")
    return int(parts[0]), int(parts[1]), int(parts[2])


async def get(request: Request) -> Answer:
    topic, offset = request.params["topic"], int(request.params["offset"])
    number = int(request.params["partition"])
    return _shown(request, lambda _now: request.node.delayed_get(topic, number, offset))


async def find(request: Request) -> Answer:
    """The first partition that knows the offset."""
    topic, offset = request.params["topic"], int(request.params["offset"])

    def look(_now: Now) -> Waiting:
        for number in range(len(request.node.topic(topic).partitions)):
            try:
                return request.node.delayed_get(topic, number, offset)
            except (NotFound, PartitionFaulty):
                continue
        raise NotFound("delayed message", f"{topic}/{offset}")

    return _shown(request, look)


def _shown(request: Request, look: Any) -> Answer:
    one, now_ns = request.door.driver.look(lambda now: (look(now), now.wall_ns))
    return json_response(delayed_out(one, now_ns, is_base64=False))


async def cancel(request: Request) -> Answer:
    return await _change(request, _by_place(request), request.node.cancel_delayed)


async def cancel_by_key(request: Request) -> Answer:
    return await _change(request, _by_key(request), request.node.cancel_delayed)


async def reschedule(request: Request) -> Answer:
    return await _change(request, _by_place(request), await _move(request))


async def reschedule_by_key(request: Request) -> Answer:
    return await _change(request, _by_key(request), await _move(request))


def _by_place(request: Request) -> Callable[[], tuple[Partition, int]]:
    topic, number = request.params["topic"], int(request.params["partition"])
    return lambda: (request.node.partition(topic, number), int(request.params["offset"]))


def _by_key(request: Request) -> Callable[[], tuple[Partition, int]]:
    topic, key = request.params["topic"], request.query(KeyQuery).delay_key.encode()
    return lambda: find_by_key(request.node.topic(topic).partitions, key)


async def _move(request: Request) -> Callable[[str, int, int, Now], None]:
    """What gives a message the time that the client asks for."""
    sent = await request.json(_MOVE)
    driver = request.door.driver.driver
    moment = due_ns(sent.delay, sent.deliver_at, driver.clock.now_ns())
    if moment is None:
        raise BadRequest("give one of delay and deliver_at", field="delay")
    return lambda topic, number, identity, now: request.node.reschedule(
        topic, number, identity, moment, now
    )


async def _change(
    request: Request,
    place: Callable[[], tuple[Partition, int]],
    change: Callable[[str, int, int, Now], None],
) -> Answer:
    """Change a delayed message, also one that cannot be read, and show what it is now."""

    def run(now: Now) -> tuple[Waiting, int]:
        partition, identity = place()
        change(partition.topic, partition.number, identity, now)
        return describe(partition, identity), now.wall_ns

    one, now_ns = await request.door.driver.change(run)
    return json_response(delayed_out(one, now_ns, is_base64=False))


async def stats(request: Request) -> Answer:
    def look(_now: Now) -> dict[str, dict[str, Any]]:
        found = {}
        for topic in request.door.visible(request, sorted(request.node.open)):
            facts = request.node.delay_facts(topic)
            dues = [one.next_due_ns for one in facts if one.next_due_ns is not None]
            found[topic] = {
                "pending": sum(one.pending for one in facts),
                "delivered": sum(one.delivered for one in facts),
                "cancelled": sum(one.cancelled for one in facts),
                "expired": sum(one.expired for one in facts),
                "lost": sum(one.lost for one in facts),
                "unreadable": sum(one.unreadable for one in facts),
                "next": time_text(min(dues)) if dues else None,
                "wheel": [sum(level) for level in zip(*(one.wheel for one in facts), strict=True)],
                "size_bytes": sum(one.size_bytes for one in facts),
            }
        return {topic: one for topic, one in found.items() if one["size_bytes"]}

    by_topic = request.door.driver.look(look)
    totals = {
        name: sum(one[name] for one in by_topic.values())
        for name in ("pending", "delivered", "cancelled", "expired", "lost")
    }
    wheels = (one["wheel"] for one in by_topic.values())
    wheel = [sum(level) for level in zip(_EMPTY_WHEEL, *wheels, strict=True)]
    return json_response(DelayStatsOut(**totals, wheel=wheel, by_topic=by_topic))


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
    _route("GET", "/topics/{topic}/delayed/{offset}", find, "The first that has this offset"),
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

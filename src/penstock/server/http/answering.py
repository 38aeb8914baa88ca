"""Answers of whoever holds messages: by receipt, or by offset."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ...api.units import time_text
from ...broker import by_offset
from ...broker.answers import Receipted, Result
from ...broker.authorise import Command
from ...broker.letters import dead_letter_topic
from ...broker.partition import Now, Partition
from ...broker.received import Place, read_receipt
from ...errors import (
    BadRequest,
    NotFound,
    OffsetOutOfRange,
    PenstockError,
    Refused,
    StaleReceipt,
    TooLarge,
    WrongOwner,
)
from ...model import check_name
from .requests import Request, decode
from .responses import Answer, json_response, nothing
from .routing import Route, TopicIn
from .shapes import Int64, Strict
from .statuses import error_fields, error_response
from .times import Span, span_ms

_MS = 1_000_000
RECEIPTS_MAX = 100_000
REASON_CHARACTERS_MAX = 4096


class ReceiptsIn(Strict):
    """One receipt, or many."""

    receipt_handle: str | None = None
    receipt_handles: list[str] | None = None
    consumer_id: str | None = None


class NackIn(ReceiptsIn):
    """A failure: why, and how long to wait (the topic's backoff, if not said)."""

    reason: str = ""
    delay: Span | None = None


class RejectIn(ReceiptsIn):
    reason: str = ""


class ExtendIn(ReceiptsIn):
    """A new deadline, from now."""

    timeout: Span | None = None
    extension_seconds: float | None = None


class AckOut(msgspec.Struct, kw_only=True):
    """`committed_offset`: everything up to it is finished."""

    receipt_handle: str
    success: bool
    topic: str
    partition: int
    offset: int
    committed_offset: int
    offset_advanced: bool
    in_flight_count: int


class ManyOut(msgspec.Struct):
    """For many receipts: what one would get, or `success: false` with `error`, `message` and `status`."""

    results: list[dict[str, Any]]


class NackOut(msgspec.Struct, kw_only=True):
    receipt_handle: str
    success: bool
    topic: str
    partition: int
    offset: int
    action: str
    delivery_count: int
    next_visible_at: str | None
    dlq_topic: str | None


class ExtendOut(msgspec.Struct, kw_only=True):
    receipt_handle: str
    success: bool
    topic: str
    partition: int
    offset: int
    new_deadline: str


class OffsetAnswer(Strict):
    """A message by its place, in the query or as JSON. With `owner`, only if that one holds it."""

    topic: str
    group: str
    partition: Int64
    offset: Int64
    owner: str | None = None
    reason: str = ""


Shown = Callable[[Receipted, Now], Any]
Run = Callable[[Sequence[str], Now], list[Result]]

_ACK = msgspec.json.Decoder(ReceiptsIn)
_NACK = msgspec.json.Decoder(NackIn)
_REJECT = msgspec.json.Decoder(RejectIn)
_EXTEND = msgspec.json.Decoder(ExtendIn)
_OFFSET = msgspec.json.Decoder(OffsetAnswer)


async def ack(request: Request) -> Answer:
    """Finish messages."""
    sent = await request.json(_ACK)

    def run(receipts: Sequence[str], now: Now) -> list[Result]:
        return request.node.ack(receipts, now)

    return await respond(request, "ack", sent, run, ack_out)


async def nack(request: Request) -> Answer:
    """Failed: try again later, or give up if that was the last attempt."""
    sent = await request.json(_NACK)
    reason = checked_reason(sent.reason)
    delay_ms = None if sent.delay is None else span_ms("delay", sent.delay)

    def run(receipts: Sequence[str], now: Now) -> list[Result]:
        return request.node.nack(receipts, now, error=reason, delay_ms=delay_ms)

    return await respond(request, "nack", sent, run, nack_out)


async def reject(request: Request) -> Answer:
    """No attempt will ever succeed: a dead letter, at once."""
    sent = await request.json(_REJECT)
    reason = checked_reason(sent.reason)

    def run(receipts: Sequence[str], now: Now) -> list[Result]:
        return request.node.reject(receipts, now, error=reason)

    return await respond(request, "reject", sent, run, nack_out)


async def extend(request: Request) -> Answer:
    """Still working on it."""
    sent = await request.json(_EXTEND)
    if (sent.timeout is None) == (sent.extension_seconds is None):
        raise BadRequest("give one of timeout and extension_seconds", field="timeout")
    if sent.timeout is not None:
        duration_ms = span_ms("timeout", sent.timeout)
    else:
        duration_ms = span_ms("extension_seconds", (sent.extension_seconds or 0) * 1000)

    def run(receipts: Sequence[str], now: Now) -> list[Result]:
        return request.node.extend(receipts, now, duration_ms=duration_ms)

    def out(done: Receipted, now: Now) -> ExtendOut:
        return ExtendOut(
            receipt_handle=done.receipt,
            success=True,
            topic=done.topic,
            partition=done.partition,
            offset=done.offset,
            new_deadline=time_text(now.wall_ns + duration_ms * _MS),
        )

    return await respond(request, "extend", sent, run, out)


def checked_reason(reason: str) -> str:
    if len(reason) > REASON_CHARACTERS_MAX:
        raise TooLarge("reason in characters", found=len(reason), limit=REASON_CHARACTERS_MAX)
    return reason


async def respond(request: Request, kind: str, sent: ReceiptsIn, run: Run, out: Shown) -> Answer:
    """Run a command for the receipts and answer each: flat for one, a list for many."""
    receipts = receipts_of(sent)
    _allow_topics(request, receipts)
    driver = request.door.driver

    def command(now: Now) -> tuple[list[Result], Now]:
        return run(receipts, now), now

    results, now = await driver.change(command)
    request.door.traffic.count_answer(kind, len(results))
    if sent.receipt_handle is not None:
        (result,) = results
        return (
            error_response(result)
            if isinstance(result, PenstockError)
            else json_response(out(result, now))
        )
    shown = [
        {"receipt_handle": receipt[:300], "success": False, **error_fields(one)}
        if isinstance(one, PenstockError)
        else out(one, now)
        for receipt, one in zip(receipts, results, strict=True)
    ]
    return json_response({"results": shown})


def receipts_of(sent: ReceiptsIn) -> Sequence[str]:
    if (sent.receipt_handle is None) == (sent.receipt_handles is None):
        raise BadRequest("give one of receipt_handle and receipt_handles", field="receipt_handle")
    if sent.receipt_handle is not None:
        return [sent.receipt_handle]
    receipts = sent.receipt_handles or []
    if len(receipts) > RECEIPTS_MAX:
        raise TooLarge("receipts in one request", found=len(receipts), limit=RECEIPTS_MAX)
    if not receipts:
        raise BadRequest("receipt_handles is empty", field="receipt_handles")
    return receipts


def _places(receipts: Sequence[str]) -> set[Place]:
    places = set()
    for text in receipts:
        try:
            places.add(read_receipt(text).place)
        except Refused:
            continue  # It is answered on its own.
    return places


def _allow_topics(request: Request, receipts: Sequence[str]) -> None:
    if request.principal.prefixes:
        for topic in {place.topic for place in _places(receipts)}:
            request.allow(topic)


def ack_out(done: Receipted, _now: Now) -> AckOut:
    return AckOut(
        receipt_handle=done.receipt,
        success=True,
        topic=done.topic,
        partition=done.partition,
        offset=done.offset,
        committed_offset=done.floor - 1,
        offset_advanced=done.has_floor_moved,
        in_flight_count=done.in_flight,
    )


def nack_out(done: Receipted, now: Now) -> NackOut:
    is_dead = done.waits_ms is None and done.is_finished
    visible_ns = None if done.waits_ms is None else now.wall_ns + done.waits_ms * _MS
    return NackOut(
        receipt_handle=done.receipt,
        success=True,
        topic=done.topic,
        partition=done.partition,
        offset=done.offset,
        action="dlq" if is_dead else "requeued",
        delivery_count=done.attempts,
        next_visible_at=None if visible_ns is None else time_text(visible_ns),
        dlq_topic=dead_letter_topic(done.topic) if is_dead else None,
    )


async def ack_offset(request: Request) -> Answer:
    """Finish one message; repeated is fine, and late while no other consumer holds it."""

    def run(partition: Partition, asked: OffsetAnswer, now: Now) -> None:
        by_offset.ack(partition, asked.group, asked.offset, now, owner=asked.owner)

    return await _by_offset(request, "ack", run)


async def nack_offset(request: Request) -> Answer:
    """Give one message back as failed."""

    def run(partition: Partition, asked: OffsetAnswer, now: Now) -> None:
        reason = checked_reason(asked.reason)
        by_offset.nack(partition, asked.group, asked.offset, now, owner=asked.owner, error=reason)

    return await _by_offset(request, "nack", run)


async def ack_cumulative(request: Request) -> Answer:
    """Finish everything up to an offset, that one included."""

    def run(partition: Partition, asked: OffsetAnswer, now: Now) -> None:
        by_offset.ack_cumulative(partition, asked.group, asked.offset, now, owner=asked.owner)

    return await _by_offset(request, "ack", run)


async def _by_offset(
    request: Request, kind: str, run: Callable[[Partition, OffsetAnswer, Now], None]
) -> Answer:
    body = await request.body()
    asked = decode(body, _OFFSET) if body else request.query(OffsetAnswer)
    if asked.offset < 0:
        raise BadRequest(f"an offset is not negative, got {asked.offset}", field="offset")
    request.allow(asked.topic)
    check_name(asked.group, "group")
    driver = request.door.driver

    def command(now: Now) -> None:
        run(request.node.partition(asked.topic, asked.partition), asked, now)

    await driver.change(command)
    request.door.traffic.count_answer(kind, 1)
    return nothing()


_ERRORS = (NotFound, StaleReceipt)


def _by_receipt(name: str, call: Any, summary: str, body: type, answer: Any) -> Route:
    return Route(
        method="POST",
        path=f"/messages/{name}",
        call=call,
        command=Command.ANSWER,
        summary=summary,
        tag="answers",
        body=body,
        answer=answer,
        errors=_ERRORS,
        topic_in=TopicIn.REST,
    )


def _by_place(name: str, call: Any, summary: str) -> Route:
    return Route(
        method="POST",
        path=f"/{name}",
        call=call,
        command=Command.ANSWER,
        summary=summary,
        tag="answers",
        query=OffsetAnswer,
        body=OffsetAnswer,
        status=204,
        errors=(NotFound, OffsetOutOfRange, WrongOwner),
        topic_in=TopicIn.REST,
    )


ROUTES = (
    _by_receipt("ack", ack, "Finish messages", ReceiptsIn, AckOut | ManyOut),
    _by_receipt("nack", nack, "Failed: retry after a backoff", NackIn, NackOut | ManyOut),
    _by_receipt("reject", reject, "Failed for good: a dead letter", RejectIn, NackOut | ManyOut),
    _by_receipt("visibility", extend, "Set a new deadline from now", ExtendIn, ExtendOut | ManyOut),
    _by_place("ack", ack_offset, "Finish a message by its offset: 204 only if it counted"),
    _by_place("nack", nack_offset, "Give a message back by its offset: 204 only if it counted"),
    _by_place(
        "ack-cumulative",
        ack_cumulative,
        "Finish everything up to an offset: 204 only if it counted",
    ),
)

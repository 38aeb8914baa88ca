"""Answers of consumers for messages that they hold: by receipt, or by offset."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ...api.answers import Answer as Answers
from ...api.answers import (
    AnswerOffset,
    Kind,
    LeaseAnswer,
    LeaseOutcome,
    OffsetKind,
    TakeBack,
    by_lease,
    checked_reason,
)
from ...api.principals import Action
from ...api.receipts import Place, Receipt, read_receipt
from ...api.units import time_text
from ...broker.dead_letters import dead_letter_topic
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


_ACK = msgspec.json.Decoder(ReceiptsIn)
_NACK = msgspec.json.Decoder(NackIn)
_REJECT = msgspec.json.Decoder(RejectIn)
_EXTEND = msgspec.json.Decoder(ExtendIn)
_OFFSET = msgspec.json.Decoder(OffsetAnswer)


class _Answered(NamedTuple):
    """A receipt whose answer was taken, with the outcome of its lease."""

    text: str
    receipt: Receipt
    outcome: LeaseOutcome
    now_ns: int


Shown = Callable[[_Answered], Any]


async def ack(request: Request) -> Answer:
    """Finish messages."""
    return await respond(request, await request.json(_ACK), Kind.ACK, ack_out)


async def nack(request: Request) -> Answer:
    """Failed: try again later, or give up if that was the last attempt."""
    sent = await request.json(_NACK)
    delay_ms = None if sent.delay is None else span_ms("delay", sent.delay)
    reason = checked_reason(sent.reason)
    return await respond(request, sent, Kind.NACK, nack_out, reason=reason, ms=delay_ms)


async def reject(request: Request) -> Answer:
    """No attempt will ever succeed: a dead letter, at once."""
    sent = await request.json(_REJECT)
    reason = checked_reason(sent.reason)
    return await respond(request, sent, Kind.REJECT, nack_out, reason=reason)


async def extend(request: Request) -> Answer:
    """Still working on it."""
    sent = await request.json(_EXTEND)
    if (sent.timeout is None) == (sent.extension_seconds is None):
        raise BadRequest("give one of timeout and extension_seconds", field="timeout")
    if sent.timeout is not None:
        duration_ms = span_ms("timeout", sent.timeout)
    else:
        duration_ms = span_ms("extension_seconds", (sent.extension_seconds or 0) * 1000)

    def out(done: _Answered) -> ExtendOut:
        return ExtendOut(
            receipt_handle=done.text,
            success=True,
            topic=done.receipt.place.topic,
            partition=done.receipt.place.partition,
            offset=done.receipt.offset,
            new_deadline=time_text(done.now_ns + duration_ms * _MS),
        )

    return await respond(request, sent, Kind.EXTEND, out, ms=duration_ms)


async def respond(
    request: Request,
    sent: ReceiptsIn,
    kind: Kind,
    out: Shown,
    *,
    reason: str = "",
    ms: int | None = None,
) -> Answer:
    """Answer for messages by their receipts and say what came of each: flat for one, a list for many."""
    texts = receipts_of(sent)
    receipts = [_receipt_or_error(text) for text in texts]
    leases = by_lease([one for one in receipts if isinstance(one, Receipt)])
    answers = [
        LeaseAnswer(kind, *place, lease, offsets, reason, ms)
        for (place, lease), offsets in leases.items()
    ]
    is_admin = request.action is Action.CHANGE_GROUP
    outcomes = await request.execute(TakeBack(answers) if is_admin else Answers(answers))
    request.door.traffic.count_answer(kind.value, len(texts))
    now_ns = request.door.driver.driver.clock.now_ns()
    by_place = dict(zip(leases, outcomes, strict=True))
    results = [
        _result(text, receipt, by_place, now_ns)
        for text, receipt in zip(texts, receipts, strict=True)
    ]
    if sent.receipt_handle is not None:
        (result,) = results
        return (
            error_response(result)
            if isinstance(result, PenstockError)
            else json_response(out(result))
        )
    shown = [
        {"receipt_handle": text[:300], "success": False, **error_fields(one)}
        if isinstance(one, PenstockError)
        else out(one)
        for text, one in zip(texts, results, strict=True)
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


def _receipt_or_error(text: str) -> Receipt | Refused:
    try:
        return read_receipt(text)
    except Refused as error:
        return error


def _result(
    text: str,
    receipt: Receipt | Refused,
    outcomes: Mapping[tuple[Place, int], LeaseOutcome | PenstockError],
    now_ns: int,
) -> _Answered | PenstockError:
    if isinstance(receipt, Refused):
        return receipt
    outcome = outcomes[receipt.place, receipt.lease]
    if isinstance(outcome, PenstockError):
        return outcome
    place, offset = receipt.place, receipt.offset
    if offset in outcome.missing:
        return NotFound("message", f"{place.topic}/{place.partition}/{offset}")
    if offset in outcome.stale:
        return StaleReceipt(text)
    return _Answered(text, receipt, outcome, now_ns)


def ack_out(done: _Answered) -> AckOut:
    return AckOut(
        receipt_handle=done.text,
        success=True,
        topic=done.receipt.place.topic,
        partition=done.receipt.place.partition,
        offset=done.receipt.offset,
        committed_offset=done.outcome.floor - 1,
        offset_advanced=done.outcome.has_floor_moved,
        in_flight_count=done.outcome.in_flight,
    )


def nack_out(done: _Answered) -> NackOut:
    topic, offset = done.receipt.place.topic, done.receipt.offset
    retry_ms = done.outcome.retry_in_ms.get(offset)
    is_dead = retry_ms is None and offset in done.outcome.finished
    return NackOut(
        receipt_handle=done.text,
        success=True,
        topic=topic,
        partition=done.receipt.place.partition,
        offset=offset,
        action="dlq" if is_dead else "requeued",
        delivery_count=done.receipt.attempts,
        next_visible_at=None if retry_ms is None else time_text(done.now_ns + retry_ms * _MS),
        dlq_topic=dead_letter_topic(topic) if is_dead else None,
    )


async def ack_offset(request: Request) -> Answer:
    """Finish one message; repeated is fine, and late while no other consumer holds it."""
    return await _by_offset(request, OffsetKind.ACK)


async def nack_offset(request: Request) -> Answer:
    """Give one message back as failed."""
    return await _by_offset(request, OffsetKind.NACK)


async def ack_cumulative(request: Request) -> Answer:
    """Finish everything up to an offset, that one included."""
    return await _by_offset(request, OffsetKind.ACK_UP_TO)


async def _by_offset(request: Request, kind: OffsetKind) -> Answer:
    body = await request.body()
    asked = decode(body, _OFFSET) if body else request.query(OffsetAnswer)
    if asked.offset < 0:
        raise BadRequest(f"an offset is not negative, got {asked.offset}", field="offset")
    await request.execute(
        AnswerOffset(
            kind,
            asked.topic,
            asked.partition,
            check_name(asked.group, "group"),
            asked.offset,
            asked.owner,
            checked_reason(asked.reason),
        )
    )
    request.door.traffic.count_answer("nack" if kind is OffsetKind.NACK else "ack", 1)
    return nothing()


_ERRORS = (NotFound, StaleReceipt)


def _by_receipt(name: str, call: Any, summary: str, body: type, answer: Any) -> Route:
    return Route(
        method="POST",
        path=f"/messages/{name}",
        call=call,
        action=Action.ANSWER,
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
        action=Action.ANSWER,
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

"""Answers of consumers for messages that they hold: by receipt, or by offset."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ...api.answers import Answer as Answers
from ...api.answers import (
    AnswerOffset,
    Kind,
    LeaseAnswer,
    LeaseOutcome,
    OffsetKind,
    ReceiptsByLease,
    TakeBack,
    checked_reason,
    decode_answers,
    stale_receipt,
)
from ...api.json.answers import (
    AckOut,
    Answered,
    AnsweredOut,
    ExtendIn,
    ExtendOut,
    ManyOut,
    NackIn,
    NackOut,
    OffsetAnswer,
    ReceiptsIn,
    RejectIn,
    ack_out,
    receipt_or_error,
    receipts_of,
    result_of,
)
from ...api.json.reading import decode
from ...api.json.times import span_ms
from ...api.principals import Action
from ...api.receipts import Receipt
from ...api.units import time_text
from ...broker.partition.dead_letters import dead_letter_topic
from ...errors import (
    BadRequest,
    MalformedBatch,
    NotFound,
    OffsetOutOfRange,
    PenstockError,
    Refused,
    StaleReceipt,
    TooLarge,
    WrongOwner,
)
from ...model import check_name
from .requests import NoQuery, Request
from .responses import BATCH, Answer, json_response, nothing
from .routing import Route, TopicIn
from .statuses import error_fields, error_response

_MS = 1_000_000


_ACK = msgspec.json.Decoder(ReceiptsIn)
_NACK = msgspec.json.Decoder(NackIn)
_REJECT = msgspec.json.Decoder(RejectIn)
_EXTEND = msgspec.json.Decoder(ExtendIn)
_OFFSET = msgspec.json.Decoder(OffsetAnswer)


Shown = Callable[[Answered], Any]


async def ack(request: Request) -> Answer:
    """Finish messages."""
    return await respond(request, request.json(_ACK), Kind.ACK, ack_out)


async def nack(request: Request) -> Answer:
    """Failed: try again later, or give up if that was the last attempt."""
    sent = request.json(_NACK)
    delay_ms = None if sent.delay is None else span_ms("delay", sent.delay)
    reason = checked_reason(sent.reason)
    return await respond(request, sent, Kind.NACK, nack_out, reason=reason, ms=delay_ms)


async def reject(request: Request) -> Answer:
    """No attempt will ever succeed: a dead letter, at once."""
    sent = request.json(_REJECT)
    reason = checked_reason(sent.reason)
    return await respond(request, sent, Kind.REJECT, nack_out, reason=reason)


async def extend(request: Request) -> Answer:
    """Still working on it."""
    sent = request.json(_EXTEND)
    if (sent.timeout is None) == (sent.extension_seconds is None):
        raise BadRequest("give one of timeout and extension_seconds", field="timeout")
    if sent.timeout is not None:
        duration_ms = span_ms("timeout", sent.timeout)
    else:
        duration_ms = span_ms("extension_seconds", (sent.extension_seconds or 0) * 1000)

    def out(done: Answered) -> ExtendOut:
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
    receipts, by_lease = list[Receipt | Refused](), ReceiptsByLease()
    async for piece in request.pieces(texts):
        read = [receipt_or_error(text) for text in piece]
        by_lease.add([receipt for receipt in read if isinstance(receipt, Receipt)])
        receipts += read
    by_lease.require_within_bounds()
    leases = by_lease.answers(kind, reason, ms)
    answers = [*leases.values()]
    is_admin = request.action is Action.CHANGE_GROUP
    outcomes = await request.execute(TakeBack(answers) if is_admin else Answers(answers))
    now_ns = request.now_ns()
    by_place = dict(zip(leases, outcomes, strict=True))
    if sent.receipt_handle is not None:
        result = result_of(sent.receipt_handle, receipts[0], by_place, now_ns)
        return (
            error_response(result)
            if isinstance(result, PenstockError)
            else json_response(out(result))
        )
    shown: list[object] = []
    async for pairs in request.pieces([*zip(texts, receipts, strict=True)]):
        for text, receipt in pairs:
            result = result_of(text, receipt, by_place, now_ns)
            shown.append(
                {"receipt_handle": text[:300], "success": False, **error_fields(result)}
                if isinstance(result, PenstockError)
                else out(result)
            )
    return json_response({"results": shown})


def nack_out(done: Answered) -> NackOut:
    topic, offset = done.receipt.place.topic, done.receipt.offset
    retry_ms = done.outcome.retry_in_ms.get(offset)
    is_dead = retry_ms is None and offset in done.outcome.finished
    action = done.outcome.given_up if is_dead else "requeued"
    return NackOut(
        receipt_handle=done.text,
        success=True,
        topic=topic,
        partition=done.receipt.place.partition,
        offset=offset,
        action=action,
        delivery_count=done.receipt.attempts,
        next_visible_at=None if retry_ms is None else time_text(done.now_ns + retry_ms * _MS),
        dlq_topic=dead_letter_topic(topic) if action == "dlq" else None,
    )


async def answer_in_columns(request: Request) -> Answer:
    """Acks, nacks, rejects, extends and messages given back, in their order."""
    if request.content_type != BATCH:
        raise BadRequest(f"content-type must be {BATCH.decode()}")
    answers = decode_answers(request.body)
    for one in answers:
        checked_reason(one.reason)
    outcomes = await request.execute(Answers(answers))
    failed: list[dict[str, Any]] = []
    for one, outcome in zip(answers, outcomes, strict=True):
        async for offsets in request.pieces(_failed(one, outcome)):
            failed += [
                {"topic": one.topic, "partition": one.partition, "offset": offset}
                | error_fields(_failure(one, outcome, offset))
                for offset in offsets
            ]
    count = sum(len(one.offsets) for one in answers) - len(failed)
    return json_response(AnsweredOut(count, failed))


def _failed(said: LeaseAnswer, outcome: LeaseOutcome | PenstockError) -> Sequence[int]:
    """Offsets whose answer was not taken."""
    if isinstance(outcome, PenstockError):
        return said.offsets
    return [*outcome.stale, *outcome.missing]


def _failure(
    said: LeaseAnswer, outcome: LeaseOutcome | PenstockError, offset: int
) -> PenstockError:
    """Why the answer for an offset was not taken."""
    if isinstance(outcome, PenstockError):
        return outcome
    if offset in outcome.stale:
        return stale_receipt(said, offset)
    return NotFound("message", f"{said.topic}/{said.partition}/{offset}")


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
    body = request.body
    if body:
        # All of it is in the body, and nothing beside it in the query.
        request.query(NoQuery)
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
    Route(
        method="POST",
        path="/messages/answers",
        call=answer_in_columns,
        action=Action.ANSWER,
        summary="Answer for many messages in columns; each that failed is listed",
        tag="answers",
        other_bodies={BATCH.decode(): "docs/formats/answers.md"},
        answer=AnsweredOut,
        errors=(MalformedBatch, TooLarge),
        topic_in=TopicIn.REST,
    ),
)

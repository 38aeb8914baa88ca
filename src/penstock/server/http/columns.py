"""Answers to many messages in one request, in columns: what our own clients send."""

from collections.abc import Iterator
from typing import Any

import msgspec

from ...api.answers import Answer as Answers
from ...api.answers import (
    LeaseAnswer,
    LeaseOutcome,
    checked_reason,
    decode_answers,
    stale_receipt,
)
from ...api.principals import Action
from ...errors import BadRequest, MalformedBatch, NotFound, PenstockError, TooLarge
from .requests import Request
from .responses import BATCH, Answer, json_response
from .routing import Route, TopicIn
from .statuses import error_fields


class AnsweredOut(msgspec.Struct):
    """How many messages were answered; the others with `error`, `message` and `status`."""

    answered: int
    failed: list[dict[str, Any]]


async def answer(request: Request) -> Answer:
    """Acks, nacks, rejects, extends and messages given back, in their order."""
    if request.content_type != BATCH:
        raise BadRequest(f"content-type must be {BATCH.decode()}")
    answers = decode_answers(await request.body())
    for one in answers:
        checked_reason(one.reason)
    outcomes = await request.execute(Answers(answers))
    for one in answers:
        request.door.traffic.count_answer(one.kind.value, len(one.offsets))
    failed = [
        {"topic": one.topic, "partition": one.partition, "offset": offset} | error_fields(error)
        for one, outcome in zip(answers, outcomes, strict=True)
        for offset, error in _failures(one, outcome)
    ]
    count = sum(len(one.offsets) for one in answers) - len(failed)
    return json_response(AnsweredOut(count, failed))


def _failures(
    said: LeaseAnswer, outcome: LeaseOutcome | PenstockError
) -> Iterator[tuple[int, PenstockError]]:
    """Offsets whose answer was not taken, and why."""
    if isinstance(outcome, PenstockError):
        yield from ((offset, outcome) for offset in said.offsets)
        return
    yield from ((offset, stale_receipt(said, offset)) for offset in outcome.stale)
    for offset in outcome.missing:
        yield offset, NotFound("message", f"{said.topic}/{said.partition}/{offset}")


ROUTES = (
    Route(
        method="POST",
        path="/messages/answers",
        call=answer,
        action=Action.ANSWER,
        summary="Answer for many messages in columns; each that failed is listed",
        tag="answers",
        other_bodies={BATCH.decode(): "docs/formats/answers.md"},
        answer=AnsweredOut,
        errors=(MalformedBatch, TooLarge),
        topic_in=TopicIn.REST,
    ),
)

"""Answers to many messages in one request, in columns: what our own clients send."""

from typing import Any

import msgspec

from ...broker.authorise import Command
from ...broker.column_answers import Failure, answer_columns
from ...broker.partition import Now
from ...codec.answers import decode_answers
from ...errors import BadRequest, MalformedBatch, TooLarge
from .answering import checked_reason
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
    for topic in {one.topic for one in answers}:
        request.allow(topic)
    for one in answers:
        checked_reason(one.reason)

    def run(now: Now) -> tuple[int, list[Failure]]:
        return answer_columns(request.node.partition, answers, now)

    count, failures = await request.door.driver.change(run)
    for one in answers:
        request.door.traffic.count_answer(one.kind.value, len(one.offsets))
    failed = [
        {"topic": one.topic, "partition": one.partition, "offset": one.offset}
        | error_fields(one.error)
        for one in failures
    ]
    return json_response(AnsweredOut(count, failed))


ROUTES = (
    Route(
        method="POST",
        path="/messages/answers",
        call=answer,
        command=Command.ANSWER,
        summary="Answer for many messages in columns; each that failed is listed",
        tag="answers",
        other_bodies={BATCH.decode(): "docs/formats/answers.md"},
        answer=AnsweredOut,
        errors=(MalformedBatch, TooLarge),
        topic_in=TopicIn.REST,
    ),
)

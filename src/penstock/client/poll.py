"""Calls of a group's members: poll and the four answers."""

from collections.abc import Iterable, Sequence
from secrets import token_hex
from typing import Any, NamedTuple

import msgspec

from ..api.arguments import text
from ..api.units import Duration, duration_s
from ..errors import PenstockError, Refused
from .ack_batcher import reason_text
from .calls import (
    ACCEPT_BATCH,
    Call,
    path_of,
    reader,
    send,
    span,
    with_query,
)
from .failures import rebuilt
from .leased_messages import Polled, Received, read_polled
from .wire import Answer

Receipts = Received | str | Iterable[Received | str]
"""A leased message, its receipt, or several of either."""


class AnswerResult(msgspec.Struct, frozen=True):
    """What became of one receipt. `action` of a nack: requeued or dlq."""

    receipt: str = msgspec.field(name="receipt_handle")
    topic: str = ""
    partition: int = -1
    offset: int = -1
    action: str = ""
    next_visible_at: str | None = None
    new_deadline: str | None = None


class _Results(msgspec.Struct):
    results: list[dict[str, Any]]


class PollRequest(NamedTuple):
    """A poll of a shared group."""

    topic: str
    group: str
    limit: int = 100
    timeout: Duration = 0
    owner: str | None = None
    visibility_timeout: Duration | None = None
    priority: str | None = None


def poll(asked: PollRequest) -> Call[Polled[Received]]:
    """Repeated because its answer was lost, it brings the same messages, and no attempt counts."""
    fields = {
        "group": text("the name of a group", asked.group),
        "max": asked.limit,
        "timeout": span(asked.timeout, "timeout"),
        "owner": None if asked.owner is None else text("the name of an owner", asked.owner),
        "visibility_timeout": None
        if asked.visibility_timeout is None
        else span(asked.visibility_timeout, "visibility_timeout"),
        "priority": asked.priority,
        "request_id": token_hex(8),
    }
    target = with_query(path_of("topics", asked.topic, "messages"), fields)
    return Call("GET", target, read_polled, b"", ACCEPT_BATCH, wait_s=duration_s(asked.timeout))


def receipts_of(held: Receipts) -> list[str]:
    if isinstance(held, str):
        return [held]
    if isinstance(held, Received):
        return [held.receipt]
    if isinstance(held, Polled):
        return held.receipts()
    try:
        return [one if isinstance(one, str) else one.receipt for one in held]
    except (AttributeError, TypeError):
        raise Refused("an answer is for messages that a poll returned, or their receipts") from None


def _answers(verb: str, receipts: Sequence[str], fields: dict[str, object]) -> Call[Any]:
    body = {"receipt_handles": receipts, **fields}
    call = send("POST", f"/messages/{verb}", body, _Results, is_repeatable=verb in _REPEATABLE)
    return Call(call.method, call.target, _results, call.body, call.headers, call.is_repeatable)


# A nack that arrives twice finds its lease over, which would look like a failure.
_REPEATABLE = frozenset({"ack", "visibility"})
_read_results = reader(_Results)


def _results(answer: Answer) -> list[AnswerResult | PenstockError]:
    return [
        msgspec.convert(one, AnswerResult) if one.get("success") else rebuilt(one)
        for one in _read_results(answer).results
    ]


Results = list[AnswerResult | PenstockError]


def ack(receipts: Sequence[str]) -> Call[Results]:
    return _answers("ack", receipts, {})


def nack(receipts: Sequence[str], reason: str, delay: Duration | None) -> Call[Results]:
    fields: dict[str, object] = {"reason": reason_text(reason)}
    if delay is not None:
        fields["delay"] = span(delay, "delay")
    return _answers("nack", receipts, fields)


def reject(receipts: Sequence[str], reason: str) -> Call[Results]:
    return _answers("reject", receipts, {"reason": reason_text(reason)})


def extend(receipts: Sequence[str], timeout: Duration) -> Call[Results]:
    return _answers("visibility", receipts, {"timeout": span(timeout, "timeout")})


def all_or_first_error(results: Results) -> list[AnswerResult]:
    """The results if all are good; otherwise the first error is raised."""
    for one in results:
        if isinstance(one, PenstockError):
            raise one
    return results  # type: ignore[return-value]  # No errors among them, as was just seen.

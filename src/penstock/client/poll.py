"""The calls of a shared group without a consumer: poll and the four answers, by receipt."""

from collections.abc import Iterable, Sequence
from secrets import token_hex

import msgspec

from ..api.arguments import text
from ..api.units import Duration, duration_s
from ..errors import PenstockError, Refused
from .calls import ACCEPT_BATCH, JSON_TYPE, Call, as_json, path_of, results_of, span, with_query
from .failures import rebuilt
from .leased_messages import Polled, Received, parts_of, reason_text
from .wire import Answer

Receipts = Received | str | Iterable[Received | str]
"""A leased message, its receipt, or several of either."""


class AnswerResult(msgspec.Struct, frozen=True):
    """The result of an answer to one message. `action` of a nack: requeued or dlq."""

    receipt: str = msgspec.field(name="receipt_handle")
    topic: str = ""
    partition: int = -1
    offset: int = -1
    action: str = ""
    next_visible_at: str | None = None
    new_deadline: str | None = None


def poll(
    topic: str,
    group: str,
    *,
    limit: int,
    timeout: Duration,
    owner: str,
    visibility_timeout: Duration | None,
    priority: str | None,
) -> Call[Polled[Received]]:
    """Repeated because its answer was lost, it brings the messages of the first time, and no attempt counts."""
    fields = {
        "group": text("the name of a group", group),
        "max": limit,
        "timeout": span(timeout, "timeout"),
        "owner": text("the name of an owner", owner),
        "visibility_timeout": None
        if visibility_timeout is None
        else span(visibility_timeout, "visibility_timeout"),
        "priority": priority,
        "request_id": token_hex(8),
    }
    target = with_query(path_of("topics", topic, "messages"), fields)
    return Call("GET", target, _read_polled, b"", ACCEPT_BATCH, wait_s=duration_s(timeout))


def _read_polled(answer: Answer) -> Polled[Received]:
    return Polled(parts_of(answer), Received)


def receipts_of(held: Receipts) -> list[str]:
    """The receipts of messages. Refused if one is no message, and no receipt."""
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


def _answers(verb: str, receipts: Sequence[str], **fields: object) -> "Call[Results]":
    body = as_json({"receipt_handles": receipts, **fields})
    # A second nack finds its lease over, which would look like a failure.
    is_repeatable = verb in {"ack", "visibility"}
    return Call("POST", f"/messages/{verb}", _read_results, body, JSON_TYPE, is_repeatable)


def _read_results(answer: Answer) -> "Results":
    return [
        msgspec.convert(one, AnswerResult) if one.get("success") else rebuilt(one)
        for one in results_of(answer)
    ]


Results = list[AnswerResult | PenstockError]


def ack(receipts: Sequence[str]) -> Call[Results]:
    return _answers("ack", receipts)


def nack(receipts: Sequence[str], reason: str, delay: Duration | None) -> Call[Results]:
    delays = {} if delay is None else {"delay": span(delay, "delay")}
    return _answers("nack", receipts, reason=reason_text(reason), **delays)


def reject(receipts: Sequence[str], reason: str) -> Call[Results]:
    return _answers("reject", receipts, reason=reason_text(reason))


def extend(receipts: Sequence[str], timeout: Duration) -> Call[Results]:
    return _answers("visibility", receipts, timeout=span(timeout, "timeout"))


def all_or_first_error(results: Results) -> list[AnswerResult]:
    """The results; raises the first error among them."""
    for one in results:
        if isinstance(one, PenstockError):
            raise one
    return results  # type: ignore[return-value]  # There are no errors among them.

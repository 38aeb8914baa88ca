"""Answers by receipt: what is sent for them, and what became of each message."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ..api.answers import Answer, Kind, LeaseAnswer, LeaseOutcome, answers_of, stale_receipt
from ..api.receipts import Place, Receipt, read_receipt
from ..api.units import time_text
from ..errors import NotFound, PenstockError, Refused, StaleReceipt
from .leased_messages import DetachedMessage, Polled, Received

Receipts = Received | DetachedMessage | str | Iterable[Received | DetachedMessage | str]
"""A leased message, its receipt, or several of either."""

_MS_NS = 1_000_000


class AnswerResult(msgspec.Struct, frozen=True):
    """The result of an answer to one message. `action` of a nack: requeued, dlq, dropped (the topic keeps no
    dead letters) or kept (it is a dead letter, and stays one)."""

    receipt: str
    topic: str = ""
    partition: int = -1
    offset: int = -1
    action: str = ""
    next_visible_at: str | None = None
    new_deadline: str | None = None


Results = list[AnswerResult | PenstockError]


def receipts_of(held: Receipts) -> list[str]:
    """The receipts of messages. Refused if one is no message, and no receipt."""
    if isinstance(held, str):
        return [held]
    if isinstance(held, Received | DetachedMessage):
        return [held.receipt]
    if isinstance(held, Polled):
        return held.receipts()
    try:
        return [one if isinstance(one, str) else one.receipt for one in held]
    except (AttributeError, TypeError):
        raise Refused("an answer is for messages that a poll returned, or their receipts") from None


class ReceiptAnswers:
    """One answer to many messages, by their receipts."""

    def __init__(
        self, kind: Kind, receipts: Sequence[str], reason: str = "", ms: int | None = None
    ) -> None:
        self._kind, self._texts, self._ms = kind, receipts, ms
        self._receipts = [_receipt_or_error(text) for text in receipts]
        read = [one for one in self._receipts if isinstance(one, Receipt)]
        self._leases = answers_of(read, kind, reason, ms)

    def command(self) -> Answer:
        return Answer([*self._leases.values()])

    def results(self, outcomes: list[LeaseOutcome | PenstockError], now_ns: int) -> "Results":
        """A result or an error for each receipt, in their order."""
        by_place = dict(zip(self._leases, outcomes, strict=True))
        return [
            self._result(text, receipt, by_place, now_ns)
            for text, receipt in zip(self._texts, self._receipts, strict=True)
        ]

    def _result(
        self,
        text: str,
        receipt: Receipt | Refused,
        outcomes: Mapping[tuple[Place, int], LeaseOutcome | PenstockError],
        now_ns: int,
    ) -> AnswerResult | PenstockError:
        if isinstance(receipt, Refused):
            return receipt
        outcome = outcomes[receipt.place, receipt.lease]
        if isinstance(outcome, PenstockError):
            return outcome
        (topic, partition, _), offset = receipt.place, receipt.offset
        if offset in outcome.missing:
            return NotFound("message", f"{topic}/{partition}/{offset}")
        if offset in outcome.stale:
            return StaleReceipt(text)
        action, next_visible_at, new_deadline = "", None, None
        if self._kind is Kind.EXTEND:
            new_deadline = time_text(now_ns + (self._ms or 0) * _MS_NS)
        elif self._kind is not Kind.ACK:
            retry_ms = outcome.retry_in_ms.get(offset)
            is_dead = retry_ms is None and offset in outcome.finished
            action = outcome.given_up if is_dead else "requeued"
            next_visible_at = None if retry_ms is None else time_text(now_ns + retry_ms * _MS_NS)
        return AnswerResult(text, topic, partition, offset, action, next_visible_at, new_deadline)


def _receipt_or_error(text: str) -> Receipt | Refused:
    try:
        return read_receipt(text)
    except Refused as error:
        return error


def all_or_first_error(results: Results) -> list[AnswerResult]:
    """The results; raises the first error among them."""
    for one in results:
        if isinstance(one, PenstockError):
            raise one
    return results  # type: ignore[return-value]  # There are no errors among them.


def refusals_of(
    answers: Sequence[LeaseAnswer], outcomes: Sequence[LeaseOutcome | PenstockError]
) -> list[PenstockError]:
    """Why some messages of these answers were refused; topic, partition and offset are in the fields of each."""
    found: list[PenstockError] = []
    for answer, outcome in zip(answers, outcomes, strict=True):
        if isinstance(outcome, PenstockError):
            found += [_at(answer, offset, outcome) for offset in answer.offsets]
            continue
        found += [_at(answer, one, stale_receipt(answer, one)) for one in sorted(outcome.stale)]
        for one in sorted(outcome.missing):
            missing = NotFound("message", f"{answer.topic}/{answer.partition}/{one}")
            found.append(_at(answer, one, missing))
    return found


def _at(answer: LeaseAnswer, offset: int, error: PenstockError) -> PenstockError:
    """The error, with its place among the fields; one error may stand for many messages."""
    own = type(error).__new__(type(error))
    PenstockError.__init__(own, str(error), **error.fields)
    own.fields.update(topic=answer.topic, partition=answer.partition, offset=offset)
    return own

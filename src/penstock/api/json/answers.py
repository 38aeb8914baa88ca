"""Answers of consumers as JSON: receipts and offsets in, what came of them out."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ...errors import BadRequest, NotFound, PenstockError, Refused, StaleReceipt, TooLarge
from ..answers import LeaseOutcome
from ..receipts import Place, Receipt, read_receipt
from .messages import Int64, Strict
from .times import Span

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


class AnsweredOut(msgspec.Struct):
    """How many messages were answered; the others with `error`, `message` and `status`."""

    answered: int
    failed: list[dict[str, Any]]


class OffsetAnswer(Strict):
    """A message by its place, in the query or as JSON. With `owner`, only if that one holds it."""

    topic: str
    group: str
    partition: Int64
    offset: Int64
    owner: str | None = None
    reason: str = ""


class Answered(NamedTuple):
    """A receipt whose answer was taken, with the outcome of its lease."""

    text: str
    receipt: Receipt
    outcome: LeaseOutcome
    now_ns: int


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


def receipt_or_error(text: str) -> Receipt | Refused:
    try:
        return read_receipt(text)
    except Refused as error:
        return error.fresh()


def result_of(
    text: str,
    receipt: Receipt | Refused,
    outcomes: Mapping[tuple[Place, int], LeaseOutcome | PenstockError],
    now_ns: int,
) -> Answered | PenstockError:
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
    return Answered(text, receipt, outcome, now_ns)


def ack_out(done: Answered) -> AckOut:
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

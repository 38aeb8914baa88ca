"""Answers and offsets inside of transactions as JSON."""

import msgspec

from .answers import NackIn, ReceiptsIn, RejectIn
from .groups import CommitIn
from .messages import Int64


class AckInTransactionIn(ReceiptsIn, kw_only=True):
    """Receipts, and the session of the producer whose transaction acks them."""

    producer_id: Int64
    epoch: Int64


class NackInTransactionIn(NackIn, kw_only=True):
    """Receipts, why and for how long they are put off, and the session of the producer."""

    producer_id: Int64
    epoch: Int64


class RejectInTransactionIn(RejectIn, kw_only=True):
    """Receipts, why they are rejected, and the session of the producer."""

    producer_id: Int64
    epoch: Int64


class OffsetsInTransactionIn(CommitIn, kw_only=True):
    """By topic and partition the offset below which everything is finished with the commit, for one group."""

    producer_id: Int64
    epoch: Int64
    group: str


class AnswersStagedOut(msgspec.Struct):
    """How many messages belong to the transaction, or the staging, now, until it ends."""

    staged: bool
    count: int


class OffsetsStagedOut(msgspec.Struct):
    """The offsets that the transaction commits."""

    staged: bool
    group: str
    offsets: dict[str, dict[str, int]]

"""Transactions as JSON: sessions of producers, stagings, ends."""

import msgspec

from ..transactions import TIMEOUT_MS, Transaction, TransactionEnd, TransactionStats
from .messages import Content, Int64, MessageIn, Strict
from .paging import PageQuery
from .times import Span

_OPEN = "Ongoing"


class InitIn(Strict):
    """The producer's name, and after how long (ms) an open transaction of it is aborted. Without one it gets a name."""

    transactional_id: str | None = None
    transaction_timeout_ms: Int64 = TIMEOUT_MS


class SessionOut(msgspec.Struct):
    """What the producer says with each of its requests."""

    producer_id: int
    epoch: int


class SessionIn(Strict):
    """With a name, it has to be the producer's."""

    producer_id: Int64
    epoch: Int64
    transactional_id: str = ""


class EndIn(SessionIn):
    """With the id of the transaction it ends that one: a late one does nothing to the next."""

    transaction_id: str = ""


class AddPartitionIn(SessionIn, kw_only=True):
    topic: str
    partition: Int64


class HeartbeatIn(Strict):
    """With a name, it has to be the producer's."""

    epoch: Int64
    transactional_id: str = ""


class BegunOut(msgspec.Struct):
    transaction_id: str


class StageIn(Strict):
    """One message of a transaction. With `sequence` a repeat is recognised: it counts up by one for each message of the
    session in a partition, from any number on. With `delay` or `deliver_at` the commit schedules it.
    """

    producer_id: Int64
    epoch: Int64
    topic: str
    key: Content = None
    value: Content = None
    headers: dict[str, str] | None = None
    partition: Int64 | None = None
    sequence: Int64 | None = None
    priority: Int64 | str | None = None
    ttl: Span | None = None
    delay: Span | None = None
    deliver_at: str | None = None
    delay_key: Content = None

    def message(self) -> MessageIn:
        return MessageIn(
            key=self.key,
            value=self.value,
            headers=self.headers,  # type: ignore[arg-type]  # Text is one of the kinds there.
            priority=self.priority,
            ttl=self.ttl,
            delay=self.delay,
            deliver_at=self.deliver_at,
            delay_key=self.delay_key,
        )


class StagedOut(msgspec.Struct):
    """The message is durable, and has an offset once it is committed."""

    staged: bool
    partition: int
    offset: None
    sequence: int
    duplicate: bool


class PlacedOut(msgspec.Struct):
    """Messages of a transaction that follow each other."""

    topic: str
    partition: int
    offset: int
    count: int


class EndOut(msgspec.Struct):
    """The end of a transaction, and the producer's epoch for the next one.

    Not `complete`: it is decided for good, and a partition cannot take its part now. The same request tells later what
    came of it.
    """

    transaction_id: str
    state: str
    epoch: int
    complete: bool
    offsets: list[PlacedOut]


class ParticipantOut(msgspec.Struct):
    topic: str
    partition: int
    messages: int
    bytes: int
    answers: int


class TransactionOut(msgspec.Struct):
    """The open transaction of a producer, or its last one."""

    transaction_id: str
    transactional_id: str
    producer_id: int
    epoch: int
    state: str
    transaction_timeout_ms: int
    open_ms: int | None
    participants: list[ParticipantOut]
    offsets: list[PlacedOut]
    reason: str


class TransactionsQuery(PageQuery):
    """`state` is one of Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort."""

    state: str = ""


class TransactionsOut(msgspec.Struct):
    transactions: list[TransactionOut]
    cursor: str | None


class TransactionStatsOut(msgspec.Struct):
    """Producers by the state of their transaction, and what is staged."""

    states: dict[str, int]
    staged_messages: int
    staged_bytes: int
    oldest_open_ms: int | None
    active_transactions: int


def end_out(end: TransactionEnd) -> EndOut:
    places = [PlacedOut(*one) for one in end.places]
    return EndOut(end.transaction_id, end.state, end.epoch, end.is_complete, places)


def transaction_out(one: Transaction) -> TransactionOut:
    return TransactionOut(
        one.transaction_id,
        one.name,
        one.producer_id,
        one.epoch,
        one.state,
        one.timeout_ms,
        one.open_ms,
        [ParticipantOut(*each) for each in one.participants],
        [PlacedOut(*each) for each in one.places],
        one.reason,
    )


def stats_out(stats: TransactionStats) -> TransactionStatsOut:
    return TransactionStatsOut(
        stats.states,
        stats.staged_messages,
        stats.staged_bytes,
        stats.oldest_open_ms,
        stats.states.get(_OPEN, 0),
    )

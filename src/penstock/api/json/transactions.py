"""Transactions as JSON: sessions of producers, stagings, ends."""

import msgspec

from ..transactions import TIMEOUT_MS
from .messages import Content, Int64, MessageIn, Strict
from .times import Span


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

"""Publishing as JSON: messages in, their places out."""

from typing import Any

import msgspec

from ...config import LimitsConfig
from ...errors import BadRequest
from ..publish import Delayed
from .delays import due_ns
from .messages import Content, Int64, MessageIn, Strict, bytes_of, expires_at, message_of
from .times import Span

_ACKS = {"none": 0, "leader": 1, "all": 2, 0: 0, 1: 1, 2: 2, "0": 0, "1": 1, "2": 2}


class PublishIn(Strict):
    """Messages, and what to wait for: none (0), leader (1, the broker's fsync policy), all (2, an fsync).

    Without `acks` it is `producer.ack_mode` of the broker, which is leader if that does not say.
    """

    messages: list[MessageIn]
    acks: str | int | None = None


class PlainMessage(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A message that is nothing but text."""

    value: str


class PlainIn(Strict):
    """The usual request: see `_plain`."""

    messages: list[PlainMessage]
    acks: str | int | None = None


class PublishedOut(msgspec.Struct, kw_only=True, gc=False, rename={"deliver_at_too": "deliverAt"}):
    """Where a message is, and how safe. If it is `delayed`, its offset is that in the delay log."""

    partition: int | None
    offset: int | None
    priority: str | None = None
    delayed: bool = False
    deliver_at: str | None = None
    deliver_at_too: str | None = None
    duplicate: bool = False
    guarantee: str = "buffered"
    error: str | None = None
    # With a standby: on how many machines it is.
    copies: int | msgspec.UnsetType = msgspec.UNSET


class PublishOut(msgspec.Struct):
    """A result for each message, in their order; one that failed has `error`, `message` and `status`."""

    results: list[PublishedOut]


class ProduceIn(Strict, rename={"deliver_at_too": "deliverAt"}):
    """One message, in a query or as JSON."""

    topic: str
    key: Content = None
    value: Content = None
    headers: dict[str, Any] | list[Any] | None = None
    partition: Int64 | None = None
    priority: Int64 | str | None = None
    ttl: Span | None = None
    idempotency_key: Content = None
    delay: Span | None = None
    deliver_at: str | None = None
    deliver_at_too: str | None = None
    delay_key: Content = None
    acks: str | int | None = None


class AcksQuery(Strict):
    """What to wait for, if the body does not say."""

    acks: str | None = None


class BatchOut(msgspec.Struct):
    """Where a batch is, and how many partitions its topic has by now."""

    partition: int
    base_offset: int
    next_offset: int
    count: int
    duplicate: bool
    guarantee: str
    partitions: int
    copies: int | msgspec.UnsetType = msgspec.UNSET


def acks_of(written: str | int) -> int:
    if written not in _ACKS:
        raise BadRequest(
            f"acks must be none, leader or all, got {str(written)[:40]!r}", field="acks"
        )
    return _ACKS[written]


def moment_of(item: MessageIn, now_ns: int) -> int | None:
    """When a message is to come; None: at once."""
    if item.delay is None and item.deliver_at is None and item.deliver_at_too is None:
        if item.delay_key is not None:
            raise BadRequest("delay_key needs delay or deliver_at", field="delay_key")
        return None
    if item.deliver_at is not None and item.deliver_at_too is not None:
        raise BadRequest("give one of deliver_at and deliverAt", field="deliver_at")
    return due_ns(item.delay, item.deliver_at or item.deliver_at_too, now_ns)


def delayed_of(item: MessageIn, moment: int, now_ns: int, limits: LimitsConfig) -> Delayed:
    message = message_of(item, now_ns, limits)
    if item.ttl is not None:
        # The time to live begins when the message comes.
        late = expires_at(item.ttl, max(moment, now_ns))
        message = msgspec.structs.replace(message, expires_at=late)
    return Delayed(message, moment, bytes_of(item.delay_key))

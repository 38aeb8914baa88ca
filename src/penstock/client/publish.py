"""The calls that publish, and their replies."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TypedDict

import msgspec

from ..api.arguments import several, text, whole_number
from ..api.units import Duration
from ..errors import PartlyPublished, Refused
from .calls import (
    BATCH_TYPE,
    JSON_TYPE,
    Call,
    Content,
    Moment,
    Written,
    as_json,
    given,
    moment,
    path_of,
    reader,
    results_of,
    span,
    with_query,
    written,
)
from .failures import rebuilt
from .wire import Answer, Body

HeadersIn = Sequence[tuple[str, bytes | str]] | dict[str, bytes | str]


class Outgoing(msgspec.Struct, frozen=True):
    """A message to publish. Without `partition` the key decides, then the idempotency key; the rest take turns."""

    value: Content
    key: Content = None
    headers: HeadersIn = ()
    partition: int | None = None
    priority: int | str | None = None
    ttl: Duration | None = None
    idempotency_key: Content = None
    delay: Duration | None = None
    deliver_at: Moment | None = None
    delay_key: Content = None


class PublishOptions(TypedDict, total=False):
    """`ttl`: not delivered after so long. `delay` or `deliver_at`: not delivered before.

    Of delayed messages with one `delay_key` only the last counts.
    """

    key: Content
    headers: HeadersIn
    partition: int | None
    priority: int | str | None
    ttl: Duration | None
    idempotency_key: Content
    delay: Duration | None
    deliver_at: Moment | None
    delay_key: Content


class Published(msgspec.Struct, frozen=True):
    """Where a message is stored, and how safely (`guarantee`: buffered or fsynced); delayed ones in the delay log."""

    partition: int
    offset: int
    duplicate: bool = False
    guarantee: str = "buffered"
    delayed: bool = False
    deliver_at: str | None = None


class BatchStored(msgspec.Struct, frozen=True):
    """Where a batch is stored, and how many partitions its topic has now."""

    partition: int
    base_offset: int
    next_offset: int
    count: int
    duplicate: bool
    guarantee: str
    partitions: int = 0


class _PublishReply(msgspec.Struct):
    results: list[Published]


_read_reply = msgspec.json.Decoder(_PublishReply).decode


def _fields(message: Outgoing) -> dict[str, object]:
    priority = message.priority
    if priority is not None and not isinstance(priority, str):
        priority = whole_number("priority", priority, 0)
    partition = message.partition
    return {"value": written(message.value)} | given(
        key=written(message.key),
        headers=_headers(message.headers) if message.headers else None,
        partition=None if partition is None else whole_number("partition", partition, 0),
        priority=priority,
        ttl=None if message.ttl is None else span(message.ttl, "ttl"),
        idempotency_key=written(message.idempotency_key),
        delay=None if message.delay is None else span(message.delay, "delay"),
        deliver_at=None if message.deliver_at is None else moment(message.deliver_at),
        delay_key=written(message.delay_key),
    )


def _headers(headers: HeadersIn) -> list[tuple[str, Written]]:
    pairs = headers.items() if isinstance(headers, dict) else several("headers", headers)
    try:
        return [(text("a header's name", name), written(one)) for name, one in pairs]
    except (TypeError, ValueError):
        raise Refused("headers are pairs of a name and a value, or a dict of them") from None


def publish(
    topic: str, messages: Iterable[Outgoing | Content], acks: str | int
) -> Call[list[Published]]:
    """Repeatable if every message carries an idempotency key: then a second try stores nothing twice."""
    items = [
        one if isinstance(one, Outgoing) else Outgoing(one) for one in several("messages", messages)
    ]
    body = as_json({"messages": [*map(_fields, items)], "acks": acks})
    is_repeatable = all(one.idempotency_key for one in items)
    target = path_of("topics", topic, "messages")
    return Call("POST", target, _published, body, JSON_TYPE, is_repeatable)


def _published(answer: Answer) -> list[Published]:
    """PartlyPublished if there are errors among the results."""
    with suppress(msgspec.ValidationError):
        return _read_reply(answer.body).results
    raise PartlyPublished(
        [
            rebuilt(one) if one.get("error") else msgspec.convert(one, Published)
            for one in results_of(answer)
        ]
    )


def append_batch(
    topic: str, partition: int, batch: Body, acks: str | int, *, is_numbered: bool
) -> Call[BatchStored]:
    """Publish an encoded batch. `is_numbered`: it carries a producer's sequence, so that a repeat is recognised."""
    target = with_query(
        path_of("topics", topic, "partitions", partition, "batches"), {"acks": acks}
    )
    return Call("POST", target, reader(BatchStored), batch, BATCH_TYPE, is_numbered)

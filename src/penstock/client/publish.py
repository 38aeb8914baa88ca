"""Calls that publish, and what they answer."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from ..api.arguments import several, text, whole_number
from ..api.units import Duration
from ..errors import PartlyPublished, PenstockError, Refused
from .calls import (
    BATCH_TYPE,
    JSON_TYPE,
    Call,
    Content,
    Moment,
    Written,
    as_json,
    moment,
    path_of,
    reader,
    span,
    with_query,
    written,
)
from .failures import rebuilt
from .wire import Answer, Body

HeadersIn = Sequence[tuple[str, bytes | str]] | dict[str, bytes | str]


class Outgoing(msgspec.Struct, frozen=True):
    """A message to publish. Without `partition` the key decides, then the idempotency key, then turns are taken."""

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


class Published(msgspec.Struct, frozen=True):
    """Where a message is and how safe (`guarantee`: buffered or fsynced). A delayed one is in its delay log."""

    partition: int
    offset: int
    duplicate: bool = False
    guarantee: str = "buffered"
    delayed: bool = False
    deliver_at: str | None = None


class BatchStored(msgspec.Struct, frozen=True):
    """Where a batch is, and how many partitions its topic has by now."""

    partition: int
    base_offset: int
    next_offset: int
    count: int
    duplicate: bool
    guarantee: str
    partitions: int = 0


class _Sent(msgspec.Struct, omit_defaults=True):
    value: Written
    key: Written = None
    headers: list[tuple[str, Written]] = []
    partition: int | None = None
    priority: int | str | None = None
    ttl: str | None = None
    idempotency_key: Written = None
    delay: str | None = None
    deliver_at: str | None = None
    delay_key: Written = None


class _Stored(msgspec.Struct):
    results: list[Published]


class _Results(msgspec.Struct):
    results: list[dict[str, Any]]


def _sent(message: Outgoing) -> _Sent:
    priority = message.priority
    return _Sent(
        written(message.value),
        None if message.key is None else written(message.key),
        _headers(message.headers) if message.headers else [],
        None if message.partition is None else whole_number("partition", message.partition, 0),
        priority
        if priority is None or isinstance(priority, str)
        else whole_number("priority", priority, 0),
        None if message.ttl is None else span(message.ttl, "ttl"),
        None if message.idempotency_key is None else written(message.idempotency_key),
        None if message.delay is None else span(message.delay, "delay"),
        None if message.deliver_at is None else moment(message.deliver_at),
        None if message.delay_key is None else written(message.delay_key),
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
    given = several("messages", messages)
    items = [one if isinstance(one, Outgoing) else Outgoing(one) for one in given]
    body = {"messages": [*map(_sent, items)], "acks": acks}
    is_repeatable = all(one.idempotency_key for one in items)
    target = path_of("topics", topic, "messages")
    return Call("POST", target, _published, as_json(body), JSON_TYPE, is_repeatable)


def publish_value(topic: str, value: Content, acks: str | int) -> Call[list[Published]]:
    """The same for one value and nothing else, in fewer steps: whoever publishes one by one waits for each of them."""
    body = b'{"messages":[{"value":%b}],"acks":%b}' % (as_json(written(value)), as_json(acks))
    target = path_of("topics", topic, "messages")
    return Call("POST", target, _published, body, JSON_TYPE, is_repeatable=False)


_read_results = reader(_Results)
_read_stored = msgspec.json.Decoder(_Stored).decode


def _published(answer: Answer) -> list[Published]:
    try:
        return _read_stored(answer.body).results
    except msgspec.ValidationError:
        return _partly_published(answer)


def _partly_published(answer: Answer) -> list[Published]:
    """Some of them have no offset: errors are among them."""
    results = [_result(one) for one in _read_results(answer).results]
    if any(isinstance(one, PenstockError) for one in results):
        raise PartlyPublished(results)
    return results  # type: ignore[return-value]  # No errors among them, as was just seen.


def _result(found: dict[str, Any]) -> Published | PenstockError:
    return rebuilt(found) if found.get("error") else msgspec.convert(found, Published)


def append_batch(
    topic: str, partition: int, batch: Body, acks: str | int, *, is_numbered: bool
) -> Call[BatchStored]:
    """An encoded batch. `is_numbered`: it carries a producer's sequence, so that a repeat is recognised."""
    target = with_query(
        path_of("topics", topic, "partitions", partition, "batches"), {"acks": acks}
    )
    return Call("POST", target, reader(BatchStored), batch, BATCH_TYPE, is_numbered)


def health() -> Call[dict[str, Any]]:
    return Call("GET", "/health", reader(dict[str, Any]))


def version() -> Call[dict[str, Any]]:
    return Call("GET", "/version", reader(dict[str, Any]))

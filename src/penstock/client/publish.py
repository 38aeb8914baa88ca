"""The calls that publish, and their replies."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

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


def _headers(headers: HeadersIn) -> list[tuple[str, Written]]:
    pairs = headers.items() if isinstance(headers, dict) else several("headers", headers)
    try:
        return [(text("a header's name", name), written(one)) for name, one in pairs]
    except (TypeError, ValueError):
        raise Refused("headers are pairs of a name and a value, or a dict of them") from None


_JSON_OF: dict[str, Callable[[Any], object]] = {
    "key": written,
    "headers": _headers,
    "partition": lambda one: whole_number("partition", one, 0),
    "priority": lambda one: one if isinstance(one, str) else whole_number("priority", one, 0),
    "ttl": lambda one: span(one, "ttl"),
    "idempotency_key": written,
    "delay": lambda one: span(one, "delay"),
    "deliver_at": moment,
    "delay_key": written,
}


def message_json(value: Content, options: Mapping[str, Any]) -> dict[str, object]:
    """A message for JSON. Refused if an option is wrong, TypeError if there is no such option."""
    fields: dict[str, object] = {"value": written(value)}
    for name, found in options.items():
        if name not in _JSON_OF:
            raise TypeError(f"a message has no option {name!r}")
        if found is not None and found != ():
            fields[name] = _JSON_OF[name](found)
    return fields


def outgoing_json(message: Outgoing | Content) -> dict[str, object]:
    if not isinstance(message, Outgoing):
        return message_json(message, {})
    return message_json(message.value, {name: getattr(message, name) for name in _JSON_OF})


def publish(
    topic: str, messages: Sequence[Mapping[str, object]], acks: str | int
) -> Call[list[Published]]:
    """Repeatable if every message has an idempotency key: then a second try stores nothing twice."""
    body = as_json({"messages": messages, "acks": acks})
    is_repeatable = all(one.get("idempotency_key") for one in messages)
    target = path_of("topics", topic, "messages")
    return Call("POST", target, _published, body, JSON_TYPE, is_repeatable)


def _published(answer: Answer) -> list[Published]:
    """PartlyPublished if there are errors among the results."""
    try:
        return _read_reply(answer.body).results
    except msgspec.ValidationError:
        results = [
            rebuilt(one) if one.get("error") else msgspec.convert(one, Published)
            for one in results_of(answer)
        ]
        raise PartlyPublished(results) from None


def append_batch(
    topic: str, partition: int, batch: Body, acks: str | int, *, is_numbered: bool
) -> Call[BatchStored]:
    """Publish an encoded batch. `is_numbered`: it carries a producer's sequence, so that a repeat is recognised."""
    target = with_query(
        path_of("topics", topic, "partitions", partition, "batches"), {"acks": acks}
    )
    return Call("POST", target, reader(BatchStored), batch, BATCH_TYPE, is_numbered)

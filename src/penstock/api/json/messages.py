"""The JSON of messages: what clients send, and what they get."""

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from typing import Annotated, Any

import msgspec

from ...config import LimitsConfig
from ...errors import BadRequest, Refused, TooLarge
from ...model import Headers, Message, Priority, Provenance
from ..leased import LeasedMessages
from ..units import priority_of as parsed_priority
from ..units import time_text
from .times import Span, span_ms, time_text_or_none

_MS = 1_000_000
PRIORITY_NAMES = tuple(one.name.lower() for one in Priority)
"""By number."""

Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class Strict(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What a client writes: a name that we do not know is refused, not ignored."""


class Base64(msgspec.Struct, forbid_unknown_fields=True):
    """Bytes that are not text."""

    base64: str

    def content(self) -> bytes:
        try:
            return b64decode(self.base64, validate=True)
        except (Base64Error, ValueError):
            raise BadRequest("base64 must be the standard alphabet with padding") from None


Content = str | Base64 | None
"""A key or a value: text stands for its UTF-8 bytes."""

HeadersIn = dict[str, Content] | list[tuple[str, Content]]
"""Names may repeat in a list, and may be empty; values may be null."""

ContentOut = str | Base64 | None


class MessageIn(
    msgspec.Struct, forbid_unknown_fields=True, gc=False, rename={"deliver_at_too": "deliverAt"}
):
    """A message to publish. `delay` or `deliver_at` has it come later; of those with one `delay_key` only the last."""

    key: Content = None
    value: Content = None
    headers: HeadersIn | None = None
    partition: Int64 | None = None
    priority: Int64 | str | None = None
    ttl: Span | None = None
    idempotency_key: Content = None
    delay: Span | None = None
    deliver_at: str | None = None
    deliver_at_too: str | None = None
    delay_key: Content = None


class ProvenanceOut(msgspec.Struct, rename="camel", kw_only=True):
    """Where a dead letter came from and why it died."""

    original_topic: str
    original_partition: int
    original_offset: int
    original_timestamp: str
    delivery_attempts: int
    first_delivery: str | None
    last_delivery: str | None
    last_consumer: str
    group: str
    last_error: str
    dlq_timestamp: str
    dlq_reason: str


class MessageOut(msgspec.Struct, kw_only=True, gc=False):
    """A message by its position. `delay_id` names it among the delayed ones of its partition, if it was one.

    `dead_letter` is there if it is one.
    """

    topic: str
    partition: int
    offset: int
    timestamp: str
    timestamp_ns: str
    key: ContentOut
    value: ContentOut
    headers: list[tuple[str, ContentOut]]
    priority: str
    expires_at: str | None
    idempotency_key: ContentOut
    # A client of the binary port, such as the command line, is not told it.
    delay_id: int | msgspec.UnsetType | None
    dead_letter: ProvenanceOut | msgspec.UnsetType = msgspec.UNSET


class ReceivedOut(msgspec.Struct, kw_only=True, gc=False):
    """A message that is lent; `receipt_handle` is what its answer has to name.

    `delay_id` names it among the delayed ones of its partition, if it was one; `dead_letter` is there if it is one.
    """

    topic: str
    partition: int
    offset: int
    key: ContentOut
    value: ContentOut
    headers: list[tuple[str, ContentOut]]
    priority: str
    timestamp: str
    timestamp_ns: str
    expires_at: str | None
    attempts: int
    delivery_count: int
    last_error: str | None
    # A client of the binary port, such as the command line, is not told it.
    delay_id: int | msgspec.UnsetType | None
    receipt_handle: str
    dead_letter: ProvenanceOut | msgspec.UnsetType = msgspec.UNSET


def bytes_of(content: Content) -> bytes | None:
    if type(content) is str:
        return content.encode()
    return content.content() if isinstance(content, Base64) else None


def content_of(found: bytes | None, *, is_base64: bool = False) -> ContentOut:
    """Text if the bytes are UTF-8, and base64 otherwise, or always."""
    if found is None:
        return None
    if not is_base64:
        try:
            return found.decode()
        except UnicodeDecodeError:
            pass
    return Base64(b64encode(found).decode())


def message_of(item: MessageIn, now_ns: int, limits: LimitsConfig) -> Message:
    """A message within all limits, so that it can spoil no batch. BadRequest, TooLarge."""
    value, key = item.value, item.key
    stored = value.encode() if type(value) is str else bytes_of(value)
    key_bytes = None if key is None else bytes_of(key)
    if stored is not None and len(stored) > limits.value_bytes_max:
        raise TooLarge("value in bytes", found=len(stored), limit=limits.value_bytes_max)
    if key_bytes is not None and len(key_bytes) > limits.key_bytes_max:
        raise TooLarge("key in bytes", found=len(key_bytes), limit=limits.key_bytes_max)
    return Message(
        stored,
        key_bytes,
        headers_of(item.headers, limits) if item.headers else (),
        Priority.NORMAL if item.priority is None else priority_of(item.priority),
        now_ns,
        None if item.ttl is None else expires_at(item.ttl, now_ns),
        None if item.idempotency_key is None else bytes_of(item.idempotency_key) or None,
    )


def expires_at(ttl: Span, now_ns: int) -> int:
    return now_ns + span_ms("ttl", ttl) * _MS


def priority_of(written: int | str) -> int:
    """By name or number; anything else is a bad request."""
    try:
        return parsed_priority(written)
    except Refused as error:
        raise BadRequest(str(error), field="priority") from None


def pairs_of(written: HeadersIn) -> Headers:
    """Headers as a message has them, however many."""
    pairs = written.items() if isinstance(written, dict) else written
    return tuple((name, bytes_of(value)) for name, value in pairs)


def headers_of(written: HeadersIn, limits: LimitsConfig) -> Headers:
    headers = pairs_of(written)
    size = sum(len(name.encode()) + len(value or b"") for name, value in headers)
    if size > limits.headers_bytes_max:
        raise TooLarge("headers in bytes", found=size, limit=limits.headers_bytes_max)
    return headers


def headers_out(headers: Headers, *, is_base64: bool) -> list[tuple[str, ContentOut]]:
    return [(name, content_of(value, is_base64=is_base64)) for name, value in headers]


def provenance_out(died: Provenance | None) -> ProvenanceOut | msgspec.UnsetType:
    """What is beside a dead letter; nothing at all beside other messages."""
    if died is None:
        return msgspec.UNSET
    return ProvenanceOut(
        original_topic=died.original_topic,
        original_partition=died.original_partition,
        original_offset=died.original_offset,
        original_timestamp=time_text(died.original_timestamp),
        delivery_attempts=died.delivery_attempts,
        first_delivery=time_text_or_none(died.first_delivery or None),
        last_delivery=time_text_or_none(died.last_delivery or None),
        last_consumer=died.last_consumer,
        group=died.group,
        last_error=died.last_error,
        dlq_timestamp=time_text(died.dlq_timestamp),
        dlq_reason=died.dlq_reason,
    )


def message_out(
    topic: str,
    partition: int,
    message: Message,
    delay_id: int | msgspec.UnsetType | None = msgspec.UNSET,
    *,
    is_base64: bool = False,
) -> MessageOut:
    return MessageOut(
        topic=topic,
        partition=partition,
        offset=message.offset,
        timestamp=time_text(message.timestamp),
        timestamp_ns=str(message.timestamp),
        key=content_of(message.key, is_base64=is_base64),
        value=content_of(message.value, is_base64=is_base64),
        headers=headers_out(message.headers, is_base64=is_base64),
        priority=PRIORITY_NAMES[message.priority],
        expires_at=time_text_or_none(message.expires_at),
        idempotency_key=content_of(message.idempotency_key, is_base64=is_base64),
        delay_id=delay_id,
        dead_letter=provenance_out(message.dead_letter),
    )


def polled_out(messages: LeasedMessages, *, is_base64: bool) -> list[ReceivedOut]:
    return [
        received_out(
            one,
            part.last_errors.get(one.offset),
            part.delay_ids.get(one.offset),
            is_base64=is_base64,
        )
        for part in messages.parts
        for one in part.messages()
    ]


def received_out(
    one: Any,
    last_error: str | None,
    delay_id: int | msgspec.UnsetType | None = msgspec.UNSET,
    *,
    is_base64: bool = False,
) -> ReceivedOut:
    """A `Received` of the broker or of the client: what is asked of it here has the same name in both."""
    return ReceivedOut(
        topic=one.topic,
        partition=one.partition,
        offset=one.offset,
        key=content_of(one.key, is_base64=is_base64),
        value=content_of(one.value, is_base64=is_base64),
        headers=headers_out(one.headers, is_base64=is_base64),
        priority=PRIORITY_NAMES[one.priority],
        timestamp=time_text(one.timestamp),
        timestamp_ns=str(one.timestamp),
        expires_at=time_text_or_none(one.expires_at),
        attempts=one.attempts,
        delivery_count=one.attempts,
        last_error=last_error,
        delay_id=delay_id,
        receipt_handle=one.receipt,
        dead_letter=provenance_out(one.dead_letter),
    )


def is_base64_wanted(encoding: str | None) -> bool:
    """The query's `encoding`."""
    if encoding not in {None, "base64", "text"}:
        raise BadRequest(
            f"encoding must be base64 or text, got {str(encoding)[:40]!r}", field="encoding"
        )
    return encoding == "base64"

"""From what a caller says about a message to the message, or to a refusal that names what is wrong with it."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, TypedDict

from msgspec import UNSET, UnsetType

from ..api.arguments import several, shown, value_of
from ..api.units import Duration, datetime_ns, duration_ns, priority_of
from ..config import LimitsConfig
from ..errors import Refused, TooLarge
from ..model import Headers, Message, Priority

Value = bytes | bytearray | memoryview | str | None
"""Text is stored as UTF-8. None is a tombstone: a message without a value, which is not an empty one."""

HeadersIn = Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | str | None]]


class MessageOptions(TypedDict, total=False):
    """What can be said about a message besides its value. `json`: the value, as any object that JSON has a form for."""

    json: Any
    key: bytes | str | None
    headers: HeadersIn
    priority: str | int
    ttl: Duration
    idempotency_key: bytes | str | None
    delay: Duration
    deliver_at: datetime | str
    delay_key: bytes | str | None


OPTIONS = frozenset(MessageOptions.__annotations__)
DELAY_OPTIONS = frozenset({"delay", "deliver_at", "delay_key"})
LIMITS = LimitsConfig()
_DUE_NS_MAX = (1 << 63) - 1


def make_message(value: Value | UnsetType, options: MessageOptions, *, now_ns: int) -> Message:
    """A message within all limits, so that it can spoil no batch later."""
    if unknown := sorted(options.keys() - OPTIONS):
        known = ", ".join(sorted(OPTIONS))
        raise Refused(f"unknown option {unknown[0]!r}; known: {known}")
    given: Value = value_of(value, options.get("json", UNSET))
    ttl = options.get("ttl")
    due_ns = now_ns if DELAY_OPTIONS.isdisjoint(options) else due_of(options, now_ns) or now_ns
    return Message(
        _sized("value", as_bytes("value", given), LIMITS.value_bytes_max),
        _sized("key", as_bytes("key", options.get("key")), LIMITS.key_bytes_max),
        headers_of(options.get("headers", ())),
        priority_of(options.get("priority", Priority.NORMAL)),
        now_ns,
        # A message that waits does not age: the time to live begins when the message comes.
        None if ttl is None else _expiry(max(due_ns, now_ns), ttl),
        _sized(
            "idempotency key",
            as_bytes("idempotency key", options.get("idempotency_key")),
            LIMITS.key_bytes_max,
        )
        or None,
    )


def message_of(
    given: Message | Value | UnsetType, options: MessageOptions, *, now_ns: int
) -> Message:
    """A message of the caller as it is, or one of a value. Refused: a key, which is used before it is encoded, is no
    bytes.
    """
    if not isinstance(given, Message):
        return make_message(given, options, now_ns=now_ns)
    for what, key in (("key", given.key), ("idempotency key", given.idempotency_key)):
        if not isinstance(key, bytes | bytearray | memoryview | None):
            raise Refused(f"{what} must be bytes or None, got {type(key).__name__}")
    return given


def listed(values: Iterable[Value]) -> list[Value]:
    """Several values. Text and bytes are one each, though Python would make many of them."""
    if isinstance(values, str | bytes):
        raise Refused(f"put_many takes several values, got {type(values).__name__}; use put")
    return list(several("the values of put_many", values))


def _expiry(begin_ns: int, ttl: Duration) -> int:
    expires_ns = begin_ns + duration_ns(ttl)
    if expires_ns > _DUE_NS_MAX:
        raise Refused(f"a message cannot live on after the year 2262, as with ttl={ttl!r}")
    return expires_ns


def due_of(options: MessageOptions, now_ns: int) -> int | None:
    """When a message is to come, in ns since 1970; None if at once. A time that is over is now."""
    delay, at = options.get("delay"), options.get("deliver_at")
    if delay is not None and at is not None:
        raise Refused("a message has a delay or a deliver_at, not both")
    if delay is not None:
        return _possible(now_ns + duration_ns(delay))
    if at is None:
        return None
    if not isinstance(at, str | datetime):
        raise Refused(f"deliver_at is a datetime or text as in RFC 3339, not {shown(at)}")
    try:
        moment = datetime.fromisoformat(at) if isinstance(at, str) else at
    except ValueError:
        raise Refused(
            f"deliver_at in text looks like 2026-01-31T12:00:00Z, not {shown(at)}"
        ) from None
    return _possible(datetime_ns(moment, "deliver_at"))


def _possible(due_ns: int) -> int:
    if due_ns > _DUE_NS_MAX:
        raise Refused("a message cannot be due after the year 2262")
    return max(1, due_ns)


def as_bytes(what: str, found: Value) -> bytes | None:
    """A copy that the caller cannot change any more. Refused: it is neither bytes nor text."""
    if found is None or type(found) is bytes:
        return found
    if isinstance(found, str):
        return _encoded(what, found)
    if isinstance(found, bytes | bytearray | memoryview):
        return bytes(found)
    raise Refused(f"{what} must be bytes, str or None, got {type(found).__name__}")


def _encoded(what: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise Refused(f"{what} is text that UTF-8 cannot hold: {error.reason}") from None


def _sized(what: str, found: bytes | None, limit: int) -> bytes | None:
    if found is not None and len(found) > limit:
        raise TooLarge(f"{what} in bytes", found=len(found), limit=limit)
    return found


def headers_of(found: HeadersIn) -> Headers:
    pairs = found.items() if isinstance(found, Mapping) else found
    headers = tuple(map(_header_of, several("headers", pairs)))
    size = sum(
        len(_encoded("a header's name", name)) + len(value or b"") for name, value in headers
    )
    if size > LIMITS.headers_bytes_max:
        raise TooLarge("headers in bytes", found=size, limit=LIMITS.headers_bytes_max)
    return headers


def _header_of(pair: tuple[str, bytes | str | None]) -> tuple[str, bytes | None]:
    try:
        name, value = pair
    except (TypeError, ValueError):
        raise Refused(f"headers are pairs of a name and a value, got {pair!r}") from None
    if type(name) is not str:
        raise Refused(f"a header's name is text, got {name!r}")
    return name, as_bytes(f"header {name!r}", value)

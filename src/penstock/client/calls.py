"""A request and how its answer is read, as one value. Everything that the two clients share passes through here."""

import base64
import binascii
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from ..errors import BadAnswer, MalformedBatch, PenstockError, Refused
from .failures import error_of
from .wire import Answer, Body

T = TypeVar("T")
Content = bytes | str | None
"""A key or a value; text stands for its UTF-8 bytes."""

Duration = float | str | timedelta
"""A span of time: "30s", "5m", "2h", or a number of seconds."""

Moment = datetime | str | int
"""A datetime, RFC 3339 text, or nanoseconds since 1970."""

JSON_TYPE = b"Content-Type: application/json\r\n"
BATCH_TYPE = b"Content-Type: application/vnd.penstock.batch\r\n"
ACCEPT_BATCH = b"Accept: application/vnd.penstock.batch\r\n"
# The server may send large batches without a look at them. Older ones do not know this and check all the same.
CHECKED_HERE = b"Penstock-Checked-By: client\r\n"

_ENCODE = msgspec.json.Encoder().encode
_OK_MAX = 299
# From here on it pays to look: control characters take six bytes each in JSON, and a body has a limit.
_LARGE_BYTES = 1 << 20


class Call(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """`is_repeatable`: carried out twice it does no more than once. `wait_s`: how long the server may wait for it."""

    method: str
    target: str
    read: Callable[[Answer], T]
    body: Body = b""
    headers: bytes = b""
    is_repeatable: bool = True
    wait_s: float = 0.0


class Base64(msgspec.Struct):
    """Bytes that are not text, in JSON."""

    base64: str


Written = str | Base64 | None


def written(content: Content) -> Written:
    """A key or value for JSON."""
    if content is None or isinstance(content, str):
        return content
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return Base64(base64.b64encode(content).decode())
    except AttributeError:
        kind = type(content).__name__
        raise Refused(f"keys and values are bytes, text or None, not {kind}") from None
    if len(content) > _LARGE_BYTES and len(_ENCODE(text)) > 2 * len(content):
        return Base64(base64.b64encode(content).decode())
    return text


def content_of(found: Written) -> bytes | None:
    """The bytes of a key or value from JSON."""
    if isinstance(found, str):
        return found.encode()
    if found is None:
        return None
    try:
        return base64.b64decode(found.base64, validate=True)
    except (binascii.Error, ValueError):
        raise BadAnswer("the server", "base64 that is none") from None


def span(duration: Duration) -> str:
    """A duration as the server reads it."""
    if isinstance(duration, str):
        _require_unit(duration)
        return duration
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    return f"{seconds * 1000:.6f}ms"


def _require_unit(duration: str) -> None:
    """A server reads a bare number as milliseconds, and everybody else here as seconds."""
    if duration.strip().replace(".", "", 1).isdecimal():
        raise Refused(f'a duration in text has a unit, as in "30s" or "5m", not {duration[:40]!r}')


def seconds_of(duration: Duration) -> float:
    """A duration in seconds; Refused if it is none."""
    if isinstance(duration, timedelta):
        return duration.total_seconds()
    if not isinstance(duration, str):
        return float(duration)
    _require_unit(duration)
    number = duration.strip().rstrip("smhd")
    unit = duration.strip()[len(number) :]
    units = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
    try:
        return float(number) * units[unit]
    except (KeyError, ValueError):
        raise Refused(f'a duration looks like 30, "30s", "5m" or "2h", not {duration!r}') from None


def moment(when: Moment) -> str:
    """A moment as the server reads it."""
    if isinstance(when, datetime):
        if when.tzinfo is None:
            raise Refused(f"{when!r} has no time zone")
        return when.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return str(when)


@lru_cache(maxsize=1024, typed=True)
def path_of(*words: str | int) -> str:
    """A path from its words; none of them can leave its place."""
    return "".join(f"/{quote(str(word), safe='')}" for word in words)


def with_query(path: str, fields: Mapping[str, object]) -> str:
    """The fields that are not None, behind a path."""
    given = {name: _queried(one) for name, one in fields.items() if one is not None}
    return f"{path}?{urlencode(given)}" if given else path


def _queried(one: object) -> object:
    return str(one).lower() if isinstance(one, bool) else one


def given(**fields: object) -> dict[str, object]:
    """The fields that are not None."""
    return {name: one for name, one in fields.items() if one is not None}


def get(target: str, kind: type[T], *, wait_s: float = 0.0) -> Call[T]:
    return Call("GET", target, reader(kind), wait_s=wait_s)


def send(
    method: str, target: str, body: object, kind: type[T], *, is_repeatable: bool = True
) -> Call[T]:
    """A request with JSON."""
    return Call(method, target, reader(kind), as_json(body), JSON_TYPE, is_repeatable)


def as_json(body: object) -> bytes:
    """Refused if something in it is no text, or nothing that JSON knows."""
    try:
        return _ENCODE(body)
    except (UnicodeEncodeError, TypeError) as error:
        raise Refused(f"this cannot be sent as JSON: {error}") from None


def nothing(_answer: Answer) -> None:
    """The reader of an answer that says nothing but yes."""


_READERS: dict[Any, Callable[[Answer], Any]] = {}


def reader(kind: type[T]) -> Callable[[Answer], T]:
    """Reads the JSON of an answer as a type."""
    found = _READERS.get(kind)
    if found is None:
        decode = msgspec.json.Decoder(kind).decode

        def found(answer: Answer) -> T:
            return decode(answer.body)

        _READERS[kind] = found
    return found


def outcome(call: Call[T], answer: Answer, address: str) -> T:
    """What a call returns, or the error that the answer is; BadAnswer if it is neither."""
    if answer.status > _OK_MAX:
        raise error_of(answer, address)
    try:
        return call.read(answer)
    except MalformedBatch as error:
        # It was whole when it was sent.
        raise BadAnswer(address, str(error)[:200], is_sent=True) from None
    except PenstockError:
        raise
    except (msgspec.MsgspecError, ValueError) as error:
        raise BadAnswer(address, str(error)[:200], is_sent=True) from None

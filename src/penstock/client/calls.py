"""A call: a request and the function that reads its answer. Both clients run the same calls."""

import base64
import binascii
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from itertools import pairwise
from operator import index
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from ..api.arguments import type_name
from ..api.units import Duration, datetime_ns, duration_ns, time_text
from ..errors import BadAnswer, MalformedBatch, Refused
from .failures import error_of
from .wire import Answer, Body

T = TypeVar("T")
Content = bytes | str | None
"""A key or a value; text stands for its UTF-8 bytes."""

Moment = datetime | str | int
"""A datetime, RFC 3339 text, or nanoseconds since 1970."""

JSON_TYPE = b"Content-Type: application/json\r\n"
BATCH_TYPE = b"Content-Type: application/vnd.penstock.batch\r\n"
ACCEPT_BATCH = b"Accept: application/vnd.penstock.batch\r\n"
# The server may send large batches without verifying them. Older ones do not know this header and verify.
CHECKED_HERE = b"Penstock-Checked-By: client\r\n"

_ENCODE = msgspec.json.Encoder().encode
_OK_MAX = 299
# Larger contents are encoded to see their size: control characters take six bytes each in JSON, and bodies are limited.
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
    """Bytes in JSON that are no text."""

    base64: str


Written = str | Base64 | None


def written(content: Content) -> Written:
    """A key or value for JSON. Refused if it is neither bytes nor text."""
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
    """The bytes of a key or value in JSON; BadAnswer if its base64 is none."""
    if isinstance(found, str):
        return found.encode()
    if found is None:
        return None
    try:
        return base64.b64decode(found.base64, validate=True)
    except (binascii.Error, ValueError):
        raise BadAnswer("the server", "base64 that is none") from None


def span(duration: Duration, what: str = "a duration") -> str:
    """A duration in the form that the server reads. An error calls it `what`."""
    return f"{duration_ns(duration, what) / 1_000_000:.6f}ms"


def moment(when: Moment) -> str:
    """A moment in the form that the server reads. Refused if a datetime has no time zone."""
    return time_text(datetime_ns(when, "a moment")) if isinstance(when, datetime) else str(when)


def path_of(*words: str | int | None) -> str:
    """A path from its words, each quoted. Refused if one is neither text nor a whole number."""
    try:
        return _path_of(*words)
    except TypeError:
        # A list, or another value that is not hashable.
        raise Refused(f"a name is text, not one of {words[1:]!r}"[:200]) from None
    except UnicodeEncodeError:
        raise Refused(f"{words[1:]!r}: UTF-8 cannot hold this text"[:200]) from None


@lru_cache(maxsize=1024, typed=True)
def _path_of(*words: str | int | None) -> str:
    """Cached, because every request has a path."""
    for what, word in pairwise(words):
        if what in _NAMED and not isinstance(word, str):
            raise Refused(f"the name of a {_NAMED[what]} is text, not {type_name(word)}")
        if not isinstance(word, str) and (isinstance(word, bool) or not hasattr(word, "__index__")):
            raise Refused(f"partitions and offsets are whole numbers, not {type_name(word)}")
    # Not by str(): for an Enum that is its name in the program, and not the text that it stands for.
    return "".join(
        f"/{quote(one if isinstance(one, str) else str(index(one)), safe='')}"  # type: ignore[arg-type]  # Checked above.
        for one in words
    )


_NAMED: dict[str | int | None, str] = {"topics": "topic", "groups": "group"}


def with_query(path: str, fields: Mapping[str, object]) -> str:
    """A path with the fields that are not None as its query."""
    query = {name: _queried(one) for name, one in fields.items() if one is not None}
    try:
        return f"{path}?{urlencode(query)}" if query else path
    except UnicodeEncodeError as error:
        raise Refused(f"{error.object[:100]!r}: UTF-8 cannot hold this text") from None


def _queried(one: object) -> object:
    if isinstance(one, bool):
        return str(one).lower()
    # The text that an Enum stands for; str() would be its name in the program.
    return str.__str__(one) if isinstance(one, str) else one


def given(**fields: object) -> dict[str, object]:
    """The fields that are not None."""
    return {name: one for name, one in fields.items() if one is not None}


def get(target: str, kind: type[T]) -> Call[T]:
    return Call("GET", target, reader(kind))


def send(
    method: str, target: str, body: object, kind: type[T], *, is_repeatable: bool = True
) -> Call[T]:
    """A call whose request is JSON."""
    return Call(method, target, reader(kind), as_json(body), JSON_TYPE, is_repeatable)


def as_json(body: object) -> bytes:
    """A body as JSON. Refused if UTF-8 or JSON cannot hold a part of it."""
    try:
        return _ENCODE(body)
    except (UnicodeEncodeError, TypeError) as error:
        raise Refused(f"this cannot be sent as JSON: {error}") from None


def nothing(_answer: Answer) -> None:
    """Reads an answer that has no content."""


_READERS: dict[Any, Callable[[Answer], Any]] = {}


def reader(kind: type[T]) -> Callable[[Answer], T]:
    """The function that reads the JSON of an answer as a type."""
    found = _READERS.get(kind)
    if found is None:
        decode = msgspec.json.Decoder(kind).decode

        def found(answer: Answer) -> T:
            return decode(answer.body)

        _READERS[kind] = found
    return found


class _Results(msgspec.Struct):
    results: list[dict[str, Any]]


def results_of(answer: Answer) -> list[dict[str, Any]]:
    """The results in an answer that has one for each message of the request."""
    return reader(_Results)(answer).results


def outcome(call: Call[T], answer: Answer, address: str) -> T:
    """The result in an answer. Raises the error that it has instead, or BadAnswer if it cannot be read."""
    if answer.status > _OK_MAX:
        raise error_of(answer, address)
    try:
        return call.read(answer)
    except (MalformedBatch, msgspec.MsgspecError, ValueError) as error:
        # A batch that is damaged here was whole when the server sent it.
        raise BadAnswer(address, str(error)[:200], is_sent=True) from None

"""Calls of a group's members: poll and the four answers."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from ..errors import PenstockError
from .calls import (
    Base64,
    Call,
    Duration,
    content_of,
    get,
    path_of,
    reader,
    seconds_of,
    send,
    span,
    with_query,
)
from .failures import rebuilt
from .wire import Answer

_Written = str | Base64 | None


class Received(msgspec.Struct, frozen=True, gc=False):
    """A message that is lent to us, until it is answered or its time is up. `attempts` counts deliveries from 1.

    Key, value and headers are unpacked when they are asked for.
    """

    topic: str
    partition: int
    offset: int
    priority: int
    attempts: int
    receipt: str = msgspec.field(name="receipt_handle")
    written_key: _Written = msgspec.field(name="key")
    written_value: _Written = msgspec.field(name="value")
    written_headers: list[tuple[str, _Written]] = msgspec.field(
        name="headers", default_factory=list
    )
    timestamp_ns: str = "0"
    expires_at: str | None = None
    last_error: str | None = None

    @property
    def value(self) -> bytes | None:
        return content_of(self.written_value)

    @property
    def key(self) -> bytes | None:
        return content_of(self.written_key)

    @property
    def headers(self) -> Sequence[tuple[str, bytes]]:
        return [(name, content_of(one) or b"") for name, one in self.written_headers]

    @property
    def timestamp(self) -> int:
        """Nanoseconds since 1970."""
        return int(self.timestamp_ns)


Held = Received | str
"""A message that is lent to us, or its receipt."""


class Polled(msgspec.Struct):
    messages: list[Received]


class Answered(msgspec.Struct, frozen=True):
    """What became of one receipt. `action` of a nack: requeued or dlq."""

    receipt: str = msgspec.field(name="receipt_handle")
    topic: str = ""
    partition: int = -1
    offset: int = -1
    action: str = ""
    next_visible_at: str | None = None
    new_deadline: str | None = None


class _Results(msgspec.Struct):
    results: list[dict[str, Any]]


class Asked(NamedTuple):
    """A poll of a shared group."""

    topic: str
    group: str
    limit: int = 100
    timeout: Duration = 0
    owner: str | None = None
    visibility_timeout: Duration | None = None


def poll(asked: Asked) -> Call[Polled]:
    fields = {
        "group": asked.group,
        "max": asked.limit,
        "timeout": span(asked.timeout),
        "owner": asked.owner,
        "visibility_timeout": None
        if asked.visibility_timeout is None
        else span(asked.visibility_timeout),
    }
    target = with_query(path_of("topics", asked.topic, "messages"), fields)
    return get(target, Polled, wait_s=seconds_of(asked.timeout))


def receipts_of(held: Held | Iterable[Held]) -> list[str]:
    if isinstance(held, str):
        return [held]
    if isinstance(held, Received):
        return [held.receipt]
    return [one if isinstance(one, str) else one.receipt for one in held]


def _answers(verb: str, receipts: Sequence[str], fields: dict[str, object]) -> Call[Any]:
    body = {"receipt_handles": receipts, **fields}
    call = send("POST", f"/messages/{verb}", body, _Results, is_repeatable=verb in _REPEATABLE)
    return Call(call.method, call.target, _results, call.body, call.headers, call.is_repeatable)


# A nack that arrives twice finds its lease over, which would look like a failure.
_REPEATABLE = frozenset({"ack", "visibility"})
_read_results = reader(_Results)


def _results(answer: Answer) -> list[Answered | PenstockError]:
    return [
        msgspec.convert(one, Answered) if one.get("success") else rebuilt(one)
        for one in _read_results(answer).results
    ]


Results = list[Answered | PenstockError]


def ack(receipts: Sequence[str]) -> Call[Results]:
    return _answers("ack", receipts, {})


def nack(receipts: Sequence[str], reason: str, delay: Duration | None) -> Call[Results]:
    fields: dict[str, object] = {"reason": reason}
    if delay is not None:
        fields["delay"] = span(delay)
    return _answers("nack", receipts, fields)


def reject(receipts: Sequence[str], reason: str) -> Call[Results]:
    return _answers("reject", receipts, {"reason": reason})


def extend(receipts: Sequence[str], timeout: Duration) -> Call[Results]:
    return _answers("visibility", receipts, {"timeout": span(timeout)})


def all_or_first_error(results: Results) -> list[Answered]:
    """The results if all are good; otherwise the first error is raised."""
    for one in results:
        if isinstance(one, PenstockError):
            raise one
    return results  # type: ignore[return-value]  # No errors among them, as was just seen.

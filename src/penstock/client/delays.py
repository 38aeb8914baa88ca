"""The calls about delayed messages, and their replies."""

from typing import Any, NamedTuple

import msgspec

from ..api.arguments import instance
from ..api.units import Duration
from .calls import (
    Base64,
    Call,
    Moment,
    content_of,
    get,
    given,
    moment,
    path_of,
    reader,
    send,
    span,
    with_query,
)


class Delayed(msgspec.Struct, frozen=True):
    """A delayed message. `offset` is its place in the delay log, `time_remaining` in milliseconds.

    `state`: PENDING, DELIVERED, CANCELLED, EXPIRED, or LOST to damage. `damage`: why and where it cannot be read; then
    key, value and priority are None.
    """

    topic: str
    partition: int
    offset: int
    deliver_at: str
    time_remaining: int
    state: str
    priority: int | None = None
    written_delay_key: str | Base64 | None = msgspec.field(name="delay_key", default=None)
    written_key: str | Base64 | None = msgspec.field(name="key", default=None)
    written_value: str | Base64 | None = msgspec.field(name="value", default=None)
    damage: str | None = None

    @property
    def delay_key(self) -> bytes | None:
        return content_of(self.written_delay_key)

    @property
    def key(self) -> bytes | None:
        return content_of(self.written_key)

    @property
    def value(self) -> bytes | None:
        return content_of(self.written_value)


class DelayedPage(msgspec.Struct, frozen=True):
    messages: list[Delayed]
    cursor: str | None = None


class DelayStats(msgspec.Struct, frozen=True):
    """Counts of delayed messages by state; `by_topic` has the counts of each topic."""

    pending: int
    delivered: int
    cancelled: int
    expired: int
    by_topic: dict[str, dict[str, Any]]
    wheel: list[int] = []
    lost: int = 0


class DelayedPlace(NamedTuple):
    """Names a delayed message, by its place or by its business key."""

    topic: str
    partition: int | None = None
    offset: int | None = None
    delay_key: str | None = None

    @property
    def path(self) -> str:
        if self.delay_key is not None:
            return with_query(
                path_of("topics", self.topic, "delayed"), {"delay_key": self.delay_key}
            )
        return path_of("topics", self.topic, "delayed", self.partition, self.offset)


def listed(topic: str, limit: int, cursor: str | None) -> Call[DelayedPage]:
    fields = {"limit": limit, "cursor": cursor}
    return get(with_query(path_of("topics", topic, "delayed"), fields), DelayedPage)


def describe(place: DelayedPlace) -> Call[Delayed]:
    """By business key the server answers with a list of one."""
    if instance("a place", place, DelayedPlace).delay_key is not None:
        return Call("GET", place.path, lambda answer: _read_page(answer).messages[0])
    return get(place.path, Delayed)


_read_page = reader(DelayedPage)


def cancel(place: DelayedPlace) -> Call[Delayed]:
    path = instance("a place", place, DelayedPlace).path
    return Call("DELETE", path, reader(Delayed), is_repeatable=False)


def reschedule(
    place: DelayedPlace, delay: Duration | None, deliver_at: Moment | None
) -> Call[Delayed]:
    body = given(
        delay=None if delay is None else span(delay, "delay"),
        deliver_at=None if deliver_at is None else moment(deliver_at),
    )
    return send("PATCH", instance("a place", place, DelayedPlace).path, body, Delayed)


def stats() -> Call[DelayStats]:
    return get("/delay/stats", DelayStats)

"""The calls about groups and dead letters, and their replies."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ..api.arguments import instance, text
from ..errors import Refused
from .calls import (
    Base64,
    Call,
    Content,
    Moment,
    content_of,
    get,
    given,
    moment,
    nothing,
    path_of,
    send,
    with_query,
    written,
)


class GroupName(msgspec.Struct, frozen=True):
    group: str
    topics: list[str]


class GroupNames(msgspec.Struct, frozen=True):
    groups: list[GroupName]
    cursor: str | None = None


class Group(msgspec.Struct, frozen=True):
    """A group and its members. `modes` says by topic whether it is shared or assigned."""

    group: str
    state: str = ""
    generation: int = 0
    protocol: str = ""
    modes: dict[str, str] = {}
    topics: list[str] = []
    members: list[dict[str, Any]] = []


class PartitionLag(msgspec.Struct, frozen=True):
    """Everything below `floor` is finished; `lag` messages are not."""

    topic: str
    partition: int
    floor: int
    end: int
    lag: int
    lag_seconds: float | None = None
    in_flight: int = 0
    finished_above: int = 0


class FaultyPartition(msgspec.Struct, frozen=True):
    """A partition that cannot be used, and why. The lag of a group is not known there."""

    topic: str
    partition: int
    reason: str = ""


class Lag(msgspec.Struct, frozen=True):
    """`total` is without the partitions that are `faulty`."""

    group: str
    total: int
    partitions: list[PartitionLag]
    faulty: list[FaultyPartition] = []


class Offsets(msgspec.Struct, frozen=True):
    """The floor by topic and partition (as text): the offset that is read next."""

    group: str
    offsets: dict[str, dict[str, int]]
    advanced: bool = False


class Reset(msgspec.Struct, frozen=True):
    """Where a reset moved a group, or would move it."""

    group: str
    dry_run: bool
    partitions: list[dict[str, Any]]


class InFlight(msgspec.Struct, frozen=True):
    """Messages that members of a group hold."""

    in_flight: list[dict[str, Any]]
    cursor: str | None = None


def names(cursor: str | None) -> Call[GroupNames]:
    return get(with_query("/groups", {"cursor": cursor}), GroupNames)


def describe(group: str) -> Call[Group]:
    return get(path_of("groups", group), Group)


def delete(group: str) -> Call[None]:
    return Call("DELETE", path_of("groups", group), nothing, is_repeatable=False)


def lag(group: str) -> Call[Lag]:
    return get(path_of("groups", group, "lag"), Lag)


def in_flight(group: str, cursor: str | None) -> Call[InFlight]:
    return get(with_query(path_of("groups", group, "inflight"), {"cursor": cursor}), InFlight)


def offsets(group: str) -> Call[Offsets]:
    return get(path_of("groups", group, "offsets"), Offsets)


def commit(group: str, floors: Mapping[str, Mapping[int, int]]) -> Call[Offsets]:
    """Refused if the floors are not by topic and partition."""
    try:
        by_topic = {
            topic: {str(partition): offset for partition, offset in places.items()}
            for topic, places in floors.items()
        }
    except AttributeError:
        raise Refused('offsets are given by topic and partition: {"orders": {0: 17}}') from None
    return send("POST", path_of("groups", group, "offsets"), {"offsets": by_topic}, Offsets)


def reset(
    group: str, to: Moment, *, topic: str | None, is_dry_run: bool, is_forced: bool
) -> Call[Reset]:
    """`to`: earliest, latest, an offset, or a moment."""
    body = given(
        to=to if isinstance(to, int) else moment(to),
        topic=None if topic is None else text("the name of a topic", topic),
        dry_run=is_dry_run,
        force=is_forced,
    )
    return send("POST", path_of("groups", group, "offsets", "reset"), body, Reset)


class DeadLetter(msgspec.Struct, frozen=True, rename="camel"):
    """A message that was given up, its place among the dead letters, and the reason."""

    partition: int
    offset: int
    original_topic: str
    original_partition: int
    original_offset: int
    delivery_attempts: int
    group: str
    last_error: str
    dlq_reason: str
    dlq_timestamp: str = ""
    last_consumer: str = ""
    original_timestamp: str = ""
    # None if it was never delivered.
    first_delivery: str | None = None
    last_delivery: str | None = None
    priority: int = 2
    written_key: str | Base64 | None = msgspec.field(name="originalKey", default=None)
    written_value: str | Base64 | None = msgspec.field(name="originalValue", default=None)
    written_headers: list[tuple[str, str | Base64 | None]] = msgspec.field(
        name="headers", default_factory=list
    )

    @property
    def headers(self) -> Sequence[tuple[str, bytes]]:
        return [(name, content_of(one) or b"") for name, one in self.written_headers]

    @property
    def key(self) -> bytes | None:
        return content_of(self.written_key)

    @property
    def value(self) -> bytes | None:
        return content_of(self.written_value)


class DeadLetters(msgspec.Struct, frozen=True):
    dead_letters: list[DeadLetter]
    cursor: str | None = None


class DeadLetterCounts(msgspec.Struct, frozen=True):
    groups: list[dict[str, Any]]


class Redriven(msgspec.Struct, frozen=True):
    matched: int
    redriven: int
    failed: list[dict[str, Any]]
    dry_run: bool = False


class Letters(NamedTuple):
    """Selects dead letters: every condition that is given has to hold; without any, all are selected."""

    reason: str | None = None
    group: str | None = None
    error: str | None = None
    before: Moment | None = None
    after: Moment | None = None
    offsets: Sequence[tuple[int, int]] | None = None

    def conditions(self) -> dict[str, object]:
        return given(
            reason=self.reason,
            group=self.group,
            error=self.error,
            before=None if self.before is None else moment(self.before),
            after=None if self.after is None else moment(self.after),
        )


ALL_LETTERS = Letters()


def dead_letters(topic: str, letters: Letters, limit: int, cursor: str | None) -> Call[DeadLetters]:
    chosen = instance("what chooses dead letters", letters, Letters)
    fields = {**chosen.conditions(), "limit": limit, "cursor": cursor}
    return get(with_query(path_of("topics", topic, "dlq"), fields), DeadLetters)


def dead_letter(topic: str, partition: int, offset: int) -> Call[DeadLetters]:
    """The first dead letter at a place or behind it."""
    fields = {"limit": 1, "cursor": f"{partition}-{offset}"}
    return get(with_query(path_of("topics", topic, "dlq"), fields), DeadLetters)


def count_dead_letters(topic: str, by: str, letters: Letters) -> Call[DeadLetterCounts]:
    chosen = instance("what chooses dead letters", letters, Letters)
    fields = {**chosen.conditions(), "group_by": by}
    return get(with_query(path_of("topics", topic, "dlq"), fields), DeadLetterCounts)


class Redrive(NamedTuple):
    """Sends dead letters back, to the `topic` or only to the `group` that failed, with some fields changed.

    With `rate`, so many a second; then a call ends after some seconds, and `Redriven.matched` says how many there were.
    """

    letters: Letters = ALL_LETTERS
    target: str = "topic"
    edit: Mapping[str, Content] | None = None
    limit: int | None = None
    is_dry_run: bool = False
    rate: int | None = None
    headers: Sequence[tuple[str, bytes | str]] | None = None


def redrive(topic: str, order: Redrive) -> Call[Redriven]:
    selection = instance("an order", order, Redrive).letters.conditions()
    if order.letters.offsets is not None:
        places = [{"partition": one, "offset": two} for one, two in order.letters.offsets]
        selection["offsets"] = places
    changes: dict[str, object] = {
        name: written(content) for name, content in (order.edit or {}).items()
    }
    if order.headers is not None:
        changes["headers"] = [(name, written(one)) for name, one in order.headers]
    body = given(
        filter=selection or None,
        all=None if selection else True,
        target=order.target,
        set=changes or None,
        rate=order.rate,
        limit=order.limit,
        dry_run=order.is_dry_run,
    )
    target = path_of("topics", topic, "dlq", "redrive")
    return send("POST", target, body, Redriven, is_repeatable=False)

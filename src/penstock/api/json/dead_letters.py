"""Dead letters as JSON."""

from typing import Any

import msgspec

from ...config import LimitsConfig
from ...errors import BadRequest
from ..dead_letters import (
    ALL,
    REDRIVE_LIMIT,
    DeadLetter,
    DeadLetterCount,
    DiscardDeadLetters,
    Edit,
    GroupBy,
    RedriveDeadLetters,
    Selection,
    Target,
)
from ..units import time_text
from .messages import (
    PRIORITY_NAMES,
    Content,
    ContentOut,
    HeadersIn,
    Int64,
    Strict,
    bytes_of,
    content_of,
    headers_of,
    headers_out,
)
from .times import time_ns, time_text_or_none

_RATE_MAX = 1_000_000


class DeadLettersQuery(Strict):
    """Which dead letters, or what to count them by (reason, error, consumer). `error`: all of it, or its first line."""

    reason: str | None = None
    group: str | None = None
    error: str | None = None
    before: str | None = None
    after: str | None = None
    group_by: str | None = None
    limit: Int64 = 100
    cursor: str = ""
    encoding: str | None = None


class DeadLetterOut(msgspec.Struct, rename="camel", kw_only=True):
    """A dead letter: its own place, the message as it was, and its provenance."""

    partition: int
    offset: int
    original_topic: str
    original_partition: int
    original_offset: int
    original_timestamp: str
    original_key: ContentOut
    original_value: ContentOut
    headers: list[tuple[str, ContentOut]]
    priority: str
    delivery_attempts: int
    first_delivery: str | None
    last_delivery: str | None
    last_consumer: str
    group: str
    last_error: str
    dlq_timestamp: str
    dlq_reason: str


class DeadLettersOut(msgspec.Struct):
    dead_letters: list[DeadLetterOut]
    cursor: str | None


class CountsOut(msgspec.Struct):
    groups: list[dict[str, Any]]


class PlaceIn(Strict):
    partition: Int64
    offset: Int64


class FilterIn(Strict):
    """Every condition that is given has to hold. `error` is the last error, or its first line."""

    reason: str | None = None
    group: str | None = None
    error: str | None = None
    offsets: list[PlaceIn] | None = None
    before: str | None = None
    after: str | None = None


class EditIn(Strict):
    """What to change in the messages."""

    key: Content | msgspec.UnsetType = msgspec.UNSET
    value: Content | msgspec.UnsetType = msgspec.UNSET
    headers: HeadersIn | None = None


class RedriveIn(Strict):
    """Which letters (`filter` or `all`), where to (`topic`, or only the `group` that failed), and how many at most.

    With `rate`, so many a second.
    """

    filter: FilterIn | None = None
    all: bool = False
    target: str = "topic"
    set: EditIn | None = None
    rate: Int64 | None = None
    limit: Int64 = REDRIVE_LIMIT
    dry_run: bool = False


class DiscardIn(Strict):
    """Which letters (`filter` or `all`), and how many at most."""

    filter: FilterIn | None = None
    all: bool = False
    limit: Int64 = REDRIVE_LIMIT
    dry_run: bool = False


class DiscardOut(msgspec.Struct):
    matched: int
    discarded: int
    dry_run: bool


class RedriveOut(msgspec.Struct):
    matched: int
    redriven: int
    failed: list[dict[str, Any]]
    dry_run: bool


def selection_of(asked: DeadLettersQuery | FilterIn) -> Selection:
    offsets = getattr(asked, "offsets", None)
    conditions: dict[str, Any] = {
        "reason": asked.reason,
        "group": asked.group,
        "error": asked.error,
        "offsets": None
        if offsets is None
        else frozenset((one.partition, one.offset) for one in offsets),
        "before_ns": None if asked.before is None else time_ns("before", asked.before),
        "after_ns": None if asked.after is None else time_ns("after", asked.after),
    }
    return ALL if all(one is None for one in conditions.values()) else Selection(**conditions)


def group_by_of(written: str) -> GroupBy:
    names = {one.value: one for one in GroupBy}
    if written not in names:
        raise BadRequest(
            f"group_by must be one of {', '.join(names)}, got {written[:40]!r}", field="group_by"
        )
    return names[written]


def cursor_of(written: str) -> tuple[int, int]:
    if not written:
        return (0, 0)
    partition, _, offset = written.partition("-")
    if not all(one.isascii() and one.isdecimal() and len(one) < 19 for one in (partition, offset)):
        raise BadRequest("cursor is not one of ours", field="cursor")
    return int(partition), int(offset)


def count_out(by: GroupBy, one: DeadLetterCount) -> dict[str, Any]:
    first, last = time_text(one.first_ns), time_text(one.last_ns)
    return {by.value: one.value, "count": one.count, "first": first, "last": last}


def dead_letter_out(letter: DeadLetter, *, is_base64: bool = False) -> DeadLetterOut:
    died, message = letter.provenance, letter.message
    return DeadLetterOut(
        partition=letter.partition,
        offset=letter.offset,
        original_topic=died.original_topic,
        original_partition=died.original_partition,
        original_offset=died.original_offset,
        original_timestamp=time_text(died.original_timestamp),
        original_key=content_of(message.key, is_base64=is_base64),
        original_value=content_of(message.value, is_base64=is_base64),
        headers=headers_out(message.headers, is_base64=is_base64),
        priority=PRIORITY_NAMES[message.priority],
        delivery_attempts=died.delivery_attempts,
        first_delivery=time_text_or_none(died.first_delivery or None),
        last_delivery=time_text_or_none(died.last_delivery or None),
        last_consumer=died.last_consumer,
        group=died.group,
        last_error=died.last_error,
        dlq_timestamp=time_text(died.dlq_timestamp),
        dlq_reason=died.dlq_reason,
    )


def _chosen(sent: RedriveIn | DiscardIn) -> Selection:
    """The letters that `filter` or `all` names. BadRequest: both, neither, or a filter without a condition."""
    if (sent.filter is None) != sent.all:
        raise BadRequest("say which dead letters: give one of filter and all", field="filter")
    selection = ALL if sent.filter is None else selection_of(sent.filter)
    if sent.filter is not None and selection is ALL:
        raise BadRequest("filter has no condition; say all: true if you mean all", field="filter")
    return selection


def discard_of(topic: str, sent: DiscardIn) -> DiscardDeadLetters:
    return DiscardDeadLetters(topic, _chosen(sent), sent.limit, sent.dry_run)


def redrive_of(topic: str, sent: RedriveIn, limits: LimitsConfig) -> RedriveDeadLetters:
    selection = _chosen(sent)
    targets = {one.value: one for one in Target}
    if sent.target not in targets:
        raise BadRequest(f"target must be topic or group, got {sent.target[:40]!r}", field="target")
    if sent.rate is not None and not 1 <= sent.rate <= _RATE_MAX:
        raise BadRequest(f"rate must be in 1..{_RATE_MAX} messages a second", field="rate")
    edit = None if sent.set is None else _edit(sent.set, limits)
    return RedriveDeadLetters(
        topic, selection, targets[sent.target], edit, sent.limit, sent.dry_run
    )


def _edit(written: EditIn, limits: LimitsConfig) -> Edit:
    key, value = written.key, written.value
    return Edit(
        key=None if isinstance(key, msgspec.UnsetType) else bytes_of(key),
        is_key_set=not isinstance(key, msgspec.UnsetType),
        value=None if isinstance(value, msgspec.UnsetType) else bytes_of(value),
        is_value_set=not isinstance(value, msgspec.UnsetType),
        headers=None if written.headers is None else tuple(headers_of(written.headers, limits)),
    )

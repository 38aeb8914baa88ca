"""Schedules as JSON."""

import msgspec
from msgspec import UNSET, UnsetType

from ...config import LimitsConfig
from ...errors import BadRequest
from ..schedules import (
    UTC_NAME,
    ChangeSchedule,
    CreateSchedule,
    Missed,
    Recurrence,
    ScheduleDescription,
    Timing,
)
from .messages import (
    PRIORITY_NAMES,
    Content,
    ContentOut,
    HeadersIn,
    Int64,
    MessageIn,
    Strict,
    bytes_of,
    content_of,
    headers_of,
    headers_out,
    message_of,
    priority_of,
)
from .times import Span, span_ms


class ScheduleIn(Strict):
    """A schedule under a `key`: one of `cron`, in a `timezone`, and `every`; and what is published.

    `missed`, of what fell due while the broker was down: the latest, all, or skip. `message_key` is the key of the
    messages.
    """

    key: str
    cron: str | None = None
    every: Span | None = None
    timezone: str | None = None
    missed: Missed = Missed.LATEST
    paused: bool = False
    value: Content = None
    message_key: Content = None
    headers: HeadersIn | None = None
    partition: Int64 | None = None
    priority: Int64 | str | None = None
    ttl: Span | None = None


class ScheduleChangeIn(Strict):
    """What is to be another; what is not given stays. `cron` takes the place of `every`, and `every` that of `cron`."""

    cron: str | UnsetType = UNSET
    every: Span | UnsetType = UNSET
    timezone: str | UnsetType = UNSET
    missed: Missed | UnsetType = UNSET
    paused: bool | UnsetType = UNSET
    value: Content | UnsetType = UNSET
    message_key: Content | UnsetType = UNSET
    headers: HeadersIn | UnsetType = UNSET
    priority: Int64 | str | UnsetType = UNSET
    ttl: Span | UnsetType | None = UNSET


class ScheduleOut(msgspec.Struct, kw_only=True):
    """A schedule. Times are of the broker's clock; `every_ms` and `ttl_ms` are milliseconds.

    `next_due` is null while it is paused, or while `problem` says why it cannot be told.
    """

    topic: str
    partition: int
    key: str
    version: int
    cron: str | None
    every_ms: int | None
    timezone: str | None
    missed: Missed
    paused: bool
    last_due: str | None
    next_due: str | None
    problem: str | None
    message_key: ContentOut
    value: ContentOut
    headers: list[tuple[str, ContentOut]]
    priority: str
    ttl_ms: int | None


class SchedulesOut(msgspec.Struct):
    """By key."""

    schedules: list[ScheduleOut]


class ScheduleRunOut(msgspec.Struct):
    """Where the message of a schedule was stored that was published at once."""

    topic: str
    key: str
    partition: int
    offset: int


def create_command(topic: str, sent: ScheduleIn, limits: LimitsConfig) -> CreateSchedule:
    """BadRequest, TooLarge; the broker looks at cron, timezone and key."""
    if sent.every is not None and sent.timezone is not None:
        raise BadRequest("a timezone goes with cron, not with every", field="timezone")
    timing = Timing(
        sent.cron or "",
        0 if sent.every is None else span_ms("every", sent.every) or -1,
        UTC_NAME if sent.timezone is None else sent.timezone,
    )
    if (sent.cron is None) == (sent.every is None):
        raise BadRequest("a schedule has one of cron and every", field="cron")
    item = MessageIn(
        key=sent.message_key, value=sent.value, headers=sent.headers, priority=sent.priority
    )
    recurrence = Recurrence(
        timing,
        message_of(item, 0, limits),
        None if sent.ttl is None else span_ms("ttl", sent.ttl),
        sent.missed,
        sent.paused,
    )
    return CreateSchedule(topic, sent.key, recurrence, sent.partition)


def change_command(
    topic: str, key: str, sent: ScheduleChangeIn, limits: LimitsConfig
) -> ChangeSchedule:
    """BadRequest, TooLarge; the broker looks at the rest."""
    if sent == ScheduleChangeIn():
        raise BadRequest("there is nothing to change")
    if sent.cron is not UNSET and sent.every is not UNSET:
        raise BadRequest("a schedule has one of cron and every", field="cron")
    ttl = sent.ttl
    return ChangeSchedule(
        topic,
        key,
        cron=sent.cron,
        every_ms=sent.every if sent.every is UNSET else span_ms("every", sent.every) or -1,
        timezone=sent.timezone,
        missed=sent.missed,
        is_paused=sent.paused,
        value=sent.value if sent.value is UNSET else bytes_of(sent.value),
        message_key=sent.message_key if sent.message_key is UNSET else bytes_of(sent.message_key),
        headers=sent.headers if sent.headers is UNSET else headers_of(sent.headers, limits),
        priority=sent.priority if sent.priority is UNSET else priority_of(sent.priority),
        ttl_ms=ttl if ttl is UNSET or ttl is None else span_ms("ttl", ttl),
    )


def schedule_out(found: ScheduleDescription) -> ScheduleOut:
    timing, message = found.recurrence.timing, found.recurrence.message
    return ScheduleOut(
        topic=found.topic,
        partition=found.partition,
        key=found.key,
        version=found.version,
        cron=timing.cron or None,
        every_ms=timing.every_ms or None,
        timezone=timing.timezone if timing.cron else None,
        missed=found.recurrence.missed,
        paused=found.recurrence.is_paused,
        last_due=found.last_due,
        next_due=found.next_due,
        problem=found.problem or None,
        message_key=content_of(message.key),
        value=content_of(message.value),
        headers=headers_out(message.headers, is_base64=False),
        priority=PRIORITY_NAMES[message.priority],
        ttl_ms=found.recurrence.ttl_ms,
    )

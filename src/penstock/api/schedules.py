"""Recurring messages: a schedule of a topic has the same message published again and again, at times of a clock."""

from collections.abc import Iterable
from enum import Enum
from typing import ClassVar, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from ..errors import (
    AlreadyExists,
    BacklogFull,
    InvalidName,
    NotFound,
    SchemaViolation,
    TooLarge,
)
from ..model import Message, Priority
from .command import Command, Errors
from .forms import ContentBytes, Http, MessageHeaders, MomentNs, PriorityNumber, SpanMs
from .principals import Action
from .publish import Published
from .units import time_text

SCHEDULES_MAX = 1000
"""Of one topic."""
SCHEDULE_BYTES_MAX = 1 << 16
"""Of key, value and headers of the message, all together: every snapshot of the partition holds them."""
EVERY_MS_MIN, EVERY_MS_MAX = 1000, 366 * 24 * 3_600_000
CRON_CHARACTERS_MAX = 200
SCHEDULE_HEADER = "penstock-schedule"
"""The header of an occurrence that says which schedule published it."""
UTC_NAME = "UTC"
_ALL, _ONE = "/topics/{topic}/schedules", "/topics/{topic}/schedules/{schedule=key}"

R = TypeVar("R")


class Missed(Enum):
    """What becomes of occurrences that the broker could not publish in time, because it was down."""

    LATEST = "latest"
    ALL = "all"
    SKIP = "skip"


class Timing(msgspec.Struct, frozen=True, array_like=True):
    """When a schedule is due: by a cron expression in a time zone, or each time an interval is over."""

    cron: str = ""
    every_ms: int = 0
    timezone: str = UTC_NAME


class Recurrence(msgspec.Struct, frozen=True, array_like=True):
    """What a schedule publishes, and when. The time to live of an occurrence counts from its due time."""

    timing: Timing
    message: Message
    ttl_ms: int | None = None
    missed: Missed = Missed.LATEST
    is_paused: bool = False


class ScheduleDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule: what it publishes, and when. `message_key` is the key of the messages.

    `last_due_ns` is the due time of the last occurrence that was published, None before the first. `next_due_ns` is
    None while the schedule is paused, or while `problem` says why it cannot be told. The time to live of an occurrence
    counts from its due time.
    """

    topic: str
    partition: int
    key: str
    version: int
    cron: str | None
    every_ms: int | None
    timezone: str | None
    missed: Missed
    is_paused: bool
    last_due_ns: MomentNs | None
    next_due_ns: MomentNs | None
    problem: str | None
    message_key: ContentBytes | None
    value: ContentBytes | None
    headers: MessageHeaders
    priority: PriorityNumber
    ttl_ms: int | None

    @property
    def last_due(self) -> str | None:
        """When the last occurrence was due, as text in UTC; None before the first one."""
        return None if self.last_due_ns is None else time_text(self.last_due_ns)

    @property
    def next_due(self) -> str | None:
        """When the next occurrence is due, as text in UTC; None if there is none."""
        return None if self.next_due_ns is None else time_text(self.next_due_ns)


class _OfTopic(Command[R], frozen=True):
    tag = "schedules"
    errors: ClassVar[Errors] = (NotFound,)
    topic: str

    def topics(self) -> Iterable[str]:
        return (self.topic,)


class _OfSchedule(_OfTopic[R], frozen=True):
    key: str


class CreateSchedule(_OfSchedule[ScheduleDescription], frozen=True, kw_only=True):
    """Publish a message again and again, from now on, under a key that no other schedule of the topic has.

    It has one of `cron`, in a `timezone`, and `every_ms`. `missed`: what becomes of occurrences that fell due while the
    broker was down. `message_key` is the key of the messages. It is stored in `partition`, or in that of the message's
    key, or in that of the schedule's key, and so is every occurrence. AlreadyExists; NotFound: the topic, or the
    partition. Refused: a part of it is wrong. TooLarge: the message, or the number of schedules. NoSpace.
    """

    action = Action.CHANGE_SCHEDULES
    packed_bytes_max = None
    is_repeatable = False
    audit_line = "{command.topic}: schedule {command.key} created"
    http = Http("POST", _ALL, "Publish a message again and again", 201)
    errors = (
        NotFound,
        AlreadyExists,
        InvalidName,
        TooLarge,
        SchemaViolation,
    )
    cron: str | None = None
    every_ms: SpanMs | None = None
    timezone: str | None = None
    missed: Missed = Missed.LATEST
    is_paused: bool = False
    value: ContentBytes | None = None
    message_key: ContentBytes | None = None
    headers: MessageHeaders = ()
    partition: int | None = None
    priority: PriorityNumber = Priority.NORMAL
    ttl_ms: SpanMs | None = None


class ListSchedules(_OfTopic[list[ScheduleDescription]], frozen=True):
    """All schedules of a topic, by key."""

    action = Action.SEE_SCHEDULES
    is_query = True
    is_walk = True
    http = Http("GET", _ALL, "Schedules of a topic, by key", items="schedules")


class GetSchedule(_OfSchedule[ScheduleDescription], frozen=True):
    """One schedule. NotFound."""

    action = Action.SEE_SCHEDULES
    is_query = True
    http = Http("GET", _ONE, "A schedule, and when it is due next")


class ChangeSchedule(_OfSchedule[ScheduleDescription], frozen=True, kw_only=True):
    """Change what is given, and leave the rest as it is. What is due by the former timing is published before.

    `cron` takes the place of `every_ms`, and that of `cron`. With another timing, or the same one once more, the
    schedule counts from now. What falls due while it is paused is not published. NotFound; Refused and TooLarge as for
    a new one; NoSpace.
    """

    action = Action.CHANGE_SCHEDULES
    packed_bytes_max = None
    audit_line = "{command.topic}: schedule {command.key} changed, version {reply.version}"
    http = Http("PATCH", _ONE, "Change a schedule, pause or resume it")
    errors = (NotFound, TooLarge, SchemaViolation)
    cron: str | UnsetType = UNSET
    every_ms: SpanMs | UnsetType = UNSET
    timezone: str | UnsetType = UNSET
    missed: Missed | UnsetType = UNSET
    is_paused: bool | UnsetType = UNSET
    value: ContentBytes | UnsetType | None = UNSET
    message_key: ContentBytes | UnsetType | None = UNSET
    headers: MessageHeaders | UnsetType = UNSET
    priority: PriorityNumber | UnsetType = UNSET
    ttl_ms: SpanMs | UnsetType | None = UNSET


class DeleteSchedule(_OfSchedule[None], frozen=True):
    """Publish nothing more of it. What was published stays. NotFound."""

    action = Action.CHANGE_SCHEDULES
    is_repeatable = False
    audit_line = "{command.topic}: schedule {command.key} deleted"
    http = Http("DELETE", _ONE, "Delete a schedule", 204)


class RunSchedule(_OfSchedule[Published], frozen=True):
    """Publish the message of a schedule now, beside its occurrences, also while it is paused.

    NotFound; NoSpace, BacklogFull, SchemaViolation, as for any publish.
    """

    action = Action.CHANGE_SCHEDULES
    is_repeatable = False
    audit_line = "{command.topic}: schedule {command.key} run, {reply.offset}"
    http = Http(
        "POST",
        f"{_ONE}/run",
        "Publish the message of a schedule now",
        answer=("topic", "key", "partition", "offset"),
    )
    errors = (NotFound, SchemaViolation, BacklogFull)

"""What programs say about a schedule, in the library and in the client: checked, and made a command."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypedDict

from msgspec import UNSET, UnsetType

from ..errors import Refused
from ..model import Headers, Message, Priority
from .arguments import choice, flag, text, value_of, whole_number
from .schedules import UTC_NAME, ChangeSchedule, CreateSchedule, Missed, Recurrence, Timing
from .units import Duration, duration_ms, priority_of

_MISSED = {one.value: one for one in Missed}


class ScheduleOptions(TypedDict, total=False):
    """`cron` in a `timezone`, or `every`. `missed`: "latest", "all" or "skip". `message_key`: the key of the messages.

    `json`: the value, as any object that JSON has a form for. `ttl` counts from the due time.
    """

    cron: str
    every: Duration
    timezone: str
    missed: str
    paused: bool
    json: Any
    message_key: bytes | str | None
    headers: Any
    priority: int | str
    ttl: Duration | None


class NewScheduleOptions(ScheduleOptions, total=False):
    """`partition`: where it is, and what it publishes. Otherwise the message's key decides, or the schedule's."""

    partition: int | None


class ScheduleChanges(ScheduleOptions, total=False):
    """What is to be another."""

    value: bytes | str | None


class ContentReaders(NamedTuple):
    """How contents, which are named in errors, and headers are read."""

    content: Callable[[str, Any], bytes | None]
    headers: Callable[[Any], Headers]


def created(
    topic: str, key: str, value: Any, options: NewScheduleOptions, readers: ContentReaders
) -> CreateSchedule:
    """Refused, TooLarge: an option is none, or wrong by its kind. The broker looks at the rest."""
    _require_known(options, NewScheduleOptions)
    partition = options.get("partition")
    message = Message(
        readers.content("value", value_of(value, options.get("json", UNSET))),
        readers.content("message_key", options.get("message_key")),
        readers.headers(options.get("headers") or ()),
        priority_of(options.get("priority", Priority.NORMAL)),
    )
    recurrence = Recurrence(
        _timing(options, readers),
        message,
        _ttl_ms(options.get("ttl")),
        choice("missed", options.get("missed", Missed.LATEST.value), _MISSED),
        flag("paused", options.get("paused", False)),
    )
    number = None if partition is None else whole_number("partition", partition, 0)
    return CreateSchedule(*_names(topic, key, readers), recurrence, number)


def changed(
    topic: str, key: str, options: ScheduleChanges, readers: ContentReaders
) -> ChangeSchedule:
    """Refused, TooLarge: an option is none, or wrong by its kind, or there is none at all."""
    _require_known(options, ScheduleChanges)
    if not options:
        raise Refused("there is nothing to change")
    changes: dict[str, Any] = {}
    for name in ("cron", "timezone"):
        if name in options:
            changes[name] = _text(name, options[name], readers)
    if "every" in options:
        changes["every_ms"] = _every_ms(options["every"])
    if "missed" in options:
        changes["missed"] = choice("missed", options["missed"], _MISSED)
    if "paused" in options:
        changes["is_paused"] = flag("paused", options["paused"])
    if "value" in options or "json" in options:
        value: bytes | str | UnsetType | None = options.get("value", UNSET)
        changes["value"] = readers.content("value", value_of(value, options.get("json", UNSET)))
    if "message_key" in options:
        changes["message_key"] = readers.content("message_key", options["message_key"])
    if "headers" in options:
        changes["headers"] = readers.headers(options["headers"] or ())
    if "priority" in options:
        changes["priority"] = priority_of(options["priority"])
    if "ttl" in options:
        changes["ttl_ms"] = _ttl_ms(options["ttl"])
    return ChangeSchedule(*_names(topic, key, readers), **changes)


def _names(topic: str, key: str, readers: ContentReaders) -> tuple[str, str]:
    return _text("topic", topic, readers), _text("key", key, readers)


def _text(what: str, given: object, readers: ContentReaders) -> str:
    """Text that can be sent. Refused if UTF-8 cannot hold it."""
    found = text(what, given)
    readers.content(what, found)
    return found


def _require_known(options: object, kind: Any) -> None:
    known = kind.__annotations__.keys() | ScheduleOptions.__annotations__.keys()
    if unknown := sorted(options.keys() - known):  # type: ignore[attr-defined]  # A dict.
        raise Refused(f"unknown option {unknown[0]!r}; known: {', '.join(sorted(known))}")


def _timing(options: ScheduleOptions, readers: ContentReaders) -> Timing:
    cron, every, timezone = options.get("cron"), options.get("every"), options.get("timezone")
    if (cron is None) == (every is None):
        raise Refused("a schedule has one of cron and every", field="cron")
    if every is not None and timezone is not None:
        raise Refused("a timezone goes with cron, not with every", field="timezone")
    return Timing(
        "" if cron is None else _text("cron", cron, readers),
        0 if every is None else _every_ms(every),
        UTC_NAME if timezone is None else _text("timezone", timezone, readers),
    )


def _every_ms(every: Duration) -> int:
    # None at all is too short, too, and no interval is not the same as none given.
    return duration_ms(every, "every") or -1


def _ttl_ms(ttl: Duration | None) -> int | None:
    return None if ttl is None else duration_ms(ttl, "ttl")

"""What programs say about a schedule, in the library and in the client: checked, and made a command."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypedDict

from msgspec import UNSET, UnsetType

from ..errors import Refused
from ..model import Headers
from .arguments import choice, flag, text, value_of, whole_number
from .schedules import ChangeSchedule, CreateSchedule, Missed
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
    # None is as not said.
    said: Any = {name: option for name, option in options.items() if option is not None}
    fields = _fields(said, readers)
    fields["value"] = readers.content("value", value_of(value, options.get("json", UNSET)))
    if "partition" in said:
        fields["partition"] = whole_number("partition", said["partition"], 0)
    return CreateSchedule(*_names(topic, key, readers), **fields)


def changed(
    topic: str, key: str, options: ScheduleChanges, readers: ContentReaders
) -> ChangeSchedule:
    """Refused, TooLarge: an option is none, or wrong by its kind. The broker looks at the rest."""
    _require_known(options, ScheduleChanges)
    fields = _fields(options, readers)
    if "value" in options or "json" in options:
        value: bytes | str | UnsetType | None = options.get("value", UNSET)
        fields["value"] = readers.content("value", value_of(value, options.get("json", UNSET)))
    return ChangeSchedule(*_names(topic, key, readers), **fields)


def _fields(options: ScheduleOptions, readers: ContentReaders) -> dict[str, Any]:
    """What both say of a schedule, as a command has it."""
    fields: dict[str, Any] = {}
    for name in ("cron", "timezone"):
        if name in options:
            fields[name] = _text(name, options[name], readers)
    if "every" in options:
        fields["every_ms"] = duration_ms(options["every"], "every")
    if "missed" in options:
        fields["missed"] = choice("missed", options["missed"], _MISSED)
    if "paused" in options:
        fields["is_paused"] = flag("paused", options["paused"])
    if "message_key" in options:
        fields["message_key"] = readers.content("message_key", options["message_key"])
    if "headers" in options:
        fields["headers"] = readers.headers(options["headers"] or ())
    if "priority" in options:
        fields["priority"] = priority_of(options["priority"])
    if "ttl" in options:
        ttl = options["ttl"]
        fields["ttl_ms"] = None if ttl is None else duration_ms(ttl, "ttl")
    return fields


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

"""What callers hand in, looked at before anything happens, so that a slip is refused by name and spoils nothing.

A wrong type that is found deep in the broker only is an interrupted change: everything is read from the files again.
"""

import sys
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from operator import index
from typing import Any, TypeVar

from ..errors import Refused

T = TypeVar("T")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SHOWN_MAX = 60


def shown(found: object) -> str:
    """What was found, in short."""
    text = repr(found)
    return text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "..."


def whole_of(what: str, found: object) -> int:
    """A whole number, made one of Python's if it is numpy's. True is none, though Python counts with it."""
    if type(found) is int:
        return found
    try:
        if not isinstance(found, bool):
            return index(found)  # type: ignore[arg-type]  # What has none is refused.
    except TypeError:
        pass
    raise Refused(f"{what} is a whole number, not {shown(found)}")


def count_of(what: str, found: object, *, least: int = 0) -> int:
    """How many of something; more than anybody can count is the most that can be counted."""
    count = whole_of(what, found)
    if count < least:
        raise Refused(f"{what} must be at least {least}, got {count}")
    return min(count, sys.maxsize)


def text_of(what: str, found: object) -> str:
    """Text, made bare if it is more than that (an Enum, or numpy's): only such can be written to files."""
    if not isinstance(found, str):
        raise Refused(f"{what} is text, not {shown(found)}")
    return found if type(found) is str else str.__str__(found)


def flag_of(what: str, found: object) -> bool:
    """True or False: a word would count as yes, whatever it says."""
    if not isinstance(found, bool):
        raise Refused(f"{what} is True or False, not {shown(found)}")
    return found


def kind_of(what: str, found: object, kind: type[T]) -> T:
    if not isinstance(found, kind):
        raise Refused(f"{what} is a {kind.__name__}, not {shown(found)}")
    return found


def chosen(what: str, found: object, choices: dict[str, T]) -> T:
    """What a word stands for."""
    if not isinstance(found, str) or found not in choices:
        raise Refused(f"{what} must be one of {', '.join(choices)}, got {shown(found)}")
    return choices[found]


def called(what: str, found: Any) -> Any:
    """Something to call, or nothing."""
    if found is not None and not callable(found):
        raise Refused(f"{what} is a function, not {shown(found)}")
    return found


def several(what: str, found: object) -> Iterable[Any]:
    """Many of something. Text and bytes can be gone through, too, but nobody means their letters."""
    if isinstance(found, str | bytes | bytearray | memoryview) or not isinstance(found, Iterable):
        raise Refused(f"{what}, got {shown(found)}")
    return found


def moment_ns(what: str, found: object) -> int:
    """A time in nanoseconds since 1970. Without a zone it could be anybody's: the same words, hours apart."""
    if not isinstance(found, datetime):
        raise Refused(f"{what} is a datetime, not {shown(found)}")
    if found.utcoffset() is None:
        raise Refused(
            f"{what}: {shown(found)} has no time zone; write datetime.now(UTC) + timedelta(hours=1),"
            " or add .astimezone() to a local time"
        )
    try:
        since = found - _EPOCH
    except OverflowError:
        raise Refused(f"{what}: {shown(found)} is beyond all calendars") from None
    return since // timedelta(microseconds=1) * 1000

"""What a program hands in, checked by kind before anything happens: a slip is refused by name and spoils nothing.

Never on the way of a plain message: there a wrong kind is found by what goes wrong with it.
"""

import sys
from collections.abc import Callable, Iterable
from inspect import iscoroutinefunction
from operator import index
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET

from ..errors import Refused

T = TypeVar("T")
_SHOWN_MAX = 60
_NUMBER_MAX = (1 << 63) - 1


def shown(given: object) -> str:
    """What was given, in short."""
    text = repr(given)
    return text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "..."


def type_name(given: object) -> str:
    return "None" if given is None else type(given).__name__


def whole_number(
    what: str, given: object, least: int | None = None, most: int | None = None
) -> int:
    """A whole number within its bounds, made one of Python's if it is numpy's. True and False are none."""
    try:
        number = None if isinstance(given, bool) else index(given)  # type: ignore[arg-type]  # What has none is refused.
    except TypeError:
        number = None
    is_low = number is None or (least is not None and number < least)
    if number is None or is_low or (most is not None and number > most):
        bounds = (
            "" if least is None else f" from {least} up" if most is None else f" in {least}..{most}"
        )
        raise Refused(f"{what} must be a whole number{bounds}, got {shown(given)}")
    return number


def whole_count(what: str, given: object, *, least: int = 0) -> int:
    """How many of something; more than can be counted is the most that can be counted."""
    return min(whole_number(what, given, least), sys.maxsize)


def value_of(value: Any, json: object) -> Any:
    """The value of a message, of which the caller gave one: the value itself, or an object that is written as JSON."""
    if json is UNSET:
        if value is UNSET:
            raise Refused("a message needs a value, or json=; the value None is a tombstone")
        return value
    if value is not UNSET:
        raise Refused("a message has a value or json=, not both")
    try:
        return msgspec.json.encode(json)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise Refused(f"this cannot be written as JSON: {error}"[:300]) from None


def number(what: str, given: Any, least: float) -> float:
    """A number that is one: nan is refused."""
    try:
        found = None if isinstance(given, bool | str | bytes) else float(given)
    except OverflowError:
        found = float("inf") if given > 0 else None
    except (TypeError, ValueError):
        found = None
    if found is None or not found >= least:
        raise Refused(f"{what} must be a number from {least:g} up, got {shown(given)}")
    return found


def text(what: str, given: object) -> str:
    """Text, made bare if it is more than that (an Enum, or numpy's): only such can be written to files."""
    if not isinstance(given, str):
        raise Refused(f"{what} is text, not {type_name(given)}")
    return given if type(given) is str else str.__str__(given)


def flag(what: str, given: object) -> bool:
    """True or False: a word would count as yes, whatever it says."""
    if not isinstance(given, bool):
        raise Refused(f"{what} is True or False, not {shown(given)}")
    return given


def instance(what: str, given: object, kind: type[T]) -> T:
    """Something that is made with a class of ours."""
    if not isinstance(given, kind):
        raise Refused(f"{what} is a {kind.__name__}, not {type_name(given)}")
    return given


def choice(what: str, given: object, choices: dict[str, T]) -> T:
    """What a word stands for."""
    if not isinstance(given, str) or given not in choices:
        raise Refused(f"{what} must be one of {', '.join(choices)}, got {shown(given)}")
    return choices[given]


def function(what: str, given: Callable[..., Any] | None) -> None:
    """Something to call, or None."""
    if given is not None and not callable(given):
        raise Refused(f"{what} is a function, not {type_name(given)}")


def plain_function(what: str, given: Callable[..., Any] | None) -> None:
    """Something to call, or None, but no coroutine function: it would be called and never awaited."""
    function(what, given)
    if iscoroutinefunction(given) or iscoroutinefunction(getattr(given, "__call__", None)):  # noqa: B004 - whether it is async, not whether it is there
        raise Refused(f"{what} is a plain function here: a coroutine would not be awaited")


def several(what: str, given: Iterable[T]) -> Iterable[T]:
    """Many of something. Text and bytes can be gone through, too, but their letters are never meant."""
    if isinstance(given, str | bytes | bytearray | memoryview) or not isinstance(given, Iterable):
        raise Refused(f"{what} are several, such as a list, not {shown(given)}")
    return given


def utf8(given: str, what: str) -> str:
    """Text that can be sent. Refused if UTF-8 cannot hold it."""
    try:
        given.encode()
    except UnicodeEncodeError as error:
        raise Refused(f"{what} is text that UTF-8 cannot hold: {error.reason}") from None
    return given


def partition_number(given: object) -> int:
    """The number of a partition. Refused if it is none."""
    return whole_number("partitions and offsets are whole numbers; this one", given, 0, _NUMBER_MAX)

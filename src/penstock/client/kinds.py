"""What a program gave, checked by kind: what is of a wrong one is refused by its name, before anything is sent.

Never on the way of a plain message: there a wrong kind is found by what goes wrong with it.
"""

from collections.abc import Callable, Iterable
from inspect import iscoroutinefunction
from operator import index
from typing import Any, TypeVar

from ..errors import Refused

T = TypeVar("T")


def kind_of(given: object) -> str:
    return "None" if given is None else type(given).__name__


def text(what: str, given: object) -> str:
    if not isinstance(given, str):
        raise Refused(f"{what} is text, not {kind_of(given)}")
    return given


def whole(what: str, given: Any, least: int, most: int | None = None) -> int:
    """A whole number, also one of numpy's. True and False are none: whoever gives them means something else."""
    try:
        number = None if isinstance(given, bool) else index(given)
    except TypeError:
        number = None
    if number is None or number < least or (most is not None and number > most):
        bounds = f"from {least} up" if most is None else f"in {least}..{most}"
        raise Refused(f"{what} must be a whole number {bounds}, got {_shown(given)}")
    return number


def number(what: str, given: Any, least: float) -> float:
    """A number that is one: nan is refused."""
    try:
        found = None if isinstance(given, bool | str | bytes) else float(given)
    except OverflowError:
        found = float("inf") if given > 0 else None
    except (TypeError, ValueError):
        found = None
    if found is None or not found >= least:
        raise Refused(f"{what} must be a number from {least:g} up, got {_shown(given)}")
    return found


def one_of(what: str, given: object, kind: type[T]) -> T:
    """Something that is made with a class of ours."""
    if not isinstance(given, kind):
        raise Refused(f"{what} is a {kind.__name__}, not {kind_of(given)}")
    return given


def several(what: str, given: Iterable[T]) -> Iterable[T]:
    """Many of something. Text and bytes can be gone through, too, but nobody means their letters."""
    if isinstance(given, str | bytes | bytearray | memoryview) or not isinstance(given, Iterable):
        raise Refused(f"{what} are several, such as a list, not {kind_of(given)}")
    return given


def called(what: str, given: Callable[..., Any] | None) -> None:
    """Something to call, or None."""
    if given is not None and not callable(given):
        raise Refused(f"{what} is a function, not {kind_of(given)}")


def called_at_once(what: str, given: Callable[..., Any] | None) -> None:
    """The same where nobody would await what it returns: it would never run."""
    called(what, given)
    if iscoroutinefunction(given) or iscoroutinefunction(getattr(given, "__call__", None)):  # noqa: B004 - whether it is async, not whether it is there
        raise Refused(f"{what} is a plain function here: nobody would await a coroutine")


def _shown(given: object) -> str:
    return repr(given)[:60]

"""What stands in the place of a queue's or a broker's parts when nobody may use them any more."""

import atexit
import os
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, NoReturn, Protocol, Self
from weakref import WeakSet

from ..errors import Refused


class Gone:
    """Whatever is asked of it is refused, with the reason."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def close(self, _before: object) -> None:
        """Closed once more: nothing is left to do."""

    def give_up_disk(self) -> None:
        """The same of its directory. A fork must not wait here for a lock that nobody holds any more."""

    def __getattr__(self, name: str) -> NoReturn:
        raise Refused(self._reason)


class OpenOnce(ABC):
    """What this process alone has open: closed at the end of its block, and neither copied nor sent elsewhere."""

    @abstractmethod
    def close(self) -> None:
        """Give the directory back."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        """Asked by `copy`, and by `multiprocessing` on the way to a process that is not forked."""
        name = type(self).__name__.lower()
        raise Refused(
            f"a {name} cannot be copied or sent to another process: one process has its directory open; "
            "send what the work is about, or use penstock serve and its client"
        )


class Owner(Protocol):
    """Who has a directory open."""

    def close(self) -> None:
        """Give the directory back."""

    def let_go(self, gone: Any) -> None:
        """Use `gone` instead of everything that leads to the directory."""


_OWNERS: "WeakSet[Any]" = WeakSet()


def own(owner: Owner) -> None:
    """Close it when the program ends; and have a process that is forked keep its hands off."""
    atexit.register(owner.close)
    _OWNERS.add(owner)


def disown(owner: Owner) -> None:
    """It is closed, or about to be."""
    atexit.unregister(owner.close)
    _OWNERS.discard(owner)


def _after_fork() -> None:
    """In the child: its threads are gone and locks may be held for ever, while the parent goes on writing its files.

    Both would write to the same places of them, and messages would be lost without a word.
    """
    parent = os.getppid()
    for owner in list(_OWNERS):
        disown(owner)
        owner.let_go(
            Gone(
                f"it was opened by process {parent}, before a fork; open one after the fork, in one process"
            )
        )


os.register_at_fork(after_in_child=_after_fork)

"""A queue or a broker as its user holds it: closed once, with its process, and of no use in a forked one."""

import atexit
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from threading import RLock
from types import TracebackType
from typing import Any, NoReturn, Self
from weakref import WeakKeyDictionary

from ..errors import Refused
from ..runtime.threads import ThreadDriver


class ClosedHandle:
    """Stands in the place of everything that leads to the directory. Whatever is asked of it is refused."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def __getattr__(self, name: str) -> NoReturn:
        raise Refused(self._reason)


class Handle(ABC):
    """What this process alone has open: closed at the end of its block, and neither copied nor sent elsewhere.

    Subclasses call `_opened` when they are open. It is closed when the program ends, and unusable in a forked process.
    """

    _is_open = _is_closing = False

    _give_up_disk: Callable[[], None]

    def _opened(self, driver: ThreadDriver) -> None:
        self._is_open = True
        self._close_lock = RLock()
        atexit.register(self.close)
        _OPEN[self] = driver

    def close(self) -> None:
        """Sync everything and let go of the directory. Closing again only waits until it is closed."""
        # Without the lock, which in a forked process may be held by a thread that is not there.
        if not self._is_open:
            return
        with self._close_lock:
            # Another thread has closed it, or this is a signal handler in the thread that closes it.
            if self._is_closing:
                return
            self._is_closing = True
            reason = f"the {type(self).__name__.lower()} is closed"
            try:
                self._close()
            except Exception:
                self._let_go(reason)
                raise
            except BaseException:
                # A Ctrl-C: the next close goes on.
                self._is_closing = False
                raise
            self._let_go(reason)

    def _let_go(self, reason: str) -> None:
        try:
            self._give_up_disk()
        finally:
            self._forget(reason)

    def _forget(self, reason: str) -> None:
        atexit.unregister(self.close)
        _OPEN.pop(self, None)
        self._replace_parts(ClosedHandle(reason))
        # Last: another thread whose `close` sees this returns at once.
        self._is_open = False

    @abstractmethod
    def _close(self) -> None:
        """End what works with the directory, which is given up afterwards."""

    @abstractmethod
    def _replace_parts(self, closed: Any) -> None:
        """Use `closed` instead of everything that leads to the directory."""

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


_OPEN: "WeakKeyDictionary[Handle, ThreadDriver]" = WeakKeyDictionary()


def _after_fork() -> None:
    """In the child: its threads are gone and locks may be held for ever, while the parent goes on writing its files.

    Both would write to the same places of them, and messages would be lost without a word.
    """
    parent = os.getppid()
    reason = (
        f"it was opened by process {parent}, before a fork; open one after the fork, in one process"
    )
    for one, driver in list(_OPEN.items()):
        # Members and transactions of a broker have its driver, and go on to use that.
        driver.leave_to_parent(reason)
        one._forget(reason)


os.register_at_fork(after_in_child=_after_fork)

"""Waiting and background work, for threads. `asynchronous/io.py` has these names for asyncio."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from threading import Event as Event
from threading import Lock as Lock
from time import sleep as sleep
from typing import Any

from ...api.arguments import plain_function as check_callback
from ...errors import Refused
from ..forks import note_made

__all__ = [
    "Background",
    "Event",
    "Lock",
    "acquire_within",
    "call_back",
    "check_callback",
    "running_loop",
    "sleep",
]


def acquire_within(lock: Lock, timeout_s: float) -> bool:
    """Take a lock, waiting at most so long; returns whether it was free."""
    return lock.acquire(timeout=timeout_s)


def running_loop() -> object:
    """None: locks of threads belong to no loop."""
    return None


def call_back(call: Callable[..., Any], *given: object) -> None:
    """Call a function of the program."""
    call(*given)


class Background:
    """A thread that runs until its function returns. `failure` has the error that ended it."""

    def __init__(self, run: Callable[[], None], name: str) -> None:
        self._future: Future[None] = Future()
        self._run = run
        note_made(self)
        # A daemon: a program that does not close its client must still be able to end.
        threading.Thread(target=self._body, name=name, daemon=True).start()

    def _body(self) -> None:
        try:
            self._run()
        except BaseException as error:
            self._future.set_exception(error)
            if isinstance(error, Exception):
                return
            raise
        self._future.set_result(None)

    def leave_to_parent(self, reason: str) -> None:
        """After a fork: the thread runs in the parent alone, and a `join` here would wait for ever."""
        self._future = Future()
        self._future.set_exception(Refused(reason))

    @property
    def is_over(self) -> bool:
        return self._future.done()

    def failure(self) -> BaseException | None:
        """The error that ended it; None if it returned."""
        return self._future.exception()

    def interrupt(self) -> None:
        """Do nothing: a thread cannot be ended from outside."""

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for its end, at most so long; returns whether it is over."""
        wait([self._future], timeout_s)
        return self._future.done()

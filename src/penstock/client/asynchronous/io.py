"""Waiting and background work, for asyncio. `synchronous/io.py` has these names for threads."""

import asyncio
import contextlib
from asyncio import Lock as Lock
from asyncio import get_running_loop as running_loop
from asyncio import sleep as sleep
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any

from ...api.arguments import function as check_callback

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


class Event(asyncio.Event):
    async def wait(self, timeout_s: float | None = None) -> bool:  # type: ignore[override]  # It may end without it.
        """Wait for it, at most so long; returns whether it is set."""
        if not self.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await super().wait()
        return self.is_set()


async def acquire_within(lock: Lock, timeout_s: float) -> bool:
    """Take a lock, waiting at most so long; returns whether it was free."""
    if not lock.locked():
        return await lock.acquire()
    try:
        async with asyncio.timeout(timeout_s):
            return await lock.acquire()
    except TimeoutError:
        return False


async def call_back(call: Callable[..., Any], *given: object) -> None:
    """Call a function of the program, or a coroutine function."""
    made = call(*given)
    if isawaitable(made):
        await made


class Background:
    """A task that runs until its coroutine returns. `failure` has the error that ended it."""

    def __init__(self, run: Callable[[], Awaitable[None]], name: str) -> None:
        async def body() -> None:
            await run()

        self._task = asyncio.get_running_loop().create_task(body(), name=name)

    @property
    def is_over(self) -> bool:
        return self._task.done()

    def failure(self) -> BaseException | None:
        """The error that ended it; None if it returned or was interrupted."""
        return None if self._task.cancelled() else self._task.exception()

    def interrupt(self) -> None:
        """Cancel it where it waits. Does nothing to a thread."""
        self._task.cancel()

    async def join(self, timeout_s: float | None = None) -> bool:
        """Wait for its end, at most so long; returns whether it is over."""
        if not self._task.done():
            await asyncio.wait({self._task}, timeout=timeout_s)
        return self._task.done()

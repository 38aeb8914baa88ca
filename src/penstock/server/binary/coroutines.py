"""Coroutines of requests that run on the event loop without a task each."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class RunningCoroutine(Generic[T]):
    """Runs a coroutine from its first step on, at once; it goes on when the future that it waits for is done.

    Most requests are done without waiting, and then take neither a task nor another turn of the loop. What needs a
    task, such as `asyncio.timeout`, does not work in it. Belongs to the loop.
    """

    __slots__ = ("_coroutine", "_loop", "_on_done", "_waited", "is_done")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        coroutine: Coroutine[Any, None, T],
        on_done: Callable[[T | None, Exception | None], None],
    ) -> None:
        """`on_done` is called once, with what the coroutine returned or raised; never after `cancel`."""
        self._loop, self._coroutine, self._on_done = loop, coroutine, on_done
        self._waited: asyncio.Future[Any] | None = None
        self.is_done = False

    def begin(self) -> None:
        self._go_on(None)

    def _go_on(self, waited: "asyncio.Future[Any] | None") -> None:
        if self.is_done:
            return
        # A future that has failed keeps its error, whose traceback keeps this frame.
        self._waited = waited = None
        try:
            # A future that failed raises where the coroutine asks it for its result.
            waited = self._coroutine.send(None)
        except StopIteration as returned:
            self.is_done = True
            self._on_done(returned.value, None)
        except Exception as error:
            self.is_done = True
            self._on_done(None, error)
        else:
            if waited is None:
                self._loop.call_soon(self._go_on, None)
            else:
                self._waited = waited
                waited.add_done_callback(self._go_on)

    def cancel(self) -> None:
        """Go on no more: the coroutine leaves by its `finally` blocks, and `on_done` is not called."""
        if self.is_done:
            return
        self.is_done = True
        if self._waited is not None:
            self._waited.remove_done_callback(self._go_on)
            self._waited.cancel()
        self._coroutine.close()

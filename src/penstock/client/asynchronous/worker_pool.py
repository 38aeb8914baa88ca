"""The inbox, the deadline and the signals of a worker's handlers, for asyncio. For threads: `synchronous/`."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from inspect import isawaitable
from typing import Any

from ...errors import Refused
from ..leased_messages import Delivered
from ..stop_signals import calling_on_signals
from ..worker import Overdue, WorkerSettings, check_returned

# Handlers that never wait would keep the consumer from sending heartbeats.
_TAKEN_IN_A_ROW = 50


class Inbox:
    """Messages that wait for a handler."""

    def __init__(self) -> None:
        self._messages: deque[Delivered] = deque()
        self._came = asyncio.Event()
        self._is_closed = False
        self._taken = 0

    def __len__(self) -> int:
        return len(self._messages)

    def put(self, messages: Iterable[Delivered]) -> None:
        self._messages.extend(messages)
        self._came.set()

    async def take(self) -> Delivered | None:
        """The next message; None after `close`."""
        self._taken += 1
        if self._taken % _TAKEN_IN_A_ROW == 0:
            await asyncio.sleep(0)
        while not self._messages:
            if self._is_closed:
                return None
            self._came.clear()
            await self._came.wait()
        return self._messages.popleft()

    def drop(self, places: Sequence[str]) -> int:
        """Give back the messages of some partitions; returns how many."""
        dropped = [one for one in self._messages if one.part.place in places]
        self._messages = deque(one for one in self._messages if one.part.place not in places)
        for one in dropped:
            one.give_back()
        return len(dropped)

    def close(self) -> int:
        """Give back all messages, and end the wait of every `take`; returns how many."""
        self._is_closed = True
        count = self.drop([one.part.place for one in self._messages])
        self._came.set()
        return count


async def within(
    handler: Callable[[Delivered], Any], message: Delivered, limit_s: float | None
) -> None:
    """Run a handler. Cancels it and raises Overdue if it takes too long."""
    if limit_s is None:
        await _call(handler, message)
        return
    limit = asyncio.timeout(limit_s)
    try:
        async with limit:
            await _call(handler, message)
    except TimeoutError:
        if limit.expired():
            raise Overdue(limit_s) from None
        raise


async def _call(handler: Callable[[Delivered], Any], message: Delivered) -> None:
    returned = handler(message)
    check_returned(await returned if isawaitable(returned) else returned)


def is_end_of_slot(error: BaseException) -> bool:
    """Whether this ends the task, or the loop. A CancelledError that the handler made is an error of the handler."""
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    return isinstance(error, KeyboardInterrupt | SystemExit)


def slot_handlers(
    handler: Callable[[Delivered], Any], settings: WorkerSettings
) -> list[Callable[[Delivered], Any]]:
    """What each slot calls: the handler itself. Refused with `processes`: a coroutine is cancelled when it is late."""
    if settings.processes:
        raise Refused("processes are for handlers of Client; a coroutine function runs in the loop")
    return [handler] * settings.concurrency


def end_handlers(_handlers: Iterable[Callable[[Delivered], Any]]) -> None:
    """Do nothing: tasks that were cancelled leave nothing behind."""


def stopping_on_signals(
    stop: Callable[[], None], *, is_polite: bool = False
) -> AbstractContextManager[None]:
    """Have the loop call `stop` at the first SIGTERM or Ctrl-C; a second one has its usual effect.

    In the main thread only. `is_polite`: not for a signal that the program handles itself.
    """
    # Not `loop.add_signal_handler`: it cannot say which handler it replaces.
    call_soon = partial(asyncio.get_running_loop().call_soon_threadsafe, stop)
    return calling_on_signals(call_soon, is_polite=is_polite)

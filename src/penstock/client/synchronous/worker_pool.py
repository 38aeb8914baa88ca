"""The inbox, the deadline and the signals of a worker's handlers, for threads. For asyncio: `asynchronous/`."""

from _thread import start_new_thread
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from ..handler_process import HandlerProcess, check_process_handler
from ..leased_messages import Delivered
from ..stop_signals import calling_on_signals
from ..worker import WorkerSettings, check_returned


class Inbox:
    """Messages that wait for a handler."""

    def __init__(self) -> None:
        self._messages: SimpleQueue[Delivered | None] = SimpleQueue()

    def __len__(self) -> int:
        return self._messages.qsize()

    def put(self, messages: Iterable[Delivered]) -> None:
        for one in messages:
            self._messages.put(one)

    def take(self) -> Delivered | None:
        """The next message; None after `close`."""
        found = self._messages.get()
        if found is None:
            self._messages.put(None)  # For the next handler.
        return found

    def drop(self, places: Sequence[str]) -> int:
        """Give back the messages of some partitions; returns how many."""
        return self._drop(lambda one: one.part.place in places)

    def close(self) -> int:
        """Give back all messages, and end the wait of every `take`; returns how many."""
        count = self._drop(lambda _one: True)
        self._messages.put(None)
        return count

    def _drop(self, is_dropped: Callable[[Delivered], bool]) -> int:
        found = []
        with suppress(Empty):
            while (one := self._messages.get_nowait()) is not None:
                found.append(one)
        dropped = [one for one in found if is_dropped(one)]
        self.put(one for one in found if not is_dropped(one))
        for one in dropped:
            one.give_back()
        return len(dropped)


def within(handler: Callable[[Delivered], Any], message: Delivered, _limit_s: object) -> None:
    """Run a handler. A thread cannot be ended from outside; the worker nacks the message of a late one."""
    check_returned(handler(message))


def is_end_of_slot(_error: BaseException) -> bool:
    """Never: a SystemExit or KeyboardInterrupt in the thread of a handler was raised by the handler."""
    return False


def slot_handlers(
    handler: Callable[[Delivered], Any], settings: WorkerSettings
) -> list[Callable[[Delivered], Any]]:
    """What each slot calls: the handler itself, or a process that does. Refused if no process could import it."""
    if not settings.processes:
        return [handler] * settings.concurrency
    check_process_handler(handler)
    return [HandlerProcess(handler, settings.deadline_s) for _ in range(settings.concurrency)]


def end_handlers(handlers: Iterable[Callable[[Delivered], Any]]) -> None:
    """Kill the processes of handlers; those that returned are idle."""
    for one in handlers:
        if isinstance(one, HandlerProcess):
            one.kill()


def stopping_on_signals(
    stop: Callable[[], None], *, is_polite: bool = False
) -> AbstractContextManager[None]:
    """Call `stop` at the first SIGTERM or Ctrl-C; a second one has its usual effect.

    In the main thread only. `is_polite`: not for a signal that the program handles itself.
    """
    # In a thread: the code that the signal interrupted may hold a lock that `stop` takes.
    return calling_on_signals(partial(start_new_thread, stop, ()), is_polite=is_polite)

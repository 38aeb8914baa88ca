"""What a worker's handlers need, for threads. `asynchronous/crew.py` has the same names for asyncio."""

import signal
import threading
from _thread import start_new_thread
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Any

from ..ack_batcher import Delivered

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


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
        """The next one; None: there will be no more."""
        found = self._messages.get()
        if found is None:
            self._messages.put(None)  # For whoever comes next.
        return found

    def drop(self, places: Sequence[str]) -> int:
        """Give back what waits of some partitions; how many those are."""
        found = self._drained()
        gone = [one for one in found if one.part.place in places]
        self.put(one for one in found if one.part.place not in places)
        for one in gone:
            one.give_back()
        return len(gone)

    def close(self) -> int:
        """Give back everything, and send the handlers home; how many messages that were."""
        gone = self._drained()
        for one in gone:
            one.give_back()
        self._messages.put(None)
        return len(gone)

    def _drained(self) -> list[Delivered]:
        found = []
        with suppress(Empty):
            while (one := self._messages.get_nowait()) is not None:
                found.append(one)
        return found


def within(handler: Callable[[Delivered], Any], message: Delivered, _limit_s: float) -> None:
    """Run a handler. A thread cannot be ended from outside: the worker sees to it that a late one has failed."""
    handler(message)


@contextmanager
def stopping_on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Inside, SIGTERM and Ctrl-C stop; the second one does what it always did. In the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}

    def restore() -> None:
        for number, known in before.items():
            signal.signal(number, known)

    def once(_number: int, _frame: object) -> None:
        restore()
        # Not here: whoever was interrupted may hold a lock that `stop` wants.
        start_new_thread(stop, ())

    for number in _SIGNALS:
        signal.signal(number, once)
    try:
        yield
    finally:
        restore()

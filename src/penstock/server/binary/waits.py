"""Requests that wait for messages without a task, besides the polls that the driver parks itself."""

from collections.abc import Callable
from typing import Any

from ...runtime.asynchronous import AsyncDriver, ParkedPoll
from ...runtime.waits import Key, PartitionEnd
from .coroutines import RunningCoroutine


class EndedWait:
    """A request that waits, and what is to be done when it is cancelled."""

    __slots__ = ("_end", "_waiting")

    def __init__(
        self, waiting: ParkedPoll | RunningCoroutine[Any], end: Callable[[], None]
    ) -> None:
        self._waiting, self._end = waiting, end

    def cancel(self) -> None:
        self._waiting.cancel()
        self._end()


class ParkedRead:
    """A read at the end of a partition, which waits for the next message. Belongs to the loop."""

    __slots__ = ("_driver", "_is_over", "_key", "_offset", "_on_done", "_timer")

    def __init__(
        self, driver: AsyncDriver, place: tuple[str, int, int], on_done: Callable[[], None]
    ) -> None:
        topic, partition, self._offset = place
        self._driver, self._key, self._on_done = driver, PartitionEnd(topic, partition), on_done
        self._is_over = False

    def begin(self, timeout_s: float) -> None:
        self._timer = self._driver.loop.call_later(timeout_s, self.end)
        self._driver.parked.add(self)
        self._driver.subscribe(self._key, self._offset, self._wake)

    def _wake(self, _key: Key) -> None:
        """Called by any thread, with the lock held."""
        self._driver.call_from_anywhere(self.end)

    def end(self) -> None:
        """Wait no longer: the read is carried out again."""
        if not self._is_over:
            self.cancel()
            self._on_done()

    def cancel(self) -> None:
        """Wait no longer."""
        if not self._is_over:
            self._is_over = True
            self._timer.cancel()
            self._driver.parked.discard(self)
            self._driver.unsubscribe(self._key, self._offset, self._wake)

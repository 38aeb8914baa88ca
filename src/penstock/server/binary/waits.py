"""Requests that wait for messages without a task, besides the polls that the driver parks itself."""

from collections.abc import Callable

from ...runtime.asynchronous import AsyncDriver, ParkedPoll


class MemberWait:
    """A parked poll of a member whose session goes on when it ends."""

    __slots__ = ("_end", "_poll")

    def __init__(self, poll: ParkedPoll, end: Callable[[], None]) -> None:
        self._poll, self._end = poll, end

    def cancel(self) -> None:
        self._poll.cancel()
        self._end()


class ParkedRead:
    """A read at the end of a partition, which waits for the next message. Belongs to the loop."""

    __slots__ = ("_driver", "_is_over", "_on_done", "_place", "_timer")

    def __init__(
        self, driver: AsyncDriver, place: tuple[str, int, int], on_done: Callable[[], None]
    ) -> None:
        self._driver, self._place, self._on_done = driver, place, on_done
        self._is_over = False

    def begin(self, timeout_s: float) -> None:
        self._timer = self._driver.loop.call_later(timeout_s, self._end)
        self._driver.subscribe(self._place, self._wake)

    def _wake(self) -> None:
        """Called by any thread, with the lock held, perhaps more than once."""
        self._driver.call_from_anywhere(self._end)

    def _end(self) -> None:
        if not self._is_over:
            self.cancel()
            self._on_done()

    def cancel(self) -> None:
        """Wait no longer."""
        if not self._is_over:
            self._is_over = True
            self._timer.cancel()
            self._driver.unsubscribe(self._place, self._wake)

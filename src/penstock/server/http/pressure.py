"""What one process can take at once: requests, bytes of bodies, slow senders, requests a second."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ...errors import TooManyRequests

_CLIENTS_KEPT = 10_000
_WAIT_S_MAX = 10.0
# Of those who come back many are refused again, so in a second only a part of the room may come back.
_RETURNING = 0.25


class Room:
    """Bounds the requests that are under way.

    Whoever finds no room is told to come back, and the more are turned away, the later each: a second a quarter of what
    fits in. If all came back together, refusing them would cost what serving others needs.
    """

    def __init__(self, limit: int, now: Callable[[], float]) -> None:
        self.limit, self._now = limit, now
        self.under_way = 0
        # Let in by their connection, and not begun yet.
        self.coming = 0
        self._line_ends = 0.0

    def __enter__(self) -> None:
        """Inside, one more is under way; TooManyRequests if there is no room."""
        if self.under_way >= self.limit:
            raise self.refusal(self.wait_ms())
        self.under_way += 1

    def refusal(self, wait_ms: int) -> TooManyRequests:
        return TooManyRequests("requests at once", limit=self.limit, retry_after_ms=wait_ms)

    def __exit__(self, *_error: object) -> None:
        self.under_way -= 1

    def wait_ms(self) -> int:
        """How long the next one who is turned away has to stay away."""
        now = self._now()
        wait = min(max(self._line_ends, now) + 1 / (_RETURNING * self.limit) - now, _WAIT_S_MAX - 1)
        self._line_ends = now + wait
        return int((1 + wait) * 1000)


class Reservation:
    """The share of one request."""

    def __init__(self, memory: "BodyMemory") -> None:
        self._memory, self.size = memory, 0

    def grow(self, size: int) -> bool:
        """Ask for so many bytes in all; False: there is no room."""
        if self._memory.used + size - self.size > self._memory.bytes_max:
            return False
        self._memory.used += size - self.size
        self.size = size
        return True


class BodyMemory:
    """Bounds the bodies that are being received, whoever sends them."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max, self.used = bytes_max, 0

    @contextmanager
    def reserved(self) -> Iterator[Reservation]:
        reservation = Reservation(self)
        try:
            yield reservation
        finally:
            self.used -= reservation.size


class Patience:
    """Ends requests whose body does not come. One look a second costs less than a timer for each."""

    def __init__(self, seconds: float, now: Callable[[], float]) -> None:
        self.seconds, self._now = seconds, now
        self._waiting: dict[asyncio.Task[object], float] = {}
        self.late: set[asyncio.Task[object]] = set()

    def begin(self) -> Callable[[], None]:
        """From here to `end` the task is cancelled when its time is up; `late` says so. What it returns begins anew."""
        task = asyncio.current_task()
        assert task is not None, "requests are tasks"

        def again() -> None:
            self._waiting[task] = self._now() + self.seconds

        again()
        return again

    def end(self) -> None:
        self._waiting.pop(asyncio.current_task(), None)  # type: ignore[arg-type]  # A task, as in `begin`.

    def sweep(self) -> None:
        now = self._now()
        for task in [task for task, until in self._waiting.items() if until <= now]:
            del self._waiting[task]
            self.late.add(task)
            task.cancel()


class RateLimiter:
    """A bucket for everybody who asks: so many requests a second, and as many at once."""

    def __init__(self, per_s: int, now: Callable[[], float]) -> None:
        self.per_s, self._now = per_s, now
        # For each the time at which the bucket would be full again, in the order of the last visit.
        self._full_at: OrderedDict[str, float] = OrderedDict()

    def admit(self, name: str) -> None:
        """Count a request; TooManyRequests over the rate."""
        if self.per_s <= 0:
            return
        now = self._now()
        full_at = max(self._full_at.get(name, 0.0), now) + 1 / self.per_s
        if full_at - now > 1.0:
            wait_ms = int((full_at - now - 1.0) * 1000) + 1
            raise TooManyRequests("requests a second", limit=self.per_s, retry_after_ms=wait_ms)
        self._full_at[name] = full_at
        self._full_at.move_to_end(name)
        if len(self._full_at) > _CLIENTS_KEPT:
            self._full_at.popitem(last=False)

"""A virtual clock, and the calls that are due on it."""

from collections.abc import Callable
from heapq import heappop, heappush

MS = 1_000_000
SECOND = 1000 * MS


class SimClock:
    """Moves when it is told to. Wall time may step either way; monotonic time only goes on."""

    def __init__(self, now_ns: int = 0) -> None:
        self._now_ns = now_ns
        self._monotonic_ns = 0

    def now_ns(self) -> int:
        return self._now_ns

    def monotonic_ns(self) -> int:
        return self._monotonic_ns

    def advance(self, duration_ns: int) -> None:
        assert duration_ns >= 0
        self._now_ns += duration_ns
        self._monotonic_ns += duration_ns

    def step_wall(self, by_ns: int) -> None:
        """Step the wall clock, as a time server, an administrator or a leap second does."""
        self._now_ns += by_ns


class Schedule:
    """Runs calls in the order of their time; calls of the same time run in the order they were made."""

    def __init__(self, clock: SimClock) -> None:
        self.clock = clock
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._made = 0

    def after(self, delay_ns: int, call: Callable[[], None]) -> None:
        assert delay_ns >= 0
        heappush(self._heap, (self.clock.monotonic_ns() + delay_ns, self._made, call))
        self._made += 1

    def step(self, until_ns: int) -> bool:
        """Run the next call that is due before `until_ns`; without one, let the time pass and return False."""
        now_ns = self.clock.monotonic_ns()
        if not self._heap or self._heap[0][0] > until_ns:
            self.clock.advance(max(0, until_ns - now_ns))
            return False
        at_ns, _, call = heappop(self._heap)
        self.clock.advance(at_ns - now_ns)
        call()
        return True

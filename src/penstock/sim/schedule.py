"""What happens next: a heap of calls on a virtual clock."""

from collections.abc import Callable
from heapq import heappop, heappush

from .clock import SimClock

MS = 1_000_000
SECOND = 1000 * MS


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

"""A clock for tests."""

from collections.abc import Callable
from datetime import UTC, datetime

from ..api.units import Duration, duration_ns
from ..sim.schedule import SimClock

# 2026-01-01: late enough that no time computed from it is below zero, and easy to recognise.
START_NS = 1_767_225_600 * 1_000_000_000
# A lease of a millisecond and an advance by a year: at some point jumping is all that is left.
_STEPS_MAX = 100_000


class VirtualClock:
    """Stands still until `advance`. When that returns, everything that was due has happened, in order of time.

    A call that waits for messages would wait for ever unless another thread moves the clock.
    """

    def __init__(self, now_ns: int = START_NS) -> None:
        self._time = SimClock(now_ns)
        self._listeners: list[Callable[[], float]] = []

    def now_ns(self) -> int:
        """The wall clock, in nanoseconds since 1970."""
        return self._time.now_ns()

    def monotonic_ns(self) -> int:
        """The time that has passed, in nanoseconds; `step_wall` does not change it."""
        return self._time.monotonic_ns()

    def now(self) -> datetime:
        """The time as a datetime in UTC."""
        return datetime.fromtimestamp(self.now_ns() / 1_000_000_000, tz=UTC)

    def listen(self, moved: Callable[[], float]) -> None:
        """Call a function after each move; it returns the monotonic time at which it wants the next call."""
        self._listeners.append(moved)

    def advance(self, duration: Duration) -> None:
        """Let time pass: 30, "30s", "5m", "2h", "3d", or a timedelta; bare numbers are seconds."""
        end_ns = self.monotonic_ns() + duration_ns(duration)
        for _ in range(_STEPS_MAX):
            due_ns = self._tell()
            if due_ns >= end_ns:
                break
            self._move_to(max(int(due_ns), self.monotonic_ns() + 1))
        self._move_to(end_ns)
        self._tell()

    def step_wall(self, by: Duration) -> None:
        """Set the wall clock forward, as a time server does; nothing becomes due by it."""
        self._time.step_wall(duration_ns(by))

    def _move_to(self, monotonic_ns: int) -> None:
        self._time.advance(max(0, monotonic_ns - self.monotonic_ns()))

    def _tell(self) -> float:
        return min((moved() for moved in [*self._listeners]), default=float("inf"))

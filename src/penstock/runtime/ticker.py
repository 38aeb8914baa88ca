"""A thread that wakes when something is due, and sleeps otherwise."""

from collections.abc import Callable
from contextlib import suppress
from threading import Lock, Thread
from time import sleep

from ..ports import Clock
from .world import SteppedClock

NEVER_NS = 1 << 62
# A wall clock that was set is noticed after so long: what is due by that clock may be due now.
_SLEEP_S_MAX = 5.0
_STEP_NS = 10_000_000
_PAUSE_S = 0.000_05


class Ticker:
    """Calls `work` at the time last asked for with `expect`. `work` asks for the next time itself.

    A stepped clock calls it in the thread that moves the clock.
    """

    def __init__(self, work: Callable[[], None], clock: Clock) -> None:
        self._work, self._clock = work, clock
        self.due_ns = NEVER_NS
        self._lock = Lock()
        # Free when the thread is to look again. An Event would make a lock of its own for each sleep, which slows down
        # a queue that is filled and emptied again and again.
        self._bell = Lock()
        self._bell.acquire()
        self._is_closed = False
        # A daemon: a caller that forgets to close must not keep the process from ending.
        self._thread = Thread(target=self._run, name="penstock-ticker", daemon=True)

    def start(self) -> None:
        if isinstance(self._clock, SteppedClock):
            self._clock.listen(self._step)
        else:
            self._thread.start()

    def _step(self) -> float:
        if not self._is_closed:
            self.due_ns = NEVER_NS
            self._work()
        return self.due_ns

    def expect(self, due_ns: float) -> None:
        """Work no later than `due_ns`. Thread-safe."""
        with self._lock:
            if due_ns < self.due_ns:
                self.due_ns = int(due_ns)
                self._ring()

    def catch_up(self, work: Callable[[], None]) -> None:
        """If something is due, do so much of the work here: the ticker's own thread may be busy with the rest of it."""
        if self._clock.monotonic_ns() >= self.due_ns:
            self.due_ns = NEVER_NS
            work()

    def _ring(self) -> None:
        if self._bell.locked():
            # Another thread may have rung just now.
            with suppress(RuntimeError):
                self._bell.release()

    def close(self) -> None:
        """End the thread; work that is under way is finished first."""
        self._is_closed = True
        self._ring()
        if self._thread.is_alive():
            self._thread.join()
        self.due_ns = NEVER_NS

    def _run(self) -> None:
        skew_ns = self._skew_ns()
        while not self._is_closed:
            wait_ns = self.due_ns - self._clock.monotonic_ns()
            was_set = abs(self._skew_ns() - skew_ns) > _STEP_NS
            if was_set:
                skew_ns = self._skew_ns()
            if wait_ns > 0 and not was_set:
                self._bell.acquire(timeout=min(wait_ns / 1_000_000_000, _SLEEP_S_MAX))
            else:
                self.due_ns = NEVER_NS
                self._work()
                # What is due at once is not done at once: other threads have the lock before.
                sleep(_PAUSE_S)

    def _skew_ns(self) -> int:
        return self._clock.now_ns() - self._clock.monotonic_ns()

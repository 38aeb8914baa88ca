"""Tickets: how writers wait for the sync that covers them, and how they are woken.

All who are covered by one sync share a ticket. Those of them who may lead stand at its gate, a lock that is taken as
long as nobody may pass. Whoever passes opens it for the next, so that one is on its way while another runs: woken at
once, they would all go to sleep again at the interpreter's lock, which they get one after the other. The others are
told by what they left with `notify`. No wake-up can be missed, and nobody has to take the log's lock to go home.
"""

from collections import deque
from collections.abc import Callable
from threading import Lock


class Ticket:
    """The wait for one sync. Settled once: whoever comes later finds it so."""

    error: BaseException | None = None
    is_settled = False
    # Whether somebody stands at the gate, or is about to, who can lead the sync.
    is_led = False
    is_called = False

    def __init__(self) -> None:
        # One for each who came: adding to it takes no lock.
        self.arrived: list[None] = []
        self.gate, self._is_lingering, self._deciding = Lock(), Lock(), Lock()
        self.gate.acquire()
        self._is_lingering.acquire()
        self._listeners: deque[Callable[[], None]] = deque()

    def settle(self, error: BaseException | None) -> None:
        """Everything is durable that it was for, or will never be. Only the first outcome counts.

        Once more does no harm, and completes one that a Ctrl-C has cut off.
        """
        with self._deciding:
            if not self.is_settled:
                # Nothing that a Ctrl-C could come after until the gate is open.
                self.error, self.is_settled = error, True
                if not self.is_called:
                    self.gate.release()
            if self._is_lingering.locked():
                self._is_lingering.release()
        if self._listeners:
            self._tell()

    def call(self) -> bool:
        """Let one of those at the gate pass to lead; there is one. False: it is settled."""
        with self._deciding:
            if self.is_settled:
                return False
            self.is_called = True
            self.gate.release()
            return True

    def answer(self) -> None:
        """For the one who was called, and has the gate now: the others have to wait, unless it is settled."""
        with self._deciding:
            self.is_called = False
            if self.is_settled:
                self.gate.release()

    def linger(self, seconds: float) -> None:
        """Wait for `hurry`, or until it is settled, but no longer than this. For the one who leads."""
        self._is_lingering.acquire(timeout=seconds)

    def hurry(self) -> None:
        """All are here who are waited for."""
        with self._deciding:
            if self._is_lingering.locked():
                self._is_lingering.release()

    def notify(self, on_settled: Callable[[], None]) -> None:
        """Call this once when settled, from whatever thread; perhaps right now."""
        self._listeners.append(on_settled)
        if self.is_settled:
            self._tell()

    def _tell(self) -> None:
        # Popping is atomic, so that two threads never tell the same one.
        while self._listeners:
            try:
                listener = self._listeners.popleft()
            except IndexError:
                return
            listener()

    def wait(self) -> None:
        """Return once it is settled, or raise, without ever leading. A Ctrl-C leaves nothing half done."""
        told = Lock()
        told.acquire()
        self.notify(told.release)
        told.acquire()
        self.check()

    def check(self) -> None:
        """Raise what it was settled with, if that was an error."""
        if self.error is not None:
            # All who waited share the error; without this it would collect the tracebacks of all of them.
            raise self.error.with_traceback(None)

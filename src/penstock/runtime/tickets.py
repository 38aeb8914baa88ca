"""Tickets: how writers wait for the sync that covers them, and how they are woken.

All writers that one sync covers share a ticket. Threads that may lead wait at its barrier, a lock that is held until
the first may go on. Each opens it for the next, so that one is on its way while another runs: woken at once, they would
all sleep again at the interpreter's lock, which they get one after the other. Other writers are told by the function
that they left with `notify`. No wake-up can be missed, and no writer takes the log's lock to go on.
"""

from collections import deque
from collections.abc import Callable
from threading import Lock

from ..errors import PenstockError


class Ticket:
    """The wait for one sync. Settled once, and for good."""

    error: PenstockError | None = None
    is_settled = False
    # Whether a thread that can lead the sync waits at the barrier, or is about to.
    is_led = False
    is_called = False
    # How many appends of the node its sync covers, for those that other machines have to confirm.
    position = 0

    def __init__(self) -> None:
        # One for each writer that came: adding to it takes no lock.
        self.arrived: list[None] = []
        self.barrier, self._is_delayed, self._deciding = Lock(), Lock(), Lock()
        self.barrier.acquire()
        self._is_delayed.acquire()
        self._listeners: deque[Callable[[], None]] = deque()

    def settle(self, error: PenstockError | None) -> None:
        """Everything is durable that it was for, or will never be. Only the first outcome counts.

        Once more does no harm, and completes one that a Ctrl-C has cut off.
        """
        with self._deciding:
            if not self.is_settled:
                # Nothing that a Ctrl-C could come after until the barrier is open.
                self.error, self.is_settled = error, True
                if not self.is_called:
                    self.barrier.release()
            if self._is_delayed.locked():
                self._is_delayed.release()
        if self._listeners:
            self._tell()

    def call_leader(self) -> bool:
        """Let one of the threads at the barrier lead; there is one. False: the ticket is settled."""
        with self._deciding:
            if self.is_settled:
                return False
            self.is_called = True
            self.barrier.release()
            return True

    def take_lead(self) -> None:
        """For the thread that was called, and holds the barrier now: the others wait, unless the ticket is settled."""
        with self._deciding:
            self.is_called = False
            if self.is_settled:
                self.barrier.release()

    def delay(self, seconds: float) -> None:
        """Wait for `end_delay`, or until it is settled, but no longer than this. For the leader."""
        self._is_delayed.acquire(timeout=seconds)

    def end_delay(self) -> None:
        """All writers have come that the leader waits for."""
        with self._deciding:
            if self._is_delayed.locked():
                self._is_delayed.release()

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
            # All waiting threads share the error, which would collect the tracebacks of all of them.
            raise self.error.fresh()


def settled_ticket() -> Ticket:
    """One for what is durable already."""
    ticket = Ticket()
    ticket.settle(None)
    return ticket

"""Tickets: how a writer waits for the sync that covers it, and how those who wait are woken.

A ticket is a lock of its own and no shared condition: a wake-up cannot be missed, nobody has to take the log's
lock again to go home, and a Ctrl-C while waiting leaves nothing half done.
"""

from collections import deque
from collections.abc import Callable
from threading import Lock

_ON_THEIR_WAY = 2


class Ticket:
    """One writer's wait for the next sync. Settled once, by whoever takes it out of its queue."""

    # Called to lead: nothing is durable yet, and whoever waits for it has to sync.
    is_called = False
    error: BaseException | None = None
    _on_settled: Callable[[], None] | None = None
    _followers: "deque[Ticket] | None" = None

    def __init__(self, *, may_lead: bool = False) -> None:
        # As little as possible: every put that waits makes one, while all the others wait for the interpreter.
        self.may_lead = may_lead
        self._is_pending = Lock()
        self._is_pending.acquire()

    def settle(self, error: BaseException | None) -> None:
        self.error = error
        self._is_pending.release()
        if self._on_settled is not None:
            self._on_settled()

    def call(self) -> None:
        """Wake its thread as the next one to lead. It was taken out of its queue, so nobody settles it."""
        self.is_called = True
        self._is_pending.release()

    def lead_out(self, followers: "deque[Ticket]", error: BaseException | None) -> None:
        """Settle it; its thread does the same for one of those who follow."""
        self._followers = followers
        self.settle(error)

    @property
    def is_settled(self) -> bool:
        return not self._is_pending.locked()

    def notify(self, on_settled: Callable[[], None]) -> None:
        """Call this when settled, from whatever thread; once, or twice if it happens right now."""
        self._on_settled = on_settled
        if self.is_settled:
            on_settled()

    def wait(self) -> None:
        """Return once everything is durable that was written before the ticket was drawn, or raise."""
        self._is_pending.acquire()
        if self._followers:
            _wake_one(self._followers, self.error)
        if self.error is not None:
            self.check()

    def wait_for(self, seconds: float) -> bool:
        """Whether it is settled before the time is up. Nobody is let go: that is for `wait`."""
        is_settled = self._is_pending.acquire(timeout=seconds)
        if is_settled:
            self._is_pending.release()
        return is_settled

    def check(self) -> None:
        """Raise what a ticket that is settled was settled with, if that was an error."""
        if self.error is not None:
            # All who waited share the error; without this it would collect the tracebacks of all of them.
            raise self.error.with_traceback(None)


def settle_all(tickets: deque[Ticket], error: BaseException | None) -> None:
    # Popping is atomic, so that two threads never settle the same ticket.
    while True:
        try:
            ticket = tickets.popleft()
        except IndexError:
            return
        ticket.settle(error)


def wake_in_turn(tickets: deque[Ticket], error: BaseException | None) -> None:
    """Settle all. Of the threads that wait two are woken, and each that has woken up wakes another.

    Woken at once, they would all go to sleep again at the interpreter's lock, which they get one after the other. So
    one should be on its way while another runs, and no more.
    """
    threads = deque([one for one in tickets if one.may_lead])
    if len(threads) < len(tickets):
        # Somebody is told of these, and nobody may be there to tell the next.
        settle_all(deque([one for one in tickets if not one.may_lead]), error)
    for _ in range(_ON_THEIR_WAY):
        _wake_one(threads, error)


def _wake_one(threads: deque[Ticket], error: BaseException | None) -> None:
    try:
        one = threads.popleft()
    except IndexError:
        return  # Another thread has woken the last one a moment ago.
    one.lead_out(threads, error)

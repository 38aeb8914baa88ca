"""Where replies wait for the standby: tickets that a sync has covered here, and that other machines have to confirm.

A ticket knows how many appends its sync covers. It is settled when the leader knows so many to be committed, that is
durable on as many machines as `copies` says; as unconfirmed when that takes too long, or this node leads no longer.
"""

from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import Protocol

from ..errors import NotEnoughReplicas, PenstockError, Unconfirmed
from .tickets import Ticket

_MS_NS = 1_000_000


class Commits(Protocol):
    """The leader of `penstock.replication`, as far as replies need it. Called with the driver's lock held."""

    @property
    def sequence(self) -> int: ...
    @property
    def committed(self) -> int: ...
    @property
    def is_begun(self) -> bool:
        """Whether the record is committed with which this reign begins."""
        ...

    @property
    def in_sync(self) -> int:
        """How many machines have all that is committed, this one included."""
        ...

    def advance(self) -> bool: ...


class CommitGate:
    """Thread-safe. `copies`: as many machines have to have what is confirmed."""

    def __init__(
        self, commits: Commits, copies: int, timeout_ms: int, now_ns: Callable[[], int]
    ) -> None:
        self.commits, self.copies = commits, copies
        self._timeout_ns, self._now_ns = timeout_ms * _MS_NS, now_ns
        self._lock = Lock()
        # In the order of their positions: each with when it is late.
        self._held: deque[tuple[int, int, Ticket]] = deque()
        # Why nothing is admitted, for a while or any more.
        self.closed: PenstockError | None = None
        # Nothing will be confirmed any more.
        self._is_over = False

    @property
    def confirmed_copies(self) -> int:
        """On how many machines that is, durably, for which a ticket was settled: with `copies` 1, on the standby too
        while it is in sync, because that one has all that is committed."""
        return max(self.copies, self.commits.in_sync)

    def admit(self) -> None:
        """NotEnoughReplicas: a machine is away that would have to confirm. Or what the gate was closed with."""
        if self.closed is not None:
            raise self.closed.fresh()
        found = self.commits.in_sync
        if found < self.copies or not self.commits.is_begun:
            raise NotEnoughReplicas(found=found, wanted=self.copies)

    def hold(self, ticket: Ticket) -> None:
        """Settle a ticket whose sync was run, as soon as its position is committed."""
        with self._lock:
            is_done = ticket.position <= self.commits.committed
            if not is_done and not self._is_over:
                self._held.append((ticket.position, self._now_ns() + self._timeout_ns, ticket))
                return
        ticket.settle(None if is_done else Unconfirmed("this node leads no longer"))

    def settle(self) -> None:
        """More may be committed: let those go on that waited for it."""
        for ticket in self._take(lambda position, _until: position <= self.commits.committed):
            ticket.settle(None)

    def expire(self) -> None:
        """Let those go on that have waited too long, without a promise."""
        now_ns = self._now_ns()
        seconds = self._timeout_ns / 1e9
        for ticket in self._take(lambda _position, until: until <= now_ns):
            ticket.settle(Unconfirmed(f"no answer within {seconds:g} s (cluster.ack_timeout_ms)"))

    def give_up_alone(self) -> None:
        """A machine is away. If it has to confirm what waits, that goes on now, without a promise."""
        missing = self.commits.in_sync < self.copies
        for ticket in self._take(lambda _position, _until: missing):
            ticket.settle(Unconfirmed("the standby that has to confirm it is away"))

    def close(self, error: PenstockError) -> None:
        """Admit nothing from now on; `error` says why. What was admitted is still confirmed."""
        self.closed = error

    def reopen(self) -> None:
        self.closed = None

    def fail(self, reason: str) -> None:
        """Let all go on that wait, and all that come, without a promise."""
        with self._lock:
            self._is_over = True
        for ticket in self._take(lambda _position, _until: True):
            ticket.settle(Unconfirmed(reason))

    def _take(self, is_over: Callable[[int, int], bool]) -> list[Ticket]:
        """Those at the front for which it is over."""
        taken = []
        with self._lock:
            while self._held and is_over(*self._held[0][:2]):
                taken.append(self._held.popleft()[2])
        return taken

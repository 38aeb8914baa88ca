"""Commands that take several syncs, for callers that wait without a thread.

A node goes on with what they began by itself, after each sync, or where other machines have to confirm, when they have.
So a caller is told once: when all is done, after so many syncs that something must keep it, or when one failed.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, Protocol, TypeVar, cast

from ..api.command import Command
from ..api.principals import Principal
from .commit_gate import Commits
from .tickets import Ticket

R = TypeVar("R")
# A dead letter arrives after two syncs, a decision after three; more than this many means that something keeps it.
STEPS_MAX = 8


class Stepwise(Protocol):
    """The reply to a command that takes several syncs."""

    @property
    def is_complete(self) -> bool: ...


def is_complete(reply: object) -> bool:
    return cast("Stepwise", reply).is_complete


class Steps(Generic[R]):
    """A command that is under way. `reply` is that of the first step; `ticket` is there when `on_done` is called."""

    __slots__ = ("command", "last_turn", "on_done", "principal", "reply", "ticket")
    reply: R
    ticket: Ticket

    def __init__(
        self,
        command: Command[R],
        principal: Principal,
        on_done: Callable[["Steps[R]"], None],
    ) -> None:
        self.command, self.principal, self.on_done = command, principal, on_done
        self.last_turn = 0

    def end(self, ticket: Ticket) -> None:
        """Have the caller told once a ticket is settled, which may be now."""
        self.ticket = ticket
        ticket.notify(partial(self.on_done, self))


class WaitingSteps:
    """Those of a driver whose callers are to be told. With the driver's lock held, if nothing else is said."""

    def __init__(self) -> None:
        self._waiting: dict[Steps[Any], None] = {}
        self._turn = 0
        # Where other machines have to confirm: the appends that the node had at the last turn.
        self._position = 0
        self._watched: Ticket | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, steps: Steps[Any], ticket: Ticket) -> Ticket:
        """The ticket is for what was done so far. The sync that is under way, if one is, does not count."""
        steps.last_turn = self._turn + 1 + STEPS_MAX
        self._waiting[steps] = None
        self.watch(ticket)
        return ticket

    def discard(self, steps: Steps[Any]) -> None:
        """It was complete with its first step. Without the lock."""
        self._waiting.pop(steps, None)

    def watch(self, ticket: Ticket) -> None:
        """If the sync of this ticket fails, all are told."""
        if ticket is not self._watched:
            self._watched = ticket
            ticket.notify(lambda: self._fail(ticket))

    def _fail(self, ticket: Ticket) -> None:
        """Without the lock, by any thread: its holder may hang on the disk that failed."""
        while ticket.error is not None and self._waiting:
            try:
                steps = self._waiting.popitem()[0]
            except KeyError:
                return
            steps.end(ticket)

    def go_on(self, ended: set[int | str], ticket: Ticket, commits: Commits | None) -> bool:
        """What has ended is durable once the ticket is settled. True: all that was there at the last turn is durable.

        `commits`: then that is, what other machines have to have too.
        """
        is_turn = commits is None or commits.committed >= self._position
        if is_turn:
            self._turn += 1
            self._position = 0 if commits is None else commits.sequence
        for steps in [*self._waiting]:
            if steps.command.end_of() in ended or steps.last_turn <= self._turn:
                self.discard(steps)
                steps.end(ticket)
        return is_turn

"""Commands that walk, carried out slice by slice: how much is a slice, and who runs between two of them.

The core counts entries and knows no clock. A driver measures how long the entries of each kind of command take, and
hands in as many as take about a millisecond.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from time import sleep
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from ..api.command import Command
from ..api.keys import Credential
from ..api.principals import LOCAL, Principal
from ..broker.node import Node
from ..broker.partition import Now
from ..broker.partition.changes import Done
from ..broker.walks import WAIT, Effect, Walk
from ..errors import Cancelled, NotEnoughReplicas, PenstockError, Unconfirmed
from ..ports import Clock

if TYPE_CHECKING:
    from .threads import ThreadDriver
    from .tickets import Ticket

R = TypeVar("R")
_SLICE_NS = 1_000_000
# A first slice is small: nothing is known of its kind, and an entry may take 50 us.
_ENTRIES_FIRST, _ENTRIES_MIN, _ENTRIES_MAX = 64, 8, 100_000
# A slice that was shorter says little about how long an entry takes.
_MEASURED_NS_MIN = _SLICE_NS // 4
# A lock that is released and taken again at once stays with its thread: the others are woken too late to get it. They
# get it while this thread sleeps, which is at least some 60 us.
_PAUSE_S = 0.000_05
# Another thread runs an effect, which takes some milliseconds.
_WAIT_S = 0.002


class SliceBudgets:
    """How many entries are a slice, by the kind of command. Thread-safe: what a race loses is measured again."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._entries: dict[type[Command[Any]], int] = {}

    def entries_for(self, kind: type[Command[Any]]) -> int:
        return self._entries.get(kind, _ENTRIES_FIRST)

    def note(self, kind: type[Command[Any]], entries: int, began_ns: int) -> None:
        """Take note of a slice that has just ended, and looked at so many entries."""
        budget, took_ns = self.entries_for(kind), self._clock.monotonic_ns() - began_ns
        if took_ns < _MEASURED_NS_MIN and entries < budget:
            return
        # More by steps, because the next entries may take longer; less at once. One item may count as many entries.
        fitting = min(entries, budget) * _SLICE_NS // took_ns if took_ns > 0 else _ENTRIES_MAX
        self._entries[kind] = min(max(fitting, _ENTRIES_MIN), 2 * budget, _ENTRIES_MAX)


class SlicedCommand(Generic[R]):
    """A command that walks, on its way through a driver. `reply` and `ticket` are there once `go_on` says so.

    Belongs to one thread at a time; `close` may be called by any.
    """

    def __init__(
        self,
        driver: "ThreadDriver",
        command: Command[R],
        principal: Principal = LOCAL,
        credential: Credential | None = None,
        *,
        writers: int = 0,
        is_own: bool = False,
    ) -> None:
        """`is_own`: no client asked for it, so it needs no machine that confirms it, and waits for none."""
        self.walk = Walk(command, principal, credential)
        self.writers, self._is_own = writers, is_own
        self.reply: R
        # For the durability of what it changed, if that is waited for.
        self.ticket: Ticket | None = None
        self._driver = driver
        self._is_running = self._is_closed = False

    @property
    def is_volatile(self) -> bool:
        return self.walk.command.is_volatile

    @property
    def is_structural(self) -> bool:
        return self.walk.command.is_structural

    def go_on(self) -> bool:
        """Carry out the next slice, and the effect that it ends with. True: it is over. Raises what it is refused with;
        Cancelled: it was closed."""
        self._is_running = True
        try:
            if self._is_closed:
                raise Cancelled
            self._take_slice()
            if self.walk.effect is not None:
                self._run_effect(self.walk.effect)
        except BaseException:
            self._end_walk()
            raise
        finally:
            self._is_running = False
        return self.walk.is_over

    def _take_slice(self) -> None:
        driver, walk = self._driver, self.walk
        if walk.command.is_query:
            reply = driver.query(lambda now: self.take(driver.node, now)).reply
            if isinstance(reply, PenstockError):
                raise reply.fresh()
            self.reply = reply
        elif self._is_own:
            take = driver.rearrange if self.is_structural else driver.run
            self.reply = take(self)
        elif walk.owner is None:
            self.reply, self.ticket = driver.start(self, walk.principal, writers=self.writers)
        else:
            self._go_on_unless_alone()

    def _go_on_unless_alone(self) -> None:
        """Unconfirmed: the standby that has to confirm what was begun is away. What has been done stays."""
        try:
            self.reply, self.ticket = self._driver.start(
                self, self.walk.principal, writers=self.writers
            )
        except NotEnoughReplicas as error:
            raise Unconfirmed(str(error)) from None

    def _run_effect(self, effect: Effect) -> None:
        """Without the lock. A standby gets what was done before meanwhile, and is waited for: the next piece is begun
        only when it has the last one."""
        if effect is WAIT:
            sleep(_WAIT_S)
            return
        driver, ticket = self._driver, None
        if driver.gate is not None and driver.gate.commits.in_sync > 1:
            ticket = driver.begin_change(lambda _now: None, writers=1, is_admitted=True)[1]
        driver.own.run_effect(effect)
        if ticket is not None:
            # If it is away by now, what was begun goes on without it; the last slice says so.
            with suppress(Unconfirmed):
                ticket.wait()

    def _end_walk(self) -> None:
        self.walk.close()
        # What it has begun may go on without it.
        self._driver.expect(0)

    def take(self, node: Node, now: Now) -> Done[R]:
        """Have a node carry out the next slice. With the driver's lock held."""
        walk, budgets = self.walk, self._driver.slice_budgets
        kind = type(walk.command)
        done = node.go_on(walk, now, budgets.entries_for(kind))
        budgets.note(kind, walk.entries, now.monotonic_ns)
        return done

    def run(self, between: Callable[[], None] | None = None) -> R:
        """The reply, once its effect is as durable as the policy says. Other threads have the lock between slices, and
        `between` is called."""
        while not self.go_on():
            sleep(_PAUSE_S)
            if between is not None:
                between()
        if self.ticket is not None:
            self.ticket.wait()
        return self.reply

    def execute(self) -> R:
        """The reply, as `run` has it. What removed files lets those go on that wait for what is gone."""
        reply = self.run()
        if self.is_structural:
            self._driver.files_changed()
        return reply

    def close(self) -> None:
        """Go on no more: what it has gathered is let go. If another thread runs a slice, after that."""
        self._is_closed = True
        if not self._is_running:
            self._end_walk()


def run_pieces(
    driver: "ThreadDriver", pieces: Sequence[Command[R]], principal: Principal
) -> tuple[R, "Ticket | None"]:
    """The replies to the pieces of a command, which are lists, joined; and what to wait for. Other threads have the
    lock between two pieces."""
    replies: list[Any] = []
    ticket: Ticket | None = None
    for piece in pieces:
        # The sync that covers the last piece covers the others.
        reply, ticket = driver.begin(piece, principal)
        replies += cast("list[Any]", reply)
        sleep(_PAUSE_S)
    return cast("R", replies), ticket

"""Group commit: one thread that turns many writers into few fsyncs.

Writers of one log meet at its `SyncPoint`. Each changes the log under the point's lock, gets the ticket of the next
sync and waits for it outside. The committer thread puts a new ticket in place and makes a plan under the lock, which
covers all holders of the old one, runs it without the lock, so that writers go on meanwhile, reports it under the lock,
and settles the ticket. Writers that came later are covered by the next plan.

A thread that has nothing else to do than wait may lead: it syncs for all writers in its own time. It first waits until
all writers are back that the last sync has released, but not for long. The first to come leads. That is mostly the last
leader, which no thread had to wake: on its core all that a plan touches is still at hand. A writer that came during a
sync leads the next one. The committer thread is left with the clock, with callers that cannot wait, and with the main
thread, which a Ctrl-C may interrupt anywhere.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from heapq import heappop, heappush
from itertools import count
from threading import Lock, RLock, Thread, get_ident, main_thread
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from ..config import FsyncPolicy, StorageConfig
from ..errors import Fatal, Internal, PenstockError, Refused
from ..ports import Clock
from .commit_gate import CommitGate
from .fatal import exit_process
from .tickets import Ticket
from .world import SteppedClock

_MS_NS = 1_000_000
# Looking a member up in its class costs more than the comparison, and every append asks.
_ALWAYS, _INTERVAL = FsyncPolicy.ALWAYS, FsyncPolicy.INTERVAL
_S_NS = 1_000_000_000
_FOR_EVER_S = -1
# The writers that a sync has just released are about to come back. Waiting for them, for at most as long as the sync
# took, makes one sync out of two; if they stay away, the others lose no more than that, once.
_PATIENCE_NS_MAX = 200_000


class Plan(Protocol):
    """Work that makes something durable. Run without its owner's lock, one at a time."""

    def run(self) -> None: ...


P = TypeVar("P", bound=Plan)


class Syncable(Protocol[P]):
    """A log, or several that are synced in an order of their own."""

    def plan_sync(self) -> P:
        """What makes everything written so far durable."""
        ...

    def synced(self, plan: P) -> None:
        """Take note that a plan was run."""
        ...


class SyncPoint(Generic[P]):
    """Where the writers of one `target` meet. `lock` guards the target and is never held during a sync."""

    def __init__(self, target: Syncable[P], committer: "Committer") -> None:
        self.lock = Lock()
        self.is_closed = False
        # What was synced here may have to wait for other machines.
        self.gate: CommitGate | None = None
        self._target, self._committer = target, committer
        self._policy = committer.config.fsync
        self._interval_ns = committer.config.fsync_interval_ms * _MS_NS
        # What the next plan is for; and what one is for that runs, or was interrupted.
        self._ticket = Ticket()
        self._covered: deque[Ticket] = deque()
        self._is_dirty = self._is_asked = False
        self._due_ns = 0
        self._gather_until_ns = self._synced_in_ns = 0
        self._expected = 0
        # Held by the thread that syncs, also while it waits for other writers before.
        self._planning = Lock()
        self._maintainers: set[object] = set()
        self._main = main_thread().ident
        committer.add(self)

    @property
    def covered(self) -> Ticket:
        """What the plan is for that the target is being told of."""
        return self._covered[-1]

    def check(self) -> None:
        """Raise if nothing may be written any more."""
        self._committer.check()
        if self.is_closed:
            raise Refused("the log is closed")

    def changed(self, *, is_to_wait: bool = False) -> Ticket | None:
        """Take note that something was written, with the lock held. The policy decides if there is to be a wait.

        `is_to_wait`: the thread goes on to `wait` then.
        """
        self._is_dirty = True
        if self._policy is _ALWAYS:
            may_lead = is_to_wait and get_ident() != self._main
            return self._ticket if may_lead else self.draw()
        if self._policy is _INTERVAL and not self._is_asked:
            self._due_ns = self._next_interval_ns()
            self._ask()
        return None

    def staged(self) -> None:
        """Take note that something was written which counts only with a later change, that has both synced.

        With the lock held.
        """
        if self._policy is _ALWAYS:
            self._is_dirty = True
        else:
            self.changed()

    def draw(self) -> Ticket:
        """The ticket for everything written so far, with the lock held."""
        return self.draw_for(1)

    def draw_for(self, writers: int) -> Ticket:
        """The ticket for several writers that came together: a leader waits for as many as came the last time."""
        self._committer.check()
        ticket = self._ticket
        ticket.arrived.extend([None] * writers)
        if not self._is_asked or len(ticket.arrived) in {writers, self._expected}:
            self._ask()
        if len(ticket.arrived) >= self._expected:
            ticket.end_delay()
        return ticket

    def wait(self, ticket: Ticket | None = None) -> None:
        """Return once a ticket is settled, or raise; without one, once everything written so far is durable.

        Without the lock: one would meet all the others there.
        """
        if get_ident() == self._main:
            return self._wait_in_main(ticket)
        if ticket is None:
            ticket = self._ticket
        # Counted here and not before: the lead must never be handed to a thread that does not wait.
        ticket.is_led = True
        ticket.arrived.append(None)
        if not ticket.is_settled:
            if not self._maintainers and self._planning.acquire(blocking=False):
                self._gather(ticket)
            elif len(ticket.arrived) >= self._expected:
                ticket.end_delay()
        gate = ticket.barrier
        gate.acquire()
        while ticket.is_called:
            ticket.take_lead()
            self._gather(ticket)
            gate.acquire()
        gate.release()
        return None if ticket.error is None else ticket.check()

    def _wait_in_main(self, ticket: Ticket | None) -> None:
        if ticket is None:
            with self.lock:
                self.check()
                ticket = self.draw()
        ticket.wait()

    def _gather(self, ticket: Ticket) -> None:
        """With `_planning` held: sync once all are here, or if they do not come in time."""
        if len(ticket.arrived) < self._expected:
            ticket.delay(min(self._synced_in_ns, _PATIENCE_NS_MAX) / _S_NS)
        # Also if it is settled by now, by a failure or by a sync that had begun before: the place is to be handed on.
        self._take_turn()

    def _ask(self) -> None:
        self._committer.ask(self)
        # Last: if a Ctrl-C comes in between, the next writer asks again, which does no harm.
        self._is_asked = True

    def _next_interval_ns(self) -> int:
        return self._committer.clock.monotonic_ns() + self._interval_ns

    def due_ns(self) -> int:
        """When the next sync should start."""
        arrived = len(self._ticket.arrived)
        if not arrived and not self._covered:
            return self._due_ns
        return 0 if arrived >= self._expected else self._gather_until_ns

    def commit(self) -> None:
        """Sync, if there is anything to sync. For the committer's thread."""
        if self._maintainers:
            return  # `maintenance` asks again at its end.
        self._planning.acquire()
        self._take_turn()

    def _take_turn(self) -> None:
        """Sync, with `_planning` held; then hand it on."""
        failure: PenstockError | None = None
        try:
            self._sync()
        except Fatal as error:
            # Before another thread leads: what failed is not tried again.
            self._committer.fail(error)
            raise
        except PenstockError as error:
            # Nothing was promised and nothing is lost: a later plan covers it all.
            failure = error.fresh()
            with self.lock:
                self._is_dirty = True
                self._due_ns = self._next_interval_ns()
                self._ask()
        except BaseException as error:
            # A bug of ours, and the writers that wait would wait for ever.
            self._committer.fail(error)
            raise
        finally:
            covered, self._covered = self._covered, deque()
            if self._committer.failure is not None:
                # Writers that came since the failure was told have another ticket.
                self._ticket.settle(self._committer.failure)
            self._hand_on()
            for ticket in covered:
                self._settle(ticket, failure or self._committer.failure)

    def _hand_on(self) -> None:
        """Let a writer that came meanwhile lead, in its own thread; if none may, `_planning` is free."""
        while True:
            if self._ticket.arrived and self._call_successor():
                return
            self._planning.release()
            # A writer that came before the release has found the place taken, so this thread looks again.
            if not self._ticket.arrived or not self._has_successor():
                return
            if not self._planning.acquire(blocking=False):
                return

    def _has_successor(self) -> bool:
        ticket = self._ticket
        return ticket.is_led and not ticket.is_settled and not self._maintainers

    def _call_successor(self) -> bool:
        """Call a writer that may lead. False: there is none, and the committer thread has been asked to sync."""
        if self._has_successor():
            return self._ticket.call_leader()
        if not self._ticket.is_settled:
            with self.lock:
                self._ask()
        return False

    def _sync(self) -> None:
        """Run a plan, if there is anything to sync. The caller settles the tickets that it covered."""
        if self._committer.failure is not None:
            self._committer.check()
        with self.lock:
            if self.is_closed or not (self._is_dirty or self._covered or self._ticket.arrived):
                return
            plan = self._plan()
        started_ns = self._committer.clock.monotonic_ns()
        plan.run()
        ended_ns = self._committer.clock.monotonic_ns()
        with self.lock:
            self._target.synced(plan)
        writers = 0
        for ticket in self._covered:
            writers += len(ticket.arrived)
        self._expected = writers + len(self._ticket.arrived)
        self._synced_in_ns = ended_ns - started_ns
        # A clock that a test moved meanwhile makes a sync long, and stands still while writers wait for the next one.
        self._gather_until_ns = ended_ns + (0 if self._committer.is_stepped else self._synced_in_ns)
        if self._committer.on_synced is not None:
            self._committer.on_synced(self._synced_in_ns, writers)

    def _plan(self) -> P:
        """A plan that covers all writers that have come; later ones wait for the next plan."""
        # Before anything is read: a writer without the lock first writes, and then takes its ticket.
        self._covered.append(self._ticket)
        if self.gate is not None:
            self._ticket.position = self.gate.commits.sequence
        self._ticket = Ticket()
        self._is_dirty = self._is_asked = False
        return self._target.plan_sync()

    def fail(self, error: PenstockError) -> None:
        """Release all writers with the error. Does not take `lock`: its holder may hang on the failed disk."""
        for ticket in (*self._covered, self._ticket):
            ticket.settle(error)

    def sync_ahead(self) -> None:
        """Sync what was written so far, while others write: `maintenance` syncs the rest with the lock held."""
        if self.gate is None:
            # What is wrong with another partition is told to those who wrote there.
            with suppress(PenstockError):
                self.wait()

    @contextmanager
    def maintenance(self) -> Iterator[None]:
        """No sync runs, no writer waits and no other thread writes until the end of the block."""
        maintainer = object()
        try:
            self._maintainers.add(maintainer)
            with self._planning, self.lock:
                self._let_go()
                yield
        finally:
            self._maintainers.discard(maintainer)
            if self._committer.failure is not None:
                # It may have come just before a ticket was laid out.
                self.fail(self._committer.failure)
            self._committer.ask(self)

    def _let_go(self) -> None:
        """Sync for the writers that wait: after a truncation it is not known what they had been waiting for.

        If a Ctrl-C comes in between, the committer thread syncs for them.
        """
        if self.is_closed or self._committer.failure is not None:
            return
        if not (self._covered or self._ticket.arrived):
            return
        failure: PenstockError | None = None
        try:
            plan = self._plan()
            plan.run()
            self._target.synced(plan)
        except Fatal as error:
            # Before another thread leads: what failed is not tried again.
            self._committer.fail(error)
            raise
        except PenstockError as error:
            # For the writers to know, not for the caller. A later plan covers what it can, but not their tickets.
            failure, self._is_dirty = error.fresh(), True
        for ticket in self._covered:
            self._settle(ticket, failure or self._committer.failure)
        self._covered.clear()

    def _settle(self, ticket: Ticket, failure: PenstockError | None) -> None:
        """The sync of a ticket was run, or failed."""
        if self.gate is None or failure is not None:
            ticket.settle(failure)
        else:
            self.gate.hold(ticket)

    def close(self) -> None:
        """Refuse from now on. Inside `maintenance`, where no writer waits."""
        self.is_closed = True
        self._is_dirty = False
        self._committer.remove(self)
        self._ticket.settle(Refused("the log is closed"))


class Committer:
    """Syncs any number of logs, one after the other, in a thread of its own.

    A failed sync ends everything: all writers that wait get the error, nothing is acknowledged from then on, and
    `on_fatal` ends the process. It is never tried again, because the kernel may have dropped the bytes.
    """

    def __init__(
        self,
        config: StorageConfig,
        clock: Clock,
        *,
        on_fatal: Callable[[BaseException], None] = exit_process,
    ) -> None:
        self.config, self.clock = config, clock
        self.is_stepped = isinstance(clock, SteppedClock)
        self.failure: PenstockError | None = None
        self._on_fatal = on_fatal
        # Told after each sync how long it took, in nanoseconds, and how many had waited for it.
        self.on_synced: Callable[[int, int], None] | None = None
        self._ending = RLock()
        self._points: set[SyncPoint[Any]] = set()
        self._asked: deque[SyncPoint[Any] | None] = deque()
        # Free when a point was asked for. A SimpleQueue may wait for ever if its time is up while it is about to wait.
        self._bell = Lock()
        # A daemon: a caller that forgets to close must not keep the process from ending.
        self._thread = Thread(target=self._run, name="penstock-committer", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Sync what is left and end the thread; writers are refused from then on."""
        self._ask(None)
        self._thread.join()
        self.failure = self.failure or Refused("the committer is closed")
        self._let_go(self.failure)

    def add(self, point: SyncPoint[Any]) -> None:
        self._points.add(point)

    def remove(self, point: SyncPoint[Any]) -> None:
        self._points.discard(point)

    def ask(self, point: SyncPoint[Any]) -> None:
        """Look at this point soon. Asking more often than needed does no harm."""
        self._ask(point)

    def _ask(self, point: SyncPoint[Any] | None) -> None:
        self._asked.append(point)
        if self._bell.locked():
            # Another thread may have rung just now.
            with suppress(RuntimeError):
                self._bell.release()

    def check(self) -> None:
        if self.failure is not None:
            raise self.failure.fresh()

    def fail(self, error: BaseException) -> None:
        """Stop answering, for good, and end the process. The first reason is the one that counts.

        A thread that fails next, or finds out, waits here for the end, so none runs on, and the process ends as
        `on_fatal` wants it. Writers that wait for a sync learn of it only if `on_fatal` returns.
        """
        with self._ending:
            if self.failure is None:
                self.failure = error.fresh() if isinstance(error, PenstockError) else Internal()
                self._on_fatal(error)
                self._let_go(self.failure)

    @contextmanager
    def failing(self) -> Iterator[None]:
        """A fatal error inside of the block ends the process."""
        try:
            yield
        except Fatal as error:
            self.fail(error)
            raise

    def _let_go(self, error: PenstockError) -> None:
        for point in list(self._points):
            point.fail(error)
        self._ask(None)

    def _run(self) -> None:
        try:
            self._serve()
        except Fatal as error:
            self.fail(error)
        except BaseException as error:
            # A bug of ours. Without this thread every writer would wait for ever.
            self.fail(error)
            raise

    def _serve(self) -> None:
        """Commit each point when it is due, until told to stop; then commit all of them once more."""
        later: list[tuple[int, int, SyncPoint[Any]]] = []
        number = count()
        while (point := self._next(later)) is not None and self.failure is None:
            due_ns = point.due_ns()
            if due_ns > self.clock.monotonic_ns():
                heappush(later, (due_ns, next(number), point))
            else:
                point.commit()
        for point in list(self._points) if self.failure is None else ():
            point.commit()

    def _next(self, later: list[tuple[int, int, SyncPoint[Any]]]) -> SyncPoint[Any] | None:
        """The next point to look at: the first whose time has come, or one that was asked for. None: stop."""
        while True:
            wait_s = (later[0][0] - self.clock.monotonic_ns()) / _S_NS if later else _FOR_EVER_S
            if later and wait_s <= 0:
                return heappop(later)[2]
            with suppress(IndexError):
                return self._asked.popleft()
            self._bell.acquire(timeout=wait_s)

"""A node driven by threads: for programs that have a broker inside and no event loop.

One lock guards the node; a command runs under it, in the thread of whoever asks, and waits for its durability outside.
A committer thread syncs, one fsync for all who wait, and then moves dead letters on. A ticker thread wakes when a lease
or a retry is due. Who waits for messages is woken with the messages in hand.

A command that a Ctrl-C cut in two leaves memory and journal apart, so the next one first opens the node again from
its files, which hold everything that was written, whole.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from typing import Any, TypeVar

import msgspec

from ..api.command import Command
from ..api.consume import CountReady, Poll
from ..api.leased import LeasedMessages
from ..api.principals import LOCAL, Principal
from ..api.received import Received
from ..broker.changes import Done
from ..broker.node import Node
from ..broker.partition import Now, now_of
from ..broker.sweeping import sweep_due
from ..config import LogConfig, StorageConfig
from ..errors import Fatal, NotFound, PenstockError, Refused, Unavailable
from ..ports import Disk
from .commit import Committer, SyncPoint
from .findings import FindingsLog
from .members import MemberRoom
from .memory import keep_freed_memory
from .node_plan import NodePlan
from .ticker import NEVER_NS, Ticker
from .tickets import Ticket
from .waiting import Waiter, WaitingRoom
from .world import SteppedClock, World

R = TypeVar("R")
T = TypeVar("T")
_S_NS = 1_000_000_000
# A full disk, mostly: what could not be done on time is tried again after this long.
_RETRY_NS = _S_NS
FOR_EVER = -1
# Where a test lets a year pass, topics are swept so many times more seldom, unless they say themselves how often.
_STEPPED_SWEEP_TIMES = 12
# A dead letter arrives after two syncs; more than this many means that something keeps it.
_STEPS_MAX = 8


def _never_needless() -> bool:
    return False


class ThreadDriver:
    """Owns a node. Thread-safe. `node` may be touched inside commands only, and not kept: it may be replaced."""

    def __init__(self, disk: Disk, config: StorageConfig, world: World) -> None:
        keep_freed_memory()
        self._disk, self.config = disk, config
        self.clock, self.logger = world.clock, world.logger
        self._is_stepped = isinstance(world.clock, SteppedClock)
        self._findings = FindingsLog(world, on_skipped=self.note_change)
        self.node = self._open_node()
        self._committer = Committer(config, world.clock, on_fatal=world.on_fatal)
        self._point: SyncPoint[NodePlan] = SyncPoint(
            self, self._committer, unsynced_bytes_max=LogConfig().checkpoint_bytes
        )
        self.lock = self._point.lock
        self._room, self.members = WaitingRoom(), MemberRoom(self)
        self._is_torn = self._is_hurried = self._is_planning = False
        self._sweep_at_ns = self.node.sweeps.next_ns
        # Called in each tick, with the lock held; returns when it wants the next one.
        self.on_tick: Callable[[Now], float] = lambda _now: NEVER_NS
        # Called after whatever may have changed something, with the lock held.
        self.after_change: Callable[[], None] = lambda: None
        # Entered while delayed messages go to their logs, with the lock held.
        self.while_firing: Callable[[], AbstractContextManager[None]] = nullcontext
        # Called before a sync, with the lock held: what is still in memory only goes to the node now.
        self.before_sync: Callable[[Now], None] | None = None
        self._ticker = Ticker(self._tick_or_fail, world.clock)
        if isinstance(world.clock, SteppedClock):
            world.clock.listen(self._tick_and_tell)
        else:
            self._ticker.start()
        with self.lock:
            self.expect(min(self.node.next_due_ns(), self._sweep_at_ns))
            self.hurry_letters()
        if self._is_stepped and self.node.has_due(self.now()):
            self.tick()  # Overdue, and nobody else would look before the clock moves.

    def _open_node(self) -> Node:
        return self._findings.open_node(
            self._disk,
            self.now(),
            self.config,
            usual_sweep_times=_STEPPED_SWEEP_TIMES if self._is_stepped else 1,
        )

    def now(self) -> Now:
        return now_of((self.clock.now_ns(), self.clock.monotonic_ns()))

    def look(self, command: Callable[[Now], T]) -> T:
        """Run a command that changes nothing."""
        if self._is_torn:
            self._mend()
        with self.lock:
            self._check()
            return command(self.now())

    def change_at_once(self, command: Callable[[Now], T]) -> T:
        """Run a command; its effect is durable with the next sync, whenever that is."""
        return self._change(command, self.note_change)[0]

    def change(self, command: Callable[[Now], T]) -> T:
        """Run a command; return when its effect is as durable as the fsync policy says."""
        reply, ticket = self._change(command, lambda: self._point.changed(0, is_to_wait=True))
        if ticket is not None:
            self._point.wait(ticket)
        return reply

    def begin_change(
        self, command: Callable[[Now], T], *, writers: int = 0
    ) -> tuple[T, Ticket | None]:
        """Run a command without waiting; the ticket is for its durability, in any case if writers wait for it."""
        draw = self._point.draw_for
        return self._change(command, (lambda: draw(writers)) if writers else self.note_change)

    def on_synced(self, tell: Callable[[int, int], None]) -> None:
        """Have a function told after each sync how long it took (ns) and how many had waited for it."""
        self._committer.on_synced = tell

    def note_change(self) -> Ticket | None:
        """Something is to be synced, as the policy says. With the lock held."""
        if self._is_planning:
            return None  # The plan that is being made covers it.
        return self._point.changed(0)

    def execute(self, command: Command[R], principal: Principal = LOCAL) -> R:
        """Carry out a command; return when its effect is as durable as the fsync policy says."""
        if command.is_query:
            if self._is_torn:
                self._mend()
            with self.lock:
                self._check()
                return self.node.execute(command, principal, self.now()).outcome()
        run = partial(self._executed, command, principal)
        guard = self._point.maintenance() if command.is_structural else self.lock
        reply, ticket = self._run(run, lambda: self._point.changed(0, is_to_wait=True), guard)
        if ticket is not None:
            self._point.wait(ticket)
        if command.is_structural:
            # Consumers that wait at a topic that is gone are let go. Delayed messages that could not be read may have
            # their turn under new settings.
            self.tick()
        return reply

    def start(
        self, command: Command[R], principal: Principal = LOCAL, *, writers: int = 0
    ) -> tuple[R, Ticket | None]:
        """Carry out a command without waiting; the ticket is for its durability, in any case if writers wait for it."""
        run = partial(self._executed, command, principal)
        draw = self._point.draw_for
        return self._run(run, (lambda: draw(writers)) if writers else self.note_change)

    def _executed(self, command: Command[R], principal: Principal, now: Now) -> Done[R]:
        return self.node.execute(command, principal, now)

    def _change(
        self, command: Callable[[Now], T], note: Callable[[], Ticket | None] | None = None
    ) -> tuple[T, Ticket | None]:
        """Run a function on the node as if it were a command."""

        def run(now: Now) -> Done[T]:
            try:
                reply: T | PenstockError = command(now)
            except Fatal:
                raise
            except PenstockError as error:
                reply = error
            return self.node.changes.done(reply, now)

        return self._run(run, note)

    def _run(
        self,
        run: Callable[[Now], Done[T]],
        note: Callable[[], Ticket | None] | None,
        guard: AbstractContextManager[object] | None = None,
    ) -> tuple[T, Ticket | None]:
        """Run a command and act on what it recorded. Without `note`, a sync is asked for only if there is something.

        `guard` holds the lock while the command runs; the lock itself, if it is not given.
        """
        if self._is_torn:
            self._mend()
        # As with `_failing`; but every publish comes by here, and to make a generator costs as much as the lock.
        try:
            with guard or self.lock:
                self._check()
                try:
                    done = run(self.now())
                    failure = done.reply if isinstance(done.reply, PenstockError) else None
                    is_noted = note is not None and failure is None
                    ticket = note() if note is not None and is_noted else None
                    self.serve(done.wakes)
                    self._act_on(done, is_noted=is_noted)
                    if self.node.sweeps.next_ns < self._sweep_at_ns:
                        self._expect_sweep(self.node.sweeps.next_ns)
                except PenstockError:
                    raise
                except BaseException:
                    self._is_torn = True
                    raise
        except Fatal as error:
            self._committer.fail(error)
            raise
        return done.outcome(), ticket

    def _act_on(self, done: Done[Any], *, is_noted: bool) -> None:
        """Tick in time for what was recorded; sync soon if letters wait for it, or as the policy says."""
        if done.marks:
            self.expect(done.due_ns)
            if done.has_letters:
                self._hurry()
            elif not is_noted:
                self.note_change()
        if self.node.changes.touched:
            # Waiting consumers were served, which records leases.
            self._act_on(self.node.changes.done(None, self.now()), is_noted=is_noted)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except Fatal as error:
            self._committer.fail(error)
            raise

    def _check(self) -> None:
        # As the point does it; but everything comes by here.
        if self._committer.failure is not None or self._point.is_closed:
            self._point.check()
        if self._is_torn:
            raise Unavailable("a change was interrupted a moment ago; try again")

    def rearrange(self, command: Callable[[Now], T]) -> T:
        """Run a command that removes or replaces files: no sync is under way meanwhile."""
        if self._is_torn:
            self._mend()
        with self._failing(), self._point.maintenance():
            self._check()
            try:
                reply = command(self.now())
            except PenstockError:
                raise
            except BaseException:
                self._is_torn = True
                raise
            self.after_change()
            return reply

    def _mend(self) -> None:
        with self._failing(), self._point.maintenance():
            if self._is_torn and not self._point.is_closed:
                self._open_again()

    def _open_again(self) -> None:
        """Take the node from its files once more: they are whole, its memory may not be. No sync is under way."""
        for partition in self.node.partitions():
            partition.discard()
        self.node.meta.log.discard()
        owed = self.node.owed
        self.node = self._open_node()
        self.node.owed = owed
        self._is_torn = False

    def poll(
        self,
        command: Poll,
        timeout_ns: int = 0,
        *,
        is_needless: Callable[[], bool] = _never_needless,
    ) -> list[Received]:
        """Lease messages; wait for them, if there are none, until the time is up (below zero: for ever).

        Asked with the lock held, `is_needless` says that there are some elsewhere; then the caller does not wait.
        """
        waiter = self.enter(command, LOCAL, timeout_ns, is_needless=is_needless)
        if waiter.is_settled:
            return waiter.outcome().messages()
        is_timed = timeout_ns >= 0 and not self._is_stepped
        try:
            waiter.wait(timeout_ns / _S_NS if is_timed else FOR_EVER)
        except BaseException:
            self.abandon(waiter)
            raise
        self.leave(waiter)
        return waiter.outcome().messages()

    def enter(
        self,
        command: Poll,
        principal: Principal,
        timeout_ns: int,
        on_settled: Callable[[], None] | None = None,
        *,
        is_needless: Callable[[], bool] = _never_needless,
    ) -> Waiter:
        """Lease what is there, or begin to wait for it: the waiter is settled at once, or later.

        With `on_settled`, which is called once, from any thread, the ticker sees to it that the wait ends in time.
        """

        def take_or_wait(now: Now) -> Done[Waiter]:
            until_ns = NEVER_NS if timeout_ns < 0 else now.monotonic_ns + timeout_ns
            waiter = Waiter(command, principal, until_ns, on_settled=on_settled)
            done = self.node.execute(command, principal, now)
            if isinstance(done.reply, PenstockError):
                return Done(done.reply, *done[1:])
            if done.reply or not (timeout_ns and command.limit) or is_needless():
                waiter.settle(done.reply)
            else:
                self._room.enter(waiter)
            if on_settled is not None:
                self.expect(until_ns)
            return Done(waiter, *done[1:])

        return self._run(take_or_wait, None)[0]

    def leave(self, waiter: Waiter) -> None:
        """Wait no longer; what the waiter was settled with stays with it."""
        with self.lock:
            self._room.leave(waiter)

    def abandon(self, waiter: Waiter) -> None:
        """Wait no longer, and give back what came a moment too late: no client will see it, so it does not count."""
        self.leave(waiter)
        if waiter.messages:
            with suppress(PenstockError):
                self.start(waiter.messages.release())

    def execute_locked(self, command: Command[R], now: Now, principal: Principal = LOCAL) -> R:
        """Carry out a command in the middle of another one, which waits for both. With the lock held."""
        return self.node.carry_out(command, principal, now)

    @property
    def is_awaited(self) -> bool:
        """Whether anybody waits for messages."""
        return bool(self._room) or bool(self.members)

    def expect(self, due_ns: float) -> None:
        """Tick no later than this. With the lock held."""
        self._ticker.expect(due_ns)

    def _hurry(self) -> None:
        """Sync now, although nobody waits: each step of a dead letter rests on a sync."""
        if not self._is_hurried:
            self._is_hurried = True
            self._point.draw()

    def serve(self, topics: Collection[str] | None = None) -> None:
        """Hand out what is ready to the consumers that wait, of some topics or of all. With the lock held."""
        if self._room.queues:
            for place in self._room.groups(topics):
                self._serve_group(*place)
        self.members.serve()
        self.after_change()

    def _serve_group(self, topic: str, group: str) -> None:
        if topic not in self.node.open:
            self._room.dismiss(NotFound("topic", topic), [(topic, group)])
            return
        now = self.now()
        ready = self.execute_locked(CountReady(topic, group), now)

        def take(waiter: Waiter, limit: int) -> LeasedMessages:
            command = msgspec.structs.replace(waiter.command, limit=limit)
            return self.execute_locked(command, now, waiter.principal)

        self._room.serve((topic, group), ready, take)

    def tick(self) -> None:
        """Let time pass: leases that nobody answered come back, retries are due, waits are over."""
        try:
            self._change(self._tick)
        except Fatal:
            return  # Everybody has been told.
        except PenstockError as error:
            self._tick_later(error)
        if self.clock.monotonic_ns() >= self._sweep_at_ns:
            self._sweep_on_time()

    def _tick_later(self, error: PenstockError) -> None:
        """Tick again: at once if a Ctrl-C in another thread was in the way and is mended, otherwise after a while."""
        wait_ns = _RETRY_NS
        if self._is_torn:
            with suppress(PenstockError):
                self._mend()
                wait_ns = 0
        if wait_ns:
            self.logger.warning("cannot go on yet: %s", error)
        with self.lock:
            self.expect(self.clock.monotonic_ns() + wait_ns)

    def _expect_sweep(self, due_ns: float) -> None:
        self._sweep_at_ns = due_ns
        self.expect(due_ns)

    def _sweep_on_time(self) -> None:
        try:
            self.rearrange(self._sweep_due)
        except Fatal:
            return  # Everybody has been told.
        except PenstockError as error:
            self.logger.warning("cannot remove what is old: %s", error)
        with self.lock:
            due_ns, now_ns = self.node.sweeps.next_ns, self.clock.monotonic_ns()
            # What was refused is still due.
            self._expect_sweep(due_ns if due_ns > now_ns else now_ns + _RETRY_NS)

    def _sweep_due(self, now: Now) -> None:
        sweep_due(self.node, now)

    def _tick_and_tell(self) -> float:
        if self._point.is_closed:
            return NEVER_NS
        self._ticker.forget()
        self.tick()
        return self._ticker.due_ns

    def _tick_or_fail(self) -> None:
        try:
            self.tick()
        except BaseException as error:
            # A bug of ours. Without this thread nothing would ever be due again.
            self._committer.fail(error)
            raise

    def _tick(self, now: Now) -> None:
        wanted_ns = self.on_tick(now)
        before = self._unsynced()
        with self.while_firing() if self.node.has_due(now) else nullcontext():
            self.node.tick(now)
            # Nobody comes back for what was too much for one tick while the clock stands still.
            while self._is_stepped and self.node.has_due(now) and self.node.fire(now):
                pass
        if self._unsynced() != before:
            self.note_change()
            self.hurry_letters()
        self.members.look_at_all()
        self.serve()
        self._room.end_overdue(now.monotonic_ns)
        wanted_ns = min(wanted_ns, self.members.end_overdue(now.monotonic_ns))
        next_ns = min(wanted_ns, self.node.next_due_ns(), self._room.next_until_ns())
        self.expect(min(next_ns, self._sweep_at_ns))

    def _unsynced(self) -> int:
        return sum(
            one.journal.log.end_offset + one.messages.end_offset for one in self.node.partitions()
        )

    def hurry_letters(self) -> None:
        """Let dead letters go soon, if there are any. With the lock held."""
        if any(one.machine.outbox.pending for one in self.node.partitions()):
            self._hurry()

    def plan_sync(self) -> NodePlan:
        """For the committer, with the lock held."""
        self._is_hurried = False
        if self._is_torn:
            self._open_again()
        if self.before_sync is not None:
            self._is_planning = True
            try:
                self.before_sync(self.now())
            finally:
                self._is_planning = False
        parts = [(one, one.plan_sync()) for one in self.node.partitions() if one.is_dirty]
        owed, self.node.owed = self.node.owed, []
        return NodePlan(parts, owed)

    def synced(self, plan: NodePlan) -> None:
        """For the committer, with the lock held. PartitionFaulty, for all who shared the sync: files have vanished."""
        faults = plan.settle(self.node, self.now())
        for fault in faults:
            self.logger.error("%s", fault.error())
        try:
            if self.node.pump(self.now()):
                self._hurry()
                self.serve()
            self._act_on(self.node.changes.done(None, self.now()), is_noted=True)
        except Fatal:
            raise
        except PenstockError as error:
            # What was synced is synced, and a letter that cannot go now stays in its outbox.
            self.logger.warning("dead letters wait: %s", error)
        if faults:
            self.after_change()
        if failed := (*faults, *plan.owed):
            raise failed[0].error()

    def sync(self) -> None:
        """Return once everything done so far is durable."""
        if self._is_torn:
            self._mend()
        self._point.wait()

    def settle(self) -> None:
        """Return once everything is durable and no dead letter is on its way any more."""
        self.sync()
        for _ in range(_STEPS_MAX):
            if not self.look(lambda _now: self._has_letters()):
                return
            self.sync()

    def _has_letters(self) -> bool:
        return any(one.machine.outbox.pending for one in self.node.partitions())

    def close(self, before: Callable[[Now], None]) -> None:
        """Run a last command, sync, and give everything back. Calling it again does nothing."""
        self._ticker.close()
        if self._is_torn:
            self._mend()
        with self._failing(), self._point.maintenance():
            if self._point.is_closed:
                return
            try:
                if self._committer.failure is None:
                    before(self.now())
                    if self.before_sync is not None:
                        self.before_sync(self.now())
                    self.node.close()
            finally:
                self._point.close()
                self._room.dismiss(Refused("it is closed"))
                self.members.dismiss(Refused("it is closed"))
        self._committer.close()

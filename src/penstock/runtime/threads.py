"""A node driven by threads: for programs that have a broker inside and no event loop.

One lock guards the node; a command runs under it, in the caller's thread, which waits for its durability outside. A
committer thread syncs, one fsync for all callers that wait, and then moves dead letters on. A ticker thread wakes when
a lease or a retry is due. A consumer that waits for messages is woken with the messages in hand.

A Ctrl-C in the middle of a command leaves memory and journal apart. There is one remedy: the next command first opens
the node again from its files, which hold everything that was written, whole.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Any, TypeVar

import msgspec

from ..api.command import Command
from ..api.keys import Credential
from ..api.principals import LOCAL, Principal
from ..api.publish import StoreMessages
from ..broker.node import Node
from ..broker.partition import Now, now_of
from ..broker.partition.changes import Done
from ..broker.scram import ScramChallenge
from ..broker.validation import verdict_of
from ..broker.walks import ALL_ENTRIES
from ..config import StorageConfig
from ..errors import Fatal, PenstockError, Refused, Unavailable
from ..ports import Disk
from ..schemas.languages import Schema
from .commit import Committer, SyncPoint
from .findings import FindingsLog
from .group_polls import WaitingGroupPolls
from .member_polls import WaitingMemberPolls
from .memory import keep_freed_memory
from .node_levels import NodeLevels
from .node_plan import NodePlan, close_node
from .own_walks import RETRY_NS, OwnWalks
from .slices import SliceBudgets, SlicedCommand, run_pieces
from .steps import STEPS_MAX, Steps, WaitingSteps, is_complete
from .sync_threads import SyncThreads
from .ticker import Ticker
from .tickets import Ticket, settled_ticket
from .waits import Waits
from .world import SteppedClock, World

R = TypeVar("R")
T = TypeVar("T")
C = TypeVar("C", bound=Command[Any])
Note = Callable[[], Ticket | None]
# In so many partitions a tick, which holds the lock, does what is due; in the others the next one does.
_TICKED_MAX = 16
# Where a test lets a year pass, topics are swept so many times more seldom, unless they say themselves how often.
_STEPPED_SWEEP_TIMES = 12


class ThreadDriver:
    """Owns a node. Thread-safe. `node` may be touched inside commands only, and not kept: it may be replaced."""

    def __init__(
        self, disk: Disk, config: StorageConfig, world: World, *, is_firing: bool = True
    ) -> None:
        """Not `is_firing`: delayed messages come when the caller executes `FireDelayed`."""
        keep_freed_memory()
        self._disk, self.config, self._is_firing = disk, config, is_firing
        self.clock, self.logger = world.clock, world.logger
        self.is_stepped = isinstance(world.clock, SteppedClock)
        self._findings = FindingsLog(world, on_skipped=self.note_change)
        self.hindered = self._findings.hindered
        self.node = self._open_node()
        self._committer = Committer(config, world.clock, on_fatal=world.on_fatal)
        self._sync_threads = SyncThreads(world.clock)
        self._point: SyncPoint[NodePlan] = SyncPoint(self, self._committer)
        self.lock = self._point.lock
        # With a standby: where replies wait for it.
        self.gate = self._point.gate = world.gate
        # Something is to be synced, and the caller waits for that if the policy says so. With the lock held.
        self._note_waiting: Note = partial(self._point.changed, is_to_wait=True)
        self.polls, self.members = WaitingGroupPolls(self), WaitingMemberPolls(self)
        self._is_torn = self._is_sync_asked = False
        self._steps, self.slice_budgets = WaitingSteps(), SliceBudgets(world.clock)
        self.own = OwnWalks(self, self._committer)
        self.waits = Waits(NodeLevels(self))  # With the lock held.
        self._ticker = Ticker(self._tick_or_fail, world.clock)
        self._ticker.start()
        with self.lock:
            self.expect(min(self.node.next_due_ns(), self.own.sweep_at_ns))
            if self.node.works.unattended() is not None:
                self.expect(0)
            if self._has_letters() or self.node.changes.replay.most():
                self._sync_soon()
        if self.is_stepped:
            self.tick()  # Something may be overdue, and the ticker does nothing before the clock moves.

    def _open_node(self) -> Node:
        times = _STEPPED_SWEEP_TIMES if self.is_stepped else 1
        return self._findings.open_node(
            self._disk, self.now(), self.config, usual_sweep_times=times, is_firing=self._is_firing
        )

    def now(self) -> Now:
        return now_of((self.clock.now_ns(), self.clock.monotonic_ns()))

    def query(self, work: Callable[[Now], T]) -> T:
        """What a function returns that reads the node and changes nothing."""
        if self._is_torn:
            self._reopen()
        with self.lock:
            self._check()
            if self.node.changes:
                # What a tick or a sync has left is not for a query to tell.
                self._act_on(self.node.changes.done(None, self.now()), is_noted=False)
            return work(self.now())

    def begin_change(
        self, work: Callable[[Now], T], *, writers: int = 0, is_admitted: bool = False
    ) -> tuple[T, Ticket | None]:
        """Run a function without waiting; the ticket is for its durability, in any case if writers wait for it."""
        if not is_admitted:
            self.admit()
        return self._run(work, LOCAL, self._note(writers))

    def admit(self) -> None:
        """NotEnoughReplicas, NotLeader: what is asked for could not be confirmed, so nothing is done."""
        if self.gate is not None:
            self.gate.admit()

    def on_synced(self, tell: Callable[[int, int], None]) -> None:
        """Have a function told after each sync how long it took (ns) and how many had waited for it."""
        self._committer.on_synced = tell

    def _note(self, writers: int) -> Note:
        return partial(self._point.draw_for, writers) if writers else self._point.changed

    def note_change(self) -> Ticket | None:
        """Something is to be synced, as the policy says. With the lock held."""
        return self._point.changed()

    def execute(
        self,
        command: Command[R],
        principal: Principal = LOCAL,
        credential: Credential | None = None,
    ) -> R:
        """Carry out a command; return when its effect is as durable as the fsync policy says."""
        if command.is_walk:
            return SlicedCommand(self, command, principal, credential).execute()
        if command.is_query:
            return self.query(lambda now: self.node.execute(command, principal, now).outcome())
        if command.takes_steps:
            return self._execute_in_steps(command, principal)
        if command.is_divisible and len(pieces := command.pieces()) > 1:
            reply, ticket = run_pieces(self, pieces, principal)
        else:
            reply, ticket = self.begin(command, principal)
        if ticket is not None:
            self._point.wait(ticket)
        if command.is_structural:
            self.files_changed()
        return reply

    def files_changed(self) -> None:
        """Consumers that wait at a topic that is gone are let go. Delayed messages that could not be read may have
        their turn under new settings."""
        if self.is_stepped:
            self.tick()
        else:
            self._tick_or_later()

    def _execute_in_steps(self, command: Command[R], principal: Principal) -> R:
        """Each step rests on a sync, as those of a dead letter do."""
        reply = self.start(command, principal)[0]
        self.sync()
        for _ in range(STEPS_MAX):
            if is_complete(reply):
                break
            reply = self.start(command, principal)[0]
            if not is_complete(reply):
                self.sync()
        return reply

    def begin_steps(
        self, command: Command[R], principal: Principal, on_done: Callable[[Steps[R]], None]
    ) -> Steps[R]:
        """Carry out a command that takes several syncs, without waiting. `on_done` is called with it, once, by any
        thread: then `finish_steps` has the reply."""
        self.admit()
        steps = Steps(command, principal, on_done)
        steps.reply, ticket = self._run(
            command, principal, lambda: self._steps.add(steps, self._point.draw())
        )
        if is_complete(steps.reply):
            self._steps.discard(steps)
            assert ticket is not None, "it was drawn"
            steps.end(ticket)
        return steps

    def finish_steps(self, steps: Steps[R]) -> R:
        """The reply, which is complete unless something keeps a partition from doing its part; or raises."""
        steps.ticket.check()
        if is_complete(steps.reply):
            return steps.reply
        return self._run(steps.command, steps.principal, None)[0]

    def begin(self, command: Command[R], principal: Principal = LOCAL) -> tuple[R, Ticket | None]:
        """Carry out a command. With a ticket, its effect is as durable as the policy says after the caller's `sync`."""
        if not command.is_volatile:
            self.admit()
        if command.is_structural:
            self._point.sync_ahead()
        guard = self._point.maintenance() if command.is_structural else self.lock
        note = None if command.is_volatile else self._note_waiting
        return self._run(command, principal, note, guard)

    def start(
        self,
        command: Command[R] | SlicedCommand[R],
        principal: Principal = LOCAL,
        *,
        writers: int = 0,
    ) -> tuple[R, Ticket | None]:
        """Carry out a command without waiting; the ticket is for its durability, in any case if writers wait for it."""
        if command.is_volatile and not writers:
            return self._run(command, principal, None)
        self.admit()
        guard = self._point.maintenance() if command.is_structural else None
        return self._run(command, principal, self._note(writers), guard)

    def stage(self, command: Command[R]) -> R:
        """Carry out a command that counts with the end of its transaction: no sync before that is asked for."""
        return self._run(command, LOCAL, self._point.staged)[0]

    def run(self, work: SlicedCommand[T] | Callable[[Now], T]) -> T:
        """Run a function, or a slice, on the node as if it were a command."""
        return self._run(work, LOCAL, None)[0]

    def _run(
        self,
        work: Command[T] | SlicedCommand[T] | Callable[[Now], T],
        principal: Principal,
        note: Note | None,
        guard: AbstractContextManager[object] | None = None,
    ) -> tuple[T, Ticket | None]:
        """Run a command, or a function, and act on what it recorded: all commands come by here.

        `note` asks for a sync; without it one is asked for only if something was recorded. `guard` holds the lock while
        the command runs; the lock itself, if it is not given.
        """
        if self._is_torn:
            self._reopen()
        if self.node.bindings and isinstance(work, Command):
            work = self.validated(work)
        # Not `Committer.failing`: to make a generator costs as much as the lock.
        try:
            with guard or self.lock:
                self._check()
                try:
                    now = self.now()
                    if isinstance(work, Command):
                        done = self.node.execute(work, principal, now)
                    elif isinstance(work, SlicedCommand):
                        done = work.take(self.node, now)
                    else:
                        done = self._done(work, now)
                    reply = done.reply
                    if isinstance(reply, PenstockError) or done.more is not None:
                        note = None
                    ticket = None if note is None else note()
                    self._act_on(done, is_noted=note is not None)
                    if self.node.sweeps.next_ns < self.own.sweep_at_ns:
                        self.own.expect_sweep(self.node.sweeps.next_ns)
                except PenstockError:
                    raise
                except BaseException:
                    self._is_torn = True
                    raise
        except Fatal as error:
            self._committer.fail(error)
            raise
        if isinstance(reply, PenstockError):
            raise reply.fresh()
        return reply, ticket

    def validated(self, command: C) -> C:
        """A command with the verdict on its messages, if it stores some in a topic that asks for schemas.

        Messages are compared with schemas before the command has its turn, so that no other command waits for that.
        """
        if not self.node.bindings or not isinstance(command, StoreMessages):
            return command
        binding = self.node.bindings.get(command.topic)
        if binding is None:
            return command
        try:
            found = verdict_of(binding, command, self.node.limits, self._read_schema)
        except (KeyError, PenstockError):
            return command  # The schema is gone, or the batch cannot be read: the turn finds the same, and says so.
        return msgspec.structs.replace(command, verdict=found)

    def _read_schema(self, schema_id: int) -> Schema:
        return self.query(lambda _now: self.node.schemas.read(schema_id))

    def _done(self, work: Callable[[Now], T], now: Now) -> Done[T]:
        try:
            reply: T | PenstockError = work(now)
        except Fatal:
            raise
        except PenstockError as error:
            reply = error.fresh()
        return self.node.changes.done(reply, now)

    def _act_on(self, done: Done[Any], *, is_noted: bool) -> None:
        """Serve waiting consumers; tick in time for what was recorded; sync soon if letters wait for it."""
        # Not the waiters themselves: to serve the last of them leaves none, and its lease has a time, too.
        is_awaited = self.is_awaited
        if is_awaited:
            self.polls.serve(done)
            self.members.serve(done)
        if self.waits:
            self.waits.wake(done)
        if done.due_ns < self._ticker.due_ns:
            self.expect(done.due_ns)
        if done.has_letters:
            self._sync_soon()
        elif done.touched and not is_noted:
            self.note_change()
        if is_awaited and self.node.changes:
            # To serve consumers records leases.
            self._act_on(self.node.changes.done(None, self.now()), is_noted=is_noted)

    def _check(self) -> None:
        """Raise if nothing may be done any more, or not now."""
        if self._committer.failure is not None or self._point.is_closed:
            self._point.check()
        if self._is_torn:
            raise Unavailable("a change was interrupted a moment ago; try again")

    def authenticate(self, text: str) -> tuple[Principal, Credential] | None:
        """Whose key this is; None for a key that is not known, and for one whose time is over.

        Every request of a server with keys asks, so it takes no lock.
        """
        return self.node.keys.find(text, self.clock.now_ns())

    def scram_challenge(self, key_id: str, algorithm: str) -> ScramChallenge | None:
        """What the holder of a key has to answer to prove that it has it; None for no key. Takes no lock."""
        return self.node.keys.scram_challenge(key_id, algorithm, self.clock.now_ns())

    def left_ns(self, credential: Credential) -> int | None:
        """How long a credential is good from now on: 0 if it is not any more, None for ever. Takes no lock."""
        return self.node.keys.left_ns(credential, self.clock.now_ns())

    def rearrange(self, work: SlicedCommand[T] | Callable[[Now], T]) -> T:
        """Run what removes or replaces files, a function or a slice: no sync is under way meanwhile."""
        return self._run(work, LOCAL, None, self._point.maintenance())[0]

    def interrupted(self) -> None:
        """A command, or an effect of one, has ended half-way: see the module."""
        self._is_torn = True

    def _reopen(self) -> None:
        """After a command that was interrupted: see the module."""
        with self._committer.failing(), self._point.maintenance():
            if self._is_torn and not self._point.is_closed:
                self._open_again()

    def _open_again(self) -> None:
        """Take the node from its files once more: they are whole, its memory may not be. No sync is under way, and no
        effect, because those of a node that is gone would meet the files of the next one."""
        with self.own.effects:
            self.node.works.discard()
            for partition in self.node.partitions():
                partition.discard()
            self.node.meta.log.discard()
            owed = self.node.owed
            self.node = self._open_node()
            self.node.owed = owed
            self.members.dismiss()
            # Besides those that are there: what was interrupted may have been the end of a topic.
            self.node.changes.topics.update([topic for topic, _ in self.polls.waiting])
            self.waits.wake_all()
            self._is_torn = False
            # At once: polls that wait may not have been served.
            self.expect(self.clock.monotonic_ns())

    def execute_locked(self, command: Command[R], now: Now, principal: Principal = LOCAL) -> R:
        """Carry out a command in the middle of another one, which waits for both. With the lock held."""
        return self.node.carry_out(command, principal, now)

    @property
    def is_awaited(self) -> bool:
        """Whether a consumer waits for messages. Takes no lock."""
        return bool(self.polls.waiting or self.members.waiting)

    def expect(self, due_ns: float) -> None:
        """Tick no later than this. With the lock held."""
        self._ticker.expect(due_ns)

    def _sync_soon(self) -> None:
        """Sync now, although no caller waits: each step of a dead letter rests on a sync."""
        if not self._is_sync_asked:
            self._is_sync_asked = True
            self._point.draw()

    def tick(self) -> None:
        """Let time pass: unanswered leases come back, retries are due, waits are over."""
        self._tick_or_later()
        self.own.run_due()

    def _tick_or_later(self) -> None:
        try:
            self.run(self._tick)
        except Fatal:
            return  # The committer has told all callers.
        except PenstockError as error:
            self._tick_later(error)

    def _tick_later(self, error: PenstockError) -> None:
        """Tick again: at once if a Ctrl-C in another thread was in the way and is mended, otherwise after a while."""
        wait_ns = RETRY_NS
        if self._is_torn:
            with suppress(PenstockError):
                self._reopen()
                wait_ns = 0
        if wait_ns:
            self.hindered("cannot go on yet", error)
        with self.lock:
            self.expect(self.clock.monotonic_ns() + wait_ns)

    def catch_up(self) -> None:
        """Do what is due, if anything is: the ticker's own thread may be busy with something long."""
        self._ticker.catch_up(self._tick_or_later)

    def _tick_or_fail(self) -> None:
        try:
            self.tick()
        except BaseException as error:
            # A bug of ours. Without this thread nothing would ever be due again.
            self._committer.fail(error)
            raise

    def _tick(self, now: Now) -> None:
        self.node.tick(now, partitions_max=ALL_ENTRIES if self.is_stepped else _TICKED_MAX)
        # What was too much for one tick is due now, and no other tick comes while the clock stands still.
        while self.is_stepped and self.node.fire(now):
            pass
        if self.node.changes and self._has_letters():
            self._sync_soon()
        # Before the waits that are over by now end.
        self._act_on(self.node.changes.done(None, now), is_noted=False)
        until_ns = min(self.polls.end_overdue(now), self.members.end_overdue(now))
        self.expect(min(until_ns, self.node.next_due_ns(), self.own.sweep_at_ns))

    def plan_sync(self) -> NodePlan:
        """For the committer, with the lock held."""
        self._is_sync_asked = False
        if self._is_torn:
            self._open_again()
        owed, self.node.owed = self.node.owed, []
        return NodePlan(self.node.plan_sync(), self._sync_threads, owed)

    def synced(self, plan: NodePlan) -> None:
        """For the committer, with the lock held. PartitionFaulty, for all callers of the sync: files have vanished."""
        faults = plan.settle(self.node, self.now())
        if self.gate is not None:
            self.gate.commits.advance()
            self.waits.wake_behind()
        for fault in faults:
            self.logger.error("%s", fault.error())
        self._pump(self._point.covered if self.gate is None else settled_ticket())
        if plan.has_snapshot and self.node.changes.replay.most():
            self._sync_soon()
        if failed := (*faults, *plan.owed):
            raise failed[0].error()

    def confirmed(self) -> None:
        """Other machines have more, or are away. With the lock held."""
        if self.gate is None:
            return
        if self.gate.commits.advance():
            self._pump(settled_ticket())
        self.waits.wake_behind()

    def _pump(self, ticket: Ticket) -> None:
        """Move letters one step on their way; what that ends is committed once the ticket is settled."""
        now = self.now()
        try:
            try:
                if self.node.pump(now):
                    self._sync_soon()
            finally:
                if self.node.changes:
                    self._act_on(self.node.changes.done(None, now), is_noted=True)
        except Fatal:
            raise
        except PenstockError as error:
            # What was synced is synced, and a letter that cannot go now stays in its outbox.
            self.hindered("dead letters wait", error)
        ended, self.node.changes.ended = self.node.changes.ended, set()
        commits = None if self.gate is None else self.gate.commits
        if self._steps and self._steps.go_on(ended, ticket, commits) and self._steps:
            # Also if nothing moves: after so many syncs the callers hear how far it is.
            self._steps.watch(self._point.draw_for(len(self._steps)))

    def sync(self) -> None:
        """Return once everything done so far is durable."""
        if self._is_torn:
            self._reopen()
        self._point.wait()

    def settle(self) -> None:
        """Return once everything is durable and no dead letter is on its way any more."""
        self.sync()
        for _ in range(STEPS_MAX):
            if not self.query(lambda _now: self._has_letters()):
                return
            self.sync()

    def _has_letters(self) -> bool:
        return bool(self.node.changes.to_send())

    def close(self) -> None:
        """Sync, and give everything back. Calling it again does nothing."""
        self.own.close()
        self._ticker.close()
        if self._is_torn:
            self._reopen()
        with self._committer.failing(), self.own.effects, self._point.maintenance():
            if self._point.is_closed:
                return
            try:
                if self._committer.failure is None:
                    close_node(self.node, self._sync_threads, self.clock, self.logger)
            finally:
                self._point.close()
                self.polls.dismiss(Refused("it is closed"))
                self.members.dismiss(Refused("it is closed"))
        self._committer.close()
        self._sync_threads.close()

    def leave_to_parent(self, reason: str) -> None:
        """In a forked process: refuse everything from now on, for this reason, and write nothing."""
        self._committer.failure = Refused(reason)
        # Threads of the parent may have held the locks of this one, and none is here to release them.
        self._point = SyncPoint(self, self._committer)
        self._point.is_closed = True
        self.lock = self._point.lock
        self._ticker.close()

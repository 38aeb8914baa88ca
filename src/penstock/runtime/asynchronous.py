"""A node driven from an event loop: commands run at once, waiting takes no thread.

A command is memory and a write to the page cache, so the loop runs it itself, under the lock that the committer and the
ticker share. What waits for an fsync or for messages awaits a future, which those threads resolve. Commands that open
or remove files go through a thread.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import get_ident
from typing import Any, Protocol, TypeVar, cast

import msgspec

from ..api.command import Command
from ..api.consume import Poll
from ..api.keys import Credential
from ..api.leased import LeasedMessages
from ..api.members import PollMember
from ..api.principals import LOCAL, Principal
from ..api.publish import BUFFERED, Guarantee, Safety
from ..config import FsyncPolicy
from ..errors import Damaged, PenstockError, Unavailable
from .group_polls import FOR_EVER
from .loop_turns import LoopTurns
from .slices import SlicedCommand
from .threads import ThreadDriver
from .tickets import Ticket
from .waiting_polls import PollWaiter, Waiter
from .waits import Key, Wake

R = TypeVar("R")
T = TypeVar("T")
_S_NS = 1_000_000_000
# On this machine; a standby may get it later.
_BUFFERED_HERE = Safety(Guarantee.BUFFERED, 1)


class Parked(Protocol):
    """A request that waits without a coroutine."""

    def end(self) -> None:
        """Wait no longer; its caller is told what there is."""
        ...


class _Room(Protocol):
    """Where polls of one kind wait."""

    def enter(
        self,
        command: Any,
        principal: Principal,
        timeout_ns: int,
        on_settled: Callable[[], None] | None = None,
    ) -> Waiter[Any]: ...
    def leave(self, waiter: Any) -> None: ...
    def abandon(self, waiter: Any) -> None: ...


class ParkedPoll:
    """A poll that waits for messages without a coroutine. Belongs to the loop.

    Over when there are messages, an error, or nothing because the time was up: then `outcome` says which.
    """

    __slots__ = (
        "_driver",
        "_is_parked",
        "_on_done",
        "_room",
        "_ticket",
        "_timer",
        "_waiter",
        "was_parked",
    )

    def __init__(
        self, driver: "AsyncDriver", room: _Room, on_done: Callable[["ParkedPoll"], None]
    ) -> None:
        self._driver, self._room, self._on_done = driver, room, on_done
        self._timer: asyncio.TimerHandle | None = None
        self._is_parked = self.was_parked = False
        # For what was leased, if other machines have to confirm it.
        self._ticket: Ticket | None = None

    @property
    def is_parked(self) -> bool:
        return self._is_parked

    def begin(self, command: Poll | PollMember, principal: Principal, timeout_ns: int) -> None:
        """Lease what is there, or begin to wait. Raises what the poll is refused with."""
        driver = self._driver
        may_wait = timeout_ns > 0 and not driver.is_draining
        self._waiter = self._room.enter(
            command, principal, FOR_EVER if may_wait else 0, self._wake if may_wait else None
        )
        if not self._waiter.is_settled:
            self._park()
            self._timer = driver.loop.call_later(timeout_ns / _S_NS, self.end)
        elif self._is_unconfirmed():
            self._park()

    def _park(self) -> None:
        self._is_parked = self.was_parked = True
        self._driver.parked.add(self)

    def _wake(self) -> None:
        """Called by any thread, with the lock held."""
        self._driver.call_from_anywhere(self.end)

    def end(self) -> None:
        """Wait no longer; the caller hears of what has come until now, as soon as that is confirmed."""
        if not self._is_parked or self._ticket is not None:
            return
        self._room.leave(self._waiter)
        if not self._is_unconfirmed():
            self._done()

    def _is_unconfirmed(self) -> bool:
        """Whether there are messages whose leases other machines have to confirm. If so, that is asked for."""
        self._ticket = self._driver.draw() if self._waiter.messages else None
        if self._ticket is None:
            return False
        self._ticket.notify(lambda: self._driver.call_from_anywhere(self._done))
        return True

    def _done(self) -> None:
        if self._is_parked:
            self._leave()
            self._on_done(self)

    def cancel(self) -> None:
        """Wait no longer, and give back what has come meanwhile. The caller hears nothing any more."""
        if self._is_parked:
            self._leave()
            self.give_back()

    def give_back(self) -> None:
        """Let go of what has come: the caller has left, and does not ask for the outcome."""
        self._forget_each_other()
        self._room.abandon(self._waiter)

    def _leave(self) -> None:
        self._is_parked = False
        self._driver.parked.discard(self)
        if self._timer is not None:
            self._timer.cancel()

    def outcome(self) -> LeasedMessages:
        """What was leased, none perhaps; or raises why nothing could be."""
        self._forget_each_other()
        if self._ticket is not None:
            self._ticket.check()
        return self._waiter.outcome()

    def _forget_each_other(self) -> None:
        """The poll is over: a waiter that knows it would keep it, with all its messages, until the collector looks."""
        self._waiter.on_settled = self._timer = None


class AsyncDriver:
    """One event loop's view of a `ThreadDriver`. Everything but `driver` itself belongs to that loop."""

    def __init__(self, driver: ThreadDriver, loop: asyncio.AbstractEventLoop) -> None:
        self.driver, self.loop, self.clock = driver, loop, driver.clock
        # Made by the loop's own thread.
        self._thread = get_ident()
        # Whether every change waits for the disk.
        self.is_always_synced = driver.config.fsync is FsyncPolicy.ALWAYS
        self._waits: set[asyncio.Future[None]] = set()
        # Requests that wait for messages without a coroutine.
        self.parked: set[Parked] = set()
        # What to do for those whom a change in this turn has woken, in the order in which they came.
        self._woken: deque[Callable[[], None]] = deque()
        self.turns = LoopTurns(loop, self.clock)
        self.is_draining = False

    def safety(self, *, is_synced: bool) -> Safety:
        """What holds for a reply: `is_synced` if it has waited for its ticket."""
        gate = self.driver.gate
        if not is_synced:
            return BUFFERED if gate is None else _BUFFERED_HERE
        if gate is None:
            return Safety(Guarantee.FSYNCED)
        copies = gate.confirmed_copies
        return Safety(Guarantee.REPLICATED if copies > 1 else Guarantee.FSYNCED, copies)

    @property
    def waiting(self) -> int:
        """How many wait for messages."""
        return len(self._waits) + len(self.parked)

    async def execute(
        self,
        command: Command[R],
        principal: Principal,
        *,
        is_synced: bool = False,
        credential: Credential | None = None,
    ) -> R:
        """Carry out a command; return when its effect is as durable as the fsync policy says, or fsynced.

        A walk goes on in its turns of the loop, unless its `credential` ends. It ends with its caller.
        """
        await self.give_way()
        writers = int(is_synced or command.is_durable)
        if command.is_walk or (command.may_be_large and command.is_large()):
            sliced = SlicedCommand(self.driver, command, principal, credential, writers=writers)
            return await self._in_slices(sliced, in_thread=command.is_long or command.is_structural)
        if command.is_long or command.is_structural:
            return await self.in_thread(
                lambda: self.perform(command, principal, is_synced=writers > 0)
            )
        if command.is_query:
            return self.driver.execute(command, principal)
        if command.takes_steps:
            done, wake = self.signal()
            steps = self.driver.begin_steps(command, principal, lambda _steps: wake())
            await done
            return self.driver.finish_steps(steps)
        if command.is_divisible and len(pieces := command.pieces()) > 1:
            return await self._in_pieces(pieces, principal, writers)
        reply, ticket = self.driver.start(command, principal, writers=writers)
        if ticket is not None:
            await self.settled(ticket)
        return reply

    def perform(self, command: Command[R], principal: Principal, *, is_synced: bool) -> R:
        """Carry out a command in the calling thread, which waits for the disk if `is_synced`."""
        reply = self.driver.execute(command, principal)
        if is_synced:
            self.driver.sync()
        return reply

    async def _in_pieces(
        self, pieces: Sequence[Command[R]], principal: Principal, writers: int
    ) -> R:
        """The replies, which are lists, joined; each piece has its turn of the loop."""
        replies: list[Any] = []
        ticket: Ticket | None = None
        for piece in pieces:
            if self.turns.is_spent():
                await self.turns.turn()
            reply, ticket = self.driver.start(piece, principal, writers=writers)
            replies += cast("list[Any]", reply)
        # The sync that covers the last piece covers the others.
        if ticket is not None:
            await self.settled(ticket)
        return cast("R", replies)

    async def _in_slices(self, sliced: SlicedCommand[R], *, in_thread: bool) -> R:
        try:
            if in_thread:
                return await self.in_thread(sliced.execute)
            while not sliced.go_on():
                await self.give_way()
        finally:
            sliced.close()
        if sliced.ticket is not None:
            await self.settled(sliced.ticket)
        return sliced.reply

    async def give_way(self) -> None:
        """Return at once while there is time in this turn of the loop, and otherwise in a later one."""
        if self.turns.is_spent():
            await self.turns.turn()

    def start(self, command: Command[R], principal: Principal = LOCAL) -> R:
        """Carry out a command; its effect is durable with the next sync, which is not waited for."""
        return self.driver.start(command, principal)[0]

    async def settle(self) -> None:
        """Return once everything is durable and no dead letter is on its way any more."""
        await self.in_thread(self.driver.settle)

    async def settled(self, ticket: Ticket) -> None:
        """Return once a ticket is settled, or raise what it was settled with."""
        done, wake = self.signal()
        ticket.notify(wake)
        await done
        ticket.check()

    async def in_thread(self, work: Callable[[], T]) -> T:
        """For what opens, removes or walks through files."""
        return await self.loop.run_in_executor(None, work)

    def signal(self) -> tuple["asyncio.Future[None]", Callable[[], None]]:
        """A future, and what resolves it from any thread, any number of times."""
        done: asyncio.Future[None] = self.loop.create_future()

        def wake() -> None:
            # Mostly it was the loop that published; to wake itself from outside would cost it one more turn.
            if get_ident() == self._thread:
                _resolve(done)
            else:
                self.call_soon(lambda: _resolve(done))

        return done, wake

    def call_soon(self, call: Callable[[], None]) -> None:
        """Have the loop do something, from any thread."""
        # The calling thread runs the disk: a loop that has ended meanwhile must not stop it.
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(call)

    def call_from_anywhere(self, call: Callable[[], None]) -> None:
        """Have the loop do something, from any thread; the loop's own thread need not be woken for it."""
        if get_ident() != self._thread:
            self.call_soon(call)
        else:
            self._woken.append(call)
            self.loop.call_soon(self.answer_next)

    def answer_next(self) -> None:
        """Answer the next of those whom a change of the loop's own has woken, if there is one.

        Every one of them has its turn of the loop. Who made the change may have the first one answered at once, which
        is then not kept from its message by what is still to do for the change.
        """
        if self._woken:
            self._woken.popleft()()

    async def poll(
        self, commands: Sequence[Poll], principal: Principal, timeout_ns: int
    ) -> LeasedMessages:
        """Lease messages by any of these polls, which are of one member, waiting if there are none.

        A drain ends the wait at once. A caller that is cancelled while it waits gives back what had just come.
        """
        found = LeasedMessages()
        trouble: PenstockError | None = None
        for command in commands:
            # Asked for none, it still says whether the group may read the topic at all.
            rest = command if command.limit == 0 else _after(command, found)
            if rest is not None:
                try:
                    found += self.driver.polls.enter(rest, principal, 0).outcome()
                except (Damaged, Unavailable) as error:
                    # What was leased of the others is theirs already.
                    trouble = trouble or error.fresh()
        if trouble is not None and not found:
            raise trouble.fresh()
        if found or timeout_ns <= 0 or self.is_draining:
            return await self._confirmed(found)
        done, wake = self.signal()
        waiters: list[PollWaiter] = []
        try:
            # One by one: those that have entered are abandoned if the next is refused.
            waiters.extend(
                self.driver.polls.enter(command, principal, FOR_EVER, wake) for command in commands
            )
            if not any(waiter.is_settled for waiter in waiters):
                await self.wait(done, timeout_ns)
        except BaseException:
            for waiter in waiters:
                self.driver.polls.abandon(waiter)
            raise
        for waiter in waiters:
            self.driver.polls.leave(waiter)
        for waiter in waiters:
            found += waiter.messages
        if not found:
            # What was leased is theirs; trouble with another topic comes again with the next poll.
            for waiter in waiters:
                waiter.outcome()
        return await self._confirmed(found)

    def draw(self) -> Ticket | None:
        """The ticket for everything done so far, if other machines have to confirm it; None: nothing is waited for."""
        gate = self.driver.gate
        if gate is None or gate.copies == 1:
            return None
        # It was admitted when it was done. If the machine is away by now that has to confirm it, it is unconfirmed.
        return self.driver.begin_change(lambda _now: None, writers=1, is_admitted=True)[1]

    def confirmed(self) -> None:
        """Other machines have more, or are away: let replies go that waited, and readers look again."""
        if self.driver.gate is not None:
            with self.driver.lock:
                self.driver.confirmed()
            self.driver.gate.settle()

    async def _confirmed(self, found: LeasedMessages) -> LeasedMessages:
        """What was leased, once other machines have confirmed it where they have to. Unconfirmed."""
        ticket = self.draw() if found else None
        if ticket is not None:
            await self.settled(ticket)
        return found

    async def poll_member(
        self, command: PollMember, principal: Principal, timeout_ns: int
    ) -> LeasedMessages:
        """Lease messages to a member of an assigned group, waiting if there are none.

        The wait ends at once when the member has to hear of something, or with a drain.
        """
        room, may_wait = self.driver.members, timeout_ns > 0 and not self.is_draining
        done, wake = self.signal()
        waiter = room.enter(command, principal, FOR_EVER if may_wait else 0, wake)
        if not waiter.is_settled:
            try:
                await self.wait(done, timeout_ns)
            except BaseException:
                room.abandon(waiter)
                raise
            room.leave(waiter)
        return await self._confirmed(waiter.outcome())

    def park(
        self,
        command: Poll | PollMember,
        principal: Principal,
        timeout_ns: int,
        on_done: Callable[[ParkedPoll], None],
    ) -> ParkedPoll:
        """Begin a poll that may wait. `on_done` is called by the loop, once, with the poll, if it is parked now."""
        room: _Room = self.driver.polls if isinstance(command, Poll) else self.driver.members
        poll = ParkedPoll(self, room, on_done)
        poll.begin(command, principal, timeout_ns)
        return poll

    async def wait(self, done: "asyncio.Future[None]", timeout_ns: int) -> None:
        """Return when the future is resolved, timed out or drained. A timer of the loop costs less than a tick."""
        if self.is_draining:
            return
        timer = self.loop.call_later(timeout_ns / _S_NS, _resolve, done)
        self._waits.add(done)
        try:
            await done
        finally:
            timer.cancel()
            self._waits.discard(done)

    async def until(self, key: Key, level: int, timeout_ns: int) -> None:
        """Return when a key is above a level, when the time is up, or with a drain."""
        done, resolve = self.signal()

        def wake(_key: Key) -> None:
            resolve()

        self.subscribe(key, level, wake)
        try:
            await self.wait(done, timeout_ns)
        finally:
            self.unsubscribe(key, level, wake)

    def subscribe(self, key: Key, level: int, wake: Wake) -> None:
        """Have `wake` called once, before `unsubscribe`, when a key is above a level.

        By any thread, with the lock held. What it does about it goes through `call_from_anywhere`, and raises nothing:
        the thread that made the change has nothing to do with it.
        """
        with self.driver.lock:
            self.driver.waits.add(key, level, wake)

    def unsubscribe(self, key: Key, level: int, wake: Wake) -> None:
        with self.driver.lock:
            self.driver.waits.discard(key, level, wake)

    def drain(self) -> None:
        """End all waits, now and from now on."""
        self.is_draining = True
        for done in [*self._waits]:
            _resolve(done)
        for request in [*self.parked]:
            request.end()


def _after(command: Poll, found: LeasedMessages) -> Poll | None:
    """What is still wanted when these were found; None if that is enough."""
    limit, bytes_max = command.limit - len(found), command.bytes_max
    if bytes_max is not None:
        bytes_max -= found.content_bytes()
    if limit <= 0 or (bytes_max is not None and bytes_max <= 0):
        return None
    return msgspec.structs.replace(command, limit=limit, bytes_max=bytes_max)


def _resolve(done: "asyncio.Future[None]") -> None:
    if not done.done():
        done.set_result(None)

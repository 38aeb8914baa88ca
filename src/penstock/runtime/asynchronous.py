"""A node driven from an event loop: commands run at once, waiting takes no thread.

A command is memory and a write to the page cache, so the loop runs it itself, under the lock that the committer and the
ticker share. What waits for an fsync or for messages awaits a future, which those threads resolve. Commands that open
or remove files go through a thread.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from threading import get_ident
from typing import TypeVar

import msgspec

from ..api.command import Command
from ..api.consume import CountHeld, Poll
from ..api.leased import LeasedMessages
from ..api.principals import Principal
from ..broker.memberships import Ask
from ..broker.partition import Now
from ..config import FsyncPolicy
from ..errors import Damaged, PenstockError, Unavailable
from .threads import FOR_EVER, ThreadDriver
from .tickets import Ticket
from .waiting import Waiter

R = TypeVar("R")
T = TypeVar("T")
_S_NS = 1_000_000_000
_GONE = 1 << 62

Place = tuple[str, int, int]
"""A topic, a partition and an offset."""


class AsyncDriver:
    """One event loop's view of a `ThreadDriver`. Everything but `driver` itself belongs to that loop."""

    def __init__(self, driver: ThreadDriver, loop: asyncio.AbstractEventLoop) -> None:
        self.driver, self.loop = driver, loop
        # Made by the loop's own thread.
        self._thread = get_ident()
        # Whether every change waits for the disk.
        self.is_always_synced = driver.config.fsync is FsyncPolicy.ALWAYS
        self._waits: set[asyncio.Future[None]] = set()
        # Who waits for a partition to grow, and consumers whose hands are full; guarded by the driver's lock. Many
        # wait for the same thing, so these are looked through by what is waited for.
        self._readers: dict[Place, set[Callable[[], None]]] = {}
        self._loaded: dict[tuple[str, str, str, int], set[Callable[[], None]]] = {}
        # Those of the readers who are no coroutines, and are called instead.
        self._sitting: set[Callable[[], None]] = set()
        # While a change is made that somebody is to hear of at once: the first whom it woke.
        self._is_prompt = False
        self._first: Callable[[], None] | None = None
        self.is_draining = False
        driver.after_change = self._after_change

    @property
    def waiting(self) -> int:
        """How many wait for messages."""
        return len(self._waits) + len(self._sitting)

    def look(self, command: Callable[[Now], T]) -> T:
        """Run a command that changes nothing."""
        return self.driver.look(command)

    async def change(self, command: Callable[[Now], T], *, is_synced: bool = False) -> T:
        """Run a command; return when it is as durable as the policy says, or in any case if `is_synced`."""
        reply, ticket = self.driver.begin_change(command, writers=int(is_synced))
        if ticket is not None:
            await self.settled(ticket)
        return reply

    async def execute(
        self, command: Command[R], principal: Principal, *, is_synced: bool = False
    ) -> R:
        """Carry out a command; return when its effect is as durable as the fsync policy says, or fsynced."""
        if command.is_long or command.is_structural:
            return await self.in_thread(lambda: self.driver.execute(command, principal))
        if command.is_query:
            return self.driver.execute(command, principal)
        reply, ticket = self.driver.start(command, principal, writers=int(is_synced))
        if ticket is not None:
            await self.settled(ticket)
        return reply

    async def settled(self, ticket: Ticket) -> None:
        """Return once a ticket is settled, or raise what it was settled with."""
        done, wake = self._signal()
        ticket.notify(wake)
        await done
        ticket.check()

    async def in_thread(self, work: Callable[[], T]) -> T:
        """For what opens, removes or walks through files."""
        return await self.loop.run_in_executor(None, work)

    def _signal(self) -> tuple["asyncio.Future[None]", Callable[[], None]]:
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
        # Whoever calls this runs the disk: a loop that has ended meanwhile must not stop it.
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(call)

    def call_from_anywhere(self, call: Callable[[], None]) -> None:
        """The same, for whoever may be the loop itself: that costs it one turn less, or none if a change is prompt."""
        if get_ident() != self._thread:
            self.call_soon(call)
        elif self._is_prompt:
            self._first, self._is_prompt = call, False
        else:
            self.loop.call_soon(call)

    def change_promptly(self, command: Callable[[Now], T]) -> T:
        """Run a command that waits for nothing. Of those who sit and are woken by it, the first hears of it before this
        returns; the others in the next turn, so whoever changes something never waits for a crowd.
        """
        self._is_prompt, self._first = True, None
        try:
            reply, _ = self.driver.begin_change(command)
        finally:
            first, self._first, self._is_prompt = self._first, None, False
            if first is not None:
                first()
        return reply

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
                    found += self.driver.enter(rest, principal, 0).outcome()
                except (Damaged, Unavailable) as error:
                    # What was leased of the others is theirs already.
                    trouble = trouble or error
        if trouble is not None and not found:
            raise trouble
        if found or timeout_ns <= 0 or self.is_draining:
            return found
        done, wake = self._signal()
        waiters: list[Waiter] = []
        try:
            # One by one: those that have entered are abandoned if the next is refused.
            waiters.extend(
                self.driver.enter(command, principal, FOR_EVER, wake) for command in commands
            )
            if not any(waiter.is_settled for waiter in waiters):
                await self._wait(done, timeout_ns)
        except BaseException:
            for waiter in waiters:
                self.driver.abandon(waiter)
            raise
        for waiter in waiters:
            self.driver.leave(waiter)
        for waiter in waiters:
            found += waiter.messages
        if not found:
            # What was leased is theirs; trouble with another topic comes again with the next poll.
            for waiter in waiters:
                waiter.outcome()
        return found

    async def poll_member(self, group: str, ask: Ask, timeout_ns: int) -> LeasedMessages:
        """The same for a member of an assigned group; its wait ends at once when it has to hear of something."""
        room = self.driver.members
        waiter = room.enter(group, ask, 0)
        if waiter.messages or waiter.error or timeout_ns <= 0 or self.is_draining:
            return waiter.outcome()
        done, wake = self._signal()
        waiter = room.enter(group, ask, FOR_EVER, wake)
        if not waiter.is_settled:
            try:
                await self._wait(done, timeout_ns)
            except BaseException:
                room.abandon(waiter)
                raise
            room.leave(waiter)
        return waiter.outcome()

    async def _wait(self, done: "asyncio.Future[None]", timeout_ns: int) -> None:
        """Until resolved, timed out, or everybody is sent home. A timer of the loop costs less than a tick."""
        timer = self.loop.call_later(timeout_ns / _S_NS, _resolve, done)
        self._waits.add(done)
        try:
            await done
        finally:
            timer.cancel()
            self._waits.discard(done)

    async def until_beyond(self, topic: str, partition: int, offset: int, timeout_ns: int) -> None:
        """Return when a partition ends beyond an offset, or when the time is up."""
        await self._park(self._readers, (topic, partition, offset), timeout_ns)

    def sit(self, place: Place, wake: Callable[[], None]) -> None:
        """Wait for the same without a coroutine: from now to `rise`, `wake` is called when it may have come.

        By any thread, with the lock held, and perhaps more than once. A drain calls it, too. What it does about it goes
        through `call_from_anywhere`, and raises nothing: whoever made the change has nothing to do with it.
        """
        with self.driver.lock:
            self._readers.setdefault(place, set()).add(wake)
            self._sitting.add(wake)
            self._after_change()

    def rise(self, place: Place, wake: Callable[[], None]) -> None:
        with self.driver.lock:
            self._sitting.discard(wake)
            _leave(self._readers, place, wake)

    async def until_room(
        self, topic: str, group: str, member: str, max_held: int, timeout_ns: int
    ) -> None:
        """Return when a member holds fewer than so many messages, or when the time is up."""
        await self._park(self._loaded, (topic, group, member, max_held), timeout_ns)

    async def _park(
        self, parked: dict[T, set[Callable[[], None]]], place: T, timeout_ns: int
    ) -> None:
        done, wake = self._signal()
        with self.driver.lock:
            parked.setdefault(place, set()).add(wake)
            self._after_change()
        try:
            if not self.is_draining:
                await self._wait(done, timeout_ns)
        finally:
            with self.driver.lock:
                _leave(parked, place, wake)

    def held_by(self, topic: str, group: str, member: str) -> int:
        """How many messages a member holds. With the lock held."""
        if topic not in self.driver.node.open:
            return 0
        return self.driver.execute_locked(CountHeld(topic, group, member), self.driver.now())

    def _after_change(self) -> None:
        for (topic, number, offset), waiting in self._readers.items():
            if offset < self._end_of(topic, number):
                for wake in waiting:
                    wake()
        for (topic, group, member, max_held), waiting in self._loaded.items():
            if self.held_by(topic, group, member) < max_held:
                _call_all(waiting)

    def _end_of(self, topic: str, number: int) -> int:
        """Where a partition ends; one that is gone ends beyond everything, so that its readers find out."""
        opened = self.driver.node.open.get(topic)
        # Under the same name there may be another topic by now, of fewer partitions.
        partition = None if opened is None else opened.partitions.serving(number)
        return _GONE if partition is None else partition.messages.end_offset

    def drain(self) -> None:
        """End all waits, now and from now on."""
        self.is_draining = True
        for done in [*self._waits]:
            _resolve(done)
        _call_all([*self._sitting])


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


def _leave(parked: dict[T, set[Callable[[], None]]], place: T, wake: Callable[[], None]) -> None:
    parked[place].discard(wake)
    if not parked[place]:
        del parked[place]


def _call_all(calls: Iterable[Callable[[], None]]) -> None:
    for call in calls:
        call()

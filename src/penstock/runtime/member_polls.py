"""Polls of members of assigned groups that wait for messages.

A member that waits is alive, whatever its session timeout says. Its wait ends when one of its own partitions has
something, and at once when it must release a partition or may take one.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ..api.leased import LeasedMessages
from ..api.members import EndWaiting, PollMember, StartWaiting
from ..api.principals import LOCAL, Principal
from ..broker.partition import Now
from ..broker.partition.changes import Done
from ..errors import Fatal, PenstockError
from ..model import TopicPartition
from .ticker import NEVER_NS
from .waiting_polls import Waiter
from .world import SteppedClock

if TYPE_CHECKING:
    from .threads import ThreadDriver

_S_NS = 1_000_000_000
MemberWaiter = Waiter[PollMember]
Key = TypeVar("Key")


class WaitingMemberPolls:
    """Belongs to a driver. Thread-safe, except for what says that the lock is held."""

    def __init__(self, driver: "ThreadDriver") -> None:
        self._driver = driver
        # The partitions of each waiter, and the waiters of each partition, by group, and of each member: a change looks
        # at those that it concerns.
        self.waiting: dict[MemberWaiter, tuple[TopicPartition, ...]] = {}
        self._by_partition: dict[tuple[str, int], dict[str, set[MemberWaiter]]] = {}
        self._by_member: dict[tuple[str, str], set[MemberWaiter]] = {}
        # Those that wait for a limited time.
        self._timed: set[MemberWaiter] = set()

    def poll(self, command: PollMember, timeout_ns: int) -> LeasedMessages:
        """Lease messages; wait for them, if there are none, until the time is up (below zero: for ever)."""
        waiter = self.enter(command, LOCAL, timeout_ns)
        if not waiter.is_settled:
            # A stepped clock ends the wait when it is moved.
            is_timed = timeout_ns >= 0 and not isinstance(self._driver.clock, SteppedClock)
            try:
                waiter.wait(timeout_ns / _S_NS if is_timed else -1)
            except BaseException:
                self.abandon(waiter)
                raise
            self.leave(waiter)
        return waiter.outcome()

    def enter(
        self,
        command: PollMember,
        principal: Principal,
        timeout_ns: int,
        on_settled: Callable[[], None] | None = None,
    ) -> MemberWaiter:
        """Lease what is there, or begin to wait for it: the waiter is settled at once, or later.

        Below zero: wait for ever. With `on_settled` the ticker sees to it that the wait ends in time.
        """

        def take_or_wait(now: Now) -> MemberWaiter:
            until_ns = NEVER_NS if timeout_ns < 0 else now.monotonic_ns + timeout_ns
            waiter = Waiter(command, principal, until_ns, on_settled=on_settled)
            messages = self._driver.execute_locked(command, now, principal)
            if messages or timeout_ns == 0 or not self._is_parked(waiter, now):
                waiter.settle(messages)
            elif on_settled is not None:
                self._driver.expect(until_ns)
            return waiter

        self._driver.admit()
        return self._driver.run(take_or_wait)

    def leave(self, waiter: MemberWaiter) -> None:
        """Wait no longer; what the waiter was settled with stays with it."""
        if not waiter.is_settled:
            self._driver.run(lambda now: self._end(waiter, now))

    def abandon(self, waiter: MemberWaiter) -> None:
        """Wait no longer, and give back what came a moment too late: no client will see it, so it does not count."""
        with suppress(PenstockError):
            self.leave(waiter)
            if waiter.messages:
                self._driver.start(waiter.messages.release())

    # The rest is called with the lock held.

    def _is_parked(self, waiter: MemberWaiter, now: Now) -> bool:
        """Have a poll wait. False: its member has something to hear of first."""
        command = waiter.command
        group, member = command.group, command.member
        start = StartWaiting(group, member, command.changes)
        standing = self._driver.execute_locked(start, now)
        if standing is None:
            return False
        # From now on every change of the assignment ends the wait, so the poll comes again in any generation.
        waiter.command = msgspec.structs.replace(command, generation=None)
        waiter.begin()
        self.waiting[waiter] = standing.assigned
        if waiter.until_ns < NEVER_NS:
            self._timed.add(waiter)
        self._by_member.setdefault((group, member), set()).add(waiter)
        for partition in standing.assigned:
            self._by_partition.setdefault(partition, {}).setdefault(group, set()).add(waiter)
        return True

    def _end(self, waiter: MemberWaiter, now: Now) -> None:
        """Let a poll wait no longer, if it does."""
        partitions = self.waiting.pop(waiter, None)
        if partitions is not None:
            self._timed.discard(waiter)
            group, member = waiter.command.group, waiter.command.member
            _discard(self._by_member, (group, member), waiter)
            for partition in partitions:
                _discard(self._by_partition[partition], group, waiter)
                if not self._by_partition[partition]:
                    del self._by_partition[partition]
            self._driver.execute_locked(EndWaiting(group, member), now)

    def serve(self, done: Done[Any]) -> None:
        """Execute the polls again whose partitions have changed, and end the waits of members whose assignment has."""
        if not self.waiting:
            return
        now = self._driver.now()
        for key in done.members:
            for waiter in [*self._by_member.get(key, ())]:
                # One that is a member no more hears so with its next call.
                self._settle(waiter, now, LeasedMessages())
        concerned: dict[MemberWaiter, None] = {}
        for touched, number in done.touched:
            by_group = self._by_partition.get((touched.topic, touched.number))
            if not by_group:
                continue
            if number:
                name = touched.machine.names.get(number, "")
                concerned |= dict.fromkeys(by_group.get(name, ()))
            else:
                for waiters in by_group.values():
                    concerned |= dict.fromkeys(waiters)
        for waiter in concerned:
            if waiter in self.waiting:
                self._try_again(waiter, now)

    def _try_again(self, waiter: MemberWaiter, now: Now) -> None:
        messages, error = LeasedMessages(), None
        try:
            messages = self._driver.execute_locked(waiter.command, now, waiter.principal)
        except Fatal:
            raise
        except PenstockError as trouble:
            # A damaged batch, a full disk: for the member to know, not for the client that made messages ready.
            error = trouble.fresh()
        if messages or error:
            self._settle(waiter, now, messages, error)

    def _settle(
        self,
        waiter: MemberWaiter,
        now: Now,
        messages: LeasedMessages,
        error: PenstockError | None = None,
    ) -> None:
        """End the wait of a poll. First of all its caller hears of it: a Ctrl-C may come at any time."""
        waiter.settle(messages, error)
        self._end(waiter, now)

    def end_overdue(self, now: Now) -> float:
        """Let those go whose time is up; when the next one's is."""
        for waiter in [waiter for waiter in self._timed if waiter.until_ns <= now.monotonic_ns]:
            self._settle(waiter, now, LeasedMessages())
        return min((waiter.until_ns for waiter in self._timed), default=NEVER_NS)

    def dismiss(self, error: PenstockError | None = None) -> None:
        """Let all of them go: the broker is closed, or there are no members any more."""
        for waiter in [*self.waiting]:
            waiter.settle(LeasedMessages(), error)
        for parked in (self.waiting, self._by_partition, self._by_member, self._timed):
            parked.clear()


def _discard(parked: dict[Key, set[MemberWaiter]], key: Key, waiter: MemberWaiter) -> None:
    parked[key].discard(waiter)
    if not parked[key]:
        del parked[key]

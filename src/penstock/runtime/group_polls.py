"""Polls of work groups that wait for messages: how a consumer begins to wait, is served, and ends its wait."""

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from ..api.consume import CountReady, Poll
from ..api.leased import LeasedMessages
from ..api.principals import LOCAL, Principal
from ..api.received import Received
from ..broker.partition import Now, Partition, consumption
from ..broker.partition.changes import Done
from ..errors import Fatal, NotFound, PenstockError
from .ticker import NEVER_NS
from .waiting_polls import Place, PollWaiter, Waiter, WaitingPolls

if TYPE_CHECKING:
    from .threads import ThreadDriver

_S_NS = 1_000_000_000
FOR_EVER = -1


class WaitingGroupPolls:
    """Belongs to a driver. Thread-safe, except for what says that the lock is held."""

    def __init__(self, driver: "ThreadDriver") -> None:
        self._driver = driver
        self._queues = WaitingPolls()
        # Empty if no consumer waits.
        self.waiting = self._queues.queues

    def poll(self, command: Poll, timeout_ns: int = 0) -> list[Received]:
        """Lease messages; wait for them, if there are none, until the time is up (below zero: for ever)."""
        return self.wait_for(self.enter(command, LOCAL, timeout_ns), timeout_ns)

    def wait_for(self, waiter: PollWaiter, timeout_ns: int) -> list[Received]:
        """The messages of a waiter that was entered: at once if it is settled, or when they come or the time is up."""
        if not waiter.is_settled:
            is_timed = timeout_ns >= 0 and not self._driver.is_stepped
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
    ) -> PollWaiter:
        """Lease what is there, or begin to wait for it: the waiter is settled at once, or later.

        With `on_settled`, which is called once, from any thread, the ticker sees to it that the wait ends in time.
        """

        def take_or_wait(now: Now) -> PollWaiter:
            until_ns = NEVER_NS if timeout_ns < 0 else now.monotonic_ns + timeout_ns
            waiter = Waiter(command, principal, until_ns, on_settled=on_settled)
            messages = self._driver.execute_locked(command, now, principal)
            if messages or not (timeout_ns and command.limit):
                if not waiter.settle(messages):
                    self._give_back(messages, now)
            else:
                self._queues.enter(waiter)
            if on_settled is not None:
                self._driver.expect(until_ns)
            return waiter

        self._driver.admit()
        return self._driver.run(take_or_wait)

    def leave(self, waiter: PollWaiter) -> None:
        """Wait no longer; what the waiter was settled with stays with it."""
        with self._driver.lock:
            self._queues.leave(waiter)

    def abandon(self, waiter: PollWaiter) -> None:
        """Wait no longer, and give back what came a moment too late: no client will see it, so it does not count."""
        self.leave(waiter)
        if waiter.messages:
            with suppress(PenstockError):
                self._driver.start(waiter.messages.release())

    # The rest is called with the lock held.

    def serve(self, done: Done[Any]) -> None:
        """Hand out what is ready where a command changed something."""
        if not self.waiting:
            return
        queues = self._queues
        for topic in done.topics:
            for group in [*queues.groups(topic)]:
                self._serve_topic(topic, group)
        changed: dict[Place, dict[Partition, None]] = {}
        for partition, number in done.touched:
            topic = partition.topic
            groups = queues.groups(topic)
            if number:
                groups = (partition.machine.names.get(number, ""),)
            for group in groups:
                if (topic, group) in self.waiting:
                    changed.setdefault((topic, group), {})[partition] = None
        for place, partitions in changed.items():
            # A consumer has looked at all partitions before it began to wait: what is new is in those that changed.
            ready = sum([consumption.ready_for(partition, place[1]) for partition in partitions])
            self._serve_group(*place, ready)

    def _serve_topic(self, topic: str, group: str) -> None:
        if topic not in self._driver.node.open:
            self._queues.dismiss(NotFound("topic", topic), [(topic, group)])
            return
        ready = self._driver.execute_locked(CountReady(topic, group), self._driver.now())
        self._serve_group(topic, group, ready)

    def _serve_group(self, topic: str, group: str, ready: int) -> None:
        now = self._driver.now()

        def take(waiter: PollWaiter, limit: int) -> LeasedMessages:
            command = msgspec.structs.replace(waiter.command, limit=limit)
            return self._driver.execute_locked(command, now, waiter.principal)

        def give_back(messages: LeasedMessages) -> None:
            self._give_back(messages, now)

        self._queues.serve((topic, group), ready, take, give_back)

    def _give_back(self, messages: LeasedMessages, now: Now) -> None:
        """Make messages ready again whose caller is gone. On a full disk they are when their lease ends."""
        if messages:
            try:
                self._driver.execute_locked(messages.release(), now)
            except Fatal:
                raise
            except PenstockError as error:
                self._driver.logger.warning("cannot give messages back: %s", error)

    def end_overdue(self, now: Now) -> float:
        """Let those go whose time is up; when the next one's is."""
        self._queues.end_overdue(now.monotonic_ns)
        return self._queues.next_until_ns()

    def dismiss(self, error: PenstockError) -> None:
        """Let all of them go: the broker is closed."""
        self._queues.dismiss(error)

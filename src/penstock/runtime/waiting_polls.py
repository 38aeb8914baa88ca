"""Consumers that wait for messages, and how what arrives is shared among them.

The consumer that has waited longest is served first and then queues at the end again; what is ready at one moment is
divided by the number of consumers that wait. So two idle streams and ten messages give five each, whether they come at
once or one by one. A message is leased to the consumer that is woken, so ten thousand that wait cost no more than ten.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Generic, TypeVar

from ..api.command import Command
from ..api.consume import Poll
from ..api.leased import LeasedMessages
from ..api.principals import Principal
from ..errors import Fatal, PenstockError
from .ticker import NEVER_NS

C = TypeVar("C", bound=Command[Any])


@dataclass(slots=True, eq=False)
class Waiter(Generic[C]):
    """A poll that found nothing. Settled once, with messages, with none (time is up) or with an error."""

    command: C
    principal: Principal
    until_ns: int
    messages: LeasedMessages = field(default_factory=LeasedMessages)
    error: PenstockError | None = None
    is_settled: bool = False
    on_settled: Callable[[], None] | None = None
    # Held until it is settled; only one that waits has it.
    _pending: "Lock | None" = None

    def begin(self) -> None:
        """It has to wait. With the driver's lock held."""
        self._pending = Lock()
        self._pending.acquire()

    def settle(self, messages: LeasedMessages, error: PenstockError | None = None) -> bool:
        """With the driver's lock held. False: its caller is gone, and the messages are to be given back.

        Only the first outcome counts. Once more tells the caller again, whom a Ctrl-C may have kept from hearing of it.
        """
        if not self.is_settled:
            self.messages, self.error, self.is_settled = messages, error, True
        if self._pending is not None and self._pending.locked():
            self._pending.release()
        on_settled = self.on_settled
        if on_settled is not None:
            try:
                on_settled()
            except RuntimeError:
                # Its event loop is closed. Not for the thread to hear that published, or closes the driver.
                self.messages = LeasedMessages()
                return False
        return True

    def outcome(self) -> LeasedMessages:
        """What it was settled with."""
        if self.error is not None:
            raise self.error.fresh()
        return self.messages

    def wait(self, timeout_s: float) -> None:
        """Return when settled, or when the time is up; below zero: however long it takes."""
        assert self._pending is not None, "it was entered"
        self._pending.acquire(timeout=timeout_s)


PollWaiter = Waiter[Poll]

Place = tuple[str, str]
"""A topic and a group."""

Take = Callable[[PollWaiter, int], LeasedMessages]
"""Execute the command of a waiter for up to so many messages."""

GiveBack = Callable[[LeasedMessages], None]
"""Make messages ready again whose caller is gone."""


class WaitingPolls:
    """Waiters by topic and group, in the order in which they came. Not thread-safe: under the driver's lock.

    To enter, to leave and to be served cost the same however many wait. A waiter leaves its queue once it is settled,
    not before: a Ctrl-C in the thread that serves it may come at any time, and then the next `serve` finds it there.
    """

    def __init__(self) -> None:
        self.queues: dict[Place, OrderedDict[PollWaiter, None]] = {}
        # The groups that have a queue, by topic.
        self._groups: dict[str, dict[str, None]] = {}
        # Those that wait for a limited time. Event loops keep time by themselves, so theirs are not among them.
        self._timed: set[PollWaiter] = set()

    def enter(self, waiter: PollWaiter) -> None:
        waiter.begin()
        topic, group = place = _place(waiter)
        self.queues.setdefault(place, OrderedDict())[waiter] = None
        self._groups.setdefault(topic, {})[group] = None
        if waiter.until_ns < NEVER_NS:
            self._timed.add(waiter)

    def leave(self, waiter: PollWaiter) -> None:
        """Forget a waiter whose caller has given up."""
        self._timed.discard(waiter)
        queue = self.queues.get(_place(waiter))
        if queue is not None:
            queue.pop(waiter, None)
            self._forget_if_empty(_place(waiter))

    def groups(self, topic: str) -> Collection[str]:
        """The groups in which consumers of a topic wait."""
        return self._groups.get(topic, ())

    def serve(self, place: Place, ready: int, take: Take, give_back: GiveBack) -> None:
        """Share `ready` messages among the waiters of a place; those that get nothing keep their turn."""
        queue = self.queues.get(place, OrderedDict())
        left: list[PollWaiter] = []
        while len(left) < len(queue):
            waiter = next(iter(queue))
            if waiter.is_settled:
                self._settle(waiter, waiter.messages)
                continue
            if ready <= 0:
                break
            share = -(-ready // (len(queue) - len(left)))
            try:
                messages = take(waiter, min(share, waiter.command.limit))
            except Fatal:
                raise
            except PenstockError as error:
                # A damaged batch, a full disk: for the waiter to know, not for the client that made messages ready.
                self._settle(waiter, LeasedMessages(), error.fresh())
                continue
            if not messages:
                left.append(waiter)
                queue.move_to_end(waiter)
            elif self._settle(waiter, messages):
                ready -= len(messages)
            else:
                give_back(messages)
        for waiter in reversed(left):
            queue.move_to_end(waiter, last=False)
        self._forget_if_empty(place)

    def _settle(
        self, waiter: PollWaiter, messages: LeasedMessages, error: PenstockError | None = None
    ) -> bool:
        is_heard = waiter.settle(messages, error)
        self.leave(waiter)
        return is_heard

    def _forget_if_empty(self, place: Place) -> None:
        if place in self.queues and not self.queues[place]:
            topic, group = place
            del self.queues[place], self._groups[topic][group]
            if not self._groups[topic]:
                del self._groups[topic]

    def end_overdue(self, now_ns: int) -> None:
        """Settle the waiters whose time is up, with no messages."""
        for waiter in [*self._timed]:
            if waiter.until_ns <= now_ns:
                self._settle(waiter, LeasedMessages())

    def next_until_ns(self) -> float:
        return min((waiter.until_ns for waiter in self._timed), default=float("inf"))

    def dismiss(self, error: PenstockError, places: Iterable[Place] | None = None) -> None:
        """Settle all waiters at these places with an error, or all there are: the driver is closed."""
        for place in [*self.queues] if places is None else places:
            for waiter in [*self.queues[place]]:
                self._settle(waiter, LeasedMessages(), error)


def _place(waiter: PollWaiter) -> Place:
    return waiter.command.topic, waiter.command.group

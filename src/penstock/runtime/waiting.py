"""Consumers that wait for messages, and how what arrives is shared among them.

Whoever has waited longest is served first and then queues at the end again; what is ready at one moment is divided by
the number of those who wait. So two idle streams and ten messages give five each, whether they come at once or one by
one. A message is put into the hands of the one it is for, so ten thousand who wait cost no more than ten.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from threading import Lock

from ..api.consume import Poll
from ..api.leased import LeasedMessages
from ..api.principals import Principal
from ..errors import Fatal, PenstockError
from .ticker import NEVER_NS


@dataclass(slots=True, eq=False)
class Waiter:
    """A poll that found nothing. Settled once, with messages, with none (time is up) or with an error."""

    command: Poll
    principal: Principal
    until_ns: int
    messages: LeasedMessages = field(default_factory=LeasedMessages)
    error: BaseException | None = None
    is_settled: bool = False
    on_settled: Callable[[], None] | None = None
    _pending: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        self._pending.acquire()

    @property
    def place(self) -> "Place":
        return self.command.topic, self.command.group

    def settle(self, messages: LeasedMessages, error: BaseException | None = None) -> None:
        """With the driver's lock held."""
        self.messages, self.error, self.is_settled = messages, error, True
        self._pending.release()
        if self.on_settled is not None:
            self.on_settled()

    def outcome(self) -> LeasedMessages:
        """What it was settled with."""
        if self.error is not None:
            raise self.error.with_traceback(None)
        return self.messages

    def wait(self, timeout_s: float) -> None:
        """Return when settled, or when the time is up; below zero: however long it takes."""
        self._pending.acquire(timeout=timeout_s)


Place = tuple[str, str]
"""A topic and a group."""

Take = Callable[[Waiter, int], LeasedMessages]
"""Execute the command of a waiter for up to so many messages."""


class WaitingRoom:
    """Those who wait, by topic and group, in the order in which they came. Not thread-safe: under the driver's lock.

    Coming, going and being served cost the same however many wait.
    """

    def __init__(self) -> None:
        self.queues: dict[Place, OrderedDict[Waiter, None]] = {}
        # Those who wait for a limited time only. Event loops keep time by themselves, so theirs are not among them.
        self._timed: set[Waiter] = set()

    def __bool__(self) -> bool:
        """Whether anybody waits. Needs no lock."""
        return bool(self.queues)

    def enter(self, waiter: Waiter) -> None:
        self.queues.setdefault(waiter.place, OrderedDict())[waiter] = None
        if waiter.until_ns < NEVER_NS:
            self._timed.add(waiter)

    def leave(self, waiter: Waiter) -> None:
        """Forget a waiter whose caller has given up."""
        queue = self.queues.get(waiter.place)
        if queue is not None:
            queue.pop(waiter, None)
            self._timed.discard(waiter)
            self._forget_if_empty(waiter.place)

    def groups(self, topics: Collection[str] | None = None) -> Sequence[Place]:
        """Where consumers wait; of some topics, or of all."""
        return [place for place in self.queues if topics is None or place[0] in topics]

    def serve(self, place: Place, ready: int, take: Take) -> None:
        """Share `ready` messages among the waiters of a place; those that get nothing keep their turn."""
        queue = self.queues.get(place, OrderedDict())
        left: list[Waiter] = []
        while queue and ready > 0:
            waiter, _ = queue.popitem(last=False)
            share = -(-ready // (len(queue) + 1))
            try:
                messages = take(waiter, min(share, waiter.command.limit))
            except Fatal:
                raise
            except PenstockError as error:
                # A damaged batch, a full disk: theirs to know, and none of whoever made messages ready.
                self._settle(waiter, LeasedMessages(), error)
                continue
            if messages:
                ready -= len(messages)
                self._settle(waiter, messages)
            else:
                left.append(waiter)
        for waiter in reversed(left):
            queue[waiter] = None
            queue.move_to_end(waiter, last=False)
        self._forget_if_empty(place)

    def _settle(
        self, waiter: Waiter, messages: LeasedMessages, error: BaseException | None = None
    ) -> None:
        self._timed.discard(waiter)
        waiter.settle(messages, error)

    def _forget_if_empty(self, place: Place) -> None:
        if place in self.queues and not self.queues[place]:
            del self.queues[place]

    def end_overdue(self, now_ns: int) -> None:
        """Let those go whose time is up."""
        for waiter in [*self._timed]:
            if waiter.until_ns <= now_ns:
                self.leave(waiter)
                waiter.settle(LeasedMessages())

    def next_until_ns(self) -> float:
        return min((waiter.until_ns for waiter in self._timed), default=float("inf"))

    def dismiss(self, error: BaseException, places: Iterable[Place] | None = None) -> None:
        """Everybody at these places goes with an error; without any, everybody: the house is closed."""
        for place in [*self.queues] if places is None else places:
            for waiter in self.queues.pop(place):
                self._settle(waiter, LeasedMessages(), error)

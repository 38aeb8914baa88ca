"""Consumers that wait for messages, and how what arrives is shared among them.

Whoever has waited longest is served first and then queues at the end again; what is ready at one moment is divided by
the number of those who wait. So two idle streams and ten messages give five each, whether they come at once or one by
one. A message is put into the hands of the one it is for, so ten thousand who wait cost no more than ten.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from threading import Lock

from ..broker.consumption import Wanted
from ..broker.received import Received
from ..errors import Fatal, PenstockError

Take = Callable[[Wanted], list[Received]]
"""Lease up to so many messages to a member."""


@dataclass(slots=True, eq=False)
class Waiter:
    """One consumer that found nothing. Settled once, with messages, with none (time is up) or with an error."""

    wanted: Wanted
    until_ns: int
    messages: list[Received] = field(default_factory=list)
    error: BaseException | None = None
    is_settled: bool = False
    on_settled: Callable[[], None] | None = None
    _pending: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        self._pending.acquire()

    def settle(self, messages: list[Received], error: BaseException | None = None) -> None:
        """With the driver's lock held."""
        self.messages, self.error, self.is_settled = messages, error, True
        self._pending.release()
        if self.on_settled is not None:
            self.on_settled()

    def wait(self, timeout_s: float) -> None:
        """Return when settled, or when the time is up; below zero: however long it takes."""
        self._pending.acquire(timeout=timeout_s)


class WaitingRoom:
    """Those who wait, by topic and group, in the order in which they came. Not thread-safe: under the driver's lock."""

    def __init__(self) -> None:
        self._queues: dict[tuple[str, str], deque[Waiter]] = {}

    def enter(self, topic: str, group: str, waiter: Waiter) -> None:
        self._queues.setdefault((topic, group), deque()).append(waiter)

    def leave(self, topic: str, group: str, waiter: Waiter) -> None:
        """Forget one who has given up."""
        queue = self._queues.get((topic, group), deque())
        if waiter in queue:
            queue.remove(waiter)
        if not queue:
            self._queues.pop((topic, group), None)

    def groups(self, topic: str | None = None) -> Sequence[tuple[str, str]]:
        """Where somebody waits; of one topic, or of all."""
        return [place for place in self._queues if topic is None or place[0] == topic]

    def is_anybody_in(self, topic: str, group: str) -> bool:
        return (topic, group) in self._queues

    def serve(self, topic: str, group: str, ready: int, take: Take) -> None:
        """Share `ready` messages among those who wait; who gets nothing keeps their place."""
        queue = self._queues.get((topic, group), deque())
        left: deque[Waiter] = deque()
        while queue and ready > 0:
            waiter = queue.popleft()
            share = -(-ready // (len(queue) + 1))
            limit = min(share, waiter.wanted.limit)
            try:
                messages = take(waiter.wanted._replace(limit=limit))
            except Fatal:
                raise
            except PenstockError as error:
                # A damaged batch, a full disk: theirs to know, and none of whoever made messages ready.
                waiter.settle([], error)
                continue
            if messages:
                ready -= len(messages)
                waiter.settle(messages)
            else:
                left.append(waiter)
        left.extend(queue)
        self._keep(topic, group, left)

    def _keep(self, topic: str, group: str, queue: deque[Waiter]) -> None:
        if queue:
            self._queues[topic, group] = queue
        else:
            self._queues.pop((topic, group), None)

    def end_overdue(self, now_ns: int) -> None:
        """Let those go whose time is up."""
        for place, queue in [*self._queues.items()]:
            for waiter in [one for one in queue if one.until_ns <= now_ns]:
                queue.remove(waiter)
                waiter.settle([])
            self._keep(*place, queue)

    def next_until_ns(self) -> float:
        return min((waiter.until_ns for waiter in self._all()), default=float("inf"))

    def dismiss(self, error: BaseException) -> None:
        """Everybody goes with an error: the house is closed."""
        for waiter in [*self._all()]:
            waiter.settle([], error)
        self._queues.clear()

    def _all(self) -> Iterator[Waiter]:
        for queue in self._queues.values():
            yield from queue

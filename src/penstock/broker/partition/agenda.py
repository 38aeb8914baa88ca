"""When something is due in which partition of a node: a tick looks at those in which something is, and at no others.

What is known of a partition is a time before which nothing is due there. One that is too early costs a look. One that
is too late would leave a lease or a delayed message behind, so it is told of everything that may be due sooner.
"""

from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .partition import Partition

NEVER_NS, NOT_IN_USE = float("inf"), float("-inf")
# So many entries may be out of date, beside as many as there are partitions, before they are cleared away.
_STALE_MAX = 64
_ALL = 1 << 62


class Agenda:
    """Of one node, on the clock that measures waiting."""

    def __init__(self) -> None:
        # Of all partitions in use. What became of others may still be told, and is nothing to wait for.
        self.dues: dict[Partition, float] = {}
        # A heap, with entries that are out of date. The number keeps partitions from being compared.
        self._entries: list[tuple[float, int, Partition]] = []
        self._numbers = count()

    def enrol(self, partition: "Partition") -> None:
        """It is used from now on."""
        self.dues[partition] = NEVER_NS

    def expect(self, partition: "Partition", due_ns: float) -> None:
        """Look at a partition no later than this."""
        if due_ns < self.dues.get(partition, NOT_IN_USE):
            # Known last: after a Ctrl-C in between, the next call does all of it.
            heappush(self._entries, (due_ns, next(self._numbers), partition))
            self.dues[partition] = due_ns
            if len(self._entries) > 2 * len(self.dues) + _STALE_MAX:
                self._clear_stale()

    def take(self, now_ns: int, partitions_max: int = _ALL) -> list["Partition"]:
        """The partitions in which something may be due, the most overdue ones if those are more than so many.

        The caller looks at each, and says when it is to be next.
        """
        due: list[Partition] = []
        while len(due) < partitions_max and self.next_ns() <= now_ns:
            partition = heappop(self._entries)[2]
            self.dues[partition] = NEVER_NS
            due.append(partition)
        return due

    def next_ns(self) -> float:
        """When to look at a partition next, or infinity."""
        entries = self._entries
        while entries and self.dues.get(entries[0][2]) != entries[0][0]:
            heappop(entries)
        return entries[0][0] if entries else NEVER_NS

    def forget(self, *partitions: "Partition") -> None:
        """They are used no more. All of a topic at once, because each call walks over everything that is due."""
        dues = [self.dues.pop(partition, NEVER_NS) for partition in partitions]
        if min(dues, default=NEVER_NS) != NEVER_NS:
            self._clear_stale()

    def _clear_stale(self) -> None:
        dues = [(one, due) for one, due in self.dues.items() if due != NEVER_NS]
        self._entries = [(due, next(self._numbers), one) for one, due in dues]
        heapify(self._entries)

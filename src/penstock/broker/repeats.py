"""Polls that come again because their answer was lost: the same request gets the same messages, and no attempt is lost.

Only the last answer of each member is kept, and in memory: after a restart a repeat is a poll like any other.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable

from ..errors import NotFound
from .answers import by_lease
from .partition import Partition
from .received import Received

_ANSWERS_KEPT = 1000


class Repeats:
    """The last answers, by who asked. `find` gives a partition by topic and number."""

    def __init__(self, find: Callable[[str, int], Partition]) -> None:
        self._find = find
        self._last: OrderedDict[Hashable, tuple[str, list[Received]]] = OrderedDict()

    def answer_to(self, who: Hashable, request_id: str) -> list[Received] | None:
        """What this request was answered with; None if it is a new one, or if all of that was given back since."""
        known = self._last.get(who) if request_id else None
        if known is None or known[0] != request_id or not self._counts(known[1]):
            return None
        return known[1]

    def keep(self, who: Hashable, request_id: str, answer: list[Received]) -> None:
        """Remember an answer. One without messages may as well be looked for again."""
        self._last.pop(who, None)
        if request_id and answer:
            self._last[who] = (request_id, answer)
        if len(self._last) > _ANSWERS_KEPT:
            self._last.popitem(last=False)

    def forget(self, who: Hashable) -> None:
        self._last.pop(who, None)

    def _counts(self, answer: list[Received]) -> bool:
        """Whether any of it is still in somebody's hands, or was acked."""
        for place, lease, _ in by_lease(answer):
            try:
                delivery = self._find(place.topic, place.partition).machine.groups.get(place.group)
            except NotFound:
                continue
            if delivery and (
                lease in delivery.leases.by_number or lease in delivery.acked_recently
            ):
                return True
        return False

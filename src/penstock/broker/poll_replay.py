"""Polls that come again because their answer was lost: the same request gets the same messages, and no attempt is lost.

Only the last answer of each member is kept, and in memory: after a restart a repeat is a poll like any other. So it is
when the answer was dropped because others need the room, or was too large to be kept: then its messages stay with the
member until their leases end, and come again with one more attempt, as if there had been no id.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from itertools import chain
from typing import NamedTuple

from ..api.leased import LeasedMessages
from ..errors import NotFound, PartitionFaulty
from .partition import Partition

_ANSWERS_KEPT = 1000
# Room for the largest answer that the server gives, and for thousands of usual ones.
_BYTES_KEPT = 32 << 20
# What a message takes beside its content.
_MESSAGE_BYTES = 300


class _Kept(NamedTuple):
    request_id: str
    answer: LeasedMessages
    size: int


class PollReplay:
    """The last answers, by who asked, at most `bytes_max` of them. `find` gives a partition by topic and number."""

    def __init__(
        self, find: Callable[[str, int], Partition], *, bytes_max: int = _BYTES_KEPT
    ) -> None:
        self._find, self.bytes_max, self.bytes_kept = find, bytes_max, 0
        self._last: OrderedDict[Hashable, _Kept] = OrderedDict()

    def answer_to(self, who: Hashable, request_id: str) -> LeasedMessages | None:
        """What this request was answered with; None if it is a new one, or if all of that was given back since."""
        known = self._last.get(who) if request_id else None
        if known is None or known.request_id != request_id or not self._counts(known.answer):
            return None
        return known.answer

    def keep(self, who: Hashable, request_id: str, answer: LeasedMessages) -> None:
        """Remember an answer, and drop the oldest for it. One without messages may as well be looked for again."""
        self.forget(who)
        size = _size_of(answer) if request_id else 0
        if not 0 < size <= self.bytes_max:
            return
        self._last[who] = _Kept(request_id, answer, size)
        self.bytes_kept += size
        while self.bytes_kept > self.bytes_max or len(self._last) > _ANSWERS_KEPT:
            self.forget(next(iter(self._last)))

    def forget(self, who: Hashable) -> None:
        known = self._last.pop(who, None)
        if known is not None:
            self.bytes_kept -= known.size

    def _counts(self, answer: LeasedMessages) -> bool:
        """Whether a consumer still holds any of it, or has acked it."""
        for part in answer.parts:
            place, lease = part.place, part.lease
            try:
                delivery = self._find(place.topic, place.partition).machine.groups.get(place.group)
            except (NotFound, PartitionFaulty):
                continue
            if delivery and (
                lease in delivery.leases.by_number or lease in delivery.acked_recently
            ):
                return True
        return False


def _size_of(answer: LeasedMessages) -> int:
    """About what it takes in memory."""
    size = _MESSAGE_BYTES * len(answer) + answer.content_bytes()
    for part in answer.parts:
        if not part.is_bare:
            headers = chain.from_iterable(part.headers)
            size += sum(len(name) + len(value or b"") for name, value in headers)
    return size

"""Priority lanes: which messages of a partition are in which lane, and what a poll takes of each.

Almost every message has the normal priority, so only the others are recorded; a partition without them costs nothing.
Lanes belong to the partition and follow from its messages. The turns of lanes belong to a group.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from ..model import Priority
from .commands import Choice
from .machine import Delivery
from .offsets import first_missing, next_of

NORMAL = Priority.NORMAL
# The first step of a search; each further step is wider.
_WIDTH_MIN = 64
_WIDER = 4
_WINDOW = 8192
# One search finds messages for several polls.
_STOCK = 4096
_NONE = BitMap64()
_ALL = tuple(Priority)
_SPECIAL = tuple(one for one in _ALL if one is not NORMAL)


class Lanes:
    """Offsets of one partition by priority."""

    def __init__(self) -> None:
        self.special = {one: BitMap64() for one in _SPECIAL}
        self._any = BitMap64()

    @property
    def is_flat(self) -> bool:
        """Whether all messages have the normal priority."""
        return not self._any

    @property
    def last_urgent(self) -> int:
        """The last offset with a priority above normal, or -1."""
        urgent = (lane for one, lane in self.special.items() if one < NORMAL and lane)
        return max((lane.max() for lane in urgent), default=-1)

    def add_run(self, start: int, end: int, priority: int) -> None:
        """Add offsets from `start` to `end`, which have one priority."""
        if priority != NORMAL and start < end:
            self.special[Priority(priority)].add_range(start, end)
            self._any.add_range(start, end)

    def add(self, offsets: npt.NDArray[np.int64], priorities: npt.NDArray[np.generic]) -> None:
        for priority, lane in self.special.items():
            found = BitMap64(offsets[priorities == priority].tolist())
            lane.update(found)
            self._any |= found

    def restore(self, priority: int, offsets: BitMap64) -> None:
        """Add offsets of a snapshot."""
        lane = self.special[Priority(priority)]
        lane.update(offsets)
        self._any |= offsets

    def forget_below(self, offset: int) -> None:
        for lane in (*self.special.values(), self._any):
            lane.remove_range(0, offset)

    def of(self, offsets: BitMap64, priority: int) -> BitMap64:
        """Returns those of some offsets that have a priority."""
        if priority == NORMAL:
            return offsets - self._any
        return offsets & self.special[Priority(priority)]

    def first(self, priority: int, span: range, count: int, without: BitMap64) -> BitMap64:
        """Returns the first `count` offsets of a lane inside of a span that are not in `without`."""
        found, start, width = BitMap64(), span.start, max(_WIDTH_MIN, 2 * count)
        while len(found) < count and (start := self._next(priority, start, span.stop)) < span.stop:
            stop = min(span.stop, start + width)
            found |= self.of(BitMap64(range(start, stop)), priority) - without
            start, width = stop, width * _WIDER
        return first_of(found, count)

    def _next(self, priority: int, start: int, end: int) -> int:
        """Returns the next offset of a lane from `start` on, or `end` if there is none."""
        if priority == NORMAL:
            return first_missing(self._any, start)
        lane = self.special[Priority(priority)]
        if not lane or lane.max() < start:
            return end
        return next_of(lane, start)

    def count(self, priority: int, delivery: Delivery, end: int) -> int:
        """Returns how many messages of a lane a poll could get."""
        back = len(self.of(delivery.ready, priority))
        cursor, ahead = delivery.cursor, delivery.ahead
        if priority == NORMAL:
            special = self._any.range_cardinality(cursor, end) if cursor < end else 0
            ahead_here = len(ahead) - ahead.intersection_cardinality(self._any)
            return back + max(0, end - cursor) - special - ahead_here
        lane = self.special[Priority(priority)]
        unseen = lane.range_cardinality(cursor, end) if cursor < end else 0
        return back + unseen - lane.intersection_cardinality(ahead)


def held_by_lane(delivery: Delivery, lanes: Lanes) -> list[int]:
    """Returns how many messages of each lane are leased."""
    held = BitMap64()
    for lease in delivery.leases.by_number.values():
        held |= lease.offsets()
    return [len(lanes.of(held, one)) for one in Priority]


def first_of(offsets: BitMap64, count: int) -> BitMap64:
    """Returns the smallest `count` offsets."""
    if len(offsets) <= count:
        return offsets
    smallest = BitMap64(offsets)
    smallest.remove_range(offsets[count], offsets.max() + 1)
    return smallest


@dataclass(frozen=True, slots=True)
class LaneRequest:
    """What a poll wants of the lanes: `limit` messages below `end`, of one lane `only` or of all."""

    limit: int
    end: int
    starvation_ms: int
    only: Priority | None = None


def choose(delivery: Delivery, lanes: Lanes, request: LaneRequest) -> Choice:
    """Returns the next messages by priority; in each lane those that are ready again first, then new ones in order."""
    asked = _ALL if request.only is None else (request.only,)
    ready = delivery.ready
    back = [lanes.of(ready, one) for one in asked] if ready else [_NONE] * len(asked)
    # One more than could be taken, if there is: the next turn depends on whether a lane has messages left.
    wanted = [request.limit + 1 - len(one) for one in back]
    new = [
        _stock(delivery, lanes, one, request, least)
        for one, least in zip(asked, wanted, strict=True)
    ]
    counts, turns = [request.limit], delivery.hints.turns
    if request.only is None:
        sizes = [len(one) + len(other) for one, other in zip(back, new, strict=True)]
        starvation_ns = request.starvation_ms * 1_000_000
        turns = turns.copy()
        counts = turns.share(sizes, request.limit, delivery.now_ns, starvation_ns)
    chosen = BitMap64()
    for came_back, fresh, count in zip(back, new, counts, strict=True):
        taken = _take(chosen, came_back, count) if came_back else 0
        _take(chosen, fresh, count - taken)
    return Choice(chosen, _cursor_after(delivery, chosen), turns, is_by_lanes=True)


def _take(chosen: BitMap64, offsets: BitMap64, count: int) -> int:
    """Add the smallest `count` offsets to the chosen ones, or as many as there are. Returns how many."""
    count = min(count, len(offsets))
    if count:
        first = offsets.min()
        # Most are neighbours, for which no set has to be made.
        if offsets.contains_range(first, first + count):
            chosen.add_range(first, first + count)
        else:
            chosen |= first_of(offsets, count)
    return count


def _stock(
    delivery: Delivery, lanes: Lanes, lane: Priority, request: LaneRequest, wanted: int
) -> BitMap64:
    """Returns the first messages of a lane that were never leased, at least `wanted` if there are; not to be changed.

    More than that are kept for the next polls. The cursor and `ahead` show what earlier polls took.
    """
    hints, cursor = delivery.hints, delivery.cursor
    stock = hints.stocks[lane]
    if stock:
        stock.remove_range(0, cursor)
        _remove(stock, delivery.ahead)
    if len(stock) < wanted and hints.starts[lane] < request.end:
        span = range(max(hints.starts[lane], cursor), request.end)
        count = max(wanted, _STOCK)
        found = lanes.first(lane, span, count, delivery.ahead)
        hints.starts[lane] = found.max() + 1 if len(found) == count else request.end
        stock |= found
    hints.stocks[lane] = stock
    return stock


def _remove(stock: BitMap64, taken: BitMap64) -> None:
    count = stock.intersection_cardinality(taken)
    if count:
        first = stock.min()
        end = first + count
        # Polls mostly take the first neighbours, for which no set has to be made.
        if stock.contains_range(first, end) and taken.contains_range(first, end):
            stock.remove_range(first, end)
        else:
            stock -= taken


def _cursor_after(delivery: Delivery, chosen: BitMap64) -> int:
    """Returns the first offset that is never leased when the chosen ones are."""
    ahead, cursor = delivery.ahead, delivery.cursor
    # Enough for batches of one priority each.
    for passed in (ahead, chosen, ahead):
        cursor = first_missing(passed, cursor)
    while cursor in chosen or cursor in ahead:
        left = BitMap64(range(cursor, cursor + _WINDOW)) - chosen - ahead
        cursor = left.min() if left else cursor + _WINDOW
    return cursor

"""Priority lanes: which messages of a partition are in which, and what a poll takes of each.

Almost every message has the normal priority, so only the others are written down; a partition without any costs
nothing. The lanes belong to the partition and follow from its messages; whose turn it is belongs to a group.
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
# How far a search looks at first; each further step is wider.
_WIDTH_MIN = 64
_WIDER = 4
_WINDOW = 8192
# Found in one search, for some polls.
_STOCK = 4096
_NONE = BitMap64()
_ALL = tuple(Priority)


class Lanes:
    """Offsets of one partition by priority."""

    def __init__(self) -> None:
        self.special = {one: BitMap64() for one in Priority if one is not NORMAL}
        self._any = BitMap64()

    @property
    def is_flat(self) -> bool:
        """Whether all messages have the normal priority."""
        return not self._any

    @property
    def last_urgent(self) -> int:
        """The last offset that is more urgent than most, or -1."""
        urgent = (lane for one, lane in self.special.items() if one < NORMAL and lane)
        return max((lane.max() for lane in urgent), default=-1)

    def add_run(self, start: int, end: int, priority: int) -> None:
        """All offsets from `start` to `end` have one priority."""
        if priority != NORMAL and start < end:
            self.special[Priority(priority)].add_range(start, end)
            self._any.add_range(start, end)

    def add(self, offsets: npt.NDArray[np.int64], priorities: npt.NDArray[np.generic]) -> None:
        for priority, lane in self.special.items():
            found = BitMap64(offsets[priorities == priority].tolist())
            lane.update(found)
            self._any |= found

    def restore(self, priority: int, offsets: BitMap64) -> None:
        """Take over what a snapshot held."""
        lane = self.special[Priority(priority)]
        lane.update(offsets)
        self._any |= offsets

    def forget_below(self, offset: int) -> None:
        for lane in (*self.special.values(), self._any):
            lane.remove_range(0, offset)

    def of(self, offsets: BitMap64, priority: int) -> BitMap64:
        """Those of some offsets that have a priority."""
        if priority == NORMAL:
            return offsets - self._any
        return offsets & self.special[Priority(priority)]

    def first(self, priority: int, span: range, count: int, without: BitMap64) -> BitMap64:
        """The first so many offsets of a lane inside of a span, those `without` passed over."""
        found, start, width = BitMap64(), span.start, max(_WIDTH_MIN, 2 * count)
        while len(found) < count and (start := self._next(priority, start, span.stop)) < span.stop:
            stop = min(span.stop, start + width)
            found |= self.of(BitMap64(range(start, stop)), priority) - without
            start, width = stop, width * _WIDER
        return first_of(found, count)

    def _next(self, priority: int, start: int, end: int) -> int:
        """Where a lane goes on from `start`; `end` if it does not."""
        if priority == NORMAL:
            return first_missing(self._any, start)
        lane = self.special[Priority(priority)]
        if not lane or lane.max() < start:
            return end
        return next_of(lane, start)

    def count(self, priority: int, delivery: Delivery, end: int) -> int:
        """How many messages of a lane nobody holds and nothing keeps back."""
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
    """How many messages of each lane somebody holds."""
    held = BitMap64()
    for lease in delivery.leases.by_number.values():
        held |= lease.offsets()
    return [len(lanes.of(held, one)) for one in Priority]


def first_of(offsets: BitMap64, count: int) -> BitMap64:
    """The smallest so many of them."""
    if len(offsets) <= count:
        return offsets
    smallest = BitMap64(offsets)
    smallest.remove_range(offsets[count], offsets.max() + 1)
    return smallest


@dataclass(frozen=True, slots=True)
class Ask:
    """What a poll wants of the lanes: so many below `end`, of one lane `only` or of all."""

    limit: int
    end: int
    starvation_ms: int
    only: Priority | None = None


def choose(delivery: Delivery, lanes: Lanes, ask: Ask) -> Choice:
    """The next messages by priority; in each lane those that came back first, then new ones in their order."""
    asked = _ALL if ask.only is None else (ask.only,)
    ready = delivery.ready
    back = [lanes.of(ready, one) for one in asked] if ready else [_NONE] * len(asked)
    # One more than could be taken, if there is: whether anything is left decides whose turn is next.
    wanted = [ask.limit + 1 - len(one) for one in back]
    new = [
        _stock(delivery, lanes, one, ask, least) for one, least in zip(asked, wanted, strict=True)
    ]
    counts = [ask.limit]
    if ask.only is None:
        sizes = [len(one) + len(other) for one, other in zip(back, new, strict=True)]
        starvation_ns = ask.starvation_ms * 1_000_000
        counts = delivery.turns.share(sizes, ask.limit, delivery.now_ns, starvation_ns)
    chosen = BitMap64()
    for came_back, fresh, count in zip(back, new, counts, strict=True):
        taken = _take(chosen, came_back, count) if came_back else 0
        _take(chosen, fresh, count - taken)
    return Choice(chosen, _cursor_after(delivery, chosen), is_by_lanes=True)


def _take(chosen: BitMap64, offsets: BitMap64, count: int) -> int:
    """Add the smallest so many offsets to the chosen ones, or as many as there are; returns how many."""
    count = min(count, len(offsets))
    if count:
        first = offsets.min()
        # Neighbours, as most are: no set has to be made for them.
        if offsets.contains_range(first, first + count):
            chosen.add_range(first, first + count)
        else:
            chosen |= first_of(offsets, count)
    return count


def _stock(delivery: Delivery, lanes: Lanes, lane: Priority, ask: Ask, wanted: int) -> BitMap64:
    """The first messages of a lane that were never handed out, at least so many if there are; not to be changed.

    Some more are kept for the next polls. Whatever became of the last choice, what it took is known by now.
    """
    turns, cursor = delivery.turns, delivery.cursor
    stock = turns.stocks[lane]
    if stock:
        stock.remove_range(0, cursor)
        _remove(stock, delivery.ahead)
    if len(stock) < wanted and turns.starts[lane] < ask.end:
        span = range(max(turns.starts[lane], cursor), ask.end)
        count = max(wanted, _STOCK)
        found = lanes.first(lane, span, count, delivery.ahead)
        turns.starts[lane] = found.max() + 1 if len(found) == count else ask.end
        stock |= found
    turns.stocks[lane] = stock
    return stock


def _remove(stock: BitMap64, taken: BitMap64) -> None:
    count = stock.intersection_cardinality(taken)
    if count:
        first = stock.min()
        end = first + count
        # The first neighbours, as polls take them: no set has to be made.
        if stock.contains_range(first, end) and taken.contains_range(first, end):
            stock.remove_range(first, end)
        else:
            stock -= taken


def _cursor_after(delivery: Delivery, chosen: BitMap64) -> int:
    """The first offset that was never handed out, if the chosen ones are."""
    ahead, cursor = delivery.ahead, delivery.cursor
    # Enough for batches of one priority each.
    for passed in (ahead, chosen, ahead):
        cursor = first_missing(passed, cursor)
    while cursor in chosen or cursor in ahead:
        left = BitMap64(range(cursor, cursor + _WINDOW)) - chosen - ahead
        cursor = left.min() if left else cursor + _WINDOW
    return cursor

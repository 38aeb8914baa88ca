"""A hierarchical timing wheel for millions of ids, each a bit or two in a set.

A tick is 10 ms. The first level has a slot for each of the next 256 ticks, the three levels above it 64 slots each,
every one as long as the whole level below. Ids beyond the week that they span wait in a slot for their week. When the
time of a slot begins it is spread over the level below, so each id moves at most five times.

Slots are numbered by time and not by their place in a ring. So an id is always in the lowest level whose present round
its tick belongs to, and `remove` finds it from its due time alone.

Ids of the present tick, and of ticks before it, are `near`: their exact times decide whether they are due. So no id is
early within a tick, and if the clock is set back the near ones wait.
"""

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from .due_times import Int64s, ids_in

TICK_NS = 10_000_000
# The ticks of a slot of each level, as a power of two. The last level has no end.
_SHIFTS = (0, 8, 14, 20, 26)
_LEVELS = range(len(_SHIFTS))
# The counts of `levels`: near ids, and ids of each level.
WHEEL_COUNTS = 1 + len(_SHIFTS)
# If the clock is set back by less than this the ids stay near; by more, and the wheel is turned back.
_SLACK_TICKS = 256
# At most about so many ids are near at a time; a wheel that is far behind advances when they have fired.
_NEAR_MAX = 8192
_NEVER = 1 << 62
# Small groups are cheaper to add one by one.
_GROUP_MIN = 16

DuesOf = Callable[[Int64s], Int64s]
"""Returns the exact due times of ids in growing order."""


class TimingWheel:
    """Ids by tick. `now_tick` is the present tick; `dues_of` returns exact times."""

    def __init__(self, dues_of: DuesOf) -> None:
        # It starts long ago, so that overdue ids become near in the order of time.
        self.now_tick = 0
        self.near = BitMap64()
        # Nothing near is due before it; None: to be looked up.
        self._near_ns: int | None = None
        self._dues_of = dues_of
        self._slots: tuple[dict[int, BitMap64], ...] = tuple({} for _ in _LEVELS)

    def insert(self, ids: Int64s, dues: Int64s) -> None:
        """Add ids, in growing order, with their due times."""
        if len(ids) == 0:
            return
        ticks = dues // TICK_NS
        first, last = int(ticks.min()), int(ticks.max())
        if first <= self.now_tick:
            self._near_ns = None
        if first == last:
            self._add(self._slot_of(first), ids)
            return
        is_left = ticks > self.now_tick
        self._add(self.near, ids[~is_left])
        for level in _LEVELS:
            if not is_left.any():
                return
            is_here = is_left & self._is_of_round(ticks, level)
            self._insert_level(level, ids[is_here], ticks[is_here])
            is_left &= ~is_here

    def _is_of_round(self, ticks: Int64s, level: int) -> npt.NDArray[np.bool_]:
        if level == _LEVELS[-1]:
            return np.ones(len(ticks), np.bool_)
        round_shift = _SHIFTS[level + 1]
        found: npt.NDArray[np.bool_] = ticks >> round_shift == self.now_tick >> round_shift
        return found

    def _insert_level(self, level: int, ids: Int64s, ticks: Int64s) -> None:
        slots = ticks >> _SHIFTS[level]
        order = np.argsort(slots, kind="stable")
        ids, slots = ids[order], slots[order]
        ends = [*(np.flatnonzero(np.diff(slots)) + 1).tolist(), len(ids)] if len(ids) else []
        start = 0
        for end in ends:
            self._add(self._slot(level, int(slots[start])), ids[start:end])
            start = end

    def _add(self, slot: BitMap64, ids: Int64s) -> None:
        if len(ids) > _GROUP_MIN and int(ids[-1]) - int(ids[0]) + 1 == len(ids):
            slot.add_range(int(ids[0]), int(ids[-1]) + 1)
        else:
            slot.update(ids.tolist())

    def _slot(self, level: int, number: int) -> BitMap64:
        slots = self._slots[level]
        found = slots.get(number)
        if found is None:
            found = slots[number] = BitMap64()
        return found

    def _slot_of(self, tick: int) -> BitMap64:
        if tick <= self.now_tick:
            return self.near
        level = self._level_of(tick)
        return self._slot(level, tick >> _SHIFTS[level])

    def _level_of(self, tick: int) -> int:
        for level in _LEVELS[:-1]:
            round_shift = _SHIFTS[level + 1]
            if tick >> round_shift == self.now_tick >> round_shift:
                return level
        return _LEVELS[-1]

    def remove(self, identity: int, due_ns: int) -> None:
        """Remove an id; its due time gives its slot."""
        tick = due_ns // TICK_NS
        if tick <= self.now_tick:
            self.near.discard(identity)
            if self._near_ns is not None and due_ns <= self._near_ns:
                self._near_ns = None
            return
        level = self._level_of(tick)
        number = tick >> _SHIFTS[level]
        slot = self._slots[level].get(number)
        if slot is not None:
            slot.discard(identity)
            if not slot:
                del self._slots[level][number]

    def advance(self, now_ns: int) -> None:
        """Advance the wheel towards a time, until enough ids are near. Those that are due first are near first."""
        tick = now_ns // TICK_NS
        if self.now_tick - tick > _SLACK_TICKS:
            self._turn_back(tick)
        while self.now_tick < tick and len(self.near) < _NEAR_MAX:
            self.now_tick = min(tick, self._next_stop())
            self._spread()

    def _next_stop(self) -> int:
        """Returns the next tick at which a slot begins that is not empty."""
        starts = (min(slots) << _SHIFTS[level] for level, slots in enumerate(self._slots) if slots)
        return min(starts, default=_NEVER)

    def _spread(self) -> None:
        """Spread the slots that begin now over the levels below."""
        self._near_ns = None
        for level in reversed(_LEVELS):
            number = self.now_tick >> _SHIFTS[level]
            slot = self._slots[level].pop(number, None)
            if slot is not None and level == 0:
                self.near |= slot
            elif slot is not None:
                ids = ids_in(slot)
                self.insert(ids, self._dues_of(ids))

    def _turn_back(self, tick: int) -> None:
        """Insert all ids again, because the clock was set back by a lot."""
        everything = BitMap64(self.near)
        for slots in self._slots:
            for slot in slots.values():
                everything |= slot
            slots.clear()
        self.near, self._near_ns, self.now_tick = BitMap64(), None, tick
        if everything:
            ids = ids_in(everything)
            self.insert(ids, self._dues_of(ids))

    def due(self, now_ns: int, limit: int) -> tuple[Int64s, Int64s]:
        """Returns ids that are due, earliest first, and their times; the wheel was advanced to `now_ns`."""
        ids = ids_in(self.near)
        dues = self._dues_of(ids)
        is_due = dues <= now_ns
        ids, dues = ids[is_due], dues[is_due]
        order = np.argsort(dues, kind="stable")[:limit]
        return ids[order], dues[order]

    def next_ns(self) -> int | None:
        """Returns a time before which no id is due, or None if there is no id."""
        if self.near:
            if self._near_ns is None:
                self._near_ns = int(self._dues_of(ids_in(self.near)).min())
            return self._near_ns
        stop = self._next_stop()
        return None if stop == _NEVER else stop * TICK_NS

    def horizon_ns(self, limit: int) -> int:
        """Returns a time before which at most `limit` ids are due, besides those that are near."""
        count = 0
        for level, slots in enumerate(self._slots):
            for number in sorted(slots):
                count += len(slots[number])
                if count > limit:
                    return (number << _SHIFTS[level]) * TICK_NS
        return _NEVER * TICK_NS

    def levels(self) -> tuple[int, ...]:
        """Returns how many ids are near, and how many wait in each level."""
        waiting = (sum(map(len, slots.values())) for slots in self._slots)
        return (len(self.near), *waiting)

    def in_order(self, from_ns: int = 0) -> Iterator[tuple[int, int]]:
        """Yields every id that is due at a time or later, with its due time, earliest first."""
        yield from self._sorted(self.near, from_ns)
        for level, slots in enumerate(self._slots):
            for number in sorted(slots):
                if ((number + 1) << _SHIFTS[level]) * TICK_NS > from_ns:
                    yield from self._sorted(slots[number], from_ns)

    def _sorted(self, slot: BitMap64, from_ns: int) -> Iterator[tuple[int, int]]:
        ids = ids_in(slot)
        dues = self._dues_of(ids)
        is_asked = dues >= from_ns
        ids, dues = ids[is_asked], dues[is_asked]
        order = np.argsort(dues, kind="stable")
        yield from zip(dues[order].tolist(), ids[order].tolist(), strict=True)

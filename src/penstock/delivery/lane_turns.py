"""The turns of a group's lanes, and other state between its polls that is not recorded.

Lanes take turns by deficit round robin. In each round a lane may take as many messages as its weight, the most urgent
lane first; what it could not take in one poll it takes in the next. The round ends when no lane has both messages and
quota. So the share of an idle lane goes to the others, and a message that comes late to an urgent lane does not wait
for the end of the round.

A decision reads these hints and changes only the cache of a search. When it is recorded, the poll stores the turns that
it came to. A restart begins a new round.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp

from pyroaring import BitMap64

from ..api.groups import LaneStats
from ..model import Priority

WEIGHTS = {
    Priority.CRITICAL: 50,
    Priority.HIGH: 25,
    Priority.NORMAL: 15,
    Priority.LOW: 7,
    Priority.BACKGROUND: 3,
}
LANES = len(WEIGHTS)
_FRESH = [*WEIGHTS.values()]
_ROUND = sum(_FRESH)
_AVERAGED_NS = 60 * 1_000_000_000
_AT_ONCE_NS = 10_000_000


@dataclass(slots=True)
class Rate:
    """A count that fades: a message of a minute ago weighs a third of one that comes now."""

    recent: float = 0.0
    at_ns: int = 0

    def add(self, count: int, now_ns: int) -> None:
        # Every batch calls this; fading within so short a time would not be visible.
        if now_ns - self.at_ns > _AT_ONCE_NS:
            self.recent *= exp((self.at_ns - now_ns) / _AVERAGED_NS)
            self.at_ns = now_ns
        self.recent += count

    def per_second(self, now_ns: int) -> float:
        return self.recent * _fade_factor(self.at_ns, now_ns) * 1_000_000_000 / _AVERAGED_NS


def _fade_factor(at_ns: int, now_ns: int) -> float:
    return exp(-max(0, now_ns - at_ns) / _AVERAGED_NS)


@dataclass(slots=True)
class LaneAverage:
    """Counts of a lane that fade: a poll of a minute ago weighs a third of one now."""

    served: int = 0
    recent: float = 0.0
    recent_wait_ns: float = 0.0
    at_ns: int = 0
    served_at_ns: int | None = None

    def add(self, count: int, wait_ns: int, now_ns: int) -> None:
        """Count messages that were handed out, which have waited so long on the average."""
        share = exp(min(0, self.at_ns - now_ns) / _AVERAGED_NS)
        self.at_ns = max(self.at_ns, now_ns)
        self.served_at_ns = now_ns
        self.served += count
        self.recent = self.recent * share + count
        self.recent_wait_ns = self.recent_wait_ns * share + count * wait_ns

    def stats(self, priority: Priority, waiting: int, now_ns: int) -> LaneStats:
        wait_ms = self.recent_wait_ns / self.recent / 1_000_000 if self.recent else 0.0
        recent = self.recent * _fade_factor(self.at_ns, now_ns)
        per_second = recent * 1_000_000_000 / _AVERAGED_NS
        return LaneStats(
            priority, waiting, self.served, per_second, wait_ms, served_at_ns=self.served_at_ns
        )


@dataclass(slots=True)
class LaneTurns:
    """What each lane may still take in this round, and when it was last served."""

    _quotas: list[int] = field(default_factory=lambda: [*_FRESH])
    _served_at_ns: list[int | None] = field(default_factory=lambda: [None] * LANES)

    def copy(self) -> "LaneTurns":
        """Returns a copy, for a decision that may not be recorded."""
        return LaneTurns(self._quotas[:], self._served_at_ns[:])

    def share(
        self, waiting: Sequence[int], limit: int, now_ns: int, starvation_ns: int
    ) -> list[int]:
        """Returns how many messages of a poll each lane gets. `waiting` counts each lane, at least up to `limit`."""
        if limit % _ROUND == 0 and min(waiting) >= limit and self._quotas == _FRESH:
            # Whole rounds for full lanes, which also serve one that starves.
            self._served_at_ns = [now_ns] * LANES
            return [weight * (limit // _ROUND) for weight in _FRESH]
        left, given = list(waiting), [0] * LANES
        room = self._serve_starving(left, given, limit, now_ns, starvation_ns)
        while room and any(left):
            if not any(map(min, left, self._quotas)):
                room -= self._skip_rounds(left, given, room)
                self._quotas = [*_FRESH]
            if room:
                room = self._serve_round(left, given, room)
        for lane, count in enumerate(given):
            if count or not waiting[lane]:
                self._served_at_ns[lane] = now_ns
        return given

    def _serve_round(self, left: list[int], given: list[int], room: int) -> int:
        """Give each lane the rest of its quota. Returns the room that is left."""
        for lane, quota in enumerate(self._quotas):
            part = min(left[lane], quota, room)
            left[lane] -= part
            given[lane] += part
            self._quotas[lane] -= part
            room -= part
        return room

    def _skip_rounds(self, left: list[int], given: list[int], room: int) -> int:
        """Give at once what whole rounds would. Returns how much that was."""
        served = [lane for lane in range(LANES) if left[lane]]
        a_round = sum([_FRESH[lane] for lane in served])
        rounds = min(room // a_round, *[left[lane] // _FRESH[lane] for lane in served])
        for lane in served:
            part = rounds * _FRESH[lane]
            left[lane] -= part
            given[lane] += part
        return rounds * a_round

    def _serve_starving(
        self, left: list[int], given: list[int], room: int, now_ns: int, starvation_ns: int
    ) -> int:
        """Give one message to each lane that has waited too long. Returns the room that is left."""
        for lane in range(LANES):
            served_at_ns = self._served_at_ns[lane]
            if served_at_ns is None:
                # The first poll: no lane was passed over before.
                self._served_at_ns[lane] = now_ns
            elif starvation_ns and left[lane] and room and now_ns - served_at_ns >= starvation_ns:
                left[lane] -= 1
                given[lane] += 1
                room -= 1
        return room


@dataclass(slots=True)
class Hints:
    """The hints of one group on one partition. They are neither in records nor in snapshots."""

    turns: LaneTurns = field(default_factory=LaneTurns)
    # Where the search for messages goes on in each lane, and what it found but did not lease.
    starts: list[int] = field(default_factory=lambda: [0] * LANES)
    stocks: list[BitMap64] = field(default_factory=lambda: [BitMap64() for _ in range(LANES)])
    averages: list[LaneAverage] = field(
        default_factory=lambda: [LaneAverage() for _ in range(LANES)]
    )

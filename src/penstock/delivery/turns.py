"""Whose turn it is among the lanes of a group: deficit round robin, and what it came to.

In each round a lane may take as many messages as its weight says, the most urgent lane first; what it could not take
in one poll it takes in the next. The round ends when no lane has both messages and something left to take, so the share
of a lane that is idle goes to the others, and a message that comes late to an urgent lane does not wait for the end of
the round. None of it is recorded: a restart begins a new round.
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
    """A count that fades: one that came a minute ago weighs a third of one that comes now."""

    recent: float = 0.0
    at_ns: int = 0

    def add(self, count: int, now_ns: int) -> None:
        # Every batch comes by here; what fades in so short a time nobody sees.
        if now_ns - self.at_ns > _AT_ONCE_NS:
            self.recent *= _left_of(self.at_ns, now_ns)
            self.at_ns = now_ns
        self.recent += count

    def per_second(self, now_ns: int) -> float:
        return self.recent * _left_of(self.at_ns, now_ns) * 1_000_000_000 / _AVERAGED_NS


def _left_of(at_ns: int, now_ns: int) -> float:
    return exp(-max(0, now_ns - at_ns) / _AVERAGED_NS)


@dataclass(slots=True)
class Average:
    """Counts that fade: what happened a minute ago weighs a third of what happens now."""

    served: int = 0
    recent: float = 0.0
    recent_wait_ns: float = 0.0
    at_ns: int = 0
    served_at_ns: int | None = None

    def add(self, count: int, wait_ns: int, now_ns: int) -> None:
        self._fade(now_ns)
        self.served_at_ns = now_ns
        self.served += count
        self.recent += count
        self.recent_wait_ns += count * wait_ns

    def _fade(self, now_ns: int) -> None:
        share = _left_of(self.at_ns, now_ns)
        self.recent *= share
        self.recent_wait_ns *= share
        self.at_ns = max(self.at_ns, now_ns)

    def stats(self, priority: Priority, waiting: int, now_ns: int) -> LaneStats:
        self._fade(now_ns)
        wait_ms = self.recent_wait_ns / self.recent / 1_000_000 if self.recent else 0.0
        per_second = self.recent * 1_000_000_000 / _AVERAGED_NS
        return LaneStats(
            priority, waiting, self.served, per_second, wait_ms, served_at_ns=self.served_at_ns
        )


def _never() -> list[int | None]:
    return [None] * LANES


@dataclass(slots=True)
class Turns:
    """Also where the search for messages goes on in each lane, and what it found before that was not handed out."""

    starts: list[int] = field(default_factory=lambda: [0] * LANES)
    stocks: list[BitMap64] = field(default_factory=lambda: [BitMap64() for _ in range(LANES)])
    averages: list[Average] = field(default_factory=lambda: [Average() for _ in range(LANES)])
    _quotas: list[int] = field(default_factory=lambda: [*_FRESH])
    _served_at_ns: list[int | None] = field(default_factory=_never)

    def kept(self) -> tuple[list[int], list[int | None]]:
        """Whose turn it is, for `restore`: a share that nobody took must not count."""
        return self._quotas[:], self._served_at_ns[:]

    def restore(self, kept: tuple[list[int], list[int | None]]) -> None:
        self._quotas, self._served_at_ns = kept

    def share(
        self, waiting: Sequence[int], limit: int, now_ns: int, starvation_ns: int
    ) -> list[int]:
        """How many messages each lane gets of a poll, if so many wait in it (more than `limit` are as good as many)."""
        if limit % _ROUND == 0 and min(waiting) >= limit and self._quotas == _FRESH:
            # Whole rounds for full lanes, which feed one that starves as well.
            self._served_at_ns = [now_ns] * LANES
            return [weight * (limit // _ROUND) for weight in _FRESH]
        left, given = list(waiting), [0] * LANES
        room = self._feed_starving(left, given, limit, now_ns, starvation_ns)
        while room and any(left):
            if not any(map(min, left, self._quotas)):
                room -= self._skip_rounds(left, given, room)
                self._quotas = [*_FRESH]
            if room:
                room = self._go_round(left, given, room)
        for lane, count in enumerate(given):
            if count or not waiting[lane]:
                self._served_at_ns[lane] = now_ns
        return given

    def _go_round(self, left: list[int], given: list[int], room: int) -> int:
        """Give each lane what is left of its quota. Returns the room that is left."""
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

    def _feed_starving(
        self, left: list[int], given: list[int], room: int, now_ns: int, starvation_ns: int
    ) -> int:
        """One message for each lane that has waited too long. Returns the room that is left."""
        for lane in range(LANES):
            served_at_ns = self._served_at_ns[lane]
            if served_at_ns is None:
                # Nobody has asked before, so nobody was passed over.
                self._served_at_ns[lane] = now_ns
            elif starvation_ns and left[lane] and room and now_ns - served_at_ns >= starvation_ns:
                left[lane] -= 1
                given[lane] += 1
                room -= 1
        return room

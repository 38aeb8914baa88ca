"""How long messages take: from publish to the first delivery and to the ack, and how many attempts that was.

Counted since the start, for each topic, group and lane, with a limit on how many such series there are.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate

from ..api.journeys import ATTEMPT_BOUNDS, LATENCY_BOUNDS_S, Distribution, LaneLatency
from ..model import Priority

OTHER = "other"
"""Stands for the groups and topics beyond the limit."""

_S = 1_000_000_000
_STEPS = 64
_LANES = {int(one): one.name.lower() for one in Priority}


class Histogram:
    """Counts by upper bound; the last is for everything above."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds, self.total = bounds, 0.0
        self.counts = [0] * (len(bounds) + 1)

    def add(self, value: float, count: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += count
        self.total += value * count

    def distribution(self) -> Distribution:
        count = sum(self.counts)
        p50, p95, p99 = (self._below(share, count) for share in (0.5, 0.95, 0.99))
        return Distribution(count, self.total, p50, p95, p99, [*self.counts])

    def _below(self, share: float, count: int) -> float:
        """The bound below which so many of them are; for those above the last bound, that one."""
        if not count:
            return 0.0
        sums = accumulate(self.counts)
        place = next(at for at, below in enumerate(sums) if below >= share * count)
        return self.bounds[min(place, len(self.bounds) - 1)]


class LaneTimes:
    """The figures of one lane of a topic for one group."""

    __slots__ = ("acked", "attempts", "first_delivery")

    def __init__(self) -> None:
        self.first_delivery = Histogram(LATENCY_BOUNDS_S)
        self.acked = Histogram(LATENCY_BOUNDS_S)
        self.attempts = Histogram(ATTEMPT_BOUNDS)


class Latencies:
    """All figures of a node. Beyond `series_max` all topics and groups share what is left."""

    def __init__(self, series_max: int = 1000) -> None:
        self._series_max = series_max
        self._lanes: dict[tuple[str, str, int], LaneTimes] = {}

    def of(self, topic: str, group: str, lane: int) -> LaneTimes:
        found = self._lanes.get((topic, group, lane))
        if found is None:
            is_room = len(self._lanes) < self._series_max
            place = (topic, group, lane) if is_room else (OTHER, OTHER, lane)
            found = self._lanes.setdefault(place, LaneTimes())
        return found

    def forget(self, topic: str) -> None:
        """The topic is gone."""
        self._lanes = {place: one for place, one in self._lanes.items() if place[0] != topic}

    def rows(self) -> list[LaneLatency]:
        return [
            LaneLatency(
                topic,
                group,
                _LANES[lane],
                one.first_delivery.distribution(),
                one.acked.distribution(),
                one.attempts.distribution(),
            )
            for (topic, group, lane), one in sorted(self._lanes.items(), key=lambda item: item[0])
        ]


def add_times(histogram: Histogram, times_ns: Sequence[int], now_ns: int) -> None:
    """Count how long ago each of these times is, which are in the order of the log.

    Messages of one batch mostly have one time, and count together. Of many that differ, neighbours count as the first
    of them: what a poll of thousands costs must not depend on how many there are.
    """
    count = len(times_ns)
    least = max(1, count // _STEPS)
    start = 0
    while start < count:
        time_ns = times_ns[start]
        stop = bisect_right(times_ns, time_ns, start)
        if times_ns[stop - 1] != time_ns:
            stop = start  # They are not in order, as those of delayed messages.
        stop = min(count, max(start + least, stop))
        histogram.add(max(0, now_ns - time_ns) / _S, stop - start)
        start = stop

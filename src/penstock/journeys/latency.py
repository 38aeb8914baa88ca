"""How long messages take: from publish to the first delivery and to the ack, and how many attempts that was.

Counted since the start, for each topic, group and lane, with a limit on how many such series there are.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from ..api.journeys import ATTEMPT_BOUNDS, LATENCY_BOUNDS_S, Distribution, LaneLatency
from ..api.principals import NO_KEY
from ..config import LimitsConfig
from ..kernel import OwnerCounts
from ..model import Priority

OTHER = "other"
"""Stands for the groups and topics beyond the limit."""

_LIMITS = LimitsConfig()
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


class GroupName(NamedTuple):
    """A group and the id of the key that made it."""

    name: str
    owner: str = NO_KEY


class _Series(NamedTuple):
    """The figures of a lane, and whose share they are in."""

    times: LaneTimes
    owner: str


class Latencies:
    """All figures of a node, in series: one for each topic, group and lane, as far as limits allow.

    What is beyond the limit of all series, or of those of a key, is counted in one series for each lane. A series is
    given back with its group or its topic.
    """

    def __init__(self, limits: LimitsConfig = _LIMITS) -> None:
        self._limits = limits
        self._series: dict[tuple[str, str, int], _Series] = {}
        self._counts = OwnerCounts()
        self._others: dict[int, LaneTimes] = {}

    def of(self, topic: str, group: GroupName, lane: int) -> LaneTimes:
        found = self._series.get((topic, group.name, lane))
        if found is not None:
            return found.times
        counts, limits, owner = self._counts, self._limits, group.owner
        is_room = counts.total < limits.latency_series_max
        if owner != NO_KEY and counts.of(owner) >= limits.latency_series_per_key_max:
            is_room = False
        # A topic and a group of users may be called like the rest.
        if not is_room or (topic == group.name == OTHER):
            return self._others.setdefault(lane, LaneTimes())
        counts.add(owner)
        times = LaneTimes()
        self._series[topic, group.name, lane] = _Series(times, owner)
        return times

    def forget(self, topic: str, group: str | None = None) -> None:
        """Give back the series of a topic that is gone, or of one of its groups."""
        gone = [
            place
            for place in self._series
            if place[0] == topic and (group is None or place[1] == group)
        ]
        for place in gone:
            self._counts.remove(self._series.pop(place).owner)

    def rows(self) -> list[LaneLatency]:
        """Every series, by topic, group and lane; what was beyond the limits is of the topic and group `other`."""
        found = {place: series.times for place, series in self._series.items()}
        others = [((OTHER, OTHER, lane), times) for lane, times in self._others.items()]
        return [
            LaneLatency(
                topic,
                group,
                _LANES[lane],
                times.first_delivery.distribution(),
                times.acked.distribution(),
                times.attempts.distribution(),
            )
            for (topic, group, lane), times in sorted(
                [*found.items(), *others], key=lambda item: item[0]
            )
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

"""Tells `journeys.latency` of deliveries and acks of one partition.

What was published when is known while a lease lasts, because the poll read it; a restart forgets it, and acks of leases
from before are not counted.
"""

from collections.abc import Container, Iterable, Sequence
from typing import NamedTuple

from pyroaring import BitMap64

from ...delivery import Delivery
from ...delivery.offsets import Runs, known_among, offsets_of
from ...journeys.latency import GroupName, LaneTimes, Latencies, add_times
from .rows import Rows

# Leases that ended without an ack are forgotten when there are so many more than there are leases.
_SPARE_LEASES = 64


class LeasedPart(NamedTuple):
    """Messages of one lane in a lease: the figures of that lane, their offsets, and when they were published."""

    figures: LaneTimes
    offsets: Sequence[int]
    times_ns: Sequence[int]

    def times_among(self, acked: BitMap64) -> Sequence[int]:
        """When those of a set were published."""
        first, end, times_ns = self.offsets[0], self.offsets[-1] + 1, self.times_ns
        if end - first == len(times_ns):
            count = acked.range_cardinality(first, end)
            # Those of a batch mostly have one time, and then it does not matter which of them.
            if count in (0, len(times_ns)) or times_ns[0] == times_ns[-1]:
                return times_ns[:count]
        return [time for one, time in zip(self.offsets, times_ns, strict=True) if one in acked]

    def times_without(self, failed: Container[int]) -> Sequence[int]:
        """When those that are not in a table were published."""
        rows = zip(self.offsets, self.times_ns, strict=True)
        return [time for one, time in rows if one not in failed]

    def among(self, wanted: BitMap64) -> "LeasedPart":
        rows = [row for row, one in enumerate(self.offsets) if one in wanted]
        offsets, times_ns = self.offsets, self.times_ns
        return LeasedPart(
            self.figures, [offsets[row] for row in rows], [times_ns[row] for row in rows]
        )


class _Lease(NamedTuple):
    """What a poll leased, or what is left of that, and how many messages there are."""

    parts: Sequence[LeasedPart]
    total: int

    def left_of(self, held: BitMap64) -> "_Lease":
        """Returns a lease of what is still held. A lease of which most is held stays as it is."""
        if len(held) * 4 > self.total:
            return self
        parts = [part.among(held) for part in self.parts]
        return _Lease([part for part in parts if part.offsets], len(held))


class DeliveryTimes:
    """The times of the messages that are leased now."""

    def __init__(self, topic: str, latencies: Latencies) -> None:
        self._topic, self._latencies = topic, latencies
        self._leased: dict[tuple[int, int], _Lease] = {}

    def leased(
        self,
        delivery: Delivery,
        group: GroupName,
        lease: int,
        found: Iterable[Rows],
        now_ns: int,
    ) -> None:
        """Take note of a poll."""
        parts: list[LeasedPart] = []
        count = 0
        for lane, columns, *_ in found:
            figures = self._latencies.of(self._topic, group, lane)
            parts.append(LeasedPart(figures, columns.offsets, columns.timestamps))
            count += len(columns.offsets)
        self._leased[delivery.group, lease] = _Lease(parts, count)
        failures = delivery.failures
        for part in parts:
            times_ns = part.times_without(failures) if failures else part.times_ns
            add_times(part.figures.first_delivery, times_ns, now_ns)
        if len(self._leased) > len(delivery.leases.by_number) + _SPARE_LEASES:
            self._forget_ended(delivery)

    def forget_group(self, group: str) -> None:
        """The topic has no such group any more."""
        self._latencies.forget(self._topic, group)

    def _forget_ended(self, delivery: Delivery) -> None:
        known = delivery.leases.by_number
        self._leased = {
            place: one
            for place, one in self._leased.items()
            if place[0] != delivery.group or place[1] in known
        }

    def acked(self, delivery: Delivery, lease: int, runs: Runs, now_ns: int) -> None:
        """Take note of an ack, before it is applied."""
        place = delivery.group, lease
        known = self._leased.pop(place, None)
        if known is None:
            return
        acked = offsets_of(runs)
        if len(acked) < known.total:
            granted = delivery.leases.by_number.get(lease)
            if granted is not None and (held := granted.offsets() - acked):
                self._leased[place] = known.left_of(held)
        for part in known.parts:
            times_ns = part.times_ns if len(acked) == known.total else part.times_among(acked)
            add_times(part.figures.acked, times_ns, now_ns)
            again: Sequence[int] = ()
            if delivery.failures:
                again = known_among(delivery.failures, acked & BitMap64(list(part.offsets)))
            attempts = part.figures.attempts
            for offset in again:
                attempts.add(delivery.attempts_of(offset))
            attempts.add(1, len(times_ns) - len(again))

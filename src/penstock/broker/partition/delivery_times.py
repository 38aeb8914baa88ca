"""Tells `journeys.latency` of deliveries and acks of one partition.

What was published when is known while a lease lasts, because the poll read it; a restart forgets it, and acks of leases
from before are not counted.
"""

from collections.abc import Container, Iterable, Sequence
from typing import NamedTuple

from pyroaring import BitMap64

from ...delivery import Delivery
from ...delivery.offsets import Runs, known_among, offsets_of
from ...journeys.latency import LaneTimes, Latencies, add_times
from .rows import Rows

# Leases that ended without an ack are forgotten when there are so many more than there are leases.
_SPARE_LEASES = 64


class LeasedPart(NamedTuple):
    """Messages of one lane in a lease: the figures of that lane, their offsets, and when they were published."""

    figures: LaneTimes
    offsets: Sequence[int]
    times_ns: Sequence[int]

    def among(self, wanted: BitMap64) -> "LeasedPart":
        return self._of_rows([row for row, one in enumerate(self.offsets) if one in wanted])

    def without(self, known: Container[int] | BitMap64) -> "LeasedPart":
        return self._of_rows([row for row, one in enumerate(self.offsets) if one not in known])

    def _of_rows(self, rows: list[int]) -> "LeasedPart":
        offsets, times_ns = self.offsets, self.times_ns
        return LeasedPart(
            self.figures, [offsets[row] for row in rows], [times_ns[row] for row in rows]
        )


class DeliveryTimes:
    """The times of the messages that are leased now."""

    def __init__(self, topic: str, latencies: Latencies) -> None:
        self._topic, self._latencies = topic, latencies
        self._leased: dict[tuple[int, int], list[LeasedPart]] = {}

    def leased(
        self,
        delivery: Delivery,
        group: str,
        lease: int,
        found: Iterable[Rows],
        now_ns: int,
    ) -> None:
        """Take note of a poll."""
        parts: list[LeasedPart] = []
        for lane, columns, *_ in found:
            figures = self._latencies.of(self._topic, group, lane)
            parts.append(LeasedPart(figures, columns.offsets, columns.timestamps))
        self._leased[delivery.group, lease] = parts
        failures = delivery.failures
        for part in parts:
            first = part.without(failures.keys()) if failures else part
            add_times(part.figures.first_delivery, first.times_ns, now_ns)
        if len(self._leased) > len(delivery.leases.by_number) + _SPARE_LEASES:
            self._forget_ended(delivery)

    def _forget_ended(self, delivery: Delivery) -> None:
        known = delivery.leases.by_number
        self._leased = {
            place: parts
            for place, parts in self._leased.items()
            if place[0] != delivery.group or place[1] in known
        }

    def acked(self, delivery: Delivery, lease: int, runs: Runs, now_ns: int) -> None:
        """Take note of an ack, before it is applied."""
        parts = self._leased.pop((delivery.group, lease), None)
        if parts is None:
            return
        total = 0
        for part in parts:
            total += len(part.offsets)
        # A single run that is all of the lease, as most acks are, is counted without a set.
        if isinstance(runs, bytes) or sum(runs[1:]) < total:
            done = offsets_of(runs)
            if len(done) < total:
                self._leased[delivery.group, lease] = [part.without(done) for part in parts]
                parts = [part.among(done) for part in parts]
        for part in parts:
            add_times(part.figures.acked, part.times_ns, now_ns)
            if delivery.failures:
                _count_attempts(part, delivery)
            else:
                part.figures.attempts.add(1, len(part.offsets))


def _count_attempts(part: LeasedPart, delivery: Delivery) -> None:
    again = known_among(delivery.failures, BitMap64(list(part.offsets)))
    for offset in again:
        part.figures.attempts.add(delivery.attempts_of(offset))
    part.figures.attempts.add(1, len(part.offsets) - len(again))

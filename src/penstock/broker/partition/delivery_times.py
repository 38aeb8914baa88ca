"""Tells `journeys.latency` of deliveries and acks of one partition.

What was published when is known while a lease lasts, because the poll read it; a restart forgets it, and acks of leases
from before are not counted.
"""

from collections.abc import Container, Sequence
from typing import NamedTuple

from pyroaring import BitMap64

from ...delivery import Delivery
from ...delivery.offsets import Runs, known_among, offsets_of
from ...journeys.latency import LaneTimes, Latencies, add_times
from ...model import MessageColumns

# Leases that ended without an ack are forgotten when there are so many more than there are leases.
_SPARE_LEASES = 64


class LeasedPart(NamedTuple):
    """Messages of one lane in a lease: their offsets, and when they were published."""

    lane: int
    offsets: Sequence[int]
    times_ns: Sequence[int]

    def among(self, wanted: BitMap64) -> "LeasedPart":
        return self._of_rows([row for row, one in enumerate(self.offsets) if one in wanted])

    def without(self, known: Container[int]) -> "LeasedPart":
        return self._of_rows([row for row, one in enumerate(self.offsets) if one not in known])

    def _of_rows(self, rows: list[int]) -> "LeasedPart":
        offsets, times_ns = self.offsets, self.times_ns
        return LeasedPart(
            self.lane, [offsets[row] for row in rows], [times_ns[row] for row in rows]
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
        found: Sequence[tuple[int, MessageColumns]],
        now_ns: int,
    ) -> None:
        """Take note of a poll: the lane of each part, below zero if it has several, and its columns."""
        parts = [part for lane, columns in found for part in _parts(lane, columns)]
        self._leased[delivery.group, lease] = parts
        failures = delivery.failures
        for part in parts:
            first = part.without(failures.keys()) if failures else part
            add_times(self._of(group, part.lane).first_delivery, first.times_ns, now_ns)
        if len(self._leased) > len(delivery.leases.by_number) + _SPARE_LEASES:
            self._forget_ended(delivery)

    def _forget_ended(self, delivery: Delivery) -> None:
        known = delivery.leases.by_number
        self._leased = {
            place: parts
            for place, parts in self._leased.items()
            if place[0] != delivery.group or place[1] in known
        }

    def acked(self, delivery: Delivery, group: str, lease: int, runs: Runs, now_ns: int) -> None:
        """Take note of an ack, before it is applied."""
        place = (delivery.group, lease)
        parts = self._leased.get(place)
        if parts is None:
            return
        # A single run that is all of the lease, as most acks are, is counted without a set.
        done = offsets_of(runs) if isinstance(runs, bytes) else None
        count = len(done) if done is not None else sum(runs[1:])
        total = sum(len(part.offsets) for part in parts)
        failures = delivery.failures
        if count < total:
            done = done or offsets_of(runs)
            parts = [part.among(done) for part in parts]
        for part in parts:
            figures = self._of(group, part.lane)
            add_times(figures.acked, part.times_ns, now_ns)
            _count_attempts(figures, part.offsets, delivery if failures else None)
        if len(delivery.leases.holding(lease)) == count:
            del self._leased[place]

    def _of(self, group: str, lane: int) -> LaneTimes:
        return self._latencies.of(self._topic, group, lane)


def _parts(lane: int, columns: MessageColumns) -> list[LeasedPart]:
    offsets, times_ns = columns.offsets, columns.timestamps
    if lane >= 0:
        return [LeasedPart(lane, offsets, times_ns)]
    found = []
    for one in sorted(set(columns.priorities)):
        rows = [row for row, priority in enumerate(columns.priorities) if priority == one]
        part = LeasedPart(one, [offsets[row] for row in rows], [times_ns[row] for row in rows])
        found.append(part)
    return found


def _count_attempts(figures: LaneTimes, offsets: Sequence[int], failed_in: Delivery | None) -> None:
    if not offsets:
        return
    again: list[int] = []
    if failed_in is not None:
        again = known_among(failed_in.failures, BitMap64(list(offsets)))
    for offset in again:
        assert failed_in is not None
        figures.attempts.add(failed_in.attempts_of(offset))
    if len(offsets) > len(again):
        figures.attempts.add(1, len(offsets) - len(again))

"""The last acks of a group by lease, by which a repeated ack is told from a stale one.

Every group of every partition has such a table, so it is made of numbers: 24 bytes for each run of offsets that was
acked at once. As sets the leases of a thousand busy partitions would take most of a node's memory.
"""

from array import array
from collections.abc import Iterable

import numpy as np
from pyroaring import BitMap64

# At least so many runs are kept, and at most twice as many. An ack that is repeated later is stale.
_RUNS_KEPT = 1024
_FIRST = np.zeros(1, np.int64)


class AckedLeases:
    """Runs of offsets with the lease under which they were acked, oldest first."""

    __slots__ = ("_counts", "_firsts", "_leases")

    def __init__(self) -> None:
        self._leases, self._firsts, self._counts = array("q"), array("q"), array("q")

    def add(self, lease: int, acked: BitMap64) -> None:
        """Record an ack. The oldest acks are dropped at some time."""
        first, count = acked.min(), len(acked)
        if acked.max() - first + 1 > count:
            self._add_runs(lease, acked)
        elif (
            self._leases
            and self._leases[-1] == lease
            and self._firsts[-1] + self._counts[-1] == first
        ):
            # Messages of a lease that are acked one by one mostly come in order.
            self._counts[-1] += count
        else:
            self._leases.append(lease)
            self._firsts.append(first)
            self._counts.append(count)
        if len(self._leases) > 2 * _RUNS_KEPT:
            for column in (self._leases, self._firsts, self._counts):
                del column[:-_RUNS_KEPT]

    def _add_runs(self, lease: int, acked: BitMap64) -> None:
        offsets = np.frombuffer(acked.to_array(), np.int64)
        # Faster for a few offsets than `np.diff` with a number before or behind.
        gaps = np.flatnonzero(offsets[1:] - offsets[:-1] != 1) + 1
        starts = np.concatenate((_FIRST, gaps))
        counts = np.append(gaps, len(offsets)) - starts
        self._leases.frombytes(np.full(len(starts), lease).tobytes())
        self._firsts.frombytes(offsets[starts].tobytes())
        self._counts.frombytes(counts.tobytes())

    def of(self, lease: int) -> BitMap64:
        """Returns the offsets that were acked under a lease, as far as they are kept."""
        found = BitMap64()
        for index in self._of(lease):
            first = self._firsts[index]
            found.add_range(first, first + self._counts[index])
        return found

    def __contains__(self, lease: int) -> bool:
        return bool(self._of(lease))

    def _of(self, lease: int) -> list[int]:
        if not self._leases:
            return []
        found: list[int] = np.flatnonzero(np.frombuffer(self._leases, np.int64) == lease).tolist()
        return found

    def items(self) -> Iterable[tuple[int, BitMap64]]:
        """Returns every lease that is kept with its offsets, in the order of their first acks."""
        found: dict[int, BitMap64] = {}
        for lease, first, count in zip(self._leases, self._firsts, self._counts, strict=True):
            found.setdefault(lease, BitMap64()).add_range(first, first + count)
        return found.items()

    def clear(self) -> None:
        for column in (self._leases, self._firsts, self._counts):
            del column[:]

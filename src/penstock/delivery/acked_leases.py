"""The last acks of a group by lease, by which a repeated ack is told from a stale one.

Every group of every partition has such a table, so it is small: 24 bytes for each ack of neighbours, and for other acks
the bytes in which they were recorded. As sets the leases of a thousand busy partitions would take most of a node's
memory.
"""

from array import array
from collections import deque
from collections.abc import Iterator

import numpy as np
from pyroaring import BitMap64

from .offsets import Runs, offsets_of

# At least so many acks of neighbours are kept, and at most twice as many. An ack that is repeated later is stale.
_RUNS_KEPT = 1024
# Of other acks, with what an entry takes beside them; the last one is kept whatever it takes.
_SCATTERED_BYTES_KEPT = 64 << 10
_ENTRY_BYTES = 128


class AckedLeases:
    """Runs of offsets with the lease under which they were acked, and scattered offsets; each oldest first."""

    __slots__ = ("_counts", "_firsts", "_leases", "_scattered", "_scattered_bytes")

    def __init__(self) -> None:
        self._leases, self._firsts, self._counts = array("q"), array("q"), array("q")
        self._scattered: deque[tuple[int, bytes]] = deque()
        self._scattered_bytes = 0

    def add(self, lease: int, runs: Runs) -> None:
        """Record an ack. The oldest acks are dropped at some time."""
        if isinstance(runs, bytes):
            self._add_scattered(lease, runs)
            return
        first, count = runs
        # Messages of a lease that are acked one by one mostly come in order.
        if (
            self._leases
            and self._leases[-1] == lease
            and self._firsts[-1] + self._counts[-1] == first
        ):
            self._counts[-1] += count
            return
        self._leases.append(lease)
        self._firsts.append(first)
        self._counts.append(count)
        if len(self._leases) > 2 * _RUNS_KEPT:
            for column in (self._leases, self._firsts, self._counts):
                del column[:-_RUNS_KEPT]

    def _add_scattered(self, lease: int, runs: bytes) -> None:
        self._scattered.append((lease, runs))
        self._scattered_bytes += len(runs) + _ENTRY_BYTES
        while self._scattered_bytes > _SCATTERED_BYTES_KEPT and len(self._scattered) > 1:
            self._scattered_bytes -= len(self._scattered.popleft()[1]) + _ENTRY_BYTES

    def of(self, lease: int) -> BitMap64:
        """Returns the offsets that were acked under a lease, as far as they are kept."""
        found = BitMap64()
        for index in self._of(lease):
            first = self._firsts[index]
            found.add_range(first, first + self._counts[index])
        for number, runs in self._scattered:
            if number == lease:
                found |= offsets_of(runs)
        return found

    def __contains__(self, lease: int) -> bool:
        return bool(self._of(lease)) or any(number == lease for number, _ in self._scattered)

    def _of(self, lease: int) -> list[int]:
        if not self._leases:
            return []
        found: list[int] = np.flatnonzero(np.frombuffer(self._leases, np.int64) == lease).tolist()
        return found

    def entries(self) -> Iterator[tuple[int, Runs]]:
        """Yields what is kept: added to another table in this order it is the same."""
        for lease, first, count in zip(self._leases, self._firsts, self._counts, strict=True):
            yield lease, (first, count)
        yield from self._scattered

    def clear(self) -> None:
        for column in (self._leases, self._firsts, self._counts):
            del column[:]
        self._scattered.clear()
        self._scattered_bytes = 0

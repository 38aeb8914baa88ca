"""Keeps the delay log and the staging log small: what is finished leaves, and what waits takes little more than itself.

A log is cut at the front where nothing waits, and further on segments are written anew once half of what they held is
finished. A snapshot that knows all of it comes first, with everything that it rests on, and meta knows of it: the log
alone would no longer tell what became of whom, and a message that fired a moment ago may not be durable where it went.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from ...config import OFF
from ...errors import DamagedBatch, NoSpace
from ...log import Log
from ...log.compaction import ClearResult, clear
from ...log.trim import release
from ...model import Offset
from .partition import Now, Partition
from .side_log import SideLog

# Bounds how long a sweep takes; the next one goes on.
_SEGMENTS_A_SWEEP = 8
# A staging log in which nothing is open leaves the disk once it is larger than this.
_ROLLED_BYTES = 1 << 20
_HOUR_NS = 3600 * 1_000_000_000
_NOTHING = ClearResult(0, 0, 0)


def clear_delayed(partition: Partition, now: Now) -> ClearResult:
    """Let go of what is finished. On a full disk, or where the log is damaged, it stays for now."""
    log, delays = partition.delayed.log, partition.machine.delays
    if log is None:
        return _NOTHING
    delays.dues.thin_out(delays.pending)
    partition.prefetch.trim(delays)

    def released() -> None:
        delays.follow(log.end_offset, partition.delayed.epochs())
        delays.forget_below(log.start_offset)

    with suppress(NoSpace, DamagedBatch):
        if not delays.pending and _is_old(partition, log, now):
            log.roll()
        if len(log.segments) > 1:
            return _clear(partition, partition.delayed, delays.pending, released, now)
    return _NOTHING


def clear_staged(partition: Partition, now: Now) -> ClearResult:
    """Let go of stagings of transactions that have ended. On a full disk, or where the log is damaged, they stay."""
    log, live = partition.staging.log, partition.machine.stagings.live
    if log is None:
        return _NOTHING
    with suppress(NoSpace, DamagedBatch):
        is_worth_it = log.segments[-1].size >= _ROLLED_BYTES or _is_old(partition, log, now)
        if not live and is_worth_it:
            log.roll()
        if len(log.segments) > 1:
            return _clear(partition, partition.staging, live, _nothing_else, now)
    return _NOTHING


def _nothing_else() -> None:
    """Stagings are known by what is open, not by where their log begins."""


def _is_old(partition: Partition, log: Log, now: Now) -> bool:
    """Whether producers have written nothing for so long that no client asks any more what became of it."""
    hours = partition.config.retention_hours
    last_ns = max(log.append_time, partition.messages.append_time)
    is_idle = hours != OFF and last_ns < now.wall_ns - int(hours * _HOUR_NS)
    return is_idle and log.segments[-1].size > 0


def _clear(
    partition: Partition, side: SideLog, live: BitMap64, released: Callable[[], None], now: Now
) -> ClearResult:
    log = side.make()
    first = live.min() if live else log.end_offset
    bases = [*islice(_worth_it(side, log, live, first), _SEGMENTS_A_SWEEP)]
    if not bases and log.segments[1].base_offset > first:
        return _NOTHING
    if not partition.cover(now):
        return _NOTHING
    size, count = log.size, len(log.segments)
    release(log, below=Offset(first))
    released()
    side.forget_below(log.start_offset)
    gone, freed = count - len(log.segments), size - log.size
    if not bases:
        return ClearResult(gone, 0, freed)

    def keeps(offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        return np.fromiter((one in live for one in offsets.tolist()), np.bool_, len(offsets))

    cleared = clear(log, keeps, [base for base, _ in bases], keep_from=log.end_offset)
    for base, end in bases:
        side.held[base] = live.range_cardinality(base, end)
    return ClearResult(
        gone + cleared.segments_rewritten,
        cleared.messages_removed,
        freed + cleared.bytes_freed,
    )


def _worth_it(side: SideLog, log: Log, live: BitMap64, first: int) -> Iterator[tuple[int, int]]:
    """First and next offset of segments, not before `first`, in which at most half of what they hold is live."""
    for number, segment in enumerate(log.segments[:-1]):
        base, end = segment.base_offset, log.end_of(number)
        # As many as there are offsets, unless we know better: after a start even a small one is written once more.
        known = side.held.get(base, end - base)
        if end > first and known and live.range_cardinality(base, end) * 2 <= known:
            yield base, end

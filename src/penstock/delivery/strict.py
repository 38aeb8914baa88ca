"""Order `strict`: offset order, and a message that failed holds back everything behind it.

At most one batch is out at a time, and what was behind a failed message in it comes back: otherwise whoever holds the
batch would go on where the order says wait.
"""

from itertools import islice, takewhile

from pyroaring import BitMap64

from .commands import Choice, Records
from .machine import Delivery
from .offsets import each_offset, runs_of
from .records import Released

_COUNTS_FOR_NONE = -1


def choose(delivery: Delivery, *, limit: int, end: int) -> Choice:
    """The next messages in the order of their offsets; none while some are out or the next one waits for its retry."""
    cursor = delivery.cursor
    if delivery.leases.in_flight:
        return Choice(BitMap64(), cursor)
    barrier = min(delivery.waiting, default=end)
    back = takewhile(lambda offset: offset < barrier, each_offset(delivery.ready))
    offsets = BitMap64(list(islice(back, limit)))
    if delivery.waiting:
        return Choice(offsets, cursor)
    stop = max(cursor, min(end, cursor + limit - len(offsets)))
    return Choice(offsets | (BitMap64(range(cursor, stop)) - delivery.ahead), stop)


def hold_back(delivery: Delivery) -> Records:
    """Take back what is out behind a message that waits for its retry. That was no attempt."""
    if not delivery.waiting:
        return ()
    barrier = min(delivery.waiting)
    records = []
    for lease in delivery.leases.by_number.values():
        behind = BitMap64(lease.offsets())
        behind.remove_range(0, barrier)
        if behind:
            runs = runs_of(behind)
            records.append(Released(delivery.group, lease.number, runs, _COUNTS_FOR_NONE))
    return tuple(records)

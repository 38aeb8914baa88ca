"""Order `strict`: offset order, and a message that failed holds back everything behind it.

At most one lease is held at a time, and messages behind a failed one in it are taken back: otherwise its member would
go on with them before the retry.
"""

from itertools import islice, takewhile

from pyroaring import BitMap64

from .commands import Choice, Records
from .machine import Delivery
from .offsets import each_offset, runs_of
from .records import Cause, Released

_COUNTS_FOR_NONE = -1


def choose(delivery: Delivery, *, limit: int, end: int) -> Choice:
    """Returns the next messages in the order of offsets; none while some are leased or the next waits for a retry."""
    cursor, turns = delivery.cursor, delivery.hints.turns
    if delivery.leases.in_flight:
        return Choice(BitMap64(), cursor, turns)
    barrier = min(delivery.waiting, default=end)
    back = takewhile(lambda offset: offset < barrier, each_offset(delivery.ready))
    offsets = BitMap64(list(islice(back, limit)))
    if delivery.waiting:
        return Choice(offsets, cursor, turns)
    stop = max(cursor, min(end, cursor + limit - len(offsets)))
    return Choice(offsets | (BitMap64(range(cursor, stop)) - delivery.ahead), stop, turns)


def hold_back(delivery: Delivery) -> Records:
    """Take back leased messages behind one that waits for its retry. They keep their attempts."""
    if not delivery.waiting:
        return ()
    barrier = min(delivery.waiting)
    records = []
    for lease in delivery.leases.by_number.values():
        behind = BitMap64(lease.offsets())
        behind.remove_range(0, barrier)
        if behind:
            runs = runs_of(behind)
            held_back = (lease.number, runs, _COUNTS_FOR_NONE, Cause.HELD_BACK)
            records.append(Released(delivery.group, *held_back))
    return tuple(records)

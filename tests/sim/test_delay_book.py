"""The book of delayed messages after a crash: what it forgives, and for how long."""

from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from penstock.broker.partition import Partition
from penstock.delivery.delay_records import DelayMoved
from penstock.delivery.delays import Delays
from penstock.model import Message
from penstock.sim.delay_book import DelayBook, DelayEntry
from penstock.sim.event import Event, EventTime
from penstock.sim.violation import Violation

DUE_NS, EARLIER_NS = 1_000, 500
AT_EARLIER = Event(EventTime(wall_ns=EARLIER_NS, true_ns=EARLIER_NS))
MESSAGE = Message(b"later")


def test_a_delay_that_a_crash_moved_back_may_have_fired_at_the_time_before() -> None:
    book = _moved_back()
    book.fired(0, 0, MESSAGE, AT_EARLIER)
    assert book.entries[0].fired_at == 0


def test_once_everything_was_compared_firing_at_the_time_before_is_early() -> None:
    book = _moved_back()
    delays = Delays()
    delays.scheduled(np.array([0]), np.array([DUE_NS]), None)
    partition = SimpleNamespace(machine=SimpleNamespace(delays=delays))
    book.compare(cast(Partition, partition))
    with pytest.raises(Violation, match="500 ns early"):
        book.fired(0, 0, MESSAGE, AT_EARLIER)


def _moved_back() -> DelayBook:
    """A delay was moved to an earlier time, and a crash took the record of it."""
    book = DelayBook("orders", window_ns=0)
    book.entries[0] = DelayEntry(b"later", DUE_NS, None, append_time=0)
    take_back = book.apply(DelayMoved(group=0, epoch=0, id=0, due_ns=EARLIER_NS))
    take_back()
    return book

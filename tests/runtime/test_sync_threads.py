"""Syncs side by side where they are slow, and one after the other where they are not."""

from functools import partial
from threading import Barrier, get_ident

import pytest

from penstock.errors import FileMissing
from penstock.runtime.sync_threads import SyncThreads
from penstock.testing import VirtualClock


class Syncs:
    """Syncs that take a time on their clock, and note the thread that runs them."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.threads = SyncThreads(self.clock)
        self.seen: list[int] = []

    def one(self, takes_ms: int = 0) -> None:
        self.seen.append(get_ident())
        if takes_ms:
            self.clock.advance(f"{takes_ms}ms")

    def run(self, takes_ms: int) -> list[int]:
        self.seen = []
        assert self.threads.run([lambda: self.one(takes_ms)] * 3) == [None] * 3
        return self.seen


@pytest.fixture
def syncs():
    one = Syncs()
    yield one
    one.threads.close()


def test_slow_syncs_run_at_the_same_time(syncs):
    assert syncs.run(5) == [get_ident()] * 3
    meeting = Barrier(3)
    assert syncs.threads.run([lambda: meeting.wait(60)] * 3) == [None] * 3


def test_fast_ones_stay_in_the_thread_that_asks(syncs):
    syncs.run(5)
    assert len(set(syncs.run(0))) > 1
    assert syncs.run(0) == syncs.run(0) == [get_ident()] * 3
    assert syncs.threads.run([]) == []
    assert syncs.run(0) == [get_ident()] * 3


@pytest.mark.parametrize("is_slow", [False, True])
@pytest.mark.parametrize("place", range(3))
def test_one_that_fails_keeps_no_other_from_its_sync(syncs, is_slow, place):
    syncs.run(5 if is_slow else 0)
    syncs.seen = []
    error = FileMissing("gone")

    def fail() -> None:
        while is_slow and len(syncs.seen) < 2:
            pass  # It is the last to end.
        raise error

    order = [syncs.one] * 3
    order[place] = fail
    failures = syncs.threads.run(order)
    assert [*map(str, failures)] == [str(error if one is fail else None) for one in order]
    assert type(failures[place]) is FileMissing
    assert len(syncs.seen) == 2


@pytest.mark.parametrize("count", [2, 16, 17, 64, 200])
def test_each_of_many_is_called_once_and_has_its_own_failure(syncs, count):
    syncs.run(5)
    called: list[int] = []

    def sync(number: int) -> None:
        called.append(number)
        if number % 7 == 1:
            raise FileMissing(str(number))

    found = syncs.threads.run([partial(sync, number) for number in range(count)])
    assert sorted(called) == [*range(count)]
    failed = [number for number, failure in enumerate(found) if failure is not None]
    assert failed == [number for number in range(count) if number % 7 == 1]
    assert all(str(number) in str(found[number]) for number in failed)

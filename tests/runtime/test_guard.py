"""When new messages are refused for lack of space, and when no longer."""

import pytest

from penstock.errors import NoSpace
from penstock.runtime import FreeSpaceGuard
from penstock.runtime.guard import RECHECK_BYTES, RECHECK_NS
from penstock.sim import SimClock, SimDisk

MIB = 1024 * 1024
MINIMUM = 160 * MIB


class CountingDisk(SimDisk):
    """Counts how often it is asked, which is what the guard is there to keep low."""

    asked = 0

    def free_bytes(self) -> int:
        self.asked += 1
        return super().free_bytes()


def guarded(free_bytes: int) -> tuple[FreeSpaceGuard, CountingDisk, SimClock]:
    disk, clock = CountingDisk(capacity_bytes=free_bytes), SimClock()
    return FreeSpaceGuard(disk, clock, min_free_bytes=MINIMUM), disk, clock


def test_refuses_below_the_minimum_and_not_above():
    guard, disk, _ = guarded(MINIMUM + MIB)
    guard.admit("log", MIB)
    disk.capacity_bytes -= MIB
    with pytest.raises(NoSpace, match="log"):
        guard.admit("log", 1)
    assert guard.is_refusing
    assert guarded(MINIMUM - 1)[0].is_refusing


def test_what_is_admitted_counts_before_the_disk_is_asked_again():
    guard, disk, _ = guarded(MINIMUM + 10 * MIB)
    asked = disk.asked
    for _ in range(10):
        guard.admit("log", MIB)
    assert disk.asked == asked
    assert guard.free_bytes == MINIMUM


def test_looks_again_before_refusing_on_its_own_count():
    guard, disk, _ = guarded(MINIMUM + 4 * MIB)
    guard.admit("log", 3 * MIB)
    disk.capacity_bytes += 10 * MIB
    guard.admit("log", 3 * MIB)


def test_notices_within_a_tenth_of_a_second_that_others_filled_the_disk():
    guard, disk, clock = guarded(10 * MINIMUM)
    disk.capacity_bytes = MINIMUM // 2
    clock.advance(RECHECK_NS - 1)
    guard.admit("log", 1)
    clock.advance(1)
    with pytest.raises(NoSpace):
        guard.admit("log", 1)


def test_looks_again_after_much_was_written():
    guard, disk, _ = guarded(10 * MINIMUM)
    disk.capacity_bytes = MINIMUM // 2
    guard.admit("log", RECHECK_BYTES)
    with pytest.raises(NoSpace):
        guard.admit("log", 1)


def test_resumes_by_itself_once_there_is_room_and_a_little_more():
    guard, disk, clock = guarded(MINIMUM - 1)
    for free_bytes, is_refusing in ((MINIMUM + MIB, True), (MINIMUM + 10 * MIB + 1, False)):
        disk.capacity_bytes = free_bytes
        clock.advance(RECHECK_NS)
        if is_refusing:
            with pytest.raises(NoSpace):
                guard.admit("log", 1)
        else:
            guard.admit("log", 1)
        assert guard.is_refusing == is_refusing


def test_a_crowd_that_is_turned_away_does_not_ask_the_disk_each_time():
    guard, disk, clock = guarded(MINIMUM - 1)
    asked = disk.asked
    for _ in range(1000):
        clock.advance(RECHECK_NS // 100)
        with pytest.raises(NoSpace):
            guard.admit("log", 1)
    assert disk.asked - asked == 10


def test_a_wall_clock_that_steps_changes_nothing():
    guard, disk, clock = guarded(10 * MINIMUM)
    asked = disk.asked
    clock.step_wall(-(10**18))
    guard.admit("log", 1)
    clock.step_wall(2 * 10**18)
    guard.admit("log", 1)
    assert disk.asked == asked

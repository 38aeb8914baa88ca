"""When new messages are refused for lack of space, and when no longer."""

from contextlib import suppress

import pytest

from penstock.broker.admission import DiskGuard
from penstock.broker.partition import Now
from penstock.errors import NoSpace
from penstock.sim import SimClock, SimDisk

MIB = 1024 * 1024
MINIMUM = 160 * MIB
RECHECK_BYTES = 16 * MIB
RECHECK_NS = 100_000_000


class CountingDisk(SimDisk):
    """Counts how often it is asked, which is what the guard is there to keep low."""

    asked = 0

    def free_bytes(self) -> int:
        self.asked += 1
        return super().free_bytes()


class Rig:
    """A guard, its disk and a clock."""

    def __init__(self, free_bytes: int) -> None:
        self.disk, self.clock = CountingDisk(capacity_bytes=free_bytes), SimClock()
        self.guard = DiskGuard(self.disk, min_free_bytes=MINIMUM)
        self.look()

    def now(self) -> Now:
        return Now(self.clock.now_ns(), self.clock.monotonic_ns())

    def look(self) -> bool:
        return self.guard.look(self.now())

    def admit(self, size: int) -> None:
        self.guard.admit_bytes(size, self.now())


def test_refuses_below_the_minimum_and_not_above():
    rig = Rig(MINIMUM + MIB)
    rig.admit(MIB)
    rig.disk.capacity_bytes -= MIB
    with pytest.raises(NoSpace, match="no space left: the disk is nearly full") as refused:
        rig.admit(1)
    assert "path" not in refused.value.fields
    assert rig.look()
    assert Rig(MINIMUM - 1).look()


def test_what_is_admitted_counts_before_the_disk_is_asked_again():
    rig = Rig(MINIMUM + 10 * MIB)
    asked = rig.disk.asked
    for _ in range(10):
        rig.admit(MIB)
    assert rig.disk.asked == asked
    rig.admit(1)
    assert rig.disk.asked == asked + 1


def test_looks_again_before_refusing_on_its_own_count():
    rig = Rig(MINIMUM + 4 * MIB)
    rig.admit(3 * MIB)
    rig.disk.capacity_bytes += 10 * MIB
    rig.admit(3 * MIB)


def test_notices_within_a_tenth_of_a_second_that_others_filled_the_disk():
    rig = Rig(10 * MINIMUM)
    rig.disk.capacity_bytes = MINIMUM // 2
    rig.clock.advance(RECHECK_NS - 1)
    rig.admit(1)
    rig.clock.advance(1)
    with pytest.raises(NoSpace):
        rig.admit(1)


def test_looks_again_after_much_was_written():
    rig = Rig(10 * MINIMUM)
    rig.disk.capacity_bytes = MINIMUM // 2
    rig.admit(RECHECK_BYTES)
    with pytest.raises(NoSpace):
        rig.admit(1)


def test_resumes_by_itself_once_there_is_room_and_a_little_more():
    rig = Rig(MINIMUM - 1)
    for free_bytes, is_refusing in ((MINIMUM + MIB, True), (MINIMUM + 10 * MIB + 1, False)):
        rig.disk.capacity_bytes = free_bytes
        rig.clock.advance(RECHECK_NS)
        if is_refusing:
            with pytest.raises(NoSpace):
                rig.admit(1)
        else:
            rig.admit(1)
        assert rig.look() == is_refusing


def test_a_crowd_that_is_turned_away_does_not_ask_the_disk_each_time():
    rig = Rig(MINIMUM - 1)
    asked = rig.disk.asked
    for _ in range(1000):
        rig.clock.advance(RECHECK_NS // 100)
        with pytest.raises(NoSpace):
            rig.admit(1)
    assert rig.disk.asked - asked == 10


def test_a_wall_clock_that_steps_changes_nothing():
    rig = Rig(10 * MINIMUM)
    asked = rig.disk.asked
    rig.clock.step_wall(-(10**18))
    rig.admit(1)
    rig.clock.step_wall(2 * 10**18)
    rig.admit(1)
    assert rig.disk.asked == asked


def test_what_is_refused_because_it_is_large_does_not_turn_the_guard_on_and_off():
    rig = Rig(MINIMUM + 15 * MIB)
    turns = []
    rig.guard.on_turn = lambda free, least: turns.append(rig.guard.is_refusing)
    for _ in range(5):
        with pytest.raises(NoSpace):
            rig.admit(16 * MIB)
        rig.clock.advance(2 * RECHECK_NS)
    assert turns == [True]


def test_what_is_refused_because_it_is_large_does_not_keep_small_messages_out():
    rig = Rig(MINIMUM + 15 * MIB)
    for _ in range(3):
        with pytest.raises(NoSpace):
            rig.admit(16 * MIB)
        rig.admit(MIB)
        assert not rig.look()
        rig.clock.advance(2 * RECHECK_NS)


def test_refusing_ends_with_room_for_the_largest_that_was_refused():
    rig = Rig(MINIMUM + 15 * MIB)
    for size in (16 * MIB, 1):
        with suppress(NoSpace):
            rig.admit(size)

    def is_refusing_with(room: int) -> bool:
        rig.disk.capacity_bytes = MINIMUM + room
        rig.clock.advance(2 * RECHECK_NS)
        rig.look()
        return rig.guard.is_refusing

    assert [is_refusing_with(16 * MIB - 1), is_refusing_with(16 * MIB)] == [True, False]
    # The next time it is as if that one had not been.
    assert [is_refusing_with(-1), is_refusing_with(15 * MIB)] == [True, False]

"""The plug pulled at every write: a delayed message comes once, and what was cancelled does not come."""

from collections import Counter

import pytest

from penstock.api.delays import DescribeDelays
from penstock.api.publish import Delayed
from penstock.broker.partition.cleanup import clear_delayed
from penstock.model import Message
from penstock.sim import Call, Fault, Misbehaviour, SimDisk

from .test_delay import HOUR, cancel, later, made, move, stored
from .world import MIXED, TOPIC, World, pull_the_plug, values


def once_each(world: World, marks: tuple[object, ...], *expected: bytes) -> None:
    """Let everything come, also after another stop: nothing twice, and of what was promised nothing is missing."""
    world.wait(HOUR)
    found = Counter(values(stored(world)))
    assert max(found.values(), default=1) == 1, found
    assert found.keys() >= set(expected), (found, marks)
    world.sync()
    world.kill()
    world.wait(HOUR)
    assert Counter(values(stored(world))) == found


def test_a_delayed_message_is_fired_once_at_every_crash_state(effort) -> None:
    def scenario(disk: SimDisk) -> None:
        world = World(disk)
        world.topic()
        world.group()
        disk.mark("begun")
        later(world, b"a", 10)
        world.wait(10)  # It fires before it is durable.
        later(world, b"b", 20)
        later(world, b"c", 20)
        world.sync()
        disk.mark("synced")
        world.wait(20)
        later(world, b"d", 5)
        world.sync()
        disk.mark("again")
        world.node.partition(TOPIC, 0).take_snapshot()
        world.wait(5)
        world.sync()

    def check(disk: SimDisk, marks: tuple[object, ...]) -> None:
        world = World(disk)
        if "begun" not in marks:
            return
        fresh = [b"new %d" % number for number in range(5)]
        # Ids that a crash took come again: those who get them must not be taken for fired.
        for value in fresh:
            later(world, value, 50)
        expected = [b"a", b"b", b"c"] if "synced" in marks else []
        expected += [b"d"] if "again" in marks else []
        once_each(world, marks, *fresh, *expected)

    assert pull_the_plug(scenario, check, effort, kinds=MIXED) > 60


def test_cancel_and_move_hold_at_every_crash_state(effort) -> None:
    def scenario(disk: SimDisk) -> None:
        world = World(disk)
        world.topic()
        disk.mark("begun")
        gone, moved = later(world, b"gone", 10), later(world, b"moved", 10)
        later(world, b"old", 100, b"key")
        cancel(world, gone)
        move(world, moved, 50)
        later(world, b"new", 100, b"key")
        world.sync()
        disk.mark("changed")
        world.wait(50)
        world.node.partition(TOPIC, 0).take_snapshot()
        disk.mark("fired")
        world.wait(50)
        world.sync()

    def check(disk: SimDisk, marks: tuple[object, ...]) -> None:
        world = World(disk)
        if "begun" not in marks:
            return
        later(world, b"fresh", 10)
        later(world, b"fresh too", 10)
        expected = {b"fresh", b"fresh too"}
        if "changed" in marks:
            expected |= {b"moved", b"new"}
        once_each(world, marks, *expected)
        found = values(stored(world))
        if "changed" in marks:
            assert b"gone" not in found
            assert b"old" not in found
        assert not {b"old", b"new"} <= set(found)

    assert pull_the_plug(scenario, check, effort, kinds=MIXED) > 50


def test_clearing_the_delay_log_loses_and_revives_nothing_at_any_crash_state(effort) -> None:
    world = made(segment_size_bytes=400, retention_hours=1)
    for number in range(12):
        later(world, b"%d" % number, 10 if number % 3 else 2 * HOUR)
    cancel(world, 3)
    world.wait(10)
    world.node.close()
    tree = world.disk.tree()
    start_ns = world.wall_ns

    def scenario(disk: SimDisk) -> None:
        world = World(disk)
        world.wall_ns = start_ns
        world.sweep()
        later(world, b"more", 2 * HOUR)
        world.now(2 * HOUR - 1)
        world.sweep()
        disk.mark("swept")

    def check(disk: SimDisk, marks: tuple[object, ...]) -> None:
        world = World(disk)
        world.wall_ns = start_ns
        expected = [b"0", b"6", b"9", *([b"more"] if "swept" in marks else [])]
        world.wait(3 * HOUR)
        found = Counter(values(stored(world)))
        assert max(found.values()) == 1
        assert found.keys() >= set(expected)
        assert b"3" not in found

    assert pull_the_plug(scenario, check, effort, start=tree) > 10


def test_what_fired_a_moment_ago_is_not_cleared_away_before_it_is_durable(effort) -> None:
    def scenario(disk: SimDisk) -> None:
        world = World(disk)
        world.topic(segment_size_bytes=400)
        for number in range(8):
            later(world, b"%d" % number, 10)
        world.sync()
        disk.mark("scheduled")
        world.wait(10)
        clear_delayed(world.node.partition(TOPIC, 0), world.now())

    def check(disk: SimDisk, marks: tuple[object, ...]) -> None:
        world = World(disk)
        if "scheduled" in marks:
            once_each(world, marks, *[b"%d" % number for number in range(8)])

    assert pull_the_plug(scenario, check, effort) > 10


@pytest.mark.parametrize("is_full", [False, True])
def test_what_was_replaced_stays_so_when_what_replaced_it_is_cleared_away(is_full) -> None:
    """Nothing but the later message in the delay log, and a snapshot, says that the earlier one was replaced."""
    world = made(segment_size_bytes=1000)
    later(world, b"old", 24 * HOUR, b"k")
    for number in range(10):
        later(world, b"kept %d" % number, 24 * HOUR)
    cancel(world, later(world, b"new", 24 * HOUR, b"k"))
    for number in range(10):
        later(world, b"soon %d" % number, 1)
    world.wait(1)
    before = world.execute(DescribeDelays(TOPIC))[TOPIC][0].size_bytes
    if is_full:
        world.disk.inject(
            Fault(call=Call.CREATE, does=Misbehaviour.NO_SPACE, path_part=".snapshot", times=99)
        )
    world.sweep()
    world.disk.faults.clear()
    assert (world.execute(DescribeDelays(TOPIC))[TOPIC][0].size_bytes < before) == (not is_full)
    world.kill()
    world.wait(24 * HOUR)
    found = values(stored(world))
    assert len(found) == 20
    assert not {b"old", b"new"} & {*found}


@pytest.mark.tier("test")
def test_a_repeat_of_what_fired_and_was_lost_where_it_waited_is_still_a_repeat(effort) -> None:
    message = Message(b"once", idempotency_key=b"i")

    def scenario(disk: SimDisk) -> None:
        world = World(disk)
        world.topic()
        disk.mark("begun")
        later(world, message, 0)
        world.wait(0)
        world.sync()

    def check(disk: SimDisk, marks: tuple[object, ...]) -> None:
        world = World(disk)
        if "begun" in marks:
            for _ in range(2):
                delayed = [Delayed(message, world.wall_ns)]
                world.schedule(delayed)
                world.wait(0)
                world.kill()
            assert values(stored(world)) == [b"once"]

    assert pull_the_plug(scenario, check, effort, kinds=MIXED) > 10

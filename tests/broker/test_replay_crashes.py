"""Snapshots are written while commands go on: whatever a crash leaves of one, a start has the state of before."""

import pytest

from penstock.model import Message
from penstock.sim import SimDisk

from .test_crashes import MIXED, pull_the_plug, state_of
from .world import TOPIC, World

_PARTITIONS = 2


def ends_of(world: World) -> tuple[int, ...]:
    """How far the logs of all partitions are."""
    return tuple(
        end
        for one in world.node.partitions()
        for end in (one.messages.end_offset, one.journal.log.end_offset)
    )


@pytest.mark.parametrize("entries", [3, 9])
def test_after_any_crash_the_state_is_that_of_what_is_left_of_the_logs(effort, entries) -> None:
    known: dict[tuple[int, ...], str] = {}
    snapshots: list[str] = []

    def scenario(disk: SimDisk) -> None:
        world = World(disk)
        world.topic(partitions=_PARTITIONS, max_retries=0)
        world.group()
        replay = world.node.changes.replay
        replay.entries_max, replay.entries_min = entries, 2
        for number in range(8):
            key = b"%d" % (number % 5)
            world.publish(Message(b"%d" % number, idempotency_key=key), partition=number % 2)
            known[ends_of(world)] = repr(state_of(world))
            if held := world.poll(1):
                (world.reject if number % 3 == 0 else world.ack)(*held)
            known[ends_of(world)] = repr(state_of(world))
            world.sync()
            disk.mark(ends_of(world))
        directory = world.node.partition(TOPIC, 0).journal.log.directory
        snapshots.extend(one for one in disk.list(directory) if one.endswith(".snapshot"))

    def check(disk: SimDisk, marks: tuple[object, ...]) -> None:
        world = World(disk)
        assert world.node.faults() == []
        if not marks:
            return
        ends = ends_of(world)
        assert all(end >= synced for end, synced in zip(ends, marks[-1], strict=True))
        if ends in known:
            assert repr(state_of(world)) == known[ends]

    assert pull_the_plug(scenario, check, effort, kinds=MIXED) > 40
    assert snapshots

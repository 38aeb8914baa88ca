"""The epoch of a node alone: one for all logs and for each life, in meta before anything is written in it."""

from contextlib import suppress

import pytest

from penstock.broker.meta import read_meta
from penstock.broker.partition import PartitionId
from penstock.broker.partition.opening import log_id_of
from penstock.config import LogConfig
from penstock.errors import DiskFailed, NoSpace
from penstock.log import open_log
from penstock.log.trim import truncate
from penstock.model import Epoch
from penstock.sim import SimDisk
from penstock.sim.faults import Call, Fault, Misbehaviour

from .world import TOPIC, World

FULL, ROOMY = 0, 1 << 40


def epochs_written(world: World) -> list[set[int]]:
    """Of each partition, the epochs of its batches."""
    return [
        {head.epoch for head, _ in one.messages.batches_from(0)} for one in world.node.partitions()
    ]


def recorded(world: World) -> int:
    machine, _ = read_meta(SimDisk(world.disk.tree()))
    assert machine.reigns.latest is not None
    return machine.reigns.latest.epoch


def test_all_that_a_life_writes_is_in_an_epoch_of_its_own_however_the_last_one_ended() -> None:
    world = World()
    world.topic(2)
    lives = []
    for end in (world.restart, world.kill, world.lose_unsynced, world.restart):
        for partition in range(2):
            world.publish(b"x", partition=partition)
        world.sync()
        lives.append(recorded(world))
        assert epochs_written(world) == [{*lives}, {*lives}]
        end()
    assert lives == sorted({*lives})


def test_an_epoch_in_which_nothing_was_written_is_not_given_again() -> None:
    world = World()
    begun = []
    for end in (world.kill, world.lose_unsynced, world.restart, world.kill):
        begun.append(recorded(world))
        end()
    assert begun == sorted({*begun})


def test_on_a_full_disk_everything_is_read_and_nothing_is_changed_before_there_is_room() -> None:
    world = World()
    world.topic()
    world.group()
    world.publish(b"a")
    world.sync()
    before = recorded(world)
    world.open_on(SimDisk(world.disk.tree(), capacity_bytes=FULL))
    for _ in range(2):
        with pytest.raises(NoSpace):
            world.publish(b"b")
        world.wait(1000)
    assert world.fetch().next_offset == 1
    assert recorded(world) == before
    world.disk.capacity_bytes = ROOMY
    world.publish(b"b")
    world.sync()
    assert epochs_written(world) == [{before, recorded(world)}]
    assert recorded(world) > before


def test_the_first_change_with_room_again_may_be_one_of_meta() -> None:
    world = World()
    world.topic()
    world.publish(b"a")
    world.sync()
    world.open_on(SimDisk(world.disk.tree(), capacity_bytes=FULL))
    world.disk.capacity_bytes = ROOMY
    world.topic(name="more")
    world.publish(b"b")
    world.sync()
    world.open_on(SimDisk(world.disk.tree()))
    assert world.topics() == ["more", "orders"]
    assert world.fetch().next_offset == 2


def test_a_tick_begins_the_epoch_once_there_is_room() -> None:
    world = World()
    before = recorded(world)
    world.open_on(SimDisk(world.disk.tree(), capacity_bytes=FULL))
    world.disk.capacity_bytes = ROOMY
    world.wait(1000)
    assert recorded(world) > before


def cut_disk() -> SimDisk:
    """Two messages that were finished; then the second one was cut off the log, as a repair does it."""
    world = World()
    world.topic()
    world.group()
    world.publish(b"a")
    world.publish(b"b")
    world.sync()
    world.ack(*world.poll(2))
    world.sync()
    # The next start has meta know how far the logs are, and no snapshot knows the messages.
    world.kill()
    partition = world.node.topics.find(TOPIC).partition_directory(0)
    disk = SimDisk(world.disk.tree())
    log_id = log_id_of(PartitionId(1, 0), "messages")
    log, _ = open_log(disk, f"{partition}/messages", log_id=log_id, config=LogConfig())
    truncate(log, 1)
    log.begin_epoch(Epoch(40))
    log.close()
    return SimDisk(disk.tree())


def test_a_node_writes_in_a_later_epoch_than_a_log_that_is_ahead() -> None:
    world = World(cut_disk())
    assert not world.node.faults()
    world.publish(b"c")
    world.sync()
    assert recorded(world) > 40
    assert max(epochs_written(world)[0]) == recorded(world)


@pytest.mark.parametrize("nth", range(1, 12))
def test_state_that_a_start_has_cut_opens_again_though_that_start_came_to_no_end(nth: int) -> None:
    """The state that spoke of the second message goes, and meta knew it to be longer."""
    disk = cut_disk()
    disk.inject(Fault(call=Call.APPEND, does=Misbehaviour.DISK_FAILED, path_part="meta", nth=nth))
    with suppress(DiskFailed):
        World(disk)
    disk.faults.clear()
    world = World(SimDisk(disk.tree()))
    assert not world.node.faults()

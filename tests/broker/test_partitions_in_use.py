"""A node does nothing in a partition that it does not use, and forgets nothing that is due in one that it does."""

import pytest

from penstock.api.publish import Delayed
from penstock.api.transactions import EndTransaction, Stage
from penstock.errors import FileMissing, NoSpace
from penstock.model import Message
from penstock.sim.faults import Call, Fault, Misbehaviour
from tests.broker.losses import tree_with, without
from tests.broker.test_transactions import Transactional
from tests.broker.world import HOUR_MS, MS, TOPIC, World, values


def later(world: World, ms: int, **options: int) -> None:
    world.schedule([Delayed(Message(b"later"), world.wall_ns + ms * MS)], **options)


def test_letters_of_a_partition_that_cannot_be_opened_stay_there():
    world = World()
    world.topic(partitions=2, max_retries=0)
    world.group()
    later(world, HOUR_MS, partition=1)
    world.publish(b"dead", partition=1)
    world.reject(*world.poll(10))
    world.sync()
    lost = without(f"topics/default/{TOPIC}.1/partition-1/delayed")
    world = World(tree_with(world.disk.tree(), lost))
    assert [one.number for one in world.node.faults()] == [1]
    assert not world.node.pump(world.now())
    world.publish(b"good", partition=0)


def test_nothing_comes_of_a_topic_that_the_first_command_after_a_start_deletes():
    world = World()
    world.topic()
    later(world, 1000)
    world.settle()
    Transactional(world).stage(b"staged", partition=0)
    # The staging is durable, and what its coordinator recorded is not: the start drops it, in the partition.
    world.node.partition(TOPIC, 0).sync()
    world.lose_unsynced()
    world.delete()
    world.wait(2000)
    assert world.node.next_due_ns() > world.now().monotonic_ns


def test_a_clock_that_was_set_back_for_a_moment_makes_nothing_late():
    world = World()
    world.topic()
    world.group()
    world.wait(1)
    due_ns = world.wall_ns + 10_000 * MS
    world.wall_ns -= HOUR_MS * MS
    world.schedule([Delayed(Message(b"later"), due_ns)])
    world.wall_ns += HOUR_MS * MS
    world.wait(10_000)
    assert values(world.poll(10)) == [b"later"]


def test_a_clock_that_is_set_back_while_a_transaction_is_applied_makes_nothing_late():
    world = World()
    world.topic()
    world.group()
    world.wait(1)
    producer = Transactional(world)
    delayed = [Delayed(Message(b"later"), world.wall_ns + 10_000 * MS)]
    world.execute(Stage(producer.id, producer.epoch, TOPIC, [], 0, delayed=delayed))
    world.execute(EndTransaction(producer.id, producer.epoch, True))
    world.wall_ns -= HOUR_MS * MS
    for _ in range(6):
        for partition in world.node.partitions():
            partition.sync()
        world.node.pump(world.now())
        world.node.changes.done(None, world.now())
    world.wall_ns += HOUR_MS * MS
    world.wait(10_000)
    assert values(world.poll(10)) == [b"later"]


@pytest.mark.parametrize("trouble", ["no room", "no files"])
def test_a_partition_that_cannot_deliver_holds_up_no_other(trouble):
    world = World()
    world.topic(partitions=2, segment_messages_max=1)
    for partition in (0, 1):
        world.publish(b"first", partition=partition)
    later(world, 1000, partition=1)
    later(world, 3000, partition=0)
    world.settle()
    if trouble == "no room":
        is_full = {"does": Misbehaviour.NO_SPACE, "path_part": "partition-1", "times": 100}
        world.disk.inject(Fault(call=Call.APPEND, **is_full))
    else:
        world.disk.vanish(f"topics/default/{TOPIC}.1/partition-1/messages")
    world.now(5000)
    with pytest.raises((NoSpace, FileMissing)):
        world.node.tick(world.now())
    assert world.node.partition(TOPIC, 0).messages.end_offset == 2


@pytest.mark.parametrize("nth", range(1, 4))
def test_a_delay_log_that_there_was_no_room_for_is_made_the_next_time(nth):
    world = World()
    world.topic()
    world.group()
    world.sync()
    world.disk.inject(Fault(call=Call.CREATE, does=Misbehaviour.NO_SPACE, nth=nth))
    with pytest.raises(NoSpace):
        later(world, 1000)
    world.disk.faults.clear()
    world.sync()
    later(world, 1000)
    world.wait(1000)
    assert values(world.poll(10)) == [b"later"]

"""A node does nothing in a partition that it does not use, and forgets nothing that is due in one that it does."""

from penstock.api.publish import Delayed
from penstock.model import Message
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

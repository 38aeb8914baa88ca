"""Polls over messages that are too large to be in memory all at once: some come now, the others with the next polls."""

import random
import tracemalloc

import pytest

from penstock.api.consume import Poll
from penstock.api.groups import Mode
from penstock.broker.memberships import Ask, Join
from penstock.model import Message, Priority

from .world import GROUP, TOPIC, World, values

KIB, MIB = 1 << 10, 1 << 20
CRITICAL, NORMAL = Priority.CRITICAL, Priority.NORMAL


def make(partitions=1, **settings):
    world = World()
    world.topic(partitions=partitions, **settings)
    world.group()
    return world


def publish_each(world, messages):
    """A batch for each."""
    for one in messages:
        world.publish(one)


def poll(world, limit, bytes_max, priority=None):
    return world.execute(Poll(TOPIC, GROUP, "m", limit, 30_000, priority, bytes_max=bytes_max))


def bytes_of(received):
    return sum(len(one.value) for one in received)


def test_memory_does_not_grow_with_what_is_asked_for():
    world = make()
    publish_each(world, (bytes(256 * KIB) for _ in range(120)))
    tracemalloc.start()
    try:
        found = poll(world, 120, MIB)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 1 <= len(found) <= 4
    # What polls keep of what they read, 4 MiB, is the largest part of it; all messages are 30 MiB.
    assert peak < 9 * MIB


@pytest.mark.parametrize("seed", range(5))
def test_all_come_once_and_in_order(seed):
    entropy, world = random.Random(seed), make()
    sent = [b"%d" % one + bytes(entropy.choice((0, 10, 3000, 50_000))) for one in range(60)]
    while sent[(count := world.node.partition(TOPIC, 0).messages.end_offset) :]:
        world.publish(*sent[count : count + entropy.randint(1, 5)])
    found = []
    while some := poll(world, 20, 40_000):
        assert len(some) <= 20
        # Whole batches count, and one is always taken.
        assert bytes_of(some) <= 5 * 50_000 + 40_000
        world.ack(*some)
        found += some
    assert values(found) == sent


def test_the_urgent_ones_come_first_although_they_lie_last():
    world = make()
    publish_each(world, (Message(bytes(100 * KIB), priority=NORMAL) for _ in range(30)))
    publish_each(world, (Message(bytes(100 * KIB), priority=CRITICAL) for _ in range(30)))
    found = [one.priority for one in poll(world, 60, MIB)]
    assert found[:5] == [CRITICAL] * 5
    assert len(found) <= 10


def test_lanes_get_the_same_share_as_from_small_polls():
    def order(limit, bytes_max):
        world, found = make(), []
        for _ in range(40):
            publish_each(world, (Message(bytes(KIB), priority=one) for one in Priority))
        while some := poll(world, limit, bytes_max):
            world.ack(*some)
            found += [(one.priority, one.offset) for one in some]
        return found

    # Ten fit, and the columns beside the values; eleven do not.
    assert order(70, 10 * KIB + KIB // 2 + 10 * 32) == order(10, None)


def test_all_partitions_share_the_room():
    world = make(partitions=4)
    for _ in range(10):
        world.publish(*[Message(bytes(100 * KIB)) for _ in range(8)])
    assert bytes_of(poll(world, 1000, MIB)) <= 2 * MIB
    assert len(poll(world, 50, 100 * MIB)) == 50


def test_a_member_of_an_assigned_group_is_served_in_the_same_way():
    world = World()
    world.topic(partitions=4)
    wish = Join(frozenset({TOPIC}), member="m", session_ms=3_600_000, mode=Mode.RELAXED)
    assigned = world.node.assigned
    assigned.join(GROUP, wish, world.now())
    for number in range(4):
        for _ in range(10):
            world.publish(bytes(100 * KIB), partition=number)
    found = assigned.poll(GROUP, Ask("m", 1000, bytes_max=MIB), world.now())
    assert MIB // 2 < bytes_of(found) <= MIB + 200 * KIB

"""One budget of memory for the batches that all partitions have read lately."""

import gc
import tracemalloc

import pytest

from penstock.model import Message

from .world import GROUP, World

PARTITIONS, MESSAGES = 12, 30
KIB = 1024


def one_by_one(world: World, partitions: int, *, headers: int = 0) -> None:
    """Batches of one message each, in every partition."""
    names = tuple((f"h{number}", b"v") for number in range(headers))
    for partition in range(partitions):
        for number in range(MESSAGES):
            message = Message(b"%02d" % number * 50, b"key", names)
            world.publish(message, partition=partition)


def read_all(world: World) -> list[tuple[int, int]]:
    found = []
    while held := world.poll(7):
        found += [(one.partition, one.offset) for one in held]
        world.ack(*held)
    return sorted(found)


@pytest.mark.parametrize("cache_bytes", [0, 20 * KIB, 200 * KIB, 100_000 * KIB])
def test_every_message_comes_whatever_the_cache_may_hold(cache_bytes):
    world = World(cache_bytes=cache_bytes)
    world.topic(PARTITIONS)
    one_by_one(world, PARTITIONS)
    expected = [(part, offset) for part in range(PARTITIONS) for offset in range(MESSAGES)]
    for group in (GROUP, "behind"):
        world.group(group)
    assert read_all(world) == expected
    held = world.poll(10_000, group="behind")
    assert sorted((one.partition, one.offset) for one in held) == expected
    # One read is there in any case: a poll is reading it.
    assert world.node.cache.size <= max(cache_bytes, MESSAGES * 4 * KIB)


@pytest.mark.parametrize("headers", [0, 5])
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_what_the_cache_counts_is_what_it_costs(compression, headers):
    world = World(cache_bytes=1 << 30)
    world.topic(4, compression=compression)
    one_by_one(world, 4, headers=headers)
    world.group()
    world.poll(1)
    gc.collect()
    tracemalloc.start()
    try:
        before, counted_before = tracemalloc.get_traced_memory()[0], world.node.cache.size
        count = len(world.poll(10_000))
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert count == 4 * MESSAGES - 1
    counted = world.node.cache.size - counted_before
    assert 0.7 * counted < grown < 1.3 * counted


def test_a_deleted_topic_leaves_nothing_in_the_cache():
    world = World()
    world.topic(2)
    one_by_one(world, 2)
    world.group()
    assert read_all(world)
    assert world.node.cache.size
    world.delete("orders")
    assert world.node.cache.size == 0

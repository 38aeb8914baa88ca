"""Delayed messages that are due together and lie apart: all come, in the order of time, and batches are not read for
each of them."""

import random

import pytest

from penstock.api.publish import Delayed
from penstock.broker.partition import delay_prefetch
from penstock.broker.partition.delay_prefetch import Prefetch, PrefetchCache
from penstock.log import Log
from penstock.model import Message

from .test_delay import cancel, made, move, stored
from .world import MS, TOPIC, World

BATCHES, BATCH = 20, 50


def scheduled(
    world: World, rng: random.Random, *, batches: int = BATCHES, partition: int = 0, size: int = 0
) -> dict[int, int]:
    """Batches of messages that are due at any time within a minute; due times by id."""
    due: dict[int, int] = {}
    for _ in range(batches):
        times = [world.wall_ns + rng.randrange(1, 60_000) * MS for _ in range(BATCH)]
        delayed = [
            Delayed(Message(b"%d" % at + bytes(rng.randrange(size + 1))), at) for at in times
        ]
        published = world.schedule(delayed, partition=partition)
        due |= {one.offset: at for one, at in zip(published, times, strict=True)}
    return due


def reads(monkeypatch: pytest.MonkeyPatch, log: Log) -> list[int]:
    """Offsets at which a log is read from here on."""
    seen: list[int] = []
    original = log.read

    def read(offset: int, **options: object):
        seen.append(offset)
        return original(offset, **options)

    monkeypatch.setattr(log, "read", read)
    return seen


def test_a_batch_is_read_once_for_all_that_is_due_soon(monkeypatch):
    world = made()
    due = scheduled(world, random.Random(1))
    seen = reads(monkeypatch, world.node.partition(TOPIC, 0).delayed.log)
    for _ in range(6000):
        world.wait(10)
    assert len(stored(world)) == len(due)
    assert len(seen) <= 2 * BATCHES


@pytest.mark.parametrize("bytes_max", [1, 3000, 100_000, 16 << 20])
def test_what_is_due_comes_in_the_order_of_time_whatever_changes_in_between(
    bytes_max, monkeypatch, effort
):
    monkeypatch.setattr(delay_prefetch, "_BYTES_MAX", bytes_max)
    for seed in range(effort(check=1, test=6, torture=500)):
        rng = random.Random(seed)
        world = made(segment_size_bytes=4096, ttl_ms=3_600_000)
        due = scheduled(world, rng, size=300)
        expected: list[int] = []
        for step in range(40):
            world.wait(rng.choice((10, 500, 3000)))
            passed = [one for one, at in due.items() if at <= world.wall_ns]
            expected += [due.pop(one) for one in sorted(passed, key=lambda one: (due[one], one))]
            found = stored(world)
            assert [int(one.value.rstrip(b"\0")) for one in found] == expected, f"seed {seed}"
            for one in rng.sample(sorted(due), min(len(due), 5)):
                cancel(world, one)
                del due[one]
            # Of the value nothing is known then but that it is as it was.
            if due and rng.random() < 0.3:
                changed = rng.choice(sorted(due))
                move(world, changed, 0)
                world.wait(1)
                expected.append(due.pop(changed))
                passed = [one for one, at in due.items() if at <= world.wall_ns]
                expected += [
                    due.pop(one) for one in sorted(passed, key=lambda one: (due[one], one))
                ]
            if step % 10 == 9:
                world.sweep()
            if step == 20:
                world.kill()


@pytest.mark.tier("test")
def test_all_partitions_together_keep_no_more_than_the_limit(monkeypatch):
    world = made(partitions=10)
    cache = PrefetchCache(200_000)
    rng = random.Random(4)
    count = 0
    for partition in world.node.partitions():
        partition.prefetch = Prefetch(cache)
        count += len(scheduled(world, rng, batches=5, partition=partition.number, size=200))
    largest = 0
    for _ in range(600):
        world.wait(100)
        largest = max(largest, cache.size)
    assert sum(len(stored(world, number)) for number in range(10)) == count
    assert 100_000 < largest <= 200_000
    assert cache.size == 0


def test_what_was_cancelled_is_not_kept_in_memory():
    world = made()
    due = scheduled(world, random.Random(2))
    world.wait(10_000)
    prefetch = world.node.partition(TOPIC, 0).prefetch
    assert prefetch.size
    for one, at in due.items():
        if at > world.wall_ns:
            cancel(world, one)
    world.sweep()
    assert (prefetch.size, prefetch.rows) == (0, {})

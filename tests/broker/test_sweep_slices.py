"""Sweeps, ticks and steps of the wall clock look at a bounded part of the partitions at a time."""

import random
from collections.abc import Iterator

import pytest

from penstock.api.fetch import Read
from penstock.api.members import JoinGroup
from penstock.api.principals import LOCAL
from penstock.api.publish import Delayed
from penstock.api.start import EARLIEST, Start
from penstock.api.topics import SweepTopics
from penstock.broker.partition import Partition
from penstock.broker.walks import Walk
from penstock.config import Cleanup
from penstock.model import Message

from .world import GROUP, HOUR_MS, MS, TOPIC, WALL_NS, World, values

OTHER = "other"


def slices(world: World, walk: Walk, entries: int = 1) -> Iterator[object]:
    """Sweep; yields None after each slice, and at last the reply."""
    while True:
        done = world.node.go_on(walk, world.now(), entries)
        if done.more is None:
            yield done.reply
            return
        yield None


def compacted() -> World:
    """Two topics of which most messages may go, over several steps of a compaction."""
    world, entropy = World(), random.Random(3)
    for name in (TOPIC, OTHER):
        world.topic(2, name, cleanup=Cleanup.COMPACT, segment_messages_max=20)
        for number in range(120):
            key = b"%d" % entropy.randrange(4)
            value = bytes([number]) * 40_000
            world.publish(Message(value, key), topic=name, partition=number % 2)
    world.sync()
    return world


def kept(world: World, name: str) -> list[tuple[int, bytes, bytes]]:
    return [
        (partition.number, message.key, message.value)
        for partition in world.node.topic(name).partitions
        for message in read(world, name, partition.number)
    ]


def read(world: World, name: str, number: int) -> list[Message]:
    messages, at = [], EARLIEST
    while True:
        reply = world.execute(Read(name, number, at, 1000))
        messages += reply.messages
        if not reply.messages:
            return messages
        at = Start.at_offset(reply.messages[-1].offset + 1)


def test_a_sweep_in_slices_leaves_what_a_whole_one_does() -> None:
    whole, sliced = compacted(), compacted()
    swept = whole.sweep()
    *between, reply = slices(sliced, Walk(SweepTopics(), LOCAL))
    assert len(between) > 8, "compaction itself is done in steps"
    assert reply == swept
    for name in (TOPIC, OTHER):
        assert kept(sliced, name) == kept(whole, name)
    sliced.kill()
    assert kept(sliced, TOPIC) == kept(whole, TOPIC)


def test_a_partition_that_is_synced_by_a_sweep_has_a_slice_of_its_own() -> None:
    """Whatever the budget: a sync takes as long as the disk does."""
    world = World()
    world.topic(4)
    for number in range(4):
        world.schedule([Delayed(Message(b"x"), WALL_NS + HOUR_MS * MS)], partition=number)
    assert len([*slices(world, Walk(SweepTopics(), LOCAL), 1000)]) >= 4
    world.sync()
    assert len([*slices(world, Walk(SweepTopics(), LOCAL), 1000)]) == 1


def test_messages_come_while_a_topic_is_swept() -> None:
    world = compacted()
    for number, _ in enumerate(slices(world, Walk(SweepTopics(), LOCAL))):
        world.publish(Message(b"%d" % number, b"new"), topic=TOPIC, partition=number % 2)
    last = {(place, key): value for place, key, value in kept(world, TOPIC)}
    assert last[(number - 1) % 2, b"new"] == b"%d" % (number - 1)
    assert last[number % 2, b"new"] == b"%d" % number
    assert {place for place, key in last if key != b"new"} == {0, 1}


@pytest.mark.parametrize("seed", range(6))
def test_a_topic_that_goes_while_it_is_swept_is_swept_no_further(seed) -> None:
    world, entropy = compacted(), random.Random(seed)
    gone_at = entropy.randrange(12)
    for number, reply in enumerate(slices(world, Walk(SweepTopics(), LOCAL))):
        if number == gone_at:
            world.delete(TOPIC)
            if entropy.random() < 0.5:
                world.topic(1, TOPIC)
                world.publish(b"new")
        answer = reply
    assert OTHER in answer
    world.restart()
    assert world.node.faults() == []
    if TOPIC in world.topics():
        assert [value for _, _, value in kept(world, TOPIC)] == [b"new"]


@pytest.mark.parametrize("at", [1, 3, 6])
def test_a_sweep_that_is_abandoned_loses_nothing_and_another_may_begin(at) -> None:
    world, whole = compacted(), compacted()
    whole.sweep()
    walk = Walk(SweepTopics(), LOCAL)
    for number, _ in enumerate(slices(world, walk)):
        if number == at:
            break
    walk.close()
    world.sweep()
    assert kept(world, TOPIC) == kept(whole, TOPIC)


def test_two_sweeps_at_once_do_not_compact_one_log_twice() -> None:
    world = compacted()
    first, second = Walk(SweepTopics(), LOCAL), Walk(SweepTopics(), LOCAL)
    one, other = slices(world, first), slices(world, second)
    for _ in range(200):
        next(one, None)
        next(other, None)
    assert (first.is_over, second.is_over) == (True, True)
    assert world.node.faults() == []


def test_a_group_that_joins_while_idle_ones_are_forgotten_stays() -> None:
    world = World()
    world.topic(2, group_retention_hours=1)
    names = [f"group-{number}" for number in range(5)]
    for name in names:
        world.group(name)
    world.wait(2 * HOUR_MS)
    for number, reply in enumerate(slices(world, Walk(SweepTopics(), LOCAL))):
        if number == 0:
            world.execute(JoinGroup(names[-1], "one", (TOPIC,), session_ms=60_000))
        swept = reply
    assert swept[TOPIC].groups_forgotten == tuple(names[:-1])


def test_a_tick_takes_so_many_partitions_and_the_next_one_the_others() -> None:
    world = World()
    world.topic(partitions=10)
    world.group()
    for number in range(10):
        world.publish(b"%d" % number, partition=number)
    assert len(world.poll(10, ms=1000)) == 10
    world.now(2000)

    def leased() -> int:
        return sum(lag.in_flight for lag in world.lag(GROUP))

    for left in (6, 2, 0):
        assert world.node.next_due_ns() <= world.monotonic_ns
        world.node.tick(world.now(), partitions_max=4)
        assert leased() == left
    assert world.node.next_due_ns() > world.monotonic_ns


def test_a_step_of_the_wall_clock_looks_at_partitions_with_messages_for_later(monkeypatch) -> None:
    world = World()
    for number in range(20):
        world.topic(name=f"topic-{number}", partitions=5)
    world.topic()
    world.schedule([Delayed(Message(b"later"), world.wall_ns + HOUR_MS * MS)])
    asked: list[str] = []
    looks = Partition.next_firing_ns

    def looked(self, now):
        asked.append(self.topic)
        return looks(self, now)

    monkeypatch.setattr(Partition, "next_firing_ns", looked)
    world.wall_ns += 2 * HOUR_MS * MS
    world.topics()
    assert {*asked} == {TOPIC}
    assert world.node.next_due_ns() <= world.monotonic_ns
    world.node.tick(world.now())
    world.group()
    assert values(world.drain()) == [b"later"]

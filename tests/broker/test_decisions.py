"""Decisions about many transactions that reach a partition together, and where decisions are made."""

from collections import Counter

import pytest

from penstock.api.transactions import EndTransaction
from penstock.broker.partition import staging
from penstock.errors import DamagedFile
from penstock.sim import SimDisk

from .test_transaction_answers import Consumer
from .test_transactions import stored
from .world import TOPIC, World, pull_the_plug, values

NAMES = ("x", "y", "z")


class Stepping(Consumer):
    """A producer that takes the steps of its commits one by one."""

    def commit(self) -> bool:
        """Take a step; whether it was the last."""
        found = self.world.execute(EndTransaction(self.id, self.epoch, True))
        if found.is_complete:
            self.epoch, self.places = found.epoch, [(*one,) for one in found.places]
        return found.is_complete

    def stage_in(self, *partitions: int) -> None:
        for number in partitions:
            self.stage(f"{self.name} {number}".encode(), partition=number)


def commit_together(world: World, producers: list[Stepping]) -> list[bool]:
    """Have all commit at the same time, as far as they can; whether each is complete."""
    ends = [False] * len(producers)
    for _ in range(5):
        for at, one in enumerate(producers):
            ends[at] = ends[at] or one.commit()
        world.sync()
        world.node.pump(world.now())
    return ends


@pytest.fixture
def world() -> World:
    world = World()
    world.topic(3)
    return world


def staged(world: World) -> list[Stepping]:
    """Each of three producers has something in two partitions."""
    producers = [Stepping(world, name) for name in NAMES]
    for one in producers:
        one.stage_in(0, 1)
    return producers


def test_many_commit_together_and_each_is_told_its_own_places(world) -> None:
    producers = staged(world)
    assert commit_together(world, producers) == [True] * 3
    assert stored(world) == [[b"x 0", b"y 0", b"z 0"], [b"x 1", b"y 1", b"z 1"], []]
    for at, one in enumerate(producers):
        assert one.places == [(TOPIC, 0, at, 1), (TOPIC, 1, at, 1)]


def test_one_that_cannot_be_read_holds_up_those_behind_it_and_none_before(
    world, monkeypatch
) -> None:
    producers = staged(world)
    read = staging._read

    def readable(partition, some):
        for one, batch in zip(some, read(partition, some), strict=True):
            if partition.number == 0 and one.offset == 1:
                raise DamagedFile("staging", "it cannot be read now")
            yield batch

    with monkeypatch.context() as patch:
        patch.setattr(staging, "_read", readable)
        assert commit_together(world, producers) == [True, False, False]
        assert stored(world) == [[b"x 0"], [b"x 1", b"y 1", b"z 1"], []]
        world.kill()
        assert stored(world)[0] == [b"x 0"]
    assert commit_together(world, producers[1:]) == [True, True]
    assert stored(world) == [[b"x 0", b"y 0", b"z 0"], [b"x 1", b"y 1", b"z 1"], []]


@pytest.mark.tier("test")
def test_all_of_each_or_nothing_at_every_crash_state(effort) -> None:
    """One of three has acked something, and its end is recorded by itself, between those of the others."""
    first = World()
    first.topic(3)
    first.group()
    first.publish(b"in", partition=2)
    for name in NAMES:
        Stepping(first, name)
    first.restart()
    start = first.disk.tree()

    def scenario(disk: SimDisk) -> None:
        world = World(disk)
        producers = [Stepping(world, name) for name in NAMES]
        (taken,) = world.poll(1)
        for one in producers:
            one.stage_in(0, 2)
        producers[1].ack(taken)
        assert commit_together(world, producers) == [True] * 3
        disk.mark("done")

    def check(disk: SimDisk, marks: tuple[object, ...]) -> None:
        world = World(disk)
        world.settle()
        found = [value for log in stored(world) for value in log if value != b"in"]
        assert max(Counter(found).values(), default=1) == 1
        counts = Counter(value[:1] for value in found)
        assert set(counts.values()) <= {2}
        if "done" in marks:
            assert len(counts) == 3
        # What was open is aborted, and its messages come back.
        for name in NAMES:
            Stepping(world, name)
        world.settle()
        world.release()
        assert (b"in" in values(world.drain())) == (b"y" not in counts)

    assert pull_the_plug(scenario, check, effort, start=start, is_long=True) > 20


def test_a_directory_with_four_coordinators_goes_on_with_them(monkeypatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("penstock.broker.transactions.PARTITIONS", 4)
        world = World()
        world.topic(3)
        names = [f"p{one}" for one in range(12)]
        producers = [Stepping(world, name) for name in names]
        for one in producers:
            one.stage(one.name.encode(), partition=0)
        world.restart()
    assert {one.id % 4 for one in producers} == {0, 1, 2, 3}
    assert commit_together(world, producers) == [True] * 12
    assert sorted(stored(world)[0]) == sorted(one.encode() for one in names)
    for one in producers:
        before = one.id
        assert one.init().producer_id == before
    world.restart()
    fresh = Stepping(world, "fresh")
    fresh.stage(b"new", partition=1)
    fresh.end()
    assert stored(world)[1] == [b"new"]

"""The plug pulled at every write: a transaction is there as a whole, once, or not at all."""

from collections import Counter
from contextlib import suppress

import pytest

from penstock.api.transactions import EndTransaction, Stage
from penstock.broker.partition.cleanup import clear_staged
from penstock.errors import ProducerFenced, TransactionInProgress
from penstock.model import Message
from penstock.sim import SimDisk, Tree

from .test_transactions import Transactional, stored
from .world import TOPIC, World, pull_the_plug

MADE = ({b"a", b"b", b"c"}, {b"d", b"e"}, {b"gone"})


def all_or_nothing(world: World, marks: tuple[object, ...]) -> None:
    """Whatever is there now stays, whole; what was promised is there; what was aborted is not."""
    world.settle()
    found = Counter(value for some in stored(world) for value in some)
    assert max(found.values(), default=1) == 1, found
    first, second, gone = MADE
    for one in (first, second):
        assert found.keys() & one in (set(), one), (found, marks)
    assert not found.keys() & gone
    if "first" in marks:
        assert found.keys() >= first
    if "second" in marks:
        assert found.keys() >= second
    world.kill()
    world.settle()
    assert Counter(value for some in stored(world) for value in some) == found


def begun() -> tuple[Tree, int]:
    """A topic and a session of a producer, all durable; its id."""
    world = World()
    world.topic(3, segment_size_bytes=1500)
    producer = Transactional(world)
    world.restart()
    return world.disk.tree(), producer.id


def session(disk: SimDisk, producer_id: int) -> Transactional:
    """The producer of `begun` on a disk that began with that tree."""
    producer = object.__new__(Transactional)
    producer.world, producer.id, producer.epoch = World(disk), producer_id, 0
    return producer


@pytest.mark.tier("test")
def test_a_transaction_is_whole_or_absent_at_every_crash_state(effort) -> None:
    start, producer_id = begun()

    def scenario(disk: SimDisk) -> None:
        producer = session(disk, producer_id)
        world = producer.world
        producer.stage(b"a", partition=0)
        producer.stage(b"b", partition=1)
        producer.stage(b"c", partition=0)
        producer.end()
        disk.mark("first")
        world.node.partition(TOPIC, 0).take_snapshot()
        producer.stage(b"gone", partition=0)
        producer.end(is_commit=False)
        producer.stage(b"d", partition=0)
        world.node.partition(TOPIC, 0).take_snapshot()
        producer.stage(b"e", partition=1)
        producer.end()
        disk.mark("second")
        partition = world.node.partition(TOPIC, 0)
        assert partition.staging.log is not None
        partition.staging.log.roll()
        clear_staged(partition, world.now())

    def check(disk: SimDisk, marks: tuple[object, ...]) -> None:
        world = World(disk)
        all_or_nothing(world, marks)
        # A new session takes the place of the old one, whatever that had open, and works.
        fresh = Transactional(world)
        world.settle()
        fresh.stage(b"new", partition=2)
        fresh.end()
        assert stored(world)[2] == [b"new"]

    assert pull_the_plug(scenario, check, effort, start=start, is_long=True) > 60


@pytest.mark.tier("test")
def test_a_producer_that_goes_on_after_a_crash_loses_and_doubles_nothing(effort) -> None:
    """It repeats what was not answered under the same sequences, and then commits."""
    start, producer_id = begun()
    batches = [(0, 0, b"a"), (1, 0, b"b"), (0, 1, b"c")]

    def staged(world: World) -> None:
        for partition, sequence, value in batches:
            world.execute(Stage(producer_id, 0, TOPIC, [Message(value)], partition, sequence))

    def scenario(disk: SimDisk) -> None:
        producer = session(disk, producer_id)
        staged(producer.world)
        producer.world.sync()
        producer.end()

    def check(disk: SimDisk, _marks: tuple[object, ...]) -> None:
        world = World(disk)
        # A producer whose commit was decided is told that its epoch is over.
        with suppress(ProducerFenced, TransactionInProgress):
            staged(world)
        for _ in range(6):
            end = world.execute(EndTransaction(producer_id, 0, True))
            if end.is_complete:
                break
            world.sync()
            world.node.pump(world.now())
        assert stored(world) == [[b"a", b"c"], [b"b"], []]
        assert sum(one.message_count for one in end.places) == len(batches)

    assert pull_the_plug(scenario, check, effort, start=start, is_long=True) > 20


def test_stagings_of_open_transactions_are_carried_forward() -> None:
    world = World()
    world.topic(3, segment_size_bytes=1500)
    keeper, other = Transactional(world, "keeper"), Transactional(world, "other")
    keeper.stage(b"kept", partition=0)
    for number in range(40):
        other.stage(b"%d " % number + b"x" * 100, partition=0)
        other.end(is_commit=number % 2 == 0)
        keeper.stage(b"kept too %d" % number, partition=0) if number == 20 else None
    partition = world.node.partition(TOPIC, 0)
    before = partition.staging.size
    clear_staged(partition, world.now())
    assert partition.staging.size < before / 2
    world.restart()
    assert keeper.stage(b"last", partition=0)[0].sequence == 2
    keeper.end()
    assert stored(world)[0][-3:] == [b"kept", b"kept too 20", b"last"]
    clear_staged(world.node.partition(TOPIC, 0), world.now())
    world.lose_unsynced()
    assert stored(world)[0][-3:] == [b"kept", b"kept too 20", b"last"]

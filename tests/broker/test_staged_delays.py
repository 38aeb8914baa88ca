"""Delayed messages in transactions and named commits: scheduled with the commit, once, and never without it."""

from collections import Counter

import pytest

from penstock.api.commits import StageNamed, StageNamedBatch
from penstock.api.delays import ListDelayed
from penstock.api.publish import Delayed
from penstock.api.transactions import EndTransaction, Stage
from penstock.broker.partition.cleanup import clear_staged
from penstock.codec import Columns, encode
from penstock.errors import Refused
from penstock.model import Message
from penstock.sim import SimDisk, Tree

from .test_commits import Attempt, commit
from .test_transactions import Transactional, stored
from .world import TOPIC, World, only_durable, pull_the_plug, values

HOUR_NS = 3600 * 1_000_000_000


def later(world: World, value: bytes, hours: int = 1, key: bytes | None = None) -> Delayed:
    return Delayed(Message(value), world.now().wall_ns + hours * HOUR_NS, key)


def put_later(producer: Transactional, value: bytes, **options) -> None:
    delayed = [later(producer.world, value, **options)]
    producer.world.execute(Stage(producer.id, producer.epoch, TOPIC, [], 0, delayed=delayed))


def waiting(world: World) -> list[bytes]:
    found = world.execute(ListDelayed(TOPIC, 100)).messages
    return sorted(one.message.value for one in found if one.message is not None)


def fired(world: World) -> Counter:
    """What is there once everything was due."""
    world.wait(3 * HOUR_NS // 1_000_000)
    world.settle()
    return Counter(one for some in stored(world) for one in some)


def without_unsynced_delays(world: World) -> None:
    """A power cut: the kernel has written all, but of the delay log only what was synced."""
    kept, durable = world.disk.tree(), only_durable(world.disk).tree()
    files = {
        path: durable.files.get(path, b"") if "/delayed/" in path else data
        for path, data in kept.files.items()
    }
    world.open_on(SimDisk(Tree(files, kept.directories)))


@pytest.fixture
def world() -> World:
    world = World()
    world.topic(3)
    return world


@pytest.mark.parametrize("stop", ["none", "restart", "kill", "lose_unsynced"])
def test_they_wait_with_the_commit_and_come_in_time(world, stop) -> None:
    producer = Transactional(world)
    producer.stage(b"now", partition=0)
    put_later(producer, b"later")
    put_later(producer, b"replaced", key=b"k")
    put_later(producer, b"last", key=b"k")
    world.sync()
    assert waiting(world) == []
    assert stored(world)[0] == []
    if stop != "none":
        getattr(world, stop)()
    end = producer.end()
    # What waits has no offset among the messages yet.
    assert [(*one,) for one in end.places] == [(TOPIC, 0, 0, 1)]
    if stop != "none":
        getattr(world, stop)()
    assert stored(world)[0] == [b"now"]
    assert waiting(world) == [b"last", b"later"]
    assert fired(world) == Counter([b"now", b"later", b"last"])


def test_an_abort_schedules_nothing(world) -> None:
    producer = Transactional(world)
    put_later(producer, b"never")
    producer.end(is_commit=False)
    assert waiting(world) == []
    assert fired(world) == Counter()


def test_a_named_commit_schedules_what_it_lists(world) -> None:
    winner, loser = Attempt(world, 0), Attempt(world, 0)
    for attempt, value in ((winner, b"winner"), (loser, b"loser")):
        delayed = [later(world, value)]
        world.execute(StageNamed(attempt.id, TOPIC, [], 0, delayed=delayed))
        due_at = [world.now().wall_ns + HOUR_NS]
        columns = Columns(values=[value + b" of a batch"], timestamps=1, due_at=due_at)
        batch = encode(columns).to_bytes()
        world.execute(StageNamedBatch(attempt.id, TOPIC, 1, 0, batch))
        attempt.count = 2
    assert commit(world, 0, winner).places == ()
    assert waiting(world) == [b"winner", b"winner of a batch"]
    world.kill()
    assert commit(world, 0, winner).is_repeat
    assert fired(world) == Counter([b"winner", b"winner of a batch"])


def test_what_is_refused_is_not_staged(world) -> None:
    producer = Transactional(world)
    session = (producer.id, producer.epoch, TOPIC)
    delayed = later(world, b"x")
    for command in (
        Stage(*session, [Message(b"y")], 0, delayed=[delayed]),
        Stage(*session, [], 0, delayed=[Delayed(Message(b"x"), 0)]),
        Stage(*session, [], 0, delayed=[Delayed(Message(b"x", idempotency_key="k"), HOUR_NS)]),
    ):
        with pytest.raises(Refused):
            world.execute(command)
    assert producer.end().transaction_id.endswith("-0")


def test_a_power_cut_that_takes_the_delay_log_alone_takes_no_committed_delay(world) -> None:
    """The kernel has written what was recorded last, and of the delay log only what was synced."""
    producer = Transactional(world)
    put_later(producer, b"later")
    world.sync()
    command = EndTransaction(producer.id, producer.epoch, is_commit=True)
    world.execute(command)
    world.sync()
    world.node.pump(world.now())
    without_unsynced_delays(world)
    world.settle()
    assert waiting(world) == [b"later"]


def test_a_power_cut_that_takes_the_delay_log_alone_delivers_no_delay_twice(world) -> None:
    """It was due when it was scheduled, and the kernel has written the messages before the delay log."""
    producer = Transactional(world)
    put_later(producer, b"due", hours=0)
    world.sync()
    world.execute(EndTransaction(producer.id, producer.epoch, is_commit=True))
    world.sync()
    world.node.pump(world.now())
    world.wait(1)
    without_unsynced_delays(world)
    world.settle()
    assert fired(world) == Counter([b"due"])


def test_what_clearing_left_of_a_staging_log_is_scheduled(world) -> None:
    """The batch with the delayed message stands for the offsets of its neighbours, too, which are gone."""
    kept, dropped = Transactional(world), Transactional(world, "dropped")
    dropped.stage(b"before", partition=0)
    put_later(kept, b"later")
    dropped.stage(b"behind", b"it", partition=0)
    dropped.end(is_commit=False)
    partition = world.node.partition(TOPIC, 0)
    assert partition.staging.log is not None
    partition.staging.log.roll()
    assert clear_staged(partition, world.now()).messages_removed
    kept.end()
    assert waiting(world) == [b"later"]
    assert fired(world) == Counter([b"later"])


@pytest.mark.tier("test")
def test_a_delay_is_scheduled_once_at_every_crash_state(effort) -> None:
    before = World()
    before.topic(3)
    Transactional(before)
    before.restart()

    def send(world: World, name: bytes) -> None:
        producer = Transactional(world)
        producer.stage(name + b" now", partition=0)
        put_later(producer, name + b" later")
        put_later(producer, name + b" much later", hours=2)
        producer.end()

    def scenario(disk: SimDisk) -> None:
        world = World(disk)
        send(world, b"one")
        disk.mark("one")
        world.node.partition(TOPIC, 0).take_snapshot()
        send(world, b"two")

    def check(disk: SimDisk, marks: tuple[object, ...]) -> None:
        world = World(disk)
        world.settle()
        found = fired(world)
        for name in (b"one", b"two"):
            some = {name + b" now", name + b" later", name + b" much later"}
            assert found.keys() & some in (set(), some), (found, marks)
            assert name != b"one" or "one" not in marks or found.keys() >= some
        assert max(found.values(), default=1) == 1
        assert values(world.drain()) is not None

    assert pull_the_plug(scenario, check, effort, start=before.disk.tree(), is_long=True) > 20

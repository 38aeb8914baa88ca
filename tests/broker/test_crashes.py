"""The plug pulled at every write: a message is in exactly one of queue, dead letters and done."""

import random
from collections import Counter

import pytest

from penstock.api.dead_letters import RedriveDeadLetters, Selection, Target
from penstock.broker.partition.outbox import Burial
from penstock.errors import StaleReceipt
from penstock.model import Message
from penstock.sim import Model, SimDisk, Tree, power_cut

from .world import GROUP, MIXED, TOPIC, Answered, World, pull_the_plug, values

LETTERS = TOPIC + ".dlq"


def places_of(world: World, offset: int) -> Counter[str]:
    """Where a message of the topic is, as the disk has it."""
    partition = world.node.partition(TOPIC, 0)
    found: Counter[str] = Counter()
    found["queue"] += not partition.group(GROUP).progress.is_finished(offset)
    stored = [one.provenance.original_offset for one in world.letters()]
    arrived = stored.count(offset)
    on_the_way = [
        letter
        for letter in partition.machine.outbox.pending.values()
        if isinstance(letter, Burial) and letter.offset == offset
    ]
    # A letter that has arrived stays in the outbox until its source knows: that is one letter, not two.
    found["dead letters"] += max(arrived, len(on_the_way))
    return found


def pump_early(world: World) -> None:
    """Give letters the chance to leave before their intent is durable, and to arrive for good."""
    world.node.pump(world.now())
    if LETTERS in world.node.open:
        world.node.partition(LETTERS, 0).sync()


def pump_without_sync(world: World, source: str) -> None:
    """Give a source the chance to forget a letter before the other side has it for good."""
    for _ in range(3):
        world.node.pump(world.now())
    world.node.partition(source, 0).sync()


def test_a_dying_message_is_in_one_place_at_every_crash_state(effort) -> None:
    def scenario(disk: SimDisk) -> None:
        world = World(disk)
        world.topic(max_retries=0)
        world.group()
        world.publish(b"0", b"1", b"2")
        world.sync()
        disk.mark("published")
        held = world.poll()
        world.ack(held[0])
        world.reject(held[1], error="bad")
        pump_early(world)
        world.sync()
        disk.mark("rejected")
        pump_without_sync(world, TOPIC)
        world.nack(held[2])
        pump_early(world)
        world.sync()
        disk.mark("nacked")
        for _ in range(3):
            world.node.pump(world.now())
            world.sync()

    def check(disk: SimDisk, marks: tuple[object, ...]) -> None:
        world = World(disk)
        if "published" not in marks:
            return
        acked = "rejected" in marks
        for offset in (0, 1, 2):
            places = places_of(world, offset)
            assert places.total() == (0 if offset == 0 and acked else 1) or not offset, places
        dead = {1: "rejected" in marks, 2: "nacked" in marks}
        for offset, is_dead in dead.items():
            assert not is_dead or places_of(world, offset)["dead letters"] == 1
        once_each(world, acked=acked)

    def once_each(world: World, *, acked: bool) -> None:
        """Recovery goes on where it was; afterwards each message came once, from the queue or as a dead letter."""
        world.settle()
        letters = Counter(values([one.message for one in world.letters()]))
        world.wait(31_000)
        drained = Counter(values(world.drain(rounds=9)))
        world.settle()
        died_late = Counter(values([one.message for one in world.letters()])) - letters
        for value in (b"1", b"2"):
            assert letters[value] + drained[value] + died_late[value] == 1, (letters, drained)
        assert not acked or drained[b"0"] + died_late[b"0"] == 0
        assert world.lag(GROUP)[0].lag == 0

    assert pull_the_plug(scenario, check, effort) > 60


def with_letters(count: int) -> Tree:
    """A disk with so many dead letters, closed properly."""
    world = World()
    world.topic(max_retries=0)
    world.group()
    world.publish(*[b"%d" % number for number in range(count)])
    world.reject(*world.poll())
    world.settle()
    world.node.close()
    return world.disk.tree()


@pytest.mark.parametrize("target", list(Target))
def test_a_redriven_letter_comes_back_once_at_every_crash_state(target, effort) -> None:
    def scenario(disk: SimDisk) -> None:
        world = World(disk)
        world.execute(RedriveDeadLetters(TOPIC, target=target, limit=1))
        world.sync()
        disk.mark("redriven")
        pump_without_sync(world, LETTERS)
        world.execute(RedriveDeadLetters(TOPIC, target=target))
        for _ in range(4):
            world.node.pump(world.now())
            world.sync()
        disk.mark("arrived")

    def check(disk: SimDisk, marks: tuple[object, ...]) -> None:
        world = World(disk)
        world.settle()
        listed = Counter(values([one.message for one in world.letters()]))
        if "redriven" in marks:
            assert listed[b"0"] == 0
        if "arrived" in marks:
            assert not listed
        drained = Counter(values(world.drain()))
        assert listed + drained == Counter([b"0", b"1", b"2"])
        world.settle()
        world.kill()
        world.settle()
        assert Counter(values([one.message for one in world.letters()])) == listed
        assert world.drain() == []

    assert pull_the_plug(scenario, check, effort, start=with_letters(3)) > 30


def test_letters_for_the_topic_and_for_the_group_do_not_overtake_each_other(effort) -> None:
    """A crash may keep the messages and lose the state behind them: an arrival as a message says nothing of one as a
    record, although both came from the same outbox."""

    def scenario(disk: SimDisk) -> None:
        world = World(disk)
        for offset, target in ((0, Target.GROUP), (1, Target.TOPIC), (2, Target.GROUP)):
            selection = Selection(offsets=frozenset({(0, offset)}))
            world.execute(RedriveDeadLetters(TOPIC, selection=selection, target=target))
        world.node.partition(LETTERS, 0).sync()
        disk.mark("redriven")
        world.node.pump(world.now())
        world.sync()

    def check(disk: SimDisk, marks: tuple[object, ...]) -> None:
        world = World(disk)
        world.settle()
        listed = Counter(values([one.message for one in world.letters()]))
        assert "redriven" not in marks or not listed
        drained = Counter(values(world.drain()))
        assert listed + drained == Counter([b"0", b"1", b"2"])

    assert pull_the_plug(scenario, check, effort, start=with_letters(3), kinds=MIXED) > 20


def test_an_offset_that_comes_again_is_never_born_finished(effort) -> None:
    """What a crash took is published anew at the same offsets, and every group gets it."""

    def scenario(disk: SimDisk) -> None:
        world = World(disk)
        world.topic()
        world.group()
        world.publish(b"kept")
        world.sync()
        disk.mark("begun")
        world.publish(b"a", b"b")
        held = world.poll()
        world.ack(*held)
        world.group("late")
        world.commit("late", 3)
        world.publish(b"c")
        world.reject(*world.poll())
        world.sync()

    def check(disk: SimDisk, marks: tuple[object, ...]) -> None:
        if "begun" not in marks:
            return
        world = World(disk)
        before = world.describe()[0].latest
        fresh = [b"new %d" % number for number in range(6)]
        world.publish(*fresh)
        world.group("late")
        for group in (GROUP, "late"):
            got = values(world.drain(group=group))
            assert got[-6:] == fresh, (before, group, got)

    assert pull_the_plug(scenario, check, effort, kinds=MIXED) > 40


def test_recovery_of_a_recovery_is_the_same_recovery(effort) -> None:
    def scenario(disk: SimDisk) -> None:
        world = World(disk)
        world.topic(max_retries=0)
        world.group()
        world.publish(b"0", Message(b"1", idempotency_key=b"i"))
        held = world.poll()
        world.ack(held[0])
        world.reject(held[1])
        world.sync()
        world.node.pump(world.now())
        world.node.partition(TOPIC, 0).take_snapshot()

    def check(disk: SimDisk, marks: tuple[object, ...]) -> None:
        world = World(disk)
        first = state_of(world)
        world.kill()
        assert state_of(world) == first

    assert pull_the_plug(scenario, check, effort) > 40


def test_a_crash_during_recovery_changes_nothing(effort) -> None:
    world = World()
    world.topic(max_retries=0)
    world.group()
    world.publish(b"0", b"1")
    world.sync()
    held = world.poll()
    world.reject(held[1])
    world.publish(b"torn")
    world.poll()
    tree = power_cut(world.disk, Model.STRICT, entropy=random.Random(4)).tree()
    expected = state_of(World(SimDisk(tree)))

    def recover(disk: SimDisk) -> None:
        World(disk)

    def check(disk: SimDisk, marks: tuple[object, ...]) -> None:
        assert state_of(World(disk)) == expected

    assert pull_the_plug(recover, check, effort, start=tree) > 5


def state_of(world: World) -> dict[str, object]:
    found: dict[str, object] = {}
    for partition in world.node.partitions():
        machine = partition.machine
        found[f"{partition.topic}/{partition.number}"] = (
            partition.messages.end_offset,
            machine.outbox.pending,
            machine.arrived,
            list(machine.dedup.items()),
            {
                name: (
                    machine.groups[number].progress,
                    machine.groups[number].cursor,
                    sorted(machine.groups[number].leases.by_number),
                    sorted({*machine.groups[number].ready, *machine.groups[number].waiting}),
                )
                for name, number in machine.numbers.items()
            },
        )
    return found


def test_a_holder_that_a_power_cut_made_us_forget_cannot_answer_for_the_next_one() -> None:
    world = World()
    world.topic()
    world.group()
    world.publish(b"a")
    world.sync()
    for _ in range(20):
        (old,) = world.poll(member="old")
        world.lose_unsynced()
        (new,) = world.poll(member="new")
        assert (new.offset, new.attempts) == (old.offset, old.attempts)
        assert new.receipt != old.receipt
        for answer in (world.ack, world.nack, world.reject):
            assert isinstance(answer(old)[0], StaleReceipt)
        world.lose_unsynced()


def test_a_group_that_a_power_cut_made_us_forget_cannot_answer_for_another() -> None:
    world = World()
    world.topic()
    world.publish(b"a")
    world.sync()
    world.group("first")
    (old,) = world.poll(group="first")
    world.lose_unsynced()
    world.group("second")
    (new,) = world.poll(group="second")
    assert new.place == old.place
    assert isinstance(world.ack(old)[0], StaleReceipt)
    assert isinstance(world.ack(new)[0], Answered)


def test_an_attempt_that_was_recorded_survives_the_power_cut() -> None:
    world = World()
    world.topic(max_retries=2)
    world.group()
    world.publish(b"a")
    for attempt in (1, 2, 3):
        (held,) = world.poll(ms=100)
        assert held.attempts == attempt
        world.sync()
        world.lose_unsynced()
        world.wait(100)
        world.wait(60_000)
    world.settle()
    assert [one.provenance.delivery_attempts for one in world.letters()] == [3]


def test_a_power_cut_during_a_poll_costs_no_message(effort) -> None:
    """The floor never passes a message that somebody still held."""

    def scenario(disk: SimDisk) -> None:
        world = World(disk)
        world.topic()
        world.group()
        world.publish(*[b"%d" % number for number in range(6)])
        world.sync()
        disk.mark("published")
        held = world.poll(4)
        world.ack(held[3], held[1])
        disk.mark("acking")
        world.sync()
        world.ack(held[0])
        world.node.partition(TOPIC, 0).take_snapshot()
        world.poll(2)
        world.sync()

    def check(disk: SimDisk, marks: tuple[object, ...]) -> None:
        if "published" not in marks:
            return
        world = World(disk)
        world.wait(31_000)
        world.wait(2000)
        drained = Counter(values(world.drain()))
        assert set(drained) >= {b"2", b"4", b"5"}
        assert max(drained.values()) == 1
        if "acking" not in marks:
            assert len(drained) == 6

    assert pull_the_plug(scenario, check, effort) > 30

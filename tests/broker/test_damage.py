"""Damaged batches through a whole node: told once, stopped at or skipped as the topic says, and in nobody's way."""

import random
from collections import Counter
from contextlib import nullcontext
from typing import NamedTuple

import pytest

from penstock.api.delays import DelayState, DescribeDelays, ListDelayed
from penstock.api.groups import CloseGroup, Mode
from penstock.api.members import JoinGroup, PollMember
from penstock.api.publish import Delayed
from penstock.api.start import Start
from penstock.codec import read_head
from penstock.config import Cleanup, OnDamage
from penstock.errors import DamagedBatch, PenstockError
from penstock.model import Message
from penstock.sim import SimDisk, Tree
from tests.log.naive import no_room_for_checkpoints

from .losses import flipped, tree_with
from .test_delay import later, state
from .test_lost_ends import repair
from .world import GROUP, MS, TOPIC, World, messages_of, pull_the_plug, values


class StoredBatch(NamedTuple):
    """Where a batch lies, and its offsets."""

    path: str
    position: int
    length: int
    offsets: range


def batches_of(world: World, partition: int = 0, topic: str = TOPIC) -> list[StoredBatch]:
    log = world.node.partition(topic, partition).messages
    found, offset = [], log.start_offset
    while offset < log.end_offset:
        number, (position, _) = log.place_of_batch(offset)
        head = read_head(log.read(offset, bytes_max=1).data, seed=log.seed)
        offsets = range(head.base_offset, head.next_offset)
        found.append(StoredBatch(log.segments[number].path, position, head.length, offsets))
        offset = head.next_offset
    return found


def with_damage(tree: Tree, batches: list[StoredBatch], *, byte: int = -9) -> Tree:
    """The tree with one bit changed in each batch: in its body, or with a small `byte` in its head."""
    files = dict(tree.files)
    for one in batches:
        data = bytearray(files[one.path])
        data[one.position + byte % one.length] ^= 1
        files[one.path] = bytes(data)
    return Tree(files, tree.directories)


def damage(
    world: World, *numbers: int, partition: int = 0, topic: str = TOPIC, byte: int = -9
) -> None:
    """Stop in order, change a bit in some batches, start again."""
    chosen = [batches_of(world, partition, topic)[one] for one in numbers]
    world.take_snapshots()
    world.node.close()
    world.open_on(SimDisk(with_damage(world.disk.tree(), chosen, byte=byte)))


def made(partitions: int = 1, **settings: object) -> World:
    world = World()
    world.topic(partitions, **settings)
    world.group()
    return world


def test_a_group_gets_everything_before_damage_and_goes_on_behind_it_once_the_topic_says_skip():
    world = made()
    for value in (b"zero", b"one", b"damaged", b"three"):
        world.publish(value)
    damage(world, 2)
    assert values(world.poll()) == [b"zero", b"one"]
    for _ in range(2):
        with pytest.raises(DamagedBatch) as found:
            world.poll()
    assert (found.value.offset, found.value.next_offset) == (2, 3)
    assert found.value.path.endswith("partition-0/messages/00000000000000000000.log")
    world.configure(on_damage="skip")
    assert values(world.poll()) == [b"three"]
    (lag,) = world.lag(GROUP)
    assert (lag.lag, lag.in_flight) == (3, 3)
    world.kill()
    assert world.node.partition(TOPIC, 0).group(GROUP).skipped_count == 1


@pytest.mark.parametrize("byte", [3, -9])
def test_one_damaged_partition_does_not_hold_up_the_others(byte):
    world = made(3)
    for number in range(30):
        world.publish(b"%d" % number, partition=number % 3)
    damage(world, 0, partition=0, byte=byte)
    found = []
    for _ in range(40):
        try:
            got = world.poll(limit=1)
        except DamagedBatch:
            break
        found += values(got)
    assert sorted(map(int, found)) == [number for number in range(30) if number % 3]
    world.configure(on_damage="skip")
    assert [int(one) for one in values(world.drain())] == [*range(3, 30, 3)]


@pytest.mark.parametrize("mode", [Mode.RELAXED, Mode.STRICT])
def test_members_of_an_assigned_group_are_served_by_the_other_partitions_and_skip_in_order(mode):
    world = World()
    world.topic(3)
    for number in range(30):
        world.publish(b"%d" % number, partition=number % 3)
    damage(world, 1, 4, partition=0)
    world.execute(JoinGroup(GROUP, "m", (TOPIC,), mode=mode))

    found: list[int] = []

    def drain() -> None:
        while got := world.execute(PollMember(GROUP, "m", 4)):
            world.ack(*got)
            found.extend(int(one) for one in values(got))

    with pytest.raises(DamagedBatch):
        drain()
    assert sorted(found) == [number for number in range(30) if number % 3 or number == 0]
    found.clear()
    world.configure(on_damage="skip")
    drain()
    assert found == [6, 9, 15, 18, 21, 24, 27]


def test_each_damaged_batch_is_told_once_however_often_it_is_read():
    world = made(on_damage="skip")
    for number in range(6):
        world.publish(b"%d" % number)
    damage(world, 1, 4)
    seen, skips = [], []
    world.node.damage.on_found, world.node.damage.on_skipped = seen.append, skips.append
    for _ in range(3):
        world.fetch(Start.at_offset(1))
        world.fetch(Start.at_offset(4))
    world.group("other")
    assert values(world.drain()) == values(world.drain(group="other")) == [b"0", b"2", b"3", b"5"]
    assert [(one.offset, one.next_offset) for one in seen] == [(1, 2), (4, 5)]
    assert world.node.damage.batches == {TOPIC: 2}
    assert world.node.damage.newest() == seen[::-1]
    assert Counter((one.group, one.offset, one.messages) for one in skips) == Counter(
        {(group, offset, 1): 1 for group in (GROUP, "other") for offset in (1, 4)}
    )
    world.delete()
    assert (world.node.damage.newest(), world.node.damage.batches.total()) == ([], 0)


def test_what_is_held_when_its_batch_is_damaged_stays_held_and_is_skipped_when_it_comes_back():
    world = made(on_damage="skip", backoff_base_ms=0)
    world.publish(b"0", b"1", b"2")
    world.publish(b"3")
    held = world.poll(2)
    damage(world, 0)
    assert values(world.poll()) == [b"3"]
    delivery = world.node.partition(TOPIC, 0).group(GROUP)
    assert delivery.skipped_count == 1
    world.ack(held[0])
    world.nack(held[1])
    world.wait(1)
    assert not world.poll()
    assert delivery.skipped_count == 2
    assert delivery.progress.is_finished(1)


def test_reads_by_position_stop_at_damage_or_go_on_behind_it_and_say_what_was_skipped():
    world = made()
    for number in range(6):
        world.publish(b"%d" % number)
    damage(world, 1, 2, 5)
    assert values(messages_of(world.fetch())) == [b"0"]
    with pytest.raises(DamagedBatch):
        world.fetch(Start.at_offset(1))
    world.configure(on_damage=OnDamage.SKIP)
    found = world.fetch(Start.at_offset(1))
    assert [(one.start, one.end) for one in found.skipped] == [(1, 2), (2, 3)]
    assert (found.offset, found.next_offset) == (3, 5)
    assert values(messages_of(found)) == [b"3", b"4"]
    last = world.fetch(Start.at_offset(5))
    assert [(one.start, one.end) for one in last.skipped] == [(5, 6)]
    assert (last.next_offset, last.end_offset, messages_of(last)) == (6, 6, [])


@pytest.mark.parametrize("byte", [3, -9])
def test_lag_backlog_and_dead_letters_do_not_fail_at_a_damaged_batch(byte):
    world = made(max_retries=0, max_backlog_bytes=10_000, on_damage="skip")
    for number in range(4):
        world.publish(b"%d" % number)
    world.reject(*world.poll(2))
    world.settle()
    damage(world, 2, byte=byte)
    assert world.lag(GROUP)[0].lag == 2
    world.publish(b"more")
    damage(world, 0, topic=f"{TOPIC}.dlq", byte=byte)
    left = [one.message.value for one in world.letters()]
    assert left in ([], [b"1"])


def test_a_damaged_segment_does_not_keep_a_sweep_from_other_topics():
    world = World()
    for name in ("a", "b", "c"):
        world.topic(name=name, cleanup=Cleanup.COMPACT, segment_size_bytes=400)
        for number in range(20):
            message = Message(b"%d" % number, key=b"k")
            world.publish(message, topic=name)
    world.sync()
    damage(world, 0, topic="b")
    swept = world.sweep()
    assert swept["a"].segments_removed
    assert swept["c"].segments_removed
    assert not swept["b"].segments_removed
    assert world.node.damage.batches == {"b": 1}


@pytest.mark.parametrize("kept", [0, 400])
def test_a_sweep_does_not_take_a_segment_for_old_because_its_end_cannot_be_read(kept):
    world = made(segment_size_bytes=1024)
    world.publish(b"old" * 100)
    world.wait(160 * 3600 * 1000)
    for _ in range(20):
        world.publish(b"new" * 100)
    first = world.node.partition(TOPIC, 0).messages.segments[0].path
    world.take_snapshots()
    world.node.close()
    files = dict(world.disk.tree().files)
    files[first] = files[first][:kept].ljust(len(files[first]), b"\0")
    world.open_on(SimDisk(Tree(files, world.disk.tree().directories)))
    world.wait(9 * 3600 * 1000)
    assert world.sweep()[TOPIC].segments_removed == 0
    world.wait(160 * 3600 * 1000)
    assert world.sweep()[TOPIC].segments_removed > 5


def damaged_delay(world: World) -> tuple[int, int]:
    bad = later(world, b"bad" + bytes(5000), 5)
    good = later(world, b"good", 5)
    path = f"{world.node.partition(TOPIC, 0).delayed.directory}/{0:020d}.log"
    world.take_snapshots()
    world.node.close()
    tree = world.disk.tree()
    data = bytearray(tree.files[path])
    data[3000] ^= 1
    world.open_on(SimDisk(Tree({**tree.files, path: bytes(data)}, tree.directories)))
    return bad, good


def test_a_damaged_delayed_message_is_lost_for_good_where_damage_is_skipped_and_the_others_fire():
    world = made(on_damage="skip")
    bad, good = damaged_delay(world)
    world.wait(5)
    assert values(world.drain()) == [b"good"]
    for _ in range(2):
        (facts,) = world.execute(DescribeDelays(TOPIC))[TOPIC]
        assert (facts.pending, facts.delivered, facts.lost, facts.unreadable) == (0, 1, 1, 0)
        assert (state(world, bad), state(world, good)) == (DelayState.LOST, DelayState.DELIVERED)
        world.kill()
    world.restart()
    assert state(world, bad) is DelayState.LOST
    assert world.node.damage.batches.total() <= 1


def test_a_damaged_delayed_message_waits_until_the_topic_says_skip():
    world = made()
    bad, _ = damaged_delay(world)
    world.wait(5)
    assert world.execute(DescribeDelays(TOPIC))[TOPIC][0].unreadable == 1
    world.configure(on_damage="skip")
    world.wait(1)
    assert state(world, bad) is DelayState.LOST
    assert world.node.next_due_ns() == float("inf")


@pytest.mark.parametrize("count", [1, 3])
def test_a_delayed_message_that_a_repair_has_given_up_is_lost_when_it_is_due(count):
    world = made()
    batch = [
        Delayed(Message(bytes(3000)), world.wall_ns + 5 * MS, b"%d" % one) for one in range(count)
    ]
    lost = [one.offset for one in world.schedule(batch)]
    good = later(world, b"good", 5)
    directory = world.node.partition(TOPIC, 0).delayed.directory
    world.take_snapshots()
    world.node.close()
    path = f"{directory}/{0:020d}.log"
    disk = tree_with(world.disk.tree(), lambda files: flipped(files, path, 150))
    repair(disk, directory)
    world.open_on(disk)
    listed = world.execute(ListDelayed(TOPIC)).messages
    assert [one.id for one in listed if "a repair" in str(one.damage)] == lost
    with pytest.raises(DamagedBatch):
        state(world, lost[0])
    world.wait(5)
    assert values(world.drain()) == [b"good"]
    for _ in range(2):
        (facts,) = world.execute(DescribeDelays(TOPIC))[TOPIC]
        assert (facts.pending, facts.lost, facts.unreadable) == (0, count, 0)
        assert {state(world, one) for one in lost} == {DelayState.LOST}
        assert state(world, good) is DelayState.DELIVERED
        world.restart()
    later(world, b"again", 5, b"0")
    world.wait(5)
    assert values(world.drain()) == [b"again"]


def crashed_with_damage(world: World, *numbers: int, byte: int, is_checkpointed: bool) -> None:
    """Change a bit in batches that no snapshot knows, so that opening has to read them, and start again."""
    with nullcontext() if is_checkpointed else no_room_for_checkpoints(world.disk):
        world.sync()
    if is_checkpointed:
        for partition in world.node.partitions():
            partition.messages.sync(with_checkpoint=True)
    chosen = [batches_of(world)[number] for number in numbers]
    world.open_on(SimDisk(with_damage(world.disk.tree(), chosen, byte=byte)))


@pytest.mark.parametrize("byte", [3, -9])
@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_a_start_behind_a_crash_goes_on_behind_damage_where_it_is_skipped(byte, is_checkpointed):
    world = made(on_damage="skip")
    for number in range(6):
        world.publish(Message(b"%d" % number, idempotency_key=b"key %d" % number))
        world.sync()
    crashed_with_damage(world, 2, byte=byte, is_checkpointed=is_checkpointed)
    assert values(world.drain()) == [b"0", b"1", b"3", b"4", b"5"]
    assert world.publish(Message(b"again", idempotency_key=b"key 5"))[0].is_duplicate


@pytest.mark.parametrize("byte", [3, -9])
@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_a_start_behind_a_crash_takes_the_damaged_batch_out_of_use_and_not_its_partition(
    byte, is_checkpointed
):
    world = made()
    for number in range(6):
        world.publish(Message(b"%d" % number, idempotency_key=b"key %d" % number))
        world.sync()
    crashed_with_damage(world, 2, 4, byte=byte, is_checkpointed=is_checkpointed)
    for _ in range(2):
        assert world.node.faults() == []
        assert values(messages_of(world.fetch(Start.at_offset(5)))) == [b"5"]
        with pytest.raises(DamagedBatch) as found:
            world.fetch(Start.at_offset(2))
        assert (found.value.offset, found.value.next_offset) == (2, 3)
        world.kill()
    assert world.publish(Message(b"again", idempotency_key=b"key 5"))[0].is_duplicate
    assert world.publish(b"more")[0].offset == 6
    assert values(world.poll()) == [b"0", b"1"]
    world.configure(on_damage="skip")
    assert values(world.drain()) == [b"3", b"5", b"more"]
    assert len(world.node.damage.newest()) == 2


def test_a_partition_that_damage_among_delayed_messages_keeps_out_of_use_is_opened_by_skip():
    world = made()
    world.publish(b"whole")
    bad, good = later(world, b"bad" + bytes(5000), 5), later(world, b"good", 5)
    world.sync()
    path = f"{world.node.partition(TOPIC, 0).delayed.directory}/{0:020d}.log"
    tree = world.disk.tree()
    data = bytearray(tree.files[path])
    data[3000] ^= 1
    world.open_on(SimDisk(Tree({**tree.files, path: bytes(data)}, tree.directories)))
    assert [fault.number for fault in world.node.faults()] == [0]
    world.configure(max_retries=4)
    assert [fault.number for fault in world.node.faults()] == [0]
    world.configure(on_damage="skip")
    assert world.node.faults() == []
    assert (state(world, bad), state(world, good)) == (DelayState.LOST, DelayState.PENDING)
    world.wait(5)
    world.node.tick(world.now())
    assert values(world.drain()) == [b"whole", b"good"]
    world.publish(b"more")
    world.kill()
    assert values(world.drain()) == [b"more"]
    assert state(world, bad) is DelayState.LOST


def random_topic(rng: random.Random, **settings: object) -> World:
    world = made(rng.choice((1, 3)), segment_size_bytes=rng.choice((700, 1 << 20)), **settings)
    number = 0
    for _ in range(rng.randrange(5, 25)):
        count = rng.randrange(1, 5)
        lane = rng.choice((0, 1, 1, 2)) if rng.random() < 0.5 else 1
        messages = [
            Message(b"%d" % (number + one), key=b"%d" % rng.randrange(9), priority=lane)
            for one in range(count)
        ]
        world.publish(*messages)
        number += count
    return world


@pytest.mark.parametrize("mode", ["shared", "strict"])
def test_with_skip_a_group_gets_exactly_what_is_outside_of_damaged_batches_once(mode, effort):
    for seed in range(effort(check=8, test=20, torture=2000)):
        rng = random.Random(f"{mode} {seed}")
        world = random_topic(rng, on_damage="skip", max_retries=-1, backoff_base_ms=0)
        finished: Counter[tuple[int, int]] = Counter()
        if rng.random() < 0.5 and mode == "shared":
            early = world.poll(rng.randrange(1, 20))
            world.ack(*early)
            finished.update((one.partition, one.offset) for one in early)
        expected = set(finished)
        for number in range(len(world.node.topic(TOPIC).partitions)):
            stored = batches_of(world, number)
            bad = sorted(rng.sample(range(len(stored)), rng.randrange(len(stored) // 2 + 1)))
            good = [one for index, one in enumerate(stored) if index not in bad]
            expected.update((number, offset) for one in good for offset in one.offsets)
            if bad:
                damage(world, *bad, partition=number, byte=rng.choice((3, -9)))
        if mode == "strict":
            world.execute(CloseGroup(GROUP, topic=TOPIC))
            world.execute(JoinGroup(GROUP, "m", (TOPIC,), mode=Mode.STRICT))
        for _ in range(500):
            if mode == "strict":
                world.now(1)
                got = world.execute(PollMember(GROUP, "m", rng.randrange(1, 9)))
            else:
                got = world.poll(rng.randrange(1, 9))
            if not got:
                break
            failed = [one for one in got if rng.random() < 0.2]
            done = [one for one in got if one not in failed]
            world.ack(*done)
            finished.update((one.partition, one.offset) for one in done)
            world.nack(*failed)
            if mode == "shared" and rng.random() < 0.1:
                world.kill()
            world.wait(1)
        assert finished == Counter(dict.fromkeys(expected, 1)), seed
        lags = world.lag(GROUP)
        assert [one.lag for one in lags] == [0] * len(lags)


def test_a_skip_survives_every_crash_or_is_done_again(effort):
    world = made(on_damage="skip")
    for number in range(6):
        world.publish(b"%d" % number)
    stored = batches_of(world)
    world.take_snapshots()
    world.node.close()
    start = with_damage(world.disk.tree(), [stored[1], stored[2], stored[4]])

    def scenario(disk: SimDisk) -> None:
        world = World(disk)
        for _ in range(3):
            got = world.poll(1)
            world.ack(*got)
            world.sync()
            disk.mark(got[0].offset)

    def check(disk: SimDisk, marks: tuple[object, ...]) -> None:
        world = World(disk)
        for _ in range(2):  # What was leased comes back, and waits for its retry.
            world.wait(31_000)
        left = [one.offset for one in world.drain()]
        assert left in ([0, 3, 5], [3, 5], [5], [])
        assert not set(left) & set(marks)
        delivery = world.node.partition(TOPIC, 0).group(GROUP)
        assert (delivery.skipped_count, delivery.progress.floor) == (3, 6)

    assert pull_the_plug(scenario, check, effort, start=start)


def test_without_the_setting_nothing_is_skipped():
    world = made()
    world.publish(b"0")
    world.publish(b"1")
    damage(world, 0)
    for _ in range(3):
        with pytest.raises(PenstockError):
            world.poll()
    assert world.node.partition(TOPIC, 0).group(GROUP).skipped_count == 0

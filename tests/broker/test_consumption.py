"""Polls over batches of every shape: the cache they are read from, gaps, damage, and what goes back unseen."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from penstock.broker import Wanted
from penstock.broker.partition import batch_cache, consumption
from penstock.broker.partition.release import give_back, give_back_all
from penstock.codec import Columns, encode
from penstock.errors import NoSpace, Refused
from penstock.sim import SimDisk

from .world import GROUP, TOPIC, World, values


@settings(max_examples=30)
@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=12),
    st.sampled_from(["none", "zstd"]),
    st.lists(st.tuples(st.integers(1, 5), st.sets(st.integers(0, 4))), max_size=20),
)
def test_whatever_the_batches_every_message_comes_in_order(sizes, compression, polls) -> None:
    """Polls of any size that ack some and nack the rest: new ones in order, old ones before new ones."""
    world = World()
    world.topic(compression=compression, segment_size_bytes=700, max_retries=-1)
    world.group()
    number = 0
    for size in sizes:
        world.publish(*[b"%d" % one for one in range(number, number + size)])
        number += size
    expected = list(range(number))
    for limit, acked in polls:
        held = world.poll(limit)
        assert [one.offset for one in held] == expected[:limit]
        assert values(held) == [b"%d" % one.offset for one in held]
        done = [one for place, one in enumerate(held) if place in acked]
        world.ack(*done)
        world.nack(*[one for one in held if one not in done], delay_ms=0)
        expected = [one for one in expected if one not in {held.offset for held in done}]
    assert [one.offset for one in world.drain()] == expected


def test_every_partition_has_its_turn_before_the_first_has_it_again() -> None:
    """Whatever the others hold: in as many polls as there are partitions each gives something."""
    world = World()
    world.topic(partitions=4)
    world.group()
    for number in range(40):
        for partition in (0, 1, 3):
            world.publish(b"%d" % number, partition=partition)
    for _ in range(5):
        # Less than a poll takes.
        world.publish(b"few", partition=2)
        given = {one.partition for _ in range(4) for one in world.poll(3)}
        assert given == {0, 1, 2, 3}


def test_a_cache_smaller_than_one_read_still_gives_every_batch(monkeypatch) -> None:
    """A read may bring more, once unpacked, than the cache may hold."""
    monkeypatch.setattr(batch_cache, "_CACHE_BYTES", 1000)
    world = World()
    world.topic(compression="zstd")
    world.group()
    for number in range(30):
        world.publish(b"%02d" % number * 2000)
    assert [one.value[:2] for one in world.poll()] == [b"%02d" % number for number in range(30)]


def test_two_groups_far_apart_read_through_one_cache(monkeypatch) -> None:
    monkeypatch.setattr(batch_cache, "_READS_MAX", 1)
    monkeypatch.setattr(batch_cache, "_READ_BYTES", 300)
    world = World()
    world.topic()
    world.group()
    world.group("behind")
    for number in range(40):
        world.publish(b"%d" % number)
    world.ack(*world.poll(30))
    for number in range(10):
        assert values(world.poll(1)) == [b"%d" % (30 + number)]
        assert values(world.poll(1, group="behind")) == [b"%d" % number]


def damaged(world: World, value: bytes) -> World:
    """The same data with one bit changed in a value, and a node that finds it."""
    world.take_snapshots()
    world.node.close()
    tree = world.disk.tree()
    files = {
        path: data.replace(value, bytes([value[0] ^ 1]) + value[1:])
        if "/messages/" in path and path.endswith(".log")
        else data
        for path, data in tree.files.items()
    }
    world.open_on(SimDisk(type(tree)(files, tree.directories)))
    return world


def test_a_damaged_dead_letter_arrives_without_its_payload() -> None:
    world = World()
    world.topic(max_retries=0)
    world.group()
    world.publish(b"damaged")
    world.reject(*world.poll(), error="why")
    damaged(world, b"damaged")
    world.settle()
    (letter,) = world.letters()
    assert letter.message.value is None
    assert letter.provenance.last_error.startswith("why (the message cannot be read: ")


def test_what_nobody_looked_at_goes_back_as_if_it_had_never_left() -> None:
    world = World()
    world.topic()
    world.group()
    world.publish(b"a", b"b", b"c")
    held = world.poll(3)
    partition = world.node.partition(TOPIC, 0)
    delivery = partition.group(GROUP)
    world.ack(held[0])
    give_back(partition, delivery, held[1].lease, BitMap64([0, 1]), world.now())
    again = world.poll(1)
    assert [(one.value, one.attempts) for one in again] == [(b"b", 1)]
    give_back_all(partition, delivery, "m", world.now())
    assert [(one.value, one.attempts) for one in world.poll()] == [(b"b", 1), (b"c", 1)]


def test_the_number_of_ready_messages_is_known() -> None:
    world = World()
    world.topic()
    world.group()
    partition = world.node.partition(TOPIC, 0)
    delivery = partition.group(GROUP)
    assert consumption.ready_count(partition, delivery) == 0
    world.publish(b"a", b"b", b"c")
    assert consumption.ready_count(partition, delivery) == 3
    held = world.poll(2)
    assert consumption.ready_count(partition, delivery) == 1
    world.nack(held[0], delay_ms=100)
    assert consumption.ready_count(partition, delivery) == 1
    world.wait(100)
    assert consumption.ready_count(partition, delivery) == 2


@pytest.mark.parametrize("duration_ms", [0, -1, 12 * 3600 * 1000 + 1])
def test_a_lease_has_to_last_for_a_while_and_not_for_ever(duration_ms) -> None:
    world = World()
    world.topic()
    world.group()
    with pytest.raises(Refused):
        world.poll(ms=duration_ms)


def test_a_lease_holds_at_most_ten_thousand_messages() -> None:
    world = World()
    world.topic(max_in_flight=50_000, max_in_flight_per_consumer=50_000)
    world.group()
    partition = world.node.partition(TOPIC, 0)
    for _ in range(12):
        partition.append(encode(Columns(values=[b"x"] * 1000)), world.now())
    delivery = partition.group(GROUP)
    wanted = Wanted("m", 50_000, 1000)
    assert len(consumption.poll(partition, delivery, wanted, world.now())) == 10_000
    assert len(consumption.poll(partition, delivery, wanted, world.now())) == 2000


def test_many_leases_that_end_together_end_quickly() -> None:
    world = World()
    world.topic(max_in_flight=5000, max_in_flight_per_consumer=5000, max_retries=0)
    world.group()
    world.publish(*[b"x"] * 1000)
    for _ in range(1000):
        world.poll(1)
    world.wait(30_000)
    delivery = world.node.partition(TOPIC, 0).group(GROUP)
    assert (delivery.leases.in_flight, delivery.dead_count) == (0, 1000)


def test_a_snapshot_of_a_group_with_very_many_holes_can_be_written_and_read() -> None:
    world = World()
    world.topic(max_in_flight=10**6, max_in_flight_per_consumer=10**6)
    world.group()
    partition = world.node.partition(TOPIC, 0)
    for _ in range(40):
        partition.append(encode(Columns(values=[b"x"] * 1000)), world.now())
    delivery = partition.group(GROUP)
    while held := consumption.poll(partition, delivery, Wanted("m", 10_000, 60_000), world.now()):
        odd = BitMap64([one.offset for one in held if one.offset % 2])
        consumption.ack(partition, delivery, held[0].lease, odd, world.now())
        even = BitMap64([one.offset for one in held if not one.offset % 2])
        consumption.nack(partition, delivery, held[0].lease, even, world.now(), error="e" * 300)
    before = delivery.progress
    world.restart()
    after = world.node.partition(TOPIC, 0).group(GROUP)
    assert after.progress == before
    assert len(after.failures) == 20_000


def test_a_poll_without_room_for_its_record_hands_out_nothing() -> None:
    world = World()
    world.topic()
    world.group()
    world.publish(b"a")
    world.disk.capacity_bytes = 0
    with pytest.raises(NoSpace):
        world.poll()
    world.disk.capacity_bytes = 1 << 40
    assert [one.attempts for one in world.poll()] == [1]


def test_of_all_that_a_member_held_only_the_oldest_message_keeps_the_attempt() -> None:
    world = World()
    world.topic()
    world.group()
    world.publish(*[b"x"] * 6)
    for _ in range(3):
        assert len(world.poll(2)) == 2
    world.release("m")
    assert {one.offset: one.attempts for one in world.poll()} == {
        0: 2,
        1: 1,
        2: 1,
        3: 1,
        4: 1,
        5: 1,
    }

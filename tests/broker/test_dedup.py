"""Idempotency keys: one message for all repeats, as long as the window lasts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api.publish import Delayed
from penstock.broker.partition.dedup import Dedup
from penstock.broker.partition.partitioner import partition_of
from penstock.model import Message

from .world import HOUR_MS, MS, TOPIC, World, values

MINUTE_MS = 60 * 1000
STOPS = pytest.mark.parametrize("stop", ["restart", "kill"])


def send(world: World, key: bytes, value: bytes = b"v", **options) -> tuple[int, int, bool]:
    (result,) = world.publish(Message(value, idempotency_key=key), **options)
    return result.partition, result.offset, result.is_duplicate


def test_a_hundred_repeats_store_one_message() -> None:
    world = World()
    world.topic(partitions=3)
    results = [send(world, b"once") for _ in range(50)]
    results += [
        (one.partition, one.offset, one.is_duplicate)
        for one in world.publish(*[Message(b"v", idempotency_key=b"once")] * 50)
    ]
    assert [one[2] for one in results] == [False] + [True] * 99
    assert len({one[:2] for one in results}) == 1
    assert sum(one.messages for one in world.describe()) == 1


def test_repeats_within_one_call_store_one_and_keep_the_order_of_answers() -> None:
    world = World()
    world.topic()
    results = world.publish(
        b"plain",
        Message(b"1", idempotency_key=b"a"),
        Message(b"2", idempotency_key=b"b"),
        Message(b"3", idempotency_key=b"a"),
        b"plain",
        partition=0,
    )
    assert [(one.offset, one.is_duplicate) for one in results] == [
        (0, False),
        (1, False),
        (2, False),
        (1, True),
        (3, False),
    ]


@STOPS
def test_keys_are_remembered_through_a_restart(stop) -> None:
    world = World()
    world.topic()
    first = send(world, b"a")
    getattr(world, stop)()
    assert send(world, b"a") == (*first[:2], True)
    world.node.partition(TOPIC, 0).take_snapshot()
    send(world, b"b")
    world.sync()
    getattr(world, stop)()
    assert send(world, b"a")[2]
    assert send(world, b"b")[2]
    assert not send(world, b"c")[2]


@STOPS
def test_keys_are_remembered_when_retention_has_taken_their_messages(stop) -> None:
    world = World()
    world.topic(retention_hours=1, dedup_window_ms=100 * HOUR_MS)
    send(world, b"a")
    world.now(2 * HOUR_MS)
    assert world.sweep()[TOPIC].segments_removed == 1
    getattr(world, stop)()
    assert send(world, b"a") == (0, 0, True)


def test_a_key_is_free_again_after_its_window() -> None:
    world = World()
    world.topic(dedup_window_ms=10 * MINUTE_MS)
    send(world, b"a")
    world.now(10 * MINUTE_MS)
    assert send(world, b"a") == (0, 0, True)
    world.now(1)
    assert send(world, b"a") == (0, 1, False)
    world.now(5 * MINUTE_MS)
    assert send(world, b"a") == (0, 1, True)


def test_a_window_of_zero_forgets_at_once() -> None:
    world = World()
    world.topic(dedup_window_ms=0)
    send(world, b"a")
    world.now(1)
    assert not send(world, b"a")[2]


def test_the_oldest_key_goes_when_there_are_too_many() -> None:
    world = World()
    world.topic(dedup_keys_max=3)
    for key in (b"a", b"b", b"c", b"d"):
        send(world, key)
    assert [send(world, key)[2] for key in (b"b", b"c", b"d")] == [True] * 3
    assert not send(world, b"a")[2]
    world.kill()
    assert len(world.node.partition(TOPIC, 0).machine.dedup.kept) == 3


@STOPS
def test_the_oldest_key_goes_also_if_its_message_was_delayed(stop) -> None:
    """After a start keys come from two logs, one after the other, and have to be in the order of time again."""
    world = World()
    world.topic(dedup_keys_max=2)
    oldest = Delayed(Message(b"v", idempotency_key=b"oldest"), world.wall_ns + 9 * HOUR_MS * MS)
    world.schedule([oldest], after_ms=1)
    world.now(1)
    send(world, b"older")
    getattr(world, stop)()
    world.now(1)
    send(world, b"newest")
    assert [send(world, key)[2] for key in (b"older", b"newest")] == [True, True]
    (again,) = world.schedule([oldest], after_ms=1)
    assert not again.is_duplicate


def test_new_settings_hold_at_once() -> None:
    world = World()
    world.topic()
    send(world, b"a")
    world.configure(dedup_window_ms=5)
    world.now(6)
    assert not send(world, b"a")[2]


def moved_key(before: int, after: int) -> bytes:
    """A key whose home is another one when partitions are added."""
    keys = (b"k%d" % number for number in range(1000))
    return next(key for key in keys if partition_of(key, before) != partition_of(key, after))


@STOPS
def test_after_partitions_were_added_the_old_home_is_asked_too(stop) -> None:
    world = World()
    world.topic(partitions=2)
    first, second = moved_key(2, 3), moved_key(2, 5)
    places = [send(world, key)[:2] for key in (first, second)]
    world.now(MINUTE_MS)
    world.grow(3)
    world.now(MINUTE_MS)
    world.grow(5)
    getattr(world, stop)()
    assert send(world, first) == (*places[0], True)
    assert send(world, second) == (*places[1], True)
    world.now(20 * MINUTE_MS)
    assert send(world, second) == (partition_of(second, 5), 0, False)


def test_a_keyed_message_is_sought_where_its_key_was() -> None:
    world = World()
    world.topic(partitions=2)
    key = moved_key(2, 3)
    message = Message(b"v", key, idempotency_key=b"i")
    (first,) = world.publish(message)
    world.grow(3)
    (again,) = world.publish(message)
    assert (again.partition, again.offset, again.is_duplicate) == (first.partition, 0, True)


def test_a_repeat_waits_for_the_original_to_be_durable() -> None:
    world = World()
    world.topic()
    world.publish(b"before", partition=0)
    send(world, b"a")
    (again,) = world.publish(Message(b"v", idempotency_key=b"a"))
    log = world.node.partition(TOPIC, 0).messages
    assert again.is_duplicate
    assert log.durable_end < again.durable_at <= log.end_offset


def test_a_long_key_is_as_good_as_a_short_one() -> None:
    world = World()
    world.topic()
    long = b"x" * 60_000
    assert not send(world, long + b"1")[2]
    assert not send(world, long + b"2")[2]
    world.kill()
    assert send(world, long + b"1") == (0, 0, True)
    assert max(map(len, world.node.partition(TOPIC, 0).machine.dedup.kept)) < 100


def test_a_dead_letter_frees_nothing_and_is_no_repeat() -> None:
    world = World()
    world.topic(max_retries=0)
    world.group()
    send(world, b"a")
    world.reject(*world.poll())
    world.settle()
    assert send(world, b"a") == (0, 0, True)
    assert len(world.letters()) == 1


def test_one_key_in_two_topics_is_two_keys() -> None:
    world = World()
    world.topic()
    world.topic(name="other")
    assert not send(world, b"a")[2]
    assert not send(world, b"a", topic="other")[2]


def test_compressed_messages_have_keys_too() -> None:
    world = World()
    world.topic(compression="zstd")
    world.group()
    first = send(world, b"a", b"z" * 2000)
    world.kill()
    assert send(world, b"a", b"z" * 2000) == (*first[:2], True)
    assert values(world.drain()) == [b"z" * 2000]


@given(
    st.lists(st.tuples(st.binary(max_size=1), st.integers(0, 8)), max_size=60), st.integers(1, 4)
)
def test_it_is_a_list_of_the_last_keys(steps, keys_max) -> None:
    dedup, naive, now = Dedup(window_ns=10, keys_max=keys_max), [], 0
    for offset, (key, passed) in enumerate(steps):
        now += passed
        naive = [one for one in naive if now - one[2] <= 10]
        found = dedup.find(key, now)
        expected = [one[1] for one in naive if one[0] == key]
        assert [found.offset] == expected if expected else found is None
        if found is None:
            dedup.add([key, None], [offset, offset], now)
            # An empty key is none.
            naive = [*naive, *[(key, offset, now)] * bool(key)][-keys_max:]
        assert len(dedup.kept) <= keys_max

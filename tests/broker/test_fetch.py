"""Reading by offset and by time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api.fetch import Fetch
from penstock.api.start import EARLIEST, LATEST, Start
from penstock.errors import NotFound, OffsetOutOfRange, Refused
from penstock.model import Message

from .world import TOPIC, World, messages_of, values


def world_of(*sizes: int, **settings: object) -> World:
    """Batches of so many messages each, a second apart."""
    world, number = World(), 0
    world.topic(**settings)
    for size in sizes:
        world.publish(*[b"%d" % one for one in range(number, number + size)])
        number += size
        world.now(1000)
    return world


def test_whole_batches_come_and_the_reader_trims() -> None:
    world = world_of(5, 5, 5)
    fetched = world.fetch(Start.at_offset(7), limit=1)
    assert fetched.next_offset == 10
    assert values(messages_of(fetched)) == [b"7", b"8", b"9"]
    assert fetched.wake_at is None
    assert (fetched.start_offset, fetched.end_offset) == (0, 15)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=8), st.data())
def test_a_reader_that_follows_the_next_offset_sees_every_message_once(sizes, data) -> None:
    world = world_of(*sizes, segment_size_bytes=600)
    start = data.draw(st.integers(0, sum(sizes)))
    seen, offset = [], start
    while True:
        bytes_max = data.draw(st.sampled_from([1, 300, 10_000]))
        fetched = world.fetch(Start.at_offset(offset), bytes_max=bytes_max, limit=2)
        if fetched.wake_at is not None:
            break
        seen += values(messages_of(fetched))
        offset = fetched.next_offset
    assert fetched.wake_at == sum(sizes)
    assert seen == [b"%d" % number for number in range(start, sum(sizes))]


def test_at_the_end_there_is_nothing_yet_and_a_place_to_wait_for() -> None:
    world = world_of(2)
    fetched = world.fetch(LATEST)
    assert (fetched.wake_at, fetched.next_offset, messages_of(fetched)) == (2, 2, [])
    world.publish(b"new")
    assert values(messages_of(world.fetch(Start.at_offset(fetched.wake_at)))) == [b"new"]


def test_by_time_it_starts_with_the_first_batch_appended_then_or_later() -> None:
    world = world_of(2, 2, 2)
    begin_ns = world.wall_ns - 3_000_000_000
    for delta_ns, first in ((-5, b"0"), (0, b"0"), (1, b"2"), (1_500_000_000, b"4")):
        assert messages_of(world.fetch(Start.at_time(begin_ns + delta_ns)))[0].value == first
    assert world.fetch(Start.at_time(begin_ns + 2_000_000_001)).wake_at == 6


def test_outside_of_the_log_is_refused() -> None:
    world = world_of(2)
    for wrong in (-1, 3):
        with pytest.raises(OffsetOutOfRange):
            world.fetch(Start.at_offset(wrong))
    for wrong in ({"limit": 0}, {"bytes_max": 0}):
        with pytest.raises(Refused):
            world.fetch(EARLIEST, **wrong)
    with pytest.raises(NotFound):
        world.fetch(partition=1)


def test_a_reader_sees_expired_messages_with_their_time() -> None:
    world = World()
    world.topic(ttl_ms=10)
    world.publish(b"short")
    end_ns = world.wall_ns + 10_000_000
    world.now(60_000)
    (message,) = messages_of(world.fetch())
    assert (message.value, message.expires_at) == (b"short", end_ns)


def test_a_reader_of_dead_letters_sees_what_is_stored() -> None:
    world = World()
    world.topic(max_retries=0)
    world.group()
    world.publish(Message(b"a", headers=(("h", b"1"),)))
    world.reject(*world.poll())
    world.settle()
    (message,) = messages_of(world.execute(Fetch(TOPIC + ".dlq", 0)))
    assert [name for name, _ in message.headers] == ["h", "__penstock.dead_letter"]

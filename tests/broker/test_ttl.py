"""Time to live: what is over is never delivered, whatever became of it before."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.api.publish import PublishBatch
from penstock.codec import Marks, encode_messages
from penstock.config import TtlAction
from penstock.model import Message

from .world import GROUP, MS, TOPIC, Answered, World, values

STOPS = pytest.mark.parametrize("stop", ["restart", "kill"])


def expiring(world: World, value: bytes, ms: float) -> Message:
    return Message(value, expires_at=world.wall_ns + int(ms * MS))


@STOPS
def test_an_expired_message_is_dropped_and_counted(stop) -> None:
    world = World()
    world.topic()
    world.group()
    world.publish(expiring(world, b"a", 100), b"b", expiring(world, b"c", 200), partition=0)
    world.now(100)
    getattr(world, stop)()
    assert values(world.drain()) == [b"b", b"c"]
    assert world.node.partition(TOPIC, 0).group(GROUP).expired_count == 1
    assert world.lag(GROUP)[0].floor == 3


@STOPS
@pytest.mark.parametrize(
    "marks", [Marks(), Marks(producer_id=7, producer_epoch=0, first_sequence=0)]
)
def test_a_topic_s_time_to_live_holds_for_a_batch_that_says_nothing_of_it(stop, marks) -> None:
    world = World()
    world.topic(ttl_ms=100)
    world.group()
    batch = encode_messages([Message(b"a"), expiring(world, b"b", 300)], marks=marks).to_bytes()
    for _ in range(2 if marks.producer_id >= 0 else 1):
        first, _ = world.execute(PublishBatch(TOPIC, 0, batch)).stored
        assert first.offset == 0
    world.now(150)
    getattr(world, stop)()
    assert values(world.drain()) == [b"b"]
    assert world.node.partition(TOPIC, 0).group(GROUP).expired_count == 1


def test_it_lives_until_the_last_nanosecond_before() -> None:
    world = World()
    world.topic()
    world.group()
    world.publish(expiring(world, b"a", 1), expiring(world, b"b", 1))
    world.wall_ns += MS - 1
    assert values(world.poll(1)) == [b"a"]
    world.wall_ns += 1
    assert world.poll(1) == []


@STOPS
def test_where_the_topic_says_so_it_becomes_a_dead_letter(stop) -> None:
    world = World()
    world.topic(ttl_ms=100, ttl_action=TtlAction.DEAD_LETTER)
    world.group()
    world.publish(b"a", b"b", b"c", partition=0)
    world.nack(world.poll(1, member="ann")[0], error="first", delay_ms=50)
    world.wait(100)
    world.publish(b"fresh")
    assert values(world.drain()) == [b"fresh"]
    world.sync()
    getattr(world, stop)()
    world.settle()
    letters = world.letters()
    assert values([one.message for one in letters]) == [b"a", b"b", b"c"]
    assert {one.provenance.dlq_reason for one in letters} == {"TTL_EXPIRED"}
    assert [one.provenance.delivery_attempts for one in letters] == [1, 0, 0]
    assert [one.provenance.last_consumer for one in letters] == ["ann", "", ""]
    assert [one.message.expires_at for one in letters] == [None] * 3
    assert world.node.partition(TOPIC, 0).group(GROUP).dead_count == 3


def test_who_holds_it_may_finish_it_after_it_expired_but_nobody_gets_it_again() -> None:
    world = World()
    world.topic(ttl_ms=100)
    world.group()
    world.publish(b"a", b"b", b"c")
    first, second, third = world.poll()
    world.now(200)
    assert isinstance(world.ack(first)[0], Answered)
    world.nack(second, delay_ms=0)
    assert world.poll() == []
    assert world.node.partition(TOPIC, 0).group(GROUP).expired_count == 1
    world.wait(40_000)
    world.wait(2000)
    assert world.poll() == []
    assert world.ack(third)[0].code == "STALE_RECEIPT"
    assert world.lag(GROUP)[0].lag == 0


def test_a_message_of_its_own_wins_over_the_topic() -> None:
    world = World()
    world.topic(ttl_ms=100)
    world.group()
    world.publish(expiring(world, b"long", 10_000), b"usual", expiring(world, b"short", 10))
    world.now(50)
    assert values(world.poll(1)) == [b"long"]
    assert values(world.poll()) == [b"usual"]
    world.now(5000)
    assert world.poll() == []


def test_a_message_that_is_over_when_it_comes_is_stored_and_never_delivered() -> None:
    world = World()
    world.topic()
    world.group()
    (result,) = world.publish(expiring(world, b"late", -5))
    assert result.offset == 0
    assert world.poll() == []
    assert world.describe()[0].messages == 1


@pytest.mark.parametrize("limit", [1, 7])
def test_one_poll_gets_past_any_number_of_expired_messages(limit) -> None:
    world = World()
    world.topic(ttl_ms=100)
    world.group()
    for _ in range(30):
        world.publish(*[b"old"] * 1000)
    world.now(200)
    world.publish(b"new")
    assert values(world.poll(limit)) == [b"new"]
    delivery = world.node.partition(TOPIC, 0).group(GROUP)
    assert delivery.expired_count == 30_000
    assert world.node.partition(TOPIC, 0).journal.log.end_offset < 40


def test_expired_retries_do_not_hide_what_is_behind_them() -> None:
    world = World()
    world.topic(ttl_ms=1000, max_retries=-1)
    world.group()
    world.publish(*[b"old"] * 500)
    world.nack(*world.poll(500), delay_ms=0)
    world.now(2000)
    world.publish(b"new")
    assert values(world.poll(1)) == [b"new"]


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(1, 40)), min_size=1, max_size=30),
    st.integers(0, 40),
    st.integers(1, 9),
    st.sampled_from(TtlAction),
)
def test_of_any_mixture_exactly_the_living_are_delivered_in_order(lives, ms, limit, action) -> None:
    world = World()
    world.topic(ttl_action=action)
    world.group()
    messages = [
        expiring(world, b"%d" % number, life) if is_mortal else Message(b"%d" % number)
        for number, (is_mortal, life) in enumerate(lives)
    ]
    for message in messages:
        world.publish(message)
    world.now(ms)
    alive = [
        message.value
        for message, (is_mortal, life) in zip(messages, lives, strict=True)
        if not is_mortal or life > ms
    ]
    got = []
    while held := world.poll(limit):
        got += values(held)
        world.ack(*held)
    assert got == alive
    delivery = world.node.partition(TOPIC, 0).group(GROUP)
    assert delivery.progress.floor == len(lives)
    assert delivery.expired_count + delivery.dead_count == len(lives) - len(alive)

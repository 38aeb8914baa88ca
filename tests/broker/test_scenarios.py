"""What a queue has to do, told as stories, with a restart in the middle of each."""

import random

import pytest

from penstock.api.groups import CloseGroup
from penstock.api.start import LATEST
from penstock.broker.partition.dead_letters import message_at
from penstock.errors import BacklogFull, NotFound, StaleReceipt
from penstock.model import Message

from .world import GROUP, HOUR_MS, TOPIC, Answered, World, values

STOPS = pytest.mark.parametrize("stop", ["restart", "kill"])


@STOPS
def test_two_groups_with_several_members_and_acks_out_of_order_get_everything_once(stop) -> None:
    world, dice = World(), random.Random(3)
    world.topic(partitions=3)
    sent = [b"%d" % number for number in range(120)]
    for group in ("left", "right"):
        world.group(group)
    for first in range(0, 120, 10):
        world.publish(*[Message(value, key=value) for value in sent[first : first + 10]])
    got: dict[str, list[bytes]] = {"left": [], "right": []}
    for turn in range(60):
        for group, seen in got.items():
            held = [*world.poll(7, member=f"m{turn % 4}", group=group)]
            dice.shuffle(held)
            world.ack(*held)
            seen += values(held)
        if turn == 4:
            getattr(world, stop)()
    for seen in got.values():
        assert sorted(seen) == sorted(sent)


@STOPS
def test_acking_five_before_three_never_loses_three(stop) -> None:
    world = World()
    world.topic()
    world.group()
    world.publish(*[b"%d" % number for number in range(8)])
    held = world.poll()
    world.ack(held[5], held[0])
    world.sync()
    getattr(world, stop)()
    progress = world.node.partition(TOPIC, 0).group(GROUP).progress
    assert progress.floor == 1
    assert list(progress.finished) == [5]
    world.wait(40_000)
    world.wait(2000)
    assert values(world.drain()) == [b"1", b"2", b"3", b"4", b"6", b"7"]


@STOPS
def test_a_message_fails_four_times_and_becomes_a_dead_letter_with_every_field(stop) -> None:
    world = World()
    world.topic()
    world.group()
    message = Message(b"bad", b"key", (("h", b"1"), ("h", b"2")), 1, 123, schema_id=9)
    world.publish(message, b"good")
    first, other = world.poll()
    world.ack(other)
    started_ns = world.wall_ns
    world.nack(first, error="boom 1")
    for attempt, backoff_ms in ((2, 1000), (3, 2000), (4, 4000)):
        world.wait(backoff_ms - 1)
        assert world.poll() == []
        world.wait(1)
        if attempt == 3:
            world.sync()
            getattr(world, stop)()
            world.wait(2000)  # After a restart a retry waits again.
        (again,) = world.poll(member=f"m{attempt}")
        assert (again.value, again.attempts) == (b"bad", attempt)
        assert again.receipt.split(":")[3] == str(attempt)
        last_ns = world.wall_ns
        world.nack(again, error=f"boom {attempt}")
    died_ns = world.wall_ns
    world.settle()
    assert world.node.partition(TOPIC, 0).group(GROUP).progress.floor == 2
    assert world.drain() == []
    (letter,) = world.letters()
    assert letter.message == Message(
        b"bad", b"key", (("h", b"1"), ("h", b"2")), 1, 123, schema_id=9, offset=0
    )
    story = letter.provenance
    assert (story.original_topic, story.original_partition, story.original_offset) == (TOPIC, 0, 0)
    assert (story.delivery_attempts, story.dlq_reason) == (4, "MAX_RETRIES_EXCEEDED")
    assert (story.first_delivery, story.last_delivery) == (started_ns, last_ns)
    assert (story.last_consumer, story.group, story.last_error) == ("m4", GROUP, "boom 4")
    assert (story.original_timestamp, story.dlq_timestamp) == (123, died_ns)


def test_no_retries_means_a_dead_letter_on_the_first_failure() -> None:
    world = World()
    world.topic(max_retries=0)
    world.group()
    world.publish(b"x")
    world.nack(*world.poll(), error="once")
    world.settle()
    assert [one.provenance.delivery_attempts for one in world.letters()] == [1]


def test_minus_one_is_retried_for_ever() -> None:
    world = World()
    world.topic(max_retries=-1, backoff_max_ms=10)
    world.group()
    world.publish(b"x")
    for attempt in range(1, 60):
        (held,) = world.poll()
        assert held.attempts == attempt
        world.nack(held)
        world.wait(10)
    world.settle()
    assert world.letters() == []


def test_one_slow_message_blocks_nobody() -> None:
    world = World()
    world.topic()
    world.group()
    world.publish(*[b"%d" % number for number in range(50)])
    (slow,) = world.poll(1, member="slow")
    rest = world.drain()
    assert slow.value == b"0"
    assert values(rest) == [b"%d" % number for number in range(1, 50)]
    assert world.lag(GROUP)[0][4:8] == (1, 0.0, 1, 49)
    world.ack(slow)
    assert world.lag(GROUP)[0].floor == 50


@STOPS
def test_every_returned_offset_of_many_producers_is_readable(stop) -> None:
    world, dice = World(), random.Random(5)
    world.topic(partitions=2, segment_size_bytes=4096)
    stored: dict[tuple[int, int], bytes] = {}
    for number in range(200):
        value = dice.randbytes(dice.choice([0, 1, 100, 3000]))
        for result in world.publish(Message(value, key=b"%d" % (number % 8))):
            stored[result.partition, result.offset] = value
    getattr(world, stop)()
    for number in (0, 1):
        log = world.node.partition(TOPIC, number).messages
        assert log.end_offset == sum(1 for place in stored if place[0] == number)
    for (number, offset), value in stored.items():
        assert message_at(world.node.partition(TOPIC, number), offset).value == value


@STOPS
def test_an_in_flight_limit_of_one_hands_out_one_at_a_time(stop) -> None:
    world = World()
    world.topic(max_in_flight=1)
    world.group()
    world.publish(b"a", b"b", b"c")
    seen = []
    for _ in range(3):
        (held,) = world.poll(member="x")
        assert world.poll(member="y") == []
        getattr(world, stop)()
        assert world.poll(member="y") == []
        seen.append(held.value)
        world.ack(held)
    assert seen == [b"a", b"b", b"c"]


def test_a_consumer_at_its_own_limit_waits_while_others_go_on() -> None:
    world = World()
    world.topic(max_in_flight_per_consumer=2)
    world.group()
    world.publish(b"a", b"b", b"c", b"d")
    first = world.poll(member="x")
    assert values(first) == [b"a", b"b"]
    assert world.poll(member="x") == []
    assert values(world.poll(member="y")) == [b"c", b"d"]
    world.ack(first[1])
    assert world.poll(member="x") == []


@STOPS
def test_after_a_lease_has_expired_the_old_receipt_is_refused_and_the_new_one_works(stop) -> None:
    world = World()
    world.topic()
    world.group()
    world.publish(b"a")
    (old,) = world.poll(ms=1000)
    world.now(1000)
    (refusal,) = world.ack(old)
    assert isinstance(refusal, StaleReceipt)
    assert old.receipt in str(refusal)
    world.wait(1000)
    (new,) = world.poll(member="other")
    assert new.attempts == 2
    getattr(world, stop)()
    assert isinstance(world.ack(old)[0], StaleReceipt)
    assert isinstance(world.nack(old)[0], StaleReceipt)
    assert world.ack(new)[0].floor == 1


def test_a_restart_grants_a_lease_its_full_time_again() -> None:
    world = World()
    world.topic()
    world.group()
    world.publish(b"a")
    (held,) = world.poll(ms=1000)
    world.wait(900)
    world.kill()
    world.wait(900)
    assert isinstance(world.ack(held)[0], Answered)


@STOPS
def test_a_topic_that_was_deleted_and_recreated_shows_nothing_old(stop) -> None:
    world = World()
    world.topic(max_retries=0)
    world.group()
    world.publish(b"old", b"older", Message(b"keyed", idempotency_key=b"i"))
    old = world.poll()
    world.nack(old[0])
    world.settle()
    assert len(world.letters()) == 1
    world.delete()
    with pytest.raises(NotFound):
        world.publish(b"nowhere")
    getattr(world, stop)()
    world.topic()
    with pytest.raises(NotFound):
        world.lag()
    assert world.letters() == []
    assert world.poll() == []
    (new,) = world.publish(Message(b"new", idempotency_key=b"i"))
    assert (new.offset, new.is_duplicate) == (0, False)
    assert isinstance(world.ack(old[1])[0], NotFound)
    assert values(world.drain()) == [b"new"]


def test_backlog_limits_refuse_with_numbers_and_recover() -> None:
    world = World()
    world.topic(max_backlog_messages=3)
    world.publish(b"a", b"b")
    world.group()
    with pytest.raises(BacklogFull) as refusal:
        world.publish(b"c", b"d")
    assert refusal.value.fields == {
        "reason": "backlog_messages",
        "found": 2,
        "adding": 2,
        "limit": 3,
        "retry_after_ms": 1000,
    }
    assert world.node.partition(TOPIC, 0).messages.end_offset == 2
    world.publish(b"c")
    world.ack(*world.poll(2))
    world.publish(b"d", b"e")
    with pytest.raises(BacklogFull):
        world.publish(b"f")


def test_a_backlog_in_bytes_counts_from_the_slowest_group() -> None:
    world = World()
    world.topic(max_backlog_bytes=6000)
    world.group("slow")
    world.group("fast")
    for _ in range(5):
        world.publish(b"x" * 1000)
        world.drain(group="fast")
    with pytest.raises(BacklogFull) as refusal:
        world.publish(b"x" * 1000)
    assert refusal.value.fields["reason"] == "backlog_bytes"
    assert 5000 < refusal.value.fields["found"] < 6000
    assert refusal.value.fields["found"] + refusal.value.fields["adding"] > 6000
    world.drain(group="slow")
    world.publish(b"goes on")


@STOPS
def test_every_byte_comes_back_equal(stop) -> None:
    world = World()
    world.topic()
    world.group()
    every = bytes(range(256))
    headers = (("a", every), ("a", b""), ("é", every[::-1]))
    world.publish(
        Message(every, every, headers), Message(None, None), Message(b"", b""), partition=0
    )
    getattr(world, stop)()
    first, nothing, empty = world.poll()
    assert (first.value, first.key, first.headers) == (every, every, headers)
    assert (nothing.value, nothing.key) == (None, None)
    assert (empty.value, empty.key) == (b"", b"")


def test_a_consumer_that_leaves_gives_everything_back_and_only_the_oldest_counts() -> None:
    world = World()
    world.topic()
    world.group()
    world.publish(b"a", b"b", b"c")
    world.poll(2)
    world.poll(1)
    world.release("m")
    again = world.poll(member="other")
    assert [(one.value, one.attempts) for one in again] == [(b"a", 2), (b"b", 1), (b"c", 1)]


@STOPS
def test_a_message_that_makes_its_consumers_leave_becomes_a_dead_letter(stop) -> None:
    world = World()
    world.topic(max_retries=2)
    world.group()
    world.publish(b"killer", b"bystander")
    for attempt in (1, 2, 3):
        held = world.poll(member=f"m{attempt}")
        assert held[0].attempts == attempt
        world.release(f"m{attempt}")
        world.sync()
        getattr(world, stop)()
    world.settle()
    (letter,) = world.letters()
    assert letter.message.value == b"killer"
    assert letter.provenance.delivery_attempts == 3
    assert letter.provenance.last_error == "consumer went away"
    assert [(one.value, one.attempts) for one in world.poll()] == [(b"bystander", 1)]


def test_groups_never_disturb_each_other() -> None:
    world = World()
    world.topic()
    for group in ("one", "two"):
        world.group(group)
    world.publish(b"a", b"b")
    mine = world.poll(group="one")
    theirs = world.poll(group="two")
    assert values(mine) == values(theirs) == [b"a", b"b"]
    world.nack(mine[0])
    world.ack(theirs[0])
    assert world.node.partition(TOPIC, 0).group("one").progress.floor == 0
    assert world.node.partition(TOPIC, 0).group("two").progress.floor == 1
    world.execute(CloseGroup("one", topic=TOPIC))
    assert isinstance(world.ack(mine[1])[0], StaleReceipt)
    assert world.ack(theirs[1])[0].floor == 2


def test_a_poll_goes_round_the_partitions() -> None:
    world = World()
    world.topic(partitions=3)
    world.group()
    for number in range(3):
        world.publish(*[b"%d" % number] * 5, partition=number)
    firsts = [world.poll(1)[0].partition for _ in range(6)]
    assert sorted(firsts) == [0, 0, 1, 1, 2, 2]
    assert len(world.poll(100)) == 9


def test_a_group_that_starts_at_the_end_sees_only_what_comes() -> None:
    world = World()
    world.topic(partitions=2)
    world.publish(b"before", partition=0)
    world.group(start=LATEST)
    world.publish(b"after", partition=0)
    assert values(world.drain()) == [b"after"]


def test_time_can_step_back_without_ending_a_lease() -> None:
    world = World()
    world.topic()
    world.group()
    world.publish(b"a")
    (held,) = world.poll(ms=1000)
    world.wall_ns += 24 * HOUR_MS * 1_000_000
    assert world.poll() == []
    world.wall_ns -= 48 * HOUR_MS * 1_000_000
    world.publish(b"b")
    assert isinstance(world.ack(held)[0], Answered)
    assert values(world.drain()) == [b"b"]

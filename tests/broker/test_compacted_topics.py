"""What a compacted topic shows of itself: lag counts messages, not offsets, and reads go over what is gone."""

import random

import pytest

from penstock.api.start import Start
from penstock.config import Cleanup
from penstock.model import Message

from .world import GROUP, HOUR_MS, TOPIC, World, messages_of

STOPS = ["restart", "kill"]


def compacted(**settings: object) -> World:
    world = World()
    world.topic(cleanup=Cleanup.COMPACT, segment_messages_max=10, **settings)
    world.group()
    return world


def visible(world: World) -> list[int]:
    """Offsets of the messages that are there, read one batch after the other."""
    found, offset = [], 0
    while offset < world.node.partition(TOPIC, 0).messages.end_offset:
        fetched = world.fetch(Start.at_offset(offset))
        found += [one.offset for one in messages_of(fetched)]
        offset = fetched.next_offset
    return found


def lag(world: World) -> tuple[int, float]:
    (found,) = world.lag(GROUP)
    return found.lag, found.lag_seconds


@pytest.mark.parametrize("stop", STOPS)
def test_lag_counts_messages_and_not_what_compaction_took(stop) -> None:
    world = compacted()
    for number in range(200):
        world.publish(Message(b"v", b"k%d" % (number % 3)))
    assert lag(world)[0] == 200
    world.sweep()
    left = visible(world)
    assert len(left) < 30
    assert lag(world)[0] == len(left)
    world.sync()
    getattr(world, stop)()
    assert lag(world)[0] == len(left)
    first, second, *_ = world.poll(4)
    assert lag(world)[0] == len(left)
    world.ack(second)
    assert lag(world)[0] == len(left) - 1
    world.nack(first)
    assert lag(world)[0] == len(left) - 1
    for _ in range(2):
        # What is still held comes back, and waits for its retry.
        world.wait(HOUR_MS)
    assert len(world.drain()) == len(left) - 1
    assert lag(world) == (0, 0.0)
    # All that is new is under one key, and most of it goes before the group comes.
    for _ in range(50):
        world.publish(Message(b"v", b"k"))
    world.sweep()
    assert lag(world)[0] == len([one for one in visible(world) if one >= 200])


def test_lag_is_what_a_reader_would_count(effort) -> None:
    for seed in range(effort(check=1, test=4, torture=100)):
        compare_with_a_reader(seed)


def compare_with_a_reader(seed: int) -> None:
    dice, world = random.Random(seed), compacted(max_retries=-1, backoff_base_ms=1)
    finished: set[int] = set()
    held = []
    for _ in range(60):
        step = dice.choice(["publish", "publish", "poll", "answer", "compact", "restart"])
        if step == "publish":
            for _ in range(dice.randint(1, 12)):
                keys = [b"a", b"b", b"c", None]
                world.publish(*[Message(b"v", dice.choice(keys))] * dice.randint(1, 3))
        elif step == "poll":
            held += world.poll(dice.randint(1, 9))
        elif step == "answer" and held:
            one = held.pop(dice.randrange(len(held)))
            if dice.random() < 0.7:
                world.ack(one)
                finished.add(one.offset)
            else:
                world.nack(one, delay_ms=0)
        elif step == "compact":
            world.sweep()
        elif step == "restart":
            world.restart()
        world.wait(10)
        delivery = world.node.partition(TOPIC, 0).group(GROUP)
        floor = delivery.progress.floor
        # What is held or came back and was compacted meanwhile counts until it is dealt with.
        known = {one.offset for one in held} | {*delivery.ready, *delivery.waiting}
        there = {one for one in visible(world) if one >= floor and one not in finished}
        assert lag(world)[0] == len(there | known)


def test_lag_in_a_segment_of_very_many_batches_is_estimated() -> None:
    world = World()
    world.topic(cleanup=Cleanup.COMPACT, segment_messages_max=2500)
    world.group()
    for number in range(2600):
        world.publish(Message(b"v", b"k%d" % (number % 2000)))
    world.sweep()
    left = len(visible(world))
    # Known from the compaction. A new process has to look, and looks at the first of 2,000 batches.
    assert lag(world)[0] == left == 2100
    world.kill()
    assert abs(lag(world)[0] - left) < left // 20

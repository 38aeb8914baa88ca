"""Priority through a whole node: order, restarts, expiry, damage, one lane alone."""

import random
from collections import defaultdict
from math import e

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api.consume import Poll
from penstock.api.publish import Publish
from penstock.config import TtlAction
from penstock.model import Message, Priority

from .world import GROUP, TOPIC, World, values

CRITICAL, NORMAL, BACKGROUND = Priority.CRITICAL, Priority.NORMAL, Priority.BACKGROUND


def some(count: int, priority: Priority, name: str = "") -> list[Message]:
    return [
        Message(f"{name}{priority.name}-{one}".encode(), priority=priority) for one in range(count)
    ]


def make(**settings: object) -> World:
    world = World()
    world.topic(**settings)
    world.group()
    return world


def only(world: World, priority: Priority, limit: int = 100):
    return world.execute(Poll(TOPIC, GROUP, "m", limit, 30_000, priority))


def test_a_late_critical_message_comes_first():
    world = make()
    world.publish(*some(500, NORMAL))
    world.publish(*some(2, CRITICAL))
    assert values(world.poll(3)) == [b"CRITICAL-0", b"CRITICAL-1", b"NORMAL-0"]
    assert values(world.poll(2)) == [b"NORMAL-1", b"NORMAL-2"]


def test_a_poll_lists_the_urgent_ones_first():
    world = make()
    world.publish(*(one for lane in reversed(Priority) for one in some(50, lane)))
    priorities = [one.priority for one in world.poll(100)]
    assert priorities == sorted(priorities)
    assert {lane: priorities.count(lane) for lane in Priority} == {0: 50, 1: 25, 2: 15, 3: 7, 4: 3}


def test_one_lane_alone_leaves_the_others_where_they_are():
    world = make()
    world.publish(*some(3, NORMAL), *some(3, BACKGROUND), *some(3, NORMAL, "more-"))
    got = only(world, BACKGROUND)
    assert values(got) == [b"BACKGROUND-0", b"BACKGROUND-1", b"BACKGROUND-2"]
    world.ack(*got)
    world.kill()
    assert only(world, BACKGROUND) == []
    assert len(world.poll()) == 6


def test_a_retry_keeps_its_lane():
    world = make(backoff_base_ms=10)
    world.publish(*some(2, CRITICAL), *some(10, NORMAL))
    first, second = world.poll(2)
    world.nack(first)
    assert values(world.poll(1)) == [b"NORMAL-0"]
    world.wait(10)
    assert [(one.value, one.attempts) for one in world.poll(1)] == [(b"CRITICAL-0", 2)]
    assert second.value == b"CRITICAL-1"


@pytest.mark.parametrize("stop", ["restart", "kill"])
def test_lanes_survive(stop):
    world = make()
    world.publish(*some(20, NORMAL), *some(5, CRITICAL), *some(5, BACKGROUND))
    held = world.poll(3)
    getattr(world, stop)()
    world.ack(*held)
    assert values(world.poll(2)) == [b"CRITICAL-3", b"CRITICAL-4"]
    world.publish(*some(1, CRITICAL, "late-"))
    assert values(world.poll(1)) == [b"late-CRITICAL-0"]
    assert len(world.drain()) == 25


def test_each_group_has_turns_of_its_own():
    world = make()
    world.group("second")
    world.publish(*some(10, NORMAL), *some(10, CRITICAL))
    assert values(world.poll(1)) == values(world.poll(1, group="second")) == [b"CRITICAL-0"]


def test_what_is_expired_is_passed_over_in_every_lane():
    world = make()
    expiry = world.now().wall_ns + 1
    late = [
        Message(b"late", priority=lane, expires_at=expiry) for lane in Priority for _ in range(40)
    ]
    world.publish(*late, *some(2, BACKGROUND), *some(2, CRITICAL))
    world.wait(1)
    assert values(world.poll(1)) == [b"CRITICAL-0"]
    assert len(world.drain()) == 3
    delivery = world.node.partition(TOPIC, 0).group(GROUP)
    assert delivery.expired_count == 200
    assert not delivery.ahead


def test_expired_ones_become_dead_letters_where_the_topic_says_so():
    world = make(ttl_action=TtlAction.DEAD_LETTER)
    expiry = world.now().wall_ns + 1
    late = [Message(b"late", priority=lane, expires_at=expiry) for lane in Priority]
    world.publish(*some(3, NORMAL), *late, *some(3, CRITICAL))
    world.wait(1)
    assert len(world.drain()) == 6
    world.settle()
    assert len(world.letters()) == 5


def test_retention_forgets_lanes_of_what_is_gone():
    world = make(segment_size_bytes=2000, retention_hours=1)
    for _ in range(10):
        world.publish(*some(10, CRITICAL))
    partition = world.node.partition(TOPIC, 0)
    world.now(3 * 3600 * 1000)
    world.publish(*some(1, CRITICAL))
    world.sweep()
    assert partition.messages.start_offset > 0
    assert partition.machine.lanes.special[CRITICAL].min() == partition.messages.start_offset


def test_a_topic_without_priorities_keeps_no_lanes():
    world = make()
    world.publish(*some(10, NORMAL))
    world.drain()
    assert world.node.partition(TOPIC, 0).machine.lanes.is_flat


def test_lane_stats_count_what_waits_and_what_was_served():
    world = make()
    world.publish(*some(10, NORMAL), *some(10, CRITICAL))
    world.wait(6)
    world.poll(10)
    stats = {one.priority: one for one in world.lanes(GROUP)[0].lanes}
    assert (stats[CRITICAL].waiting, stats[CRITICAL].served) == (0, 10)
    assert (stats[NORMAL].waiting, stats[NORMAL].served) == (10, 0)
    assert stats[CRITICAL].wait_ms == pytest.approx(6)
    assert stats[CRITICAL].per_second > 0
    assert (stats[CRITICAL].in_flight, stats[NORMAL].in_flight) == (10, 0)
    assert stats[NORMAL].served_at_ns is None
    assert stats[CRITICAL].served_at_ns == world.now().wall_ns


def test_each_lane_of_a_batch_has_waited_since_its_own_first_message():
    world = make()
    world.publish(*some(1, NORMAL), *some(2, BACKGROUND))
    world.wait(4)
    world.publish(*some(1, CRITICAL), *some(1, BACKGROUND))
    world.wait(6)
    assert [one.priority for one in world.poll(10)] == [CRITICAL, NORMAL, *[BACKGROUND] * 3]
    lanes = world.lanes(GROUP)[0].lanes
    assert [one.served for one in lanes] == [1, 0, 1, 0, 3]
    assert [one.wait_ms for one in lanes] == pytest.approx([6, 0, 10, 0, 10])


def test_the_enqueue_rate_counts_each_lane_fades_and_knows_nothing_of_a_replay():
    world = make()
    world.poll(1)

    def rates() -> list[float]:
        lanes = world.lanes(GROUP)[0].lanes
        return [one.enqueued_per_second for one in lanes]

    world.publish(*some(60, NORMAL))
    world.publish(*some(30, NORMAL), *some(30, CRITICAL))
    assert rates() == pytest.approx([0.5, 0, 1.5, 0, 0])
    world.wait(60_000)
    assert rates() == pytest.approx([0.5 / e, 0, 1.5 / e, 0, 0])
    world.kill()
    assert rates() == [0, 0, 0, 0, 0]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "publish",
                "publish",
                "poll",
                "poll",
                "poll",
                "ack",
                "ack",
                "nack",
                "kill",
                "restart",
                "one lane",
            ]
        ),
        st.integers(0, 2**32 - 1),
    ),
    max_size=60,
)


class Twin:
    """Every message with its lane, and whether it waits in it."""

    def __init__(self) -> None:
        self.world = make(backoff_base_ms=0, max_retries=-1)
        self.lanes: dict[int, Priority] = {}
        self.queues: dict[Priority, list[int]] = defaultdict(list)
        self.held = []

    def publish(self, dice: random.Random) -> None:
        lanes = [dice.choice(list(Priority)) for _ in range(dice.randint(1, 30))]
        if dice.random() < 0.5:
            lanes = lanes[:1] * len(lanes)
        stored = self.world.publish(*(Message(b"x", priority=lane) for lane in lanes))
        for one, lane in zip(stored, lanes, strict=True):
            self.lanes[one.offset] = lane
            self.queues[lane].append(one.offset)

    def poll(self, dice: random.Random) -> None:
        limit = dice.choice([1, 2, 10, 100])
        self.take(self.world.poll(limit), limit, list(Priority))

    def one_lane(self, dice: random.Random) -> None:
        limit, lane = dice.choice([1, 5, 50]), dice.choice(list(Priority))
        self.take(only(self.world, lane, limit), limit, [lane])

    def take(self, received, limit: int, lanes: list[Priority]) -> None:
        assert len(received) == min(limit, sum(len(self.queues[lane]) for lane in lanes))
        assert [one.priority for one in received] == sorted(one.priority for one in received)
        for lane in lanes:
            offsets = [one.offset for one in received if one.priority == lane]
            # First in, first out; what came back is ahead of what was never handed out.
            assert offsets == self.queues[lane][: len(offsets)]
            del self.queues[lane][: len(offsets)]
        self.held += received

    def ack(self, dice: random.Random) -> None:
        done = [one for one in self.held if dice.random() < 0.5]
        self.world.ack(*done)
        self.held = [one for one in self.held if one not in done]

    def nack(self, dice: random.Random) -> None:
        failed = [one for one in self.held if dice.random() < 0.3]
        self.world.nack(*failed)
        self.world.wait(0)
        self.held = [one for one in self.held if one not in failed]
        for one in failed:
            queue = self.queues[self.lanes[one.offset]]
            queue.append(one.offset)
            queue.sort()

    def kill(self, _dice: random.Random) -> None:
        self.world.kill()

    def restart(self, _dice: random.Random) -> None:
        self.world.restart()


@given(STEPS)
def test_lanes_hold_with_any_mix_of_producers_retries_and_restarts(steps):
    twin = Twin()
    for name, seed in steps:
        getattr(twin, name.replace(" ", "_"))(random.Random(seed))
    assert len(twin.world.drain()) == sum(map(len, twin.queues.values()))


PUBLISHED = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(Priority), st.integers(1, 12)), max_size=6
)


@given(st.lists(st.tuples(PUBLISHED, st.integers(1, 40)), min_size=1, max_size=8))
def test_lanes_of_several_partitions_are_served_as_those_of_one_queue(rounds):
    world, twin = make(partitions=3, starvation_ms=0), make(starvation_ms=0)
    queues: dict[tuple[int, Priority], list[bytes]] = defaultdict(list)
    for published, limit in [([(2, CRITICAL, 1)], 1), *rounds]:
        for partition, priority, count in published:
            messages = some(count, priority)
            world.execute(Publish(TOPIC, messages, partition=partition))
            twin.publish(*messages)
            queues[partition, priority] += [one.value for one in messages]
        found = world.poll(limit)
        assert [one.priority for one in found] == [one.priority for one in twin.poll(limit)]
        for one in found:
            # In a lane of a partition the order is that of publishing.
            assert queues[one.partition, one.priority].pop(0) == one.value


def test_a_critical_message_does_not_wait_behind_another_partition():
    world = make(partitions=4)
    for partition in (0, 1, 2):
        world.execute(Publish(TOPIC, some(20, NORMAL), partition=partition))
    world.execute(Publish(TOPIC, some(1, CRITICAL), partition=3))
    for member in ("a", "b"):
        found = world.execute(Poll(TOPIC, GROUP, member, 10, 30_000))
        assert len(found) == 10
        assert (found[0].priority == CRITICAL) == (member == "a")


def test_within_a_lane_each_partition_has_its_turn():
    world = make(partitions=3)
    for partition in range(3):
        for priority in (CRITICAL, NORMAL):
            world.execute(Publish(TOPIC, some(60, priority), partition=partition))
    firsts = [world.poll(2)[0].partition for _ in range(6)]
    assert sorted(firsts) == [0, 0, 1, 1, 2, 2]


def test_lanes_that_were_empty_for_long_do_not_starve():
    world = make(partitions=2, starvation_ms=30_000)
    for partition in (0, 1):
        world.publish(*some(1, CRITICAL), *some(1, BACKGROUND), partition=partition)
    world.drain()
    for _ in range(60):
        world.wait(1000)
        assert not world.poll(4)
    world.publish(*some(8, CRITICAL), partition=0)
    world.publish(*some(8, BACKGROUND), partition=1)
    assert [one.priority for one in world.poll(4)] == [CRITICAL] * 4

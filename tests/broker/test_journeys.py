"""Journeys: the story of a message is complete and in order, for every group, whatever happened to the broker."""

import random
from collections import Counter
from functools import partial
from itertools import groupby
from operator import attrgetter

import pytest

from penstock.api.dead_letters import RedriveDeadLetters, Target
from penstock.api.groups import CloseGroup
from penstock.api.journeys import (
    DescribeJourneys,
    FindTrace,
    JourneyStatus,
)
from penstock.api.publish import Delayed
from penstock.api.start import EARLIEST
from penstock.broker import Received
from penstock.model import Message, Priority

from .journeys import EVERY_STOP, journey, told
from .world import GROUP, MS, TOPIC, World

LEASE = attrgetter("lease")


@EVERY_STOP
def test_a_message_is_followed_through_delay_failures_dead_letter_redrive_and_ack(stop):
    world = World()
    world.topic(max_retries=1)
    world.group()
    world.schedule([Delayed(Message(b"v", key=b"k"), world.wall_ns + 500 * MS)])
    stop(world)
    world.wait(500)
    (first,) = world.poll(member="one")
    world.wait(10)
    world.nack(first, error="first failure")
    stop(world)
    world.wait(1000)
    (second,) = world.poll(member="two")
    world.wait(20)
    world.nack(second, error="second failure")
    world.settle()
    stop(world)
    world.wait(5)
    world.execute(RedriveDeadLetters(TOPIC, target=Target.GROUP))
    world.settle()
    world.wait(5)
    (third,) = world.poll(member="three")
    world.wait(30)
    world.ack(third)
    stop(world)

    found = journey(world)
    assert told(found) == [
        "delay.scheduled",
        "delay.fired",
        "publish.persisted",
        "consume.fetched",
        "consume.nacked",
        "consume.fetched",
        "consume.nacked",
        "dlq.routed",
        "publish.persisted",
        "dlq.redriven",
        "consume.reopened",
        "consume.fetched",
        "consume.acked",
    ]
    assert [one.at_ns for one in found.spans] == sorted(one.at_ns for one in found.spans)
    assert found.status is JourneyStatus.COMPLETED
    assert found.gaps == []
    assert found.key == b"k"
    by = [(one.event_type.value, one.consumer, one.error) for one in found.spans if one.consumer]
    assert by == [
        ("consume.fetched", "one", ""),
        ("consume.nacked", "one", "first failure"),
        ("consume.fetched", "two", ""),
        ("consume.nacked", "two", "second failure"),
        ("dlq.routed", "two", "second failure"),
        ("consume.fetched", "three", ""),
        ("consume.acked", "three", ""),
    ]
    assert found.spans[-1].duration_ns == 30 * MS
    (standing,) = found.groups
    assert (standing.group, standing.status) == (GROUP, JourneyStatus.COMPLETED)
    # By its trace id, and as the dead letter that it was, it is the same journey.
    assert world.execute(FindTrace(trace_id=found.trace_id)) == found
    assert journey(world, topic=f"{TOPIC}.dlq") == found


@EVERY_STOP
def test_a_redrive_to_the_topic_goes_on_with_the_copy(stop):
    world = World()
    world.topic(max_retries=0)
    world.group()
    world.publish(b"a", b"b", b"c")
    world.nack(*world.poll(), error="no")
    world.settle()
    world.wait(1)
    world.execute(RedriveDeadLetters(TOPIC))
    world.settle()
    stop(world)
    world.wait(1)
    copies = world.poll()
    assert [one.value for one in copies] == [b"a", b"b", b"c"]
    world.ack(copies[1])
    stop(world)
    found = journey(world, 1)
    assert told(found) == [
        "publish.received",
        "publish.persisted",
        "consume.fetched",
        "consume.nacked",
        "dlq.routed",
        "publish.persisted",
        "dlq.redriven",
        "publish.persisted",
        "consume.fetched",
        "consume.acked",
    ]
    assert found.status is JourneyStatus.COMPLETED
    assert journey(world, 0).status is JourneyStatus.IN_PROGRESS
    assert journey(world, 4) == found
    assert [one.offset for one in found.spans][-1] == 4


def test_every_group_has_its_own_part():
    world = World()
    world.topic()
    world.publish(b"a")
    for name in ("fast", "slow"):
        world.group(name)
    (one,) = world.poll(group="fast", member="f")
    world.ack(one)
    (other,) = world.poll(group="slow", member="s", ms=1000)
    world.extend(other, ms=5000)
    world.wait(4999)
    assert told(journey(world), "slow") == ["consume.fetched", "visibility.extended"]
    world.wait(1)
    found = journey(world)
    assert told(found, "fast") == ["consume.fetched", "consume.acked"]
    assert told(found, "slow") == ["consume.fetched", "visibility.extended", "visibility.expired"]
    assert {one.group: one.status.value for one in found.groups} == {
        "fast": "completed",
        "slow": "retrying",
    }
    assert found.status is JourneyStatus.RETRYING
    assert found.spans[-1].consumer == "s"


def test_what_ends_a_delivery_is_told_with_its_cause():
    world = World()
    world.topic(max_retries=-1)
    world.group()
    world.publish(b"a", b"b", b"c")
    world.poll(1, member="gone")
    world.release("gone")
    (rejected,) = world.poll(1, member="m")
    world.reject(rejected, error="bad")
    assert told(journey(world), GROUP) == [
        "consume.fetched",
        "consume.released",
        "consume.fetched",
        "consume.rejected",
        "dlq.routed",
    ]
    released = [one for one in journey(world).spans if one.event_type.value == "consume.released"]
    assert released[0].attributes == {"cause": "member_gone", "counted": True}
    assert journey(world).status is JourneyStatus.FAILED
    world.commit(GROUP, 2)
    assert told(journey(world, 1), GROUP) == ["consume.committed"]
    # A commit says nothing of a message that was finished before it.
    assert told(journey(world), GROUP)[-1] == "dlq.routed"
    world.reset(EARLIEST)
    found = journey(world, 1)
    assert told(found, GROUP) == ["consume.committed", "consume.rewound"]
    assert found.status is JourneyStatus.IN_PROGRESS
    world.execute(CloseGroup(GROUP))
    found = journey(world, 1)
    assert told(found, GROUP) == ["consume.committed", "consume.rewound", "group.deleted"]
    assert found.groups == []


def test_an_expired_message_is_told():
    world = World()
    world.topic(ttl_ms=100)
    world.group()
    world.publish(b"a")
    world.wait(200)
    assert not world.poll()
    assert told(journey(world), GROUP) == ["ttl.expired"]
    assert journey(world).status is JourneyStatus.EXPIRED


def test_lanes_and_priority_are_told():
    world = World()
    world.topic()
    world.publish(Message(b"a", priority=Priority.HIGH))
    assert journey(world).priority == Priority.HIGH


def test_latency_is_counted_for_each_lane_of_a_group():
    world = World()
    world.topic()
    world.group()
    world.publish(b"a", Message(b"b", priority=Priority.HIGH), b"c")
    world.wait(40)
    got = world.poll()
    failed = [one for one in got if one.value == b"c"]
    world.nack(*failed, delay_ms=0)
    world.wait(100)
    world.ack(*[one for one in got if one.value != b"c"])
    world.ack(*world.poll())
    lanes = {one.lane: one for one in world.execute(DescribeJourneys()).latency}
    assert {lane: one.first_delivery.count for lane, one in lanes.items()} == {
        "high": 1,
        "normal": 2,
    }
    normal = lanes["normal"]
    assert (normal.topic, normal.group) == (TOPIC, GROUP)
    assert (normal.first_delivery.p50, normal.first_delivery.p99) == (0.05, 0.05)
    assert (normal.acked.count, normal.acked.p50) == (2, 0.2)
    assert (normal.attempts.count, normal.attempts.total, normal.attempts.p99) == (2, 3, 2)
    assert sum(lanes["high"].acked.buckets) == 1
    world.delete()
    assert world.execute(DescribeJourneys()).latency == []


@pytest.mark.parametrize("seed", range(8))
def test_latency_is_that_of_each_message_however_they_are_polled_and_acked(seed):
    rng, world = random.Random(seed), World()
    world.topic()
    world.group()
    published: dict[bytes, float] = {}
    polls: Counter[bytes] = Counter()
    last_ns = world.wall_ns
    held: list[Received] = []
    waited: dict[str, list[float]] = {"first_delivery": [], "acked": [], "attempts": []}
    for _ in range(60):
        world.wait(rng.choice((0, 0, 3, 70)))
        now = world.monotonic_ns / (1000 * MS)
        match rng.randrange(5):
            case 0 | 1:
                values = [b"%d" % (len(published) + one) for one in range(rng.choice((1, 5, 30)))]
                lanes = rng.choices(list(Priority), k=rng.choice((1, 3)))
                times_ns = [rng.randint(last_ns, world.wall_ns) for _ in values]
                if seed % 2:
                    times_ns.sort()
                last_ns = world.wall_ns
                world.publish(
                    *(
                        Message(one, priority=rng.choice(lanes), timestamp=time_ns)
                        for one, time_ns in zip(values, times_ns, strict=True)
                    )
                )
                offset = world.wall_ns - world.monotonic_ns
                published |= {
                    one: (time_ns - offset) / (1000 * MS)
                    for one, time_ns in zip(values, times_ns, strict=True)
                }
            case 2 | 3:
                got = world.poll(rng.choice((1, 10, 50)))
                new = [one.value for one in got if not polls[one.value]]
                waited["first_delivery"] += [now - published[one] for one in new]
                polls.update(one.value for one in got)
                held += got
            case _:
                for _, lease in groupby(sorted(held, key=LEASE), key=LEASE):
                    some = [one for one in lease if rng.random() < 0.6]
                    answer = rng.choice((world.ack, world.ack, partial(world.nack, delay_ms=0)))
                    answer(*some)
                    held = [one for one in held if one not in some]
                    if answer == world.ack:
                        waited["acked"] += [now - published[one.value] for one in some]
                        waited["attempts"] += [polls[one.value] for one in some]
    rows = world.execute(DescribeJourneys()).latency
    for name, figures in waited.items():
        found = [getattr(one, name) for one in rows]
        assert sum(one.count for one in found) == len(figures)
        assert sum(one.total for one in found) == pytest.approx(sum(figures), abs=1e-6)

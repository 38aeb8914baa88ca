"""Journeys: the story of a message is complete and in order, for every group, whatever happened to the broker."""

import pytest

from penstock.api.answers import Kind
from penstock.api.dead_letters import RedriveDeadLetters, Target
from penstock.api.delays import CancelDelayed, DelayedId, RescheduleDelayed
from penstock.api.groups import CloseGroup, Commit, PartitionOffset
from penstock.api.journeys import (
    DescribeJourney,
    DescribeJourneys,
    EventType,
    FindTrace,
    Journey,
    JourneyStatus,
    ListJourneys,
    SearchJourneys,
)
from penstock.api.publish import Delayed
from penstock.api.start import EARLIEST
from penstock.errors import NotFound, OffsetOutOfRange, Refused, TraceNotFound
from penstock.model import Message, Priority

from .test_commit_answers import Task
from .test_commits import commit
from .test_transaction_answers import Consumer
from .test_transactions import Transactional
from .world import GROUP, HOUR_MS, MS, TOPIC, World

STOPS = {
    "running": lambda world: None,
    "restarted": World.restart,
    "killed": World.kill,
}
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(params=STOPS, name="stop")
def stop_of(request):
    return STOPS[request.param]


def journey(world: World, offset: int = 0, *, topic: str = TOPIC, partition: int = 0) -> Journey:
    return world.execute(DescribeJourney(topic, partition, offset))


def told(found: Journey, group: str | None = None) -> list[str]:
    return [one.event_type.value for one in found.spans if group is None or one.group == group]


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


def test_a_delayed_message_is_found_by_its_trace_id_before_and_after_it_fires(stop):
    world = World()
    world.topic()
    (place,) = world.schedule([Delayed(Message(b"v"), world.wall_ns + HOUR_MS * MS)])
    world.execute(RescheduleDelayed(TOPIC, DelayedId(0, place.offset), world.wall_ns + 100 * MS))
    stop(world)
    (delay_trace,) = {
        world.execute(FindTrace(trace_id=one)).trace_id for one in [_delay_trace(world, place)]
    }
    waiting = world.execute(FindTrace(trace_id=delay_trace))
    assert told(waiting) == ["delay.scheduled", "delay.rescheduled"]
    assert (waiting.status, waiting.offset) == (JourneyStatus.DELAYED, -1)
    world.wait(100)
    stop(world)
    fired = world.execute(FindTrace(trace_id=delay_trace))
    assert told(fired) == [
        "delay.scheduled",
        "delay.rescheduled",
        "delay.fired",
        "publish.persisted",
    ]
    assert (fired.status, fired.offset) == (JourneyStatus.IN_PROGRESS, 0)
    assert journey(world).trace_id == delay_trace


def _delay_trace(world: World, place) -> str:
    from penstock.journeys.traces import TracePlace, trace_id_of

    topic_id = world.node.topic(TOPIC).facts.topic_id
    return trace_id_of(TracePlace(topic_id, place.partition, place.offset, is_delayed=True))


def test_a_cancelled_delay_is_told():
    world = World()
    world.topic()
    (place,) = world.schedule([Delayed(Message(b"v"), world.wall_ns + HOUR_MS * MS)])
    world.execute(CancelDelayed(TOPIC, DelayedId(0, place.offset)))
    found = world.execute(FindTrace(trace_id=_delay_trace(world, place)))
    assert told(found) == ["delay.scheduled", "delay.canceled"]
    assert found.status is JourneyStatus.EXPIRED


def test_a_trace_that_came_with_the_message_is_its_own():
    world = World()
    world.topic()
    header = ("traceparent", PARENT.encode())
    world.publish(b"a", Message(b"b", headers=(header,)))
    found = journey(world, 1)
    assert found.trace_id == PARENT.split("-")[1]
    assert world.execute(FindTrace(trace_id=found.trace_id)) == found
    assert world.execute(FindTrace(trace_id=found.trace_id, topic=TOPIC)) == found
    # The id that would follow from its place is not its id.
    own = journey(world, 0).trace_id
    assert world.execute(FindTrace(trace_id=own)).offset == 0
    with pytest.raises(TraceNotFound):
        world.execute(FindTrace(trace_id="1" * 32))
    with pytest.raises(Refused):
        world.execute(FindTrace(trace_id="no"))
    with pytest.raises(OffsetOutOfRange):
        journey(world, 2)
    with pytest.raises(NotFound):
        journey(world, topic="nothing")


def test_a_search_reads_so_much_and_gives_a_cursor():
    world = World()
    world.topic(3)
    for number in range(30):
        world.publish(Message(b"v" * 1000, key=b"k%d" % (number % 3)))
    (sample,) = world.publish(Message(b"v", key=b"k1", headers=(("h", b"x"),)))
    world.group()
    found, cursor, pages = [], None, 0
    while True:
        search = SearchJourneys(topic=TOPIC, key=b"k1", bytes_max=3000, limit=4, cursor=cursor)
        page = world.execute(search)
        assert len(page.rows) <= 4
        assert page.scanned_bytes <= 3000 + 1200
        found += page.rows
        pages += 1
        if (cursor := page.cursor) is None:
            break
    assert pages > 3
    assert len({(one.partition, one.offset) for one in found}) == len(found) == 11
    by_header = world.execute(SearchJourneys(topic=TOPIC, header=("h", b"x"))).rows
    assert [(one.partition, one.offset) for one in by_header] == [(sample.partition, sample.offset)]
    assert world.execute(SearchJourneys(topic=TOPIC, header=("h", None))).rows == by_header
    assert world.execute(SearchJourneys(topic=TOPIC, header=("h", b"y"))).rows == []
    with pytest.raises(Refused):
        world.execute(SearchJourneys(topic=TOPIC, cursor="x"))
    # Whatever the first look, rows are what the journeys are.
    for row in found[:3]:
        whole = journey(world, row.offset, partition=row.partition)
        assert (row.trace_id, row.status, row.span_count) == (
            whole.trace_id,
            whole.status,
            len(whole.spans),
        )


def test_a_search_by_status_group_and_time():
    world = World()
    world.topic()
    world.group()
    world.publish(b"a")
    world.wait(1000)
    middle_ns = world.wall_ns
    world.publish(b"b", b"c")
    got = world.poll()
    world.ack(got[0], got[1])
    done = SearchJourneys(topic=TOPIC, status=JourneyStatus.COMPLETED)
    assert [one.offset for one in world.execute(done).rows] == [0, 1]
    late = SearchJourneys(topic=TOPIC, start_ns=middle_ns)
    assert [one.offset for one in world.execute(late).rows] == [1, 2]
    early = SearchJourneys(topic=TOPIC, end_ns=middle_ns)
    assert [one.offset for one in world.execute(early).rows] == [0]
    assert len(world.execute(SearchJourneys(topic=TOPIC, group=GROUP)).rows) == 3
    assert world.execute(SearchJourneys(topic=TOPIC, group="other")).rows == []
    assert [one.offset for one in world.execute(ListJourneys(limit=2)).rows] in ([1, 2], [2, 1])


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


def test_a_copy_is_found_however_much_came_before_it(stop):
    world = World()
    world.topic(max_retries=0)
    world.group()
    world.publish(b"a", b"b")
    world.nack(*world.poll(), error="no")
    world.settle()
    world.wait(1)
    world.execute(RedriveDeadLetters(TOPIC))
    # Behind the time of the redrive, and before its messages.
    for _ in range(20):
        world.publish(bytes(900_000))
    world.settle()
    stop(world)
    for offset in (0, 1):
        found = journey(world, offset)
        assert found.gaps == []
        last = found.spans[-1]
        assert (last.event_type.value, last.offset) == ("publish.persisted", 22 + offset)
        assert journey(world, last.offset) == found


def test_a_dead_letter_that_a_crash_left_unsaid_is_looked_for():
    """The record that says which message a letter became is lost with the crash; the message is not."""
    world = World()
    world.topic(max_retries=0)
    world.group()
    world.publish(b"a")
    world.nack(*world.poll(), error="no")
    world.sync()
    assert world.node.pump(world.now()), (
        "the letter is a message now, and its record is not written"
    )
    world.kill()
    world.settle()
    found = journey(world)
    assert told(found)[-2:] == ["dlq.routed", "publish.persisted"]
    assert found.gaps == []


def test_copies_that_a_crash_left_unsaid_are_told_apart():
    world = World()
    world.topic(max_retries=0)
    world.group()
    world.publish(b"a", b"b", b"c")
    world.nack(*world.poll(), error="no")
    world.settle()
    world.execute(RedriveDeadLetters(TOPIC))
    world.sync()
    assert world.node.pump(world.now())
    world.kill()
    world.settle()
    for offset in range(3):
        found = journey(world, offset)
        last = found.spans[-1]
        assert (last.event_type.value, last.offset) == ("publish.persisted", 3 + offset)
        assert journey(world, 3 + offset) == found


def test_what_a_transaction_published_says_so(stop):
    world = World()
    world.topic()
    world.publish(b"before")
    producer = Transactional(world)
    producer.stage(b"a", partition=0)
    producer.stage(b"b", partition=0)
    assert producer.end().is_complete
    stop(world)
    producer.stage(b"never", partition=0)
    producer.end(is_commit=False)
    stop(world)
    for offset in (1, 2):
        found = journey(world, offset)
        assert told(found) == ["publish.received", "publish.persisted", "transaction.committed"]
        assert found.spans[-1].attributes == {"transaction_id": f"{producer.id}-1"}
    assert told(journey(world)) == ["publish.received", "publish.persisted"]


def test_what_an_archive_has_is_told_with_its_lake(stop):
    world = World()
    world.topic()
    world.publish(b"a", b"b")
    offsets = (PartitionOffset(TOPIC, 0, 1),)
    world.execute(Commit("lake", offsets, opens_group=True, lake="lakes/orders"))
    stop(world)
    found = journey(world)
    assert told(found, "lake") == ["archive.stored"]
    assert found.spans[-1].attributes == {"offset": 1, "lake": "lakes/orders"}
    assert found.status is JourneyStatus.COMPLETED
    assert told(journey(world, 1), "lake") == []
    with pytest.raises(Refused):
        world.execute(Commit("lake", offsets, lake="x" * 1001))


def test_an_answer_inside_of_a_transaction_is_told_when_it_is_given_and_when_it_counts(stop):
    world = World()
    world.topic()
    world.group()
    world.publish(b"a", b"b")
    consumer = Consumer(world)
    first, second = world.poll(member="m")
    consumer.ack(first)
    consumer.answer(Kind.NACK, second, reason="no")
    stop(world)
    assert told(journey(world), GROUP) == ["consume.fetched", "transaction.claimed"]
    assert consumer.end().is_complete
    stop(world)
    found = journey(world)
    assert told(found, GROUP) == ["consume.fetched", "transaction.claimed", "consume.acked"]
    claimed = found.spans[-2]
    assert claimed.attributes == {"transaction_id": f"{consumer.id}-1", "answer": "ack"}
    assert (claimed.consumer, found.spans[-1].consumer) == ("m", "m")
    assert told(journey(world, 1), GROUP)[-1] == "consume.nacked"


def test_the_abort_of_an_answer_is_told(stop):
    world = World()
    world.topic()
    world.group()
    world.publish(b"a", b"b")
    consumer = Consumer(world)
    first, second = world.poll(member="m")
    consumer.ack(first)
    stop(world)
    consumer.end(is_commit=False)
    world.ack(first, second)
    stop(world)
    found = journey(world)
    assert told(found, GROUP) == [
        "consume.fetched",
        "transaction.claimed",
        "transaction.aborted",
        "consume.acked",
    ]
    assert found.spans[-2].attributes == {"transaction_id": f"{consumer.id}-1"}
    assert told(journey(world, 1), GROUP) == ["consume.fetched", "consume.acked"]


def test_what_a_named_commit_published_and_answered_says_so(stop):
    world = World()
    world.topic()
    world.group()
    world.publish(b"in")
    (taken,) = world.poll(member="m")
    loser, winner = Task(world, 7), Task(world, 7)
    for one in (loser, winner):
        one.ack(taken)
        one.stage(b"out")
    stop(world)
    commit(world, 7, winner)
    stop(world)
    made = journey(world, 1)
    assert told(made) == ["publish.received", "publish.persisted", "transaction.committed"]
    assert made.spans[-1].attributes == {"commit": "sink", "sequence": 7}
    found = journey(world)
    claimed = [one.attributes for one in found.spans if one.event_type is EventType.CLAIMED]
    assert claimed == [{"staging": one.id, "answer": "ack"} for one in (loser, winner)]
    # The answer of the other attempt does not count.
    assert told(found, GROUP)[-2:] == ["consume.acked", "transaction.aborted"]
    assert found.spans[-1].attributes == {"staging": loser.id}
    assert found.status is JourneyStatus.COMPLETED

"""Journeys are found by trace id, and by searches that read so much at once."""

import pytest

from penstock.api.delays import CancelDelayed, DelayedId, RescheduleDelayed
from penstock.api.journeys import (
    FindTrace,
    JourneyStatus,
    ListJourneys,
    SearchJourneys,
)
from penstock.api.publish import Delayed
from penstock.errors import NotFound, OffsetOutOfRange, Refused, TraceNotFound
from penstock.model import Message

from .journeys import EVERY_STOP, journey, told
from .world import GROUP, HOUR_MS, MS, TOPIC, World

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@EVERY_STOP
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


def test_the_latest_are_those_of_all_partitions_and_no_more_than_asked_for():
    world = World()
    world.topic(partitions=2, max_retries=0)
    world.group()
    for number in range(4):
        world.publish(b"%d" % number, partition=number % 2)
        world.wait(10)
    latest = world.execute(ListJourneys(limit=2)).rows
    assert [(one.partition, one.offset) for one in latest] == [(1, 1), (0, 1)]
    world.nack(*world.poll())
    world.wait(10)
    world.settle()
    # All that died was published again, to the topic of dead letters: each with its whole journey.
    died = world.execute(ListJourneys(limit=3)).rows
    assert len(died) == 3
    assert {one.topic for one in died} == {f"{TOPIC}.dlq"}
    assert [one.start_ns for one in died] == sorted((one.start_ns for one in died), reverse=True)

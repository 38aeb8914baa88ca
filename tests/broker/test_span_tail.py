"""What a tracing system is told: every sampled message once, in pages, each in the trace that its journey has."""

import pytest

from penstock.api.dead_letters import RedriveDeadLetters
from penstock.api.journeys import DescribeJourney, EventType
from penstock.api.publish import Delayed
from penstock.api.spans import SAMPLED_ALL, SpanPart, TailSpans
from penstock.model import Message

from .world import MS, TOPIC, World

SAMPLED = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
UNSAMPLED = "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"


class Tail:
    """An exporter that forgets nothing."""

    def __init__(self, world: World, bound: int = SAMPLED_ALL) -> None:
        self.world, self.bound = world, bound
        first = world.execute(TailSpans({}, bound, starts_at_end=True))
        assert first.parts == []
        self.positions = first.positions

    def read(self) -> list[SpanPart]:
        found: list[SpanPart] = []
        while True:
            page = self.world.execute(TailSpans(self.positions, self.bound))
            found += page.parts
            self.positions = page.positions
            if page.is_caught_up:
                return found


def trace_of(world: World, part: SpanPart) -> str:
    command = DescribeJourney(part.topic, part.identity[1], part.offset)
    return world.execute(command).trace_id


def test_events_of_a_message_come_in_their_order_and_once():
    world = World()
    world.topic()
    world.group()
    world.publish(b"before")
    tail = Tail(world)
    world.publish(b"a")
    early, leased = world.poll(member="m")
    world.ack(early)
    world.nack(leased, error="no")
    told = tail.read()
    assert [(one.event_type.value, one.offset, one.consumer, one.error) for one in told] == [
        ("publish.persisted", 1, "", ""),
        ("consume.fetched", 1, "m", ""),
        ("consume.nacked", 1, "", "no"),
    ]
    assert told[0].trace_id == trace_of(world, told[0])
    assert tail.read() == []


@pytest.mark.parametrize("ratio", [0, 0.01, 0.3, 0.999, 1])
def test_messages_are_sampled_by_their_trace_ids(ratio):
    world, bound = World(), round(ratio * SAMPLED_ALL)
    world.topic(2)
    tail = Tail(world, bound)
    for partition in (0, 1):
        for _ in range(3):
            world.publish(*[b"v"] * 400, partition=partition)
    traces = {
        (number, offset): world.execute(DescribeJourney(TOPIC, number, offset)).trace_id
        for number in (0, 1)
        for offset in range(0, 1200, 7)
    }
    wanted = {place for place, one in traces.items() if int(one[16:], 16) < bound}
    told = [(one.identity[1], one.offset) for one in tail.read()]
    assert len(told) == len(set(told))
    assert {one for one in told if one in traces} == wanted


def test_a_message_with_a_trace_is_sampled_with_it():
    world = World()
    world.topic()
    tail = Tail(world, 0)
    world.publish(
        Message(b"a", headers=(("traceparent", SAMPLED.encode()),)),
        Message(b"b", headers=(("traceparent", UNSAMPLED.encode()),)),
        Message(b"c", headers=(("traceparent", b"nonsense"),)),
    )
    (told,) = tail.read()
    assert (told.offset, told.trace_id, told.parent_span_id) == (0, *SAMPLED.split("-")[1:3])
    everything = Tail(world)
    world.publish(Message(b"b", headers=(("traceparent", UNSAMPLED.encode()),)))
    assert everything.read() == []


def test_delays_dead_letters_and_copies_are_of_the_trace_that_they_began_with():
    world = World()
    world.topic(max_retries=0)
    world.group()
    tail = Tail(world)
    world.schedule([Delayed(Message(b"v"), world.wall_ns + 10 * MS)])
    world.wait(20)
    world.nack(*world.poll(), error="no")
    world.settle()
    world.wait(1)
    world.execute(RedriveDeadLetters(TOPIC))
    world.settle()
    told = [one for one in tail.read() if one.event_type is EventType.PERSISTED]
    assert [(one.topic, one.offset) for one in told] == [
        (TOPIC, 0),
        (TOPIC, 1),
        (f"{TOPIC}.dlq", 0),
    ]
    assert {one.trace_id for one in told} == {trace_of(world, told[0])}


def test_an_exporter_that_is_far_behind_goes_on_at_the_end(monkeypatch):
    monkeypatch.setattr("penstock.broker.span_tail._LAG_MESSAGES_MAX", 10)
    world = World()
    world.topic()
    tail = Tail(world)
    world.publish(*[b"v"] * 11)
    page = world.execute(TailSpans(tail.positions, SAMPLED_ALL))
    assert (page.parts, page.skipped, page.is_caught_up) == ([], 11, True)
    tail.positions = page.positions
    world.publish(b"later")
    assert [one.offset for one in tail.read()] == [11]

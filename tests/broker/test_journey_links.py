"""Journeys go on with copies, and name the transaction, the commit or the lake that a message came by or went to."""

import pytest

from penstock.api.answers import Kind
from penstock.api.dead_letters import RedriveDeadLetters
from penstock.api.groups import Commit, PartitionOffset
from penstock.api.journeys import (
    EventType,
    JourneyStatus,
)
from penstock.errors import Refused

from .journeys import EVERY_STOP, journey, told
from .test_commit_answers import Task
from .test_commits import commit
from .test_transaction_answers import Consumer
from .test_transactions import Transactional
from .world import GROUP, TOPIC, World


@EVERY_STOP
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


@EVERY_STOP
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


@EVERY_STOP
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


@EVERY_STOP
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


@EVERY_STOP
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


@EVERY_STOP
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

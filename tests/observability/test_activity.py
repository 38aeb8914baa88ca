"""What clients did, as an observer counts it: the same whichever protocol built the commands."""

import pytest

from penstock.api.answers import AnswerOffset, OffsetKind
from penstock.api.publish import Delayed, PublishBatch, PublishEach, PublishValues, ScheduleValues
from penstock.codec import encode_messages
from penstock.errors import NotFound, PenstockError
from penstock.model import Message
from penstock.observability.activity import Activity

from ..broker.world import GROUP, TOPIC, World


@pytest.fixture
def activity() -> Activity:
    return Activity()


@pytest.fixture
def world(activity) -> World:
    world = World(observer=activity.observe)
    world.topic(partitions=2)
    world.group()
    return world


def test_publishes_of_every_kind_are_counted(world, activity):
    world.publish(b"a", b"b")
    world.execute(PublishEach(TOPIC, [Message(b"c")]))
    world.execute(PublishValues(TOPIC, [b"d", b"e", b"f"]))
    batch = encode_messages([Message(b"g"), Message(b"h")]).to_bytes()
    world.execute(PublishBatch(TOPIC, 0, batch))
    world.schedule([Delayed(Message(b"i"), world.wall_ns + 1_000_000)])
    world.execute(ScheduleValues(TOPIC, [b"j", b"k"], world.wall_ns + 1_000_000))
    assert activity.published == 11
    # What fires was published before, and no command asks for it.
    world.wait(10)
    assert activity.published == 11
    assert not activity.publish_errors


def test_refused_messages_are_counted_by_code(world, activity):
    with pytest.raises(NotFound):
        world.execute(PublishEach("nowhere", [Message(b"a"), Message(b"b")]))
    with pytest.raises(PenstockError):
        world.execute(PublishBatch(TOPIC, 0, b"no batch"))
    world.execute(PublishEach(TOPIC, [Message(b"good"), Message(b"x", expires_at=0)]))
    assert activity.publish_errors == {"NOT_FOUND": 2, "MALFORMED_BATCH": 1, "INVALID_ARGUMENT": 1}
    assert activity.published == 1


def test_what_is_lent_and_answered_is_counted(world, activity):
    world.publish(*[b"%d" % number for number in range(6)], partition=0)
    held = world.poll(4)
    world.ack(*held[:2])
    world.nack(held[2])
    world.poll(2)
    world.execute(AnswerOffset(OffsetKind.ACK_UP_TO, TOPIC, 0, GROUP, 4))
    assert activity.delivered == 6
    assert activity.answers == {"ack": 3, "nack": 1}
    # An answer for a lease that is over does not count.
    world.wait(3_600_000)
    assert activity.answers == {"ack": 3, "nack": 1}

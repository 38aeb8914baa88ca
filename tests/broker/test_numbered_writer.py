"""Commands of a writer that numbers messages before they are stored: nothing twice, nothing lost, nothing early."""

import pytest

from penstock.api.delays import FireDelayed
from penstock.api.groups import DescribeBacklog
from penstock.api.publish import CheckBacklog, Delayed, PublishAt, Schedule, ScheduleValues
from penstock.errors import BacklogFull, NeverFits, OffsetOutOfRange
from penstock.model import Message, Priority

from .world import GROUP, MS, TOPIC, World, values


@pytest.fixture
def world():
    made = World()
    made.topic()
    made.group()
    return made


def test_a_batch_that_is_sent_again_is_stored_once(world):
    batch = PublishAt(TOPIC, 0, 0, [b"a", b"b"])
    assert world.execute(batch).next_offset == 2
    assert world.execute(batch).next_offset == 2
    # A retry may have more by now: of that, nothing is stored before the writer has heard what is.
    assert world.execute(PublishAt(TOPIC, 0, 0, [b"a", b"b", b"c"])).next_offset == 2
    assert (
        world.execute(PublishAt(TOPIC, 0, 2, messages=[Message(b"c", key=b"k")])).next_offset == 3
    )
    assert values(world.poll(10)) == [b"a", b"b", b"c"]


def test_an_offset_beyond_the_end_is_refused(world):
    with pytest.raises(OffsetOutOfRange):
        world.execute(PublishAt(TOPIC, 0, 1, [b"a"]))
    assert world.poll(10) == []


def test_the_backlog_is_checked_before_anything_is_numbered(world):
    world.configure(max_backlog_messages=2)
    world.execute(CheckBacklog(TOPIC, 0, 2, 100))
    world.execute(PublishAt(TOPIC, 0, 0, [b"a"]))
    with pytest.raises(BacklogFull):
        world.execute(CheckBacklog(TOPIC, 0, 2, 100))
    with pytest.raises(NeverFits):
        world.execute(CheckBacklog(TOPIC, 0, 3, 100))


def test_values_for_later_come_when_they_are_fired_and_not_before():
    world = World(is_firing=False)
    world.topic()
    world.group()
    due_ns = world.wall_ns + 1000 * MS
    stored = world.execute(ScheduleValues(TOPIC, [b"x"] * 10_000, due_ns))
    assert [stored[0].offset, stored[-1].offset] == [0, 9_999]
    fired = world.execute(FireDelayed(TOPIC, 0))
    assert (fired.messages, fired.end_offset) == (0, 0)
    assert world.wall_ns < fired.next_due_ns <= due_ns
    # A tick brings none of them.
    world.wait(2000)
    backlog = world.execute(DescribeBacklog(TOPIC, 0, GROUP))
    assert (backlog.end, backlog.unfinished, backlog.delayed) == (0, 0, 10_000)
    count = 0
    while (fired := world.execute(FireDelayed(TOPIC, 0))).messages:
        count += fired.messages
        assert fired.end_offset == count
    assert (count, fired.next_due_ns) == (10_000, None)


def test_an_urgent_message_that_came_is_told_of(world):
    for priority in (Priority.LOW, Priority.HIGH):
        message = Message(b"!", priority=priority)
        world.execute(Schedule(TOPIC, [Delayed(message, world.wall_ns + MS)], 0))
        world.now(2)
        fired = world.execute(FireDelayed(TOPIC, 0))
        assert (fired.messages, fired.is_urgent) == (1, priority is Priority.HIGH)

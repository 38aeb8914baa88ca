"""Dead letters and redrive: who gets what, and what is listed afterwards."""

import pytest
from msgspec.structs import replace

from penstock.api.answers import AnswerOffset, OffsetKind, ReleaseMember
from penstock.api.consume import CountReady, Poll
from penstock.api.dead_letters import (
    PROVENANCE_HEADER,
    BrowseDeadLetters,
    CountDeadLetters,
    DiscardDeadLetters,
    DiscardReply,
    Edit,
    GroupBy,
    RedriveDeadLetters,
    Selection,
    Target,
)
from penstock.api.fetch import Peek
from penstock.api.groups import (
    CloseGroup,
    Commit,
    DescribeBacklog,
    DescribeGroup,
    PartitionOffset,
    ResetGroup,
)
from penstock.api.members import JoinGroup
from penstock.api.start import EARLIEST, LATEST
from penstock.broker.partition.dead_letters import REDRIVE_GROUP, dead_letter_topic
from penstock.broker.partition.partitioner import partition_of
from penstock.errors import NotFound, Refused, TooLarge
from penstock.model import Message

from .world import GROUP, SMALL, TOPIC, World, values

TO_GROUP = RedriveDeadLetters(TOPIC, target=Target.GROUP)
TO_TOPIC = RedriveDeadLetters(TOPIC)
STOPS = pytest.mark.parametrize("stop", ["settle", "restart", "kill"])


def world_with_letters(*errors: str, partitions: int = 1, **settings: object) -> World:
    """A dead letter for each error, one second apart, and one message that was acked."""
    world = World()
    world.topic(partitions=partitions, max_retries=0, **settings)
    for group in (GROUP, "other"):
        world.group(group)
    world.publish(b"fine", *[Message(error.encode(), key=error.encode()) for error in errors])
    world.drain(group="other")
    for held in world.poll():
        if held.value == b"fine":
            world.ack(held)
        else:
            world.now(1000)
            world.reject(held, error=held.value.decode())
    world.settle()
    return world


@STOPS
def test_redrive_to_the_group_reaches_only_the_group_that_failed(stop) -> None:
    world = world_with_letters("a", "b")
    answer = world.execute(TO_GROUP)
    assert (answer.matched, answer.redriven, answer.failed) == (2, 2, [])
    assert world.letters() == []
    world.sync()
    getattr(world, stop)()
    world.settle()
    assert world.letters() == []
    assert world.poll(group="other") == []
    again = world.poll()
    assert [(one.value, one.offset, one.attempts) for one in again] == [(b"a", 1, 1), (b"b", 2, 1)]
    assert world.node.partition(TOPIC, 0).messages.end_offset == 3
    world.ack(*again)
    getattr(world, stop)()
    assert world.drain() == []
    assert world.lag(GROUP)[0].lag == 0


@STOPS
def test_redrive_to_the_topic_reaches_everybody_as_a_new_message(stop) -> None:
    world = world_with_letters("a", "b")
    assert world.execute(TO_TOPIC).redriven == 2
    world.sync()
    getattr(world, stop)()
    world.settle()
    assert world.letters() == []
    for group in (GROUP, "other"):
        got = world.drain(group=group)
        assert [(one.value, one.offset) for one in got] == [(b"a", 3), (b"b", 4)]
        assert all(one.headers == () for one in got)


@pytest.mark.parametrize("target", Target)
@pytest.mark.parametrize("stop", ["lose_unsynced", "kill"])
def test_a_letter_that_went_back_is_known_by_the_snapshot_where_it_came(target, stop) -> None:
    """What died knows nothing of the arrival after the crash, and sends it again: it must not come twice."""
    world = world_with_letters("a")
    world.execute(RedriveDeadLetters(TOPIC, target=target))
    world.sync()
    world.node.pump(world.now())
    assert values(world.drain()) == [b"a"]
    world.node.partition(TOPIC, 0).take_snapshot()
    getattr(world, stop)()
    world.settle()
    assert world.drain() == []
    assert values(world.drain(group="other")) == ([b"a"] if target is Target.TOPIC else [])
    assert world.letters() == []


def test_a_redriven_letter_that_fails_again_is_a_dead_letter_again() -> None:
    world = world_with_letters("a")
    for _ in range(3):
        world.execute(TO_GROUP)
        world.settle()
        world.reject(*world.poll(), error="still bad")
        world.settle()
        (letter,) = world.letters()
        assert letter.provenance.original_offset == 1
        assert letter.provenance.last_error == "still bad"


def test_a_dry_run_counts_and_changes_nothing() -> None:
    world = world_with_letters("a", "b")
    before = world.node.partition(TOPIC + ".dlq", 0).journal.log.end_offset
    order = RedriveDeadLetters(TOPIC, target=Target.GROUP, is_dry_run=True)
    answer = world.execute(order)
    assert (answer.matched, answer.redriven) == (2, 2)
    assert world.node.partition(TOPIC + ".dlq", 0).journal.log.end_offset == before
    assert len(world.letters()) == 2


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ({"is_all": True}, "abca"),
        ({"error": "a"}, "aa"),
        ({"reason": "REJECTED"}, "abca"),
        ({"reason": "TTL_EXPIRED"}, ""),
        ({"group": GROUP}, "abca"),
        ({"group": "other"}, ""),
        ({"offsets": frozenset({(0, 1), (0, 2), (7, 0)})}, "bc"),
        ({"before_ns": 2}, "a"),
        ({"after_ns": 2}, "ca"),
        ({"error": "a", "after_ns": 1}, "a"),
    ],
)
def test_letters_are_selected_by_what_is_known_of_them(conditions, expected) -> None:
    world = world_with_letters("a", "b", "c", "a")
    times = [letter.provenance.dlq_timestamp for letter in world.letters()]
    if "before_ns" in conditions or "after_ns" in conditions:
        conditions = {
            name: times[value - 1] if name in {"before_ns", "after_ns"} else value
            for name, value in conditions.items()
        }
    selection = Selection(**conditions)
    found = world.execute(BrowseDeadLetters(TOPIC, selection=selection)).letters
    assert b"".join(letter.message.value for letter in found).decode() == expected
    order = RedriveDeadLetters(TOPIC, selection=selection)
    assert world.execute(order).matched == len(expected)
    assert len(world.letters()) == 4 - len(expected)


def test_neither_a_filter_nor_all_is_refused() -> None:
    with pytest.raises(Refused, match="which dead letters"):
        Selection()


def test_letters_are_browsed_page_by_page_over_all_partitions() -> None:
    world = world_with_letters(*[f"e{number}" for number in range(20)], partitions=3)
    seen, cursor = [], (0, 0)
    while cursor is not None:
        page = world.execute(BrowseDeadLetters(TOPIC, limit=3, cursor=cursor))
        assert len(page.letters) <= 3
        seen += [letter.message.value for letter in page.letters]
        cursor = page.cursor
    assert sorted(seen) == sorted(b"e%d" % number for number in range(20))


def test_letters_of_all_partitions_are_redriven_or_discarded() -> None:
    every = Selection(is_all=True)
    world = world_with_letters(*[f"e{number}" for number in range(20)], partitions=3)
    letters = world.execute(BrowseDeadLetters(TOPIC, limit=100)).letters
    assert len({letter.partition for letter in letters}) == 3
    assert world.execute(replace(TO_TOPIC, limit=5)).redriven == 5
    world.settle()
    assert world.execute(DiscardDeadLetters(TOPIC, every)) == DiscardReply(15, 15)
    assert world.execute(BrowseDeadLetters(TOPIC)).letters == []


def test_letters_are_counted_by_what_they_died_of() -> None:
    world = world_with_letters("a", "b", "a")
    by_error = world.execute(CountDeadLetters(TOPIC, GroupBy.ERROR))
    assert [(one.value, one.count) for one in by_error] == [("a", 2), ("b", 1)]
    assert by_error[0].last_ns - by_error[0].first_ns == 2_000_000_000
    by_reason = world.execute(CountDeadLetters(TOPIC, GroupBy.REASON))
    assert [(one.value, one.count) for one in by_reason] == [("REJECTED", 3)]
    by_consumer = world.execute(CountDeadLetters(TOPIC, GroupBy.CONSUMER))
    assert [(one.value, one.count) for one in by_consumer] == [("m", 3)]


def test_a_letter_can_be_edited_on_its_way_to_the_topic() -> None:
    world = world_with_letters("a", partitions=3)
    edit = Edit(
        is_key_set=True, key=b"new key", is_value_set=True, value=None, headers=(("h", b"1"),)
    )
    world.execute(RedriveDeadLetters(TOPIC, edit=edit))
    world.settle()
    (got,) = world.drain()
    assert (got.key, got.value, got.headers) == (b"new key", None, (("h", b"1"),))
    assert got.partition == partition_of(b"new key", 3)


def test_what_is_not_edited_stays() -> None:
    world = world_with_letters("a")
    edit = Edit(is_value_set=True, value=b"repaired")
    world.execute(RedriveDeadLetters(TOPIC, edit=edit))
    world.settle()
    (got,) = world.drain()
    assert (got.key, got.value, got.headers) == (b"a", b"repaired", ())


def test_an_edit_has_to_be_within_the_limits_and_cannot_go_to_a_group() -> None:
    world = world_with_letters("a")
    edit = Edit(is_value_set=True, value=b"x" * (2 << 20))
    with pytest.raises(TooLarge):
        world.execute(RedriveDeadLetters(TOPIC, edit=edit))
    small = Edit(is_value_set=True, value=b"x")
    with pytest.raises(Refused, match="cannot be edited"):
        world.execute(RedriveDeadLetters(TOPIC, target=Target.GROUP, edit=small))
    assert len(world.letters()) == 1


def test_large_edits_go_in_several_calls() -> None:
    world = world_with_letters("a", "b", "c", "d", "e", "f")
    edit = Edit(is_value_set=True, value=b"x" * 1_000_000)
    order = RedriveDeadLetters(TOPIC, edit=edit)
    first = world.execute(order)
    assert (first.matched, first.redriven) == (6, 4)
    assert world.execute(order).redriven == 0
    world.restart()
    world.settle()
    assert world.execute(order).redriven == 2
    world.settle()
    assert len(world.drain()) == 6
    assert world.letters() == []


def test_a_limit_takes_the_oldest() -> None:
    world = world_with_letters("a", "b", "c")
    order = RedriveDeadLetters(TOPIC, limit=2)
    assert world.execute(order).redriven == 2
    assert values([one.message for one in world.letters()]) == [b"c"]
    with pytest.raises(Refused):
        world.execute(RedriveDeadLetters(TOPIC, limit=0))


def test_redrive_to_a_group_that_is_gone_fails_and_says_so() -> None:
    world = world_with_letters("a")
    world.execute(CloseGroup(GROUP, topic=TOPIC))
    answer = world.execute(TO_GROUP)
    assert (answer.matched, answer.redriven) == (1, 0)
    assert answer.failed[0][:2] == (0, 0)
    assert "group is gone" in answer.failed[0][2]
    assert len(world.letters()) == 1


def test_redrive_to_a_group_that_was_reset_before_the_message_fails() -> None:
    world = world_with_letters("a")
    world.reset(EARLIEST)
    assert world.execute(TO_GROUP).redriven == 0
    assert values(world.drain()) == [b"fine", b"a"]


def test_a_letter_whose_group_goes_away_on_the_way_is_a_dead_letter_again() -> None:
    world = world_with_letters("a")
    assert world.execute(TO_GROUP).redriven == 1
    world.execute(CloseGroup(GROUP, topic=TOPIC))
    world.settle()
    assert values([one.message for one in world.letters()]) == [b"a"]
    world.restart()
    assert values([one.message for one in world.letters()]) == [b"a"]
    assert world.execute(TO_TOPIC).redriven == 1
    world.settle()
    assert values(world.drain(group="other")) == [b"a"]


def test_an_expired_message_is_not_redriven_to_its_group() -> None:
    world = World()
    world.topic(max_retries=0, ttl_ms=5000)
    world.group()
    world.publish(b"a")
    world.reject(*world.poll())
    world.settle()
    world.now(6000)
    answer = world.execute(TO_GROUP)
    assert "time to live" in answer.failed[0][2]
    assert world.execute(TO_TOPIC).redriven == 1
    world.settle()
    assert values(world.drain()) == [b"a"]


def test_redrive_of_a_topic_without_dead_letters_finds_none() -> None:
    world = World()
    world.topic()
    assert world.execute(TO_TOPIC).matched == 0
    with pytest.raises(NotFound):
        world.execute(RedriveDeadLetters("nothing"))


def test_a_dead_letter_of_a_dead_letter_stays_where_it_is() -> None:
    world = world_with_letters("a")
    letters = dead_letter_topic(TOPIC)
    world.group(topic=letters)
    for _ in range(4):
        world.nack(*world.poll(topic=letters))
        world.wait(60_000)
    world.settle()
    assert world.poll(topic=letters) == []
    assert dead_letter_topic(letters) not in world.node.open
    assert len(world.letters()) == 1


def test_without_a_dead_letter_topic_they_are_dropped_and_counted() -> None:
    world = world_with_letters("a", dlq_enabled=False)
    assert world.letters() == []
    assert world.node.partition(TOPIC, 0).group(GROUP).dead_count == 1
    assert dead_letter_topic(TOPIC) not in world.node.open


def test_a_user_cannot_forge_a_dead_letter() -> None:
    world = world_with_letters("a")
    forged = Message(b"forged", headers=((PROVENANCE_HEADER, b"\x80"),))
    world.publish(forged, topic=dead_letter_topic(TOPIC))
    assert values([one.message for one in world.letters()]) == [b"a"]


def test_headers_of_the_same_name_as_ours_survive() -> None:
    world = World()
    world.topic(max_retries=0)
    world.group()
    world.publish(Message(b"a", headers=((PROVENANCE_HEADER, b"mine"),)))
    world.reject(*world.poll())
    world.settle()
    assert world.letters()[0].message.headers == ((PROVENANCE_HEADER, b"mine"),)


def test_a_message_at_the_limit_of_its_size_still_becomes_a_dead_letter() -> None:
    world = World(limits=SMALL)
    world.topic(max_retries=0)
    world.group()
    world.publish(Message(b"v" * 100, b"k" * 20, (("h", b"x" * 49),)))
    world.reject(*world.poll(), error="e" * 5000)
    world.settle()
    (letter,) = world.letters()
    assert letter.message.value == b"v" * 100
    assert letter.provenance.last_error == "e" * 1000


def test_many_letters_go_as_few_batches() -> None:
    world = World()
    world.topic(max_retries=0, max_in_flight_per_consumer=10_000)
    world.group()
    world.publish(*[b"%d" % number for number in range(2500)])
    world.reject(*world.poll(2500))
    world.settle()
    log = world.node.partition(dead_letter_topic(TOPIC), 0).messages
    assert log.end_offset == 2500
    letters = world.execute(BrowseDeadLetters(TOPIC, limit=5000)).letters
    assert [one.provenance.original_offset for one in letters] == list(range(2500))


def test_the_dead_letter_topic_of_a_long_name_is_short_enough() -> None:
    names = {dead_letter_topic("t" * 244 + last) for last in "ab"}
    assert len(names) == 2
    assert {len(name) for name in names} == {245}
    world = World()
    name = "t" * 245
    world.topic(name=name, max_retries=0)
    world.group(topic=name)
    world.publish(b"a", topic=name)
    world.reject(*world.poll(topic=name))
    world.settle()
    assert len(world.letters(name)) == 1


def test_dead_letters_survive_the_deletion_of_their_own_topic() -> None:
    """While one is on its way, somebody deletes the place it goes to: it goes to the next one."""
    world = World()
    world.topic(max_retries=0)
    world.group()
    world.publish(b"a", b"b")
    world.reject(world.poll(1)[0])
    world.settle()
    world.reject(world.poll(1)[0])
    world.sync()
    world.node.pump(world.now())
    world.delete(dead_letter_topic(TOPIC))
    world.settle()
    assert values([one.message for one in world.letters()]) == [b"b"]


DLQ = dead_letter_topic(TOPIC)


@pytest.mark.parametrize(
    "command",
    [
        Poll(DLQ, REDRIVE_GROUP, "m", 10),
        Peek(DLQ, 0, REDRIVE_GROUP, 10),
        CountReady(DLQ, REDRIVE_GROUP),
        Commit(REDRIVE_GROUP, (PartitionOffset(DLQ, 0, 2),)),
        Commit(REDRIVE_GROUP, (PartitionOffset(DLQ, 0, 2),), opens_group=True),
        AnswerOffset(OffsetKind.ACK_UP_TO, DLQ, 0, REDRIVE_GROUP, 1),
        ReleaseMember(DLQ, REDRIVE_GROUP, "m"),
        DescribeBacklog(DLQ, 0, REDRIVE_GROUP),
        DescribeGroup(REDRIVE_GROUP, topic=DLQ),
        ResetGroup(REDRIVE_GROUP, topic=DLQ, to=LATEST, is_forced=True),
        CloseGroup(REDRIVE_GROUP, topic=DLQ),
        JoinGroup(REDRIVE_GROUP, "m", (DLQ,)),
    ],
    ids=lambda one: type(one).__name__,
)
def test_which_letters_are_done_is_not_for_consumers_to_say(command) -> None:
    world = world_with_letters("a", "b", "c")
    # From the first redrive on there is a group that knows which letters are done.
    world.execute(RedriveDeadLetters(TOPIC, selection=Selection(error="a")))
    world.settle()
    with pytest.raises(Refused, match=REDRIVE_GROUP):
        world.execute(command)
    assert len(world.letters()) == 2

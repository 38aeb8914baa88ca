"""A poll whose answer was lost is asked again under the same id."""

import pytest

from penstock.api.consume import Poll
from penstock.api.leased import LeasedMessages, LeasedPart
from penstock.api.members import JoinGroup, PollMember
from penstock.api.receipts import Place
from penstock.broker.partition.release import give_back_all
from penstock.broker.poll_replay import PollReplay
from penstock.model import MessageColumns

from .world import GROUP, TOPIC, World, values


@pytest.fixture
def world():
    world = World()
    world.topic()
    world.group()
    world.publish(*[b"%d" % number for number in range(9)])
    return world


def shared(world, request_id, limit=3):
    return world.execute(Poll(TOPIC, GROUP, "m", limit, 30_000, request_id=request_id))


def assigned(world, request_id, limit=3):
    if GROUP not in world.node.assigned.groups:
        world.execute(JoinGroup(GROUP, "m", (TOPIC,)))
    return world.execute(PollMember(GROUP, "m", limit, request_id=request_id))


@pytest.fixture(params=[shared, assigned])
def poll(request):
    return request.param


def test_the_same_request_gets_the_same_messages_and_another_one_gets_others(world, poll):
    first = poll(world, "one")
    assert poll(world, "one") == first
    assert values(poll(world, "two")) == [b"3", b"4", b"5"]
    assert values(poll(world, "")) == [b"6", b"7", b"8"]
    assert all(one.attempts == 1 for one in first)


def test_what_was_acked_is_still_the_answer(world, poll):
    first = poll(world, "one")
    world.ack(*first)
    assert poll(world, "one") == first


def test_what_was_given_back_is_handed_out_anew(world, poll):
    first = poll(world, "one")
    partition = world.node.partition(TOPIC, 0)
    give_back_all(partition, partition.group(GROUP), "m", world.now())
    again = poll(world, "one")
    assert values(again) == values(first)
    assert again[0].lease > first[0].lease
    assert again[0].attempts == 1


def test_an_empty_answer_is_looked_for_again(world, poll):
    poll(world, "all", limit=100)
    assert poll(world, "more") == []
    world.publish(b"new")
    assert values(poll(world, "more")) == [b"new"]


def test_other_members_do_not_see_it(world):
    first = shared(world, "one")
    other = world.execute(Poll(TOPIC, GROUP, "n", 3, 30_000, request_id="one"))
    assert values(other) == [b"3", b"4", b"5"]
    assert shared(world, "one") == first


def test_a_deleted_topic_takes_its_answers_along(world):
    shared(world, "one")
    world.delete()
    world.topic()
    world.group()
    assert shared(world, "one") == []


def test_answers_are_dropped_for_newer_ones_and_too_large_ones_are_not_kept(world):
    large = shared(world, "", limit=3)
    small = [shared(world, "", limit=1) for _ in range(3)]
    kept = PollReplay(world.node.partition, bytes_max=1000)
    for number, answer in enumerate(small):
        kept.keep(number, "id", answer)
    assert kept.bytes_kept == 3 * 301
    kept.keep(3, "id", small[0])
    assert [kept.answer_to(who, "id") for who in range(4)] == [None, small[1], small[2], small[0]]
    kept.keep(1, "other id", small[0])
    assert kept.bytes_kept == 3 * 301
    two, _ = large.cut(2)
    kept.keep(2, "id", two)
    assert (kept.bytes_kept, kept.answer_to(2, "id")) == (903, two)
    too_large = LeasedMessages(*large.parts, *small[0].parts)
    kept.keep(2, "id", too_large)
    assert (kept.bytes_kept, kept.answer_to(2, "id")) == (301, None)
    for who in range(4):
        kept.forget(who)
    assert kept.bytes_kept == 0


def test_all_that_a_message_says_takes_room():
    rows = [[None, b"four"], [None, b"key"], [(), (("a", b"bcd"),)]]
    same = [[one, one] for one in (2, 0, None, None, None)]
    answer = LeasedMessages(
        LeasedPart(Place(TOPIC, 0, 1), 1, MessageColumns(*rows, *same, [0, 1]), 1)
    )
    assert answer.content_bytes() == 7
    kept = PollReplay(lambda *_: pytest.fail("nobody asks for an answer"))
    kept.keep("somebody", "id", answer)
    assert kept.bytes_kept == 2 * 300 + len("four" + "key" + "a" + "bcd")


def test_a_repeat_of_an_answer_that_was_not_kept_loses_nothing(world):
    world.node.replays.bytes_max = 10
    first = shared(world, "one")
    assert values(shared(world, "one")) == [b"3", b"4", b"5"]
    world.wait(31_000)
    world.wait(60_000)
    again = {one.offset: one.attempts for one in world.drain()}
    assert again == {number: 2 if number < 6 else 1 for number in range(9)}
    assert [one.offset for one in first] == [0, 1, 2]

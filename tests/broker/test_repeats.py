"""A poll whose answer was lost is asked again under the same id."""

import pytest

from penstock.broker import Wanted
from penstock.broker.giving_back import give_back_all
from penstock.broker.memberships import Ask, Join

from .world import GROUP, TOPIC, World, values


@pytest.fixture
def world():
    world = World()
    world.topic()
    world.group()
    world.publish(*[b"%d" % number for number in range(9)])
    return world


def shared(world, request_id, limit=3):
    wanted = Wanted("m", limit, 30_000, request_id=request_id)
    return world.node.poll(TOPIC, GROUP, wanted, world.now())


def assigned(world, request_id, limit=3):
    if GROUP not in world.node.assigned.groups:
        world.node.assigned.join(GROUP, Join(frozenset({TOPIC}), member="m"), world.now())
    return world.node.assigned.poll(GROUP, Ask("m", limit, request_id=request_id), world.now())


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
    other = world.node.poll(TOPIC, GROUP, Wanted("n", 3, 30_000, request_id="one"), world.now())
    assert values(other) == [b"3", b"4", b"5"]
    assert shared(world, "one") == first


def test_a_deleted_topic_takes_its_answers_along(world):
    shared(world, "one")
    world.node.delete_topic(TOPIC, world.now())
    world.topic()
    world.group()
    assert shared(world, "one") == []

"""Groups that are opened, joined, committed, reset and closed slice by slice, with other commands in between."""

import random

import pytest

from penstock.api.classic import CommitOffsets, CommittedOffset
from penstock.api.groups import (
    CloseGroup,
    Commit,
    DescribeGroup,
    DescribeLag,
    Mode,
    OpenGroup,
    PartitionOffset,
    ResetGroup,
)
from penstock.api.members import CommitAsMember, JoinGroup, LeaveGroup
from penstock.api.principals import LOCAL
from penstock.api.start import EARLIEST, LATEST, Start
from penstock.broker.walks import Walk
from penstock.errors import GroupBusy, ModeConflict, NotFound, PenstockError
from tests.broker.test_walks import in_slices, slices, walking

from .world import TOPIC, World

PARTITIONS, MESSAGES, GROUP = 6, 12, "group"


def stocked() -> World:
    world = World()
    world.topic(partitions=PARTITIONS)
    for number in range(MESSAGES):
        world.publish(b"%d" % number)
    return world


def floors(world: World, group: str = GROUP) -> list[int]:
    lag = world.execute(DescribeLag(group))
    return [partition.floor for partition in lag.partitions]


def ends(world: World) -> list[int]:
    return [partition.messages.end_offset for partition in world.node.topic(TOPIC).partitions]


def begun(world: World, command, entries: int = 1) -> Walk:
    """A walk with some entries behind it."""
    walk = Walk(command, LOCAL)
    assert world.node.go_on(walk, world.now(), entries).more is walk
    return walk


def ended(world: World, walk: Walk) -> object:
    return world.node.go_on(walk, world.now(), 1 << 30).reply


@pytest.mark.parametrize("seed", range(3))
def test_what_is_done_in_slices_is_done_everywhere(seed) -> None:
    world, entropy = stocked(), random.Random(seed)
    in_slices(world, OpenGroup(GROUP, (TOPIC,), LATEST), entropy)
    assert floors(world) == ends(world)
    moves = in_slices(world, ResetGroup(GROUP, to=EARLIEST), entropy)
    assert [move.floor_after for move in moves[TOPIC]] == [0] * PARTITIONS
    assert floors(world) == [0] * PARTITIONS
    joined = in_slices(world, JoinGroup(GROUP, "one", (TOPIC,)), entropy)
    assert len(joined.standing.assigned) == PARTITIONS
    offsets = tuple(PartitionOffset(TOPIC, number, 1) for number in range(PARTITIONS))
    assert in_slices(world, CommitAsMember(GROUP, "one", offsets), entropy) is True
    assert floors(world) == [1] * PARTITIONS
    world.restart()
    assert floors(world) == [1] * PARTITIONS
    in_slices(world, CloseGroup(GROUP), entropy)
    with pytest.raises(NotFound):
        world.execute(DescribeLag(GROUP))
    assert not walking()


@pytest.mark.parametrize("other", ["poll", "open", "join", "commit"])
@pytest.mark.parametrize("entries", range(1, 2 * PARTITIONS))
def test_a_group_begins_in_one_place_whoever_opens_it_meanwhile(other, entries) -> None:
    world = stocked()
    walk = begun(world, OpenGroup(GROUP, (TOPIC,), LATEST), entries)
    match other:
        case "poll":
            world.poll(group=GROUP)
        case "open":
            world.execute(OpenGroup(GROUP, (TOPIC,), EARLIEST))
        case "join":
            world.execute(JoinGroup(GROUP, "one", (TOPIC,)))
        case "commit":
            world.execute(Commit(GROUP, (PartitionOffset(TOPIC, 0, 0),), opens_group=True))
    ended(world, walk)
    assert floors(world) in (ends(world), [0] * PARTITIONS)
    world.execute(OpenGroup("next", (TOPIC,), EARLIEST))
    assert floors(world, "next") == [0] * PARTITIONS


def test_a_group_whose_client_left_half_way_begins_where_it_began() -> None:
    world = stocked()
    begun(world, OpenGroup(GROUP, (TOPIC,), LATEST), PARTITIONS + 2).close()
    assert world.poll(group=GROUP) == []
    assert floors(world) == ends(world)
    begun(world, OpenGroup("next", (TOPIC,), LATEST), PARTITIONS + 2).close()
    world.execute(CloseGroup("next"))
    world.group("next")
    assert floors(world, "next") == [0] * PARTITIONS


def test_a_group_that_was_closed_half_way_is_another_one_when_it_comes_again() -> None:
    world = stocked()
    begun(world, OpenGroup(GROUP, (TOPIC,), LATEST), PARTITIONS + 2).close()
    world.execute(CloseGroup(GROUP))
    # Opened by an offset of one of its partitions, and then on all of them.
    world.execute(CommitOffsets(GROUP, (CommittedOffset(TOPIC, 0, 0, ""),)))
    world.group(GROUP)
    assert floors(world) == [0] * PARTITIONS


def test_a_start_that_one_partition_does_not_have_opens_the_group_on_none() -> None:
    world = stocked()
    world.publish(b"more", partition=0)
    reply = in_slices(world, OpenGroup(GROUP, (TOPIC,), Start.at_offset(3)), random.Random(1))
    assert isinstance(reply, PenstockError)
    with pytest.raises(NotFound):
        world.execute(DescribeLag(GROUP))


def test_a_group_is_not_closed_under_a_member_that_comes_meanwhile() -> None:
    world = stocked()
    world.group(GROUP, start=LATEST)
    walk = begun(world, CloseGroup(GROUP), PARTITIONS + 4)
    world.execute(JoinGroup(GROUP, "one", (TOPIC,)))
    assert isinstance(ended(world, walk), GroupBusy)
    assert len(floors(world)) == PARTITIONS
    assert [one.id for one in world.execute(DescribeGroup(GROUP)).members] == ["one"]


@pytest.mark.parametrize("comer", ["member", "lease"])
def test_a_group_is_not_reset_under_those_who_come_meanwhile(comer) -> None:
    world = stocked()
    world.group(GROUP)
    walk = begun(world, ResetGroup(GROUP, to=LATEST), 3 * PARTITIONS + 2)
    if comer == "member":
        world.execute(JoinGroup(GROUP, "one", (TOPIC,)))
    else:
        assert world.poll(100, group=GROUP)
    assert isinstance(ended(world, walk), GroupBusy)
    world.execute(ResetGroup(GROUP, to=LATEST, is_forced=True))
    assert floors(world) == ends(world)


def test_a_member_that_has_left_commits_no_further() -> None:
    world = stocked()
    world.execute(JoinGroup(GROUP, "one", (TOPIC,)))
    offsets = tuple(PartitionOffset(TOPIC, number, 1) for number in range(PARTITIONS))
    walk = begun(world, CommitAsMember(GROUP, "one", offsets), PARTITIONS + 2)
    world.execute(LeaveGroup(GROUP, "one"))
    assert isinstance(ended(world, walk), PenstockError)
    assert floors(world) == [1, 1, 0, 0, 0, 0]


@pytest.mark.parametrize("seed", range(8))
def test_of_two_members_that_join_at_once_in_two_orders_one_is_refused(seed) -> None:
    world, entropy = stocked(), random.Random(seed)
    joins = [
        JoinGroup(GROUP, mode.name.lower(), (TOPIC,), mode=mode)
        for mode in (Mode.RELAXED, Mode.STRICT)
    ]
    walks = [slices(world, Walk(join, LOCAL), entropy) for join in joins]
    replies: list[object] = []
    while walks:
        walk = entropy.choice(walks)
        reply = next(walk)
        if reply is not None:
            replies.append(reply)
            walks.remove(walk)
    assert [isinstance(reply, ModeConflict) for reply in replies].count(True) == 1
    facts = world.execute(DescribeGroup(GROUP))
    assert len(facts.members) == 1
    modes = {
        partition.machine.modes[partition.group(GROUP).group]
        for partition in world.node.topic(TOPIC).partitions
    }
    assert len(modes) == 1

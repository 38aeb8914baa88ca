"""Assigned groups on a node: what is durable, what is not, and what a full disk or a crash leaves of them."""

import pytest
from msgspec.structs import replace

from penstock.api.groups import CloseGroup, DescribeGroup, Mode, PartitionOffset
from penstock.api.members import (
    CommitAsMember,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    PollMember,
    ReleasePartitions,
    StartWaiting,
)
from penstock.broker.partition import Partition
from penstock.errors import (
    DamagedBatch,
    ModeConflict,
    NoSpace,
    NotFound,
    NotOwner,
    StaleGeneration,
    StaleReceipt,
    UnknownMember,
)
from penstock.sim.disk import UNLIMITED

from .world import GROUP, TOPIC, World, values

SESSION_MS = 10_000


@pytest.fixture
def world():
    world = World()
    world.topic(partitions=4)
    return world


def join(world, member="a", **options):
    return world.execute(JoinGroup(GROUP, member, (TOPIC,), session_ms=SESSION_MS, **options))


def poll(world, member="a", limit=100, **options):
    return world.execute(PollMember(GROUP, member, limit, **options))


def beat(world, member="a", generation=None):
    return world.execute(Heartbeat(GROUP, member, generation))


def release(world, member="a", generation=None):
    wanted = beat(world, member).to_release
    return world.execute(ReleasePartitions(GROUP, member, wanted, generation))


def commit(world, member, partition, offset, generation=None):
    offsets = (PartitionOffset(TOPIC, partition, offset),)
    return world.execute(CommitAsMember(GROUP, member, offsets, generation))


def fill(world, each=3):
    for partition in range(4):
        world.publish(*(b"%d-%d" % (partition, one) for one in range(each)), partition=partition)


def stale(results):
    return [isinstance(one, StaleReceipt) for one in results]


def test_a_member_without_a_name_gets_one_of_its_own(world):
    names = [join(world, "", client="web").member for _ in range(3)]
    assert len(set(names)) == 3
    assert all(name.startswith("web-") for name in names)


def test_members_have_to_join_again_after_a_restart_and_progress_is_there(world):
    fill(world)
    before = join(world).standing
    assert commit(world, "a", 1, 2)
    world.restart()
    for call in (poll, beat, release, lambda world: commit(world, "a", 1, 3)):
        with pytest.raises(UnknownMember):
            call(world)
    after = join(world).standing
    assert after.generation > before.generation + 100
    with pytest.raises(StaleGeneration):
        beat(world, generation=before.generation)
    assert sorted(values(poll(world)))[3:5] == [b"1-2", b"2-0"]


@pytest.mark.parametrize("ending", ["restart", "kill", "lose_unsynced"])
def test_generations_do_not_repeat_whatever_the_end_was(world, ending):
    seen = []
    for _ in range(3):
        seen += [join(world, name).standing.generation for name in "ab"]
        getattr(world, ending)()
    assert len(set(seen)) == len(seen)


def test_leases_of_before_a_restart_end_when_somebody_else_gets_the_partition(world):
    fill(world)
    join(world)
    held = poll(world)
    world.kill()
    join(world, "b")
    assert sorted(values(poll(world, "b"))) == sorted(values(held))
    assert all(stale(world.ack(*held)))


def test_a_member_that_comes_back_with_its_messages_in_hand_keeps_them(world):
    fill(world)
    join(world)
    held = poll(world)
    world.kill()
    join(world, keeps_leases=True)
    assert poll(world) == []
    assert not any(stale(world.ack(*held)))


def test_the_mode_survives_with_the_progress_and_goes_with_it(world):
    join(world, mode=Mode.STRICT)
    world.sync()
    for ending in ("kill", "restart"):
        getattr(world, ending)()
        with pytest.raises(ModeConflict):
            world.poll()
        assert all(one.group(GROUP).is_strict for one in world.node.partitions())
    world.execute(CloseGroup(GROUP, topic=TOPIC))
    world.group()
    assert world.poll() == []
    with pytest.raises(ModeConflict):
        join(world)


def test_partitions_that_were_added_while_nobody_was_there_get_the_mode_too(world):
    join(world, mode=Mode.STRICT)
    world.execute(LeaveGroup(GROUP, "a"))
    world.grow(6)
    standing = join(world).standing
    assert len(standing.assigned) == 6
    assert all(one.group(GROUP).is_strict for one in world.node.partitions())


def test_a_topic_that_is_made_again_is_read_again_in_the_same_order(world):
    join(world, mode=Mode.STRICT)
    world.delete()
    assert beat(world).assigned == ()
    world.topic(partitions=2)
    assert len(beat(world).assigned) == 2
    world.publish(b"0", b"1", partition=0)
    assert values(poll(world, limit=1)) == [b"0"]
    assert poll(world) == []


def test_partitions_added_on_a_disk_that_is_full_for_groups_are_read_later_in_order(world):
    join(world, mode=Mode.STRICT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Partition, "open_group", no_space)
        world.grow(5)
    world.publish(b"0", b"1", partition=4)
    assert values(poll(world, limit=1)) == [b"0"]
    assert world.node.partition(TOPIC, 4).group(GROUP).is_strict


def no_space(*_args, **_named):
    raise NoSpace("state")


def test_a_member_of_two_topics_is_refused_before_either_is_touched(world):
    world.topic(name="shared")
    world.group(topic="shared")
    world.poll(topic="shared")
    with pytest.raises(ModeConflict):
        world.execute(JoinGroup(GROUP, "a", (TOPIC, "shared")))
    assert GROUP not in world.node.partition(TOPIC, 0).machine.numbers


def test_what_a_missed_member_held_passes_on_with_one_attempt_counted(world):
    fill(world, each=2)
    join(world)
    poll(world)
    world.wait(SESSION_MS)
    assert world.execute(DescribeGroup(GROUP)).state == "empty"
    join(world, "b")
    attempts = sorted(one.attempts for one in poll(world, "b"))
    assert attempts == [1, 1, 1, 1, 2, 2, 2, 2]


def test_a_member_that_is_late_is_missed_before_its_own_call_is_heard(world):
    join(world)
    world.now(SESSION_MS)
    with pytest.raises(UnknownMember):
        beat(world)


def test_a_full_disk_refuses_a_member_and_changes_nothing(world):
    world.disk.capacity_bytes = 1
    with pytest.raises(NoSpace):
        join(world)
    assert world.node.assigned.groups == {}
    world.disk.capacity_bytes = UNLIMITED
    assert join(world).standing.state == "stable"


def test_leases_that_could_not_be_ended_on_a_full_disk_end_at_their_deadline(world):
    fill(world)
    join(world)
    poll(world, visibility_ms=5000)
    join(world, "b")
    world.disk.capacity_bytes = 1
    passed = release(world)
    world.disk.capacity_bytes = UNLIMITED
    assert beat(world, "b").assigned == passed
    assert poll(world, "b") == []
    world.wait(5000)
    beat(world)
    world.wait(1000)
    assert {one.partition for one in poll(world, "b")} == {one.number for one in passed}


def test_a_damaged_partition_does_not_take_what_other_partitions_gave(world):
    fill(world)
    join(world)
    partition = world.node.partition(TOPIC, 2)

    def damaged(offset):
        raise DamagedBatch("x", 0, "test", next_offset=3)

    partition.cache.at = damaged
    got, refused = [], 0
    for _ in range(8):
        try:
            got += poll(world)
        except DamagedBatch:
            refused += 1
    assert len(got) == 9
    assert refused


def test_an_owner_has_as_long_to_release_as_the_broker_was_told(world):
    world.node.assigned.revocation_ms = 5000
    join(world, "a")
    fill(world)
    join(world, "b")
    assert len(beat(world, "a").to_release) == 2
    assert beat(world, "b").assigned == ()
    world.wait(4999)
    assert beat(world, "b").assigned == ()
    world.wait(1)
    assert len(beat(world, "b").assigned) == 2
    assert beat(world, "a").to_release == ()


def test_partitions_to_release_are_told_of_topics_that_the_caller_reaches(world):
    topics = (TOPIC, "other")
    world.topic(partitions=4, name="other")
    join_both = JoinGroup(GROUP, "a", topics, session_ms=SESSION_MS)
    world.execute(join_both)
    fill(world)
    world.publish(b"a", topic="other", partition=0)
    for number in range(1, 8):
        world.execute(replace(join_both, member=f"b{number}"))
    leaving = beat(world, "a").to_release
    assert {place.topic for place in leaving} == {*topics}
    (member,) = [
        one
        for one in world.execute(DescribeGroup(GROUP, prefixes=("other",))).members
        if one.id == "a"
    ]
    assert member.to_release == tuple(place for place in leaving if place.topic == "other")


def test_a_topic_that_is_gone_is_no_place_to_join(world):
    with pytest.raises(NotFound):
        world.execute(JoinGroup(GROUP, "", ("nowhere",)))
    with pytest.raises(NotFound):
        world.execute(DescribeGroup(GROUP))


def test_an_admin_may_commit_for_an_empty_group_only(world):
    fill(world)
    join(world)
    with pytest.raises(NotOwner):
        world.commit(GROUP, 1)
    world.execute(LeaveGroup(GROUP, "a"))
    assert world.commit(GROUP, 1)


def test_a_group_with_members_is_not_forgotten_however_idle(world):
    join(world)
    for _ in range(3):
        world.wall_ns += 10**9 * 3600 * 24 * 365
        beat(world)
        assert all(not one.groups_forgotten for one in world.sweep().values())
    world.execute(LeaveGroup(GROUP, "a"))
    before = world.node.assigned.groups[GROUP].generation
    swept = world.sweep()
    assert swept[TOPIC].groups_forgotten == (GROUP,)
    assert join(world).standing.generation > before


def test_the_next_tick_is_due_when_a_member_would_be_missed(world):
    join(world)
    assert world.node.next_due_ns() == world.now().monotonic_ns + SESSION_MS * 1_000_000
    assert world.execute(StartWaiting(GROUP, "a"))
    assert world.node.next_due_ns() == float("inf")

"""Offsets that clients commit for a group, classic groups of a node, and what else only Kafka clients ask for."""

from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.api.classic import (
    AwaitJoin,
    CommitOffsets,
    CommittedOffset,
    DescribeClassic,
    HeartbeatClassic,
    JoinClassic,
    JoinedClassic,
    LeaveClassic,
    ListClassic,
    ListCommitted,
    Pending,
    SyncClassic,
)
from penstock.api.command import Command
from penstock.api.fetch import FindEpochEnd, FindTimestamp, TimedOffset
from penstock.api.groups import CloseGroup, DescribeGroup, DescribeLag, ListGroups, ResetGroup
from penstock.api.members import JoinGroup
from penstock.api.principals import Principal, Role
from penstock.api.publish import Publish
from penstock.api.start import EARLIEST
from penstock.api.topics import TrimPartition
from penstock.errors import (
    Forbidden,
    GroupBusy,
    InvalidName,
    ModeConflict,
    NotFound,
    OffsetOutOfRange,
    PenstockError,
    StaleGeneration,
    TooLarge,
    UnknownMember,
)
from penstock.groups.classic import ProtocolConflict
from penstock.model import Message

from .world import GROUP, TOPIC, World, values

R = TypeVar("R")
STOPS = pytest.mark.parametrize("stop", ["restart", "kill"])
PROTOCOLS = (("range", b""),)


def numbered(count: int = 10, **settings: object) -> World:
    world = World()
    world.topic(**settings)
    for number in range(count):
        world.publish(b"%d" % number)
    return world


def commit(world: World, offset: int, note: str = "", **who: object):
    (refused,) = world.execute(
        CommitOffsets(GROUP, (CommittedOffset(TOPIC, 0, offset, note),), **who)
    )
    return refused


def committed(world: World) -> list[tuple[int, str]]:
    return [(one.offset, one.note) for one in world.execute(ListCommitted(group=GROUP))]


def joined(
    world: World, member: str = "", topics: tuple[str, ...] = (TOPIC,)
) -> tuple[str, JoinedClassic]:
    command = JoinClassic(
        GROUP, member, protocol_type="consumer", protocols=PROTOCOLS, topic_names=topics
    )
    name = world.execute(command).member
    world.now(300)
    world.node.tick(world.now())
    found = world.execute(AwaitJoin(GROUP, name))
    assert isinstance(found, JoinedClassic)
    return name, found


@STOPS
def test_a_commit_goes_forward_and_back_and_keeps_its_text(stop) -> None:
    world = numbered()
    assert committed(world) == []
    for offset, note in ((4, "a"), (7, ""), (2, "back"), (2, "same place")):
        assert commit(world, offset, note) is None
        assert committed(world) == [(offset, note)]
    world.sync()
    getattr(world, stop)()
    assert committed(world) == [(2, "same place")]
    assert values(world.drain()) == [b"%d" % number for number in range(2, 10)]


def test_what_cannot_be_committed_is_said_of_each_offset() -> None:
    world = numbered()
    places = ((TOPIC, 0, 5), (TOPIC, 0, 11), (TOPIC, 9, 1), ("none", 0, 1))
    offsets = tuple(CommittedOffset(*place, "") for place in places)
    refused = world.execute(CommitOffsets(GROUP, offsets))
    kinds = [type(one) for one in refused]
    assert kinds == [type(None), OffsetOutOfRange, NotFound, NotFound]
    assert committed(world) == [(5, "")]
    with pytest.raises(InvalidName):
        world.execute(CommitOffsets("no name", offsets[:1]))


def test_a_group_of_our_own_has_its_progress_for_offset() -> None:
    world = numbered()
    world.group()
    assert committed(world) == []
    world.drain()
    assert committed(world) == [(10, "")]


def test_a_group_with_members_takes_commits_of_its_members_only() -> None:
    world = numbered()
    assert commit(world, 1) is None
    name, round_ = joined(world)
    with pytest.raises(UnknownMember):
        commit(world, 2)
    with pytest.raises(UnknownMember):
        commit(world, 2, member="another", generation=round_.generation)
    with pytest.raises(StaleGeneration):
        commit(world, 2, member=name, generation=round_.generation + 1)
    assert commit(world, 2, member=name, generation=round_.generation) is None
    world.execute(LeaveClassic(GROUP, name))
    with pytest.raises(UnknownMember):
        commit(world, 3, member=name, generation=round_.generation)
    assert commit(world, 3) is None


def test_a_group_with_members_is_neither_closed_nor_reset() -> None:
    world = numbered()
    commit(world, 1)
    name, _ = joined(world)
    for command in (CloseGroup(GROUP), ResetGroup(GROUP, to=EARLIEST)):
        with pytest.raises(GroupBusy):
            world.execute(command)
    world.execute(LeaveClassic(GROUP, name))
    world.execute(CloseGroup(GROUP))
    assert committed(world) == []


def test_while_a_classic_group_reads_a_topic_no_other_members_do() -> None:
    """Each message would be handed out twice, and commits would take the leases of the others away."""
    world = numbered(3)
    world.topic(name="more")
    member, _ = joined(world)
    with pytest.raises(ModeConflict) as refused:
        world.poll()
    assert refused.value.fields["mode"] == "classic"
    with pytest.raises(ModeConflict):
        world.execute(JoinGroup(GROUP, "m", topic_names=("more", TOPIC)))
    assert world.poll(topic="more") == [], "a topic that it does not read"
    world.execute(LeaveClassic(GROUP, member))
    assert values(world.poll()) == [b"0", b"1", b"2"]


def test_a_classic_group_reads_no_topic_that_its_group_shares() -> None:
    world = numbered(3)
    (held, *_) = world.poll()
    topics = ("none", TOPIC)
    command = JoinClassic(
        GROUP, "", protocol_type="consumer", protocols=PROTOCOLS, topic_names=topics
    )
    with pytest.raises(ProtocolConflict):
        world.execute(command)
    world.ack(held)
    world.execute(replace(command, topic_names=("none",)))
    assert committed(world) == [(1, "")]


def test_members_join_sync_and_are_described() -> None:
    world = numbered()
    name, round_ = joined(world)
    assert round_.leader == name
    share = SyncClassic(GROUP, name, generation=round_.generation, assignments={name: b"all"})
    assert world.execute(share) == b"all"
    world.execute(HeartbeatClassic(GROUP, name, generation=round_.generation))
    facts = world.execute(DescribeClassic(group=GROUP))
    assert (facts.state, [one.assignment for one in facts.members]) == ("Stable", [b"all"])
    assert [one.group for one in world.execute(ListClassic())] == [GROUP]
    assert world.execute(ListClassic(prefixes=("other.",))) == []
    other = JoinClassic(GROUP, "", protocol_type="consumer", protocols=PROTOCOLS)
    ticket = world.execute(other)
    assert isinstance(world.execute(AwaitJoin(GROUP, ticket.member)), Pending)


# It reaches other topics than those of `TOPIC`.
STRANGER = Principal("stranger", Role.CONSUMER, ("other",))


def as_stranger(world: World, command: Command[R]) -> R:
    reply = world.node.execute(command, STRANGER, world.now()).reply
    if isinstance(reply, PenstockError):
        raise reply
    return reply


def stranger_join(member: str = "", instance: str = "") -> JoinClassic:
    return JoinClassic(
        GROUP, member, protocol_type="consumer", protocols=PROTOCOLS, instance=instance
    )


def test_a_key_takes_the_place_of_no_instance_whose_topics_it_does_not_reach() -> None:
    world = numbered()
    static = replace(stranger_join(instance="i1"), topic_names=(TOPIC,))
    name = world.execute(static).member
    world.wait(300)
    generation = world.execute(AwaitJoin(GROUP, name)).generation
    world.execute(SyncClassic(GROUP, name, generation=generation, instance="i1"))
    commands = (
        stranger_join(instance="i1"),
        replace(stranger_join(), needs_id=True),
        LeaveClassic(GROUP, "", instance="i1"),
        LeaveClassic(GROUP, name),
        HeartbeatClassic(GROUP, name, generation=generation),
    )
    for command in commands:
        with pytest.raises(Forbidden):
            as_stranger(world, command)
    world.execute(HeartbeatClassic(GROUP, name, generation=generation, instance="i1"))


@pytest.mark.parametrize("is_alone_first", [True, False])
def test_no_key_leads_members_whose_topics_it_does_not_reach(is_alone_first: bool) -> None:
    world = numbered()
    joining = replace(stranger_join(), rebalance_ms=1000)
    stranger = as_stranger(world, joining).member
    if is_alone_first:
        world.wait(300)
        assert as_stranger(world, AwaitJoin(GROUP, stranger)).leader == stranger
        as_stranger(world, SyncClassic(GROUP, stranger, generation=1))
    name = world.execute(replace(joining, topic_names=(TOPIC,))).member
    if not is_alone_first:
        world.wait(300)
        assert world.execute(AwaitJoin(GROUP, name)).leader == stranger
        assert isinstance(world.execute(SyncClassic(GROUP, name, generation=1)), Pending)
    commands = (
        replace(joining, member=stranger),
        AwaitJoin(GROUP, stranger),
        SyncClassic(GROUP, stranger, generation=1, assignments={name: b""}),
    )
    for command in commands:
        with pytest.raises(Forbidden):
            as_stranger(world, command)
    # It is missed in this round, and the other one goes on without it.
    world.wait(1500)
    if not is_alone_first:
        world.execute(replace(joining, member=name, topic_names=(TOPIC,)))
    round_ = world.execute(AwaitJoin(GROUP, name))
    assert (round_.leader, [one.id for one in round_.members]) == (name, [name])


def test_a_key_with_prefixes_is_told_of_members_whose_topics_it_reaches() -> None:
    world = numbered()
    world.topic(name="other")
    world.execute(CommitOffsets(GROUP, (CommittedOffset("other", 0, 0, ""),)))
    joined(world)
    described = DescribeClassic(group=GROUP, prefixes=STRANGER.prefixes)
    assert as_stranger(world, described).members == ()
    (listed,) = as_stranger(world, ListClassic(prefixes=STRANGER.prefixes))
    assert listed.members == ()
    assert len(world.execute(DescribeClassic(group=GROUP)).members) == 1


def test_a_key_with_prefixes_is_not_told_of_a_member_that_reads_a_topic_beside_its_own() -> None:
    world = numbered()
    world.topic(name="other")
    world.execute(CommitOffsets(GROUP, (CommittedOffset("other", 0, 0, ""),)))
    joined(world, topics=("other", TOPIC))
    described = DescribeClassic(group=GROUP, prefixes=STRANGER.prefixes)
    assert as_stranger(world, described).members == ()
    assert len(world.execute(DescribeClassic(group=GROUP)).members) == 1


def test_members_are_seen_with_the_group_by_what_they_read() -> None:
    """Also before they commit, and by keys that reach one of their topics."""
    world = numbered()
    world.topic(name="other")
    name, _ = joined(world)
    assert world.execute(ListGroups()) == {GROUP: [TOPIC]}
    assert world.execute(ListGroups(prefixes=STRANGER.prefixes)) == {}
    with pytest.raises(NotFound):
        as_stranger(world, DescribeGroup(GROUP, prefixes=STRANGER.prefixes))
    facts = world.execute(DescribeGroup(GROUP, topic=TOPIC))
    assert (facts.modes, [one.id for one in facts.classic_members]) == ({TOPIC: "classic"}, [name])
    assert commit(world, 3, member=name, generation=facts.generation) is None
    world.execute(CommitOffsets("aside", (CommittedOffset("other", 0, 0, ""),)))
    assert as_stranger(world, ListGroups(prefixes=STRANGER.prefixes)) == {"aside": ["other"]}
    (lag,) = world.execute(DescribeLag(GROUP)).partitions
    assert (lag.floor, lag.lag) == (3, 7)
    world.execute(LeaveClassic(GROUP, name))
    facts = world.execute(DescribeGroup(GROUP))
    assert (facts.state, facts.classic_members) == ("empty", ())
    assert facts.modes == {TOPIC: "undecided"}


def test_a_client_without_an_id_gets_one_first() -> None:
    world = numbered()
    command = JoinClassic(
        GROUP, "", protocol_type="consumer", protocols=PROTOCOLS, needs_id=True, session_ms=6000
    )
    ticket = world.execute(command)
    assert not ticket.is_member
    with pytest.raises(UnknownMember):
        world.execute(AwaitJoin(GROUP, ticket.member))
    assert joined(world, ticket.member)[0] == ticket.member
    with pytest.raises(UnknownMember):
        joined(world, "made-up")


def test_a_member_is_missed_and_its_group_forgotten() -> None:
    world = numbered()
    name, _ = joined(world)
    assert world.node.classic.busy_groups() == [GROUP]
    assert world.node.next_due_ns() < float("inf")
    world.now(60_000)
    world.node.tick(world.now())
    assert world.node.classic.busy_groups() == []
    with pytest.raises(UnknownMember):
        world.execute(AwaitJoin(GROUP, name))


def test_the_first_message_of_a_time_is_found_by_its_own_timestamp() -> None:
    world = World()
    world.topic()
    for base in (5000, 1000, 9000):
        messages = [Message(b"x", timestamp=base + step) for step in (30, 10, 20)]
        world.execute(Publish(TOPIC, messages, 0))
    for time, offset in ((1, 0), (5025, 0), (5031, 6), (9020, 6), (9030, 6), (9031, None)):
        found = world.execute(FindTimestamp(TOPIC, 0, time)).found
        assert (None if found is None else found.offset) == offset
    assert world.execute(FindTimestamp(TOPIC, 0)) == (TimedOffset(6, 9030, 1), None)


@given(
    st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=3), min_size=1, max_size=12),
    st.integers(0, 36),
)
def test_timestamps_are_found_file_by_file_as_in_a_list(batches, start) -> None:
    world = World()
    world.topic(segment_size_bytes=400)
    for times in batches:
        world.execute(Publish(TOPIC, [Message(b"x", timestamp=one) for one in times], 0))
    every = [time for times in batches for time in times]
    start = min(start, len(every))
    world.execute(TrimPartition(TOPIC, 0, start))

    def searched(time: int | None) -> tuple[int, int] | None:
        """What the steps find; the latest of several, the first of those."""
        best, offset, steps = None, 0, 0
        while offset is not None:
            found, offset = world.execute(FindTimestamp(TOPIC, 0, time, offset))
            if found is not None and (best is None or found.timestamp > best[1]):
                best = found.offset, found.timestamp
            steps += 1
        assert steps <= len(world.node.partition(TOPIC, 0).messages.segments)
        return best

    kept = [*enumerate(every)][start:]
    # The second time, what files hold is known.
    for time in (*range(1, 11), *range(1, 11)):
        assert searched(time) == next(((at, one) for at, one in kept if one >= time), None)
    latest = max((one for _, one in kept), default=0)
    assert searched(None) == next(((at, one) for at, one in kept if one == latest), None)


def test_where_an_epoch_ended() -> None:
    world = numbered()
    world.kill()
    world.publish(b"later")
    epoch = world.node.partition(TOPIC, 0).messages.epoch
    end = world.node.partition(TOPIC, 0).messages.end_offset
    assert world.execute(FindEpochEnd(TOPIC, 0, epoch + 5)) == (epoch, end)
    assert world.execute(FindEpochEnd(TOPIC, 0, -1)) == (-1, -1)


def test_an_epoch_that_was_removed_ended_where_the_log_starts() -> None:
    world = numbered(10, segment_messages_max=5)
    removed = world.node.partition(TOPIC, 0).messages.epoch
    world.kill()
    world.publish(b"later")
    world.execute(TrimPartition(TOPIC, 0, 10))
    world.kill()
    # A reader that has read to there has missed nothing.
    assert world.node.partition(TOPIC, 0).messages.epochs[0].epoch > removed
    assert world.execute(FindEpochEnd(TOPIC, 0, removed)) == (removed, 10)


@STOPS
def test_the_beginning_of_a_partition_is_removed(stop) -> None:
    world = numbered(20, segment_messages_max=5)
    world.group()
    with pytest.raises(OffsetOutOfRange):
        world.execute(TrimPartition(TOPIC, 0, 21))
    assert world.execute(TrimPartition(TOPIC, 0, 12)) == 12
    assert world.execute(TrimPartition(TOPIC, 0, 3)) == 12
    world.sync()
    getattr(world, stop)()
    assert values(world.drain()) == [b"%d" % number for number in range(12, 20)]
    assert world.execute(TrimPartition(TOPIC, 0)) == 20
    getattr(world, stop)()
    world.publish(b"after")
    assert values(world.drain()) == [b"after"]


def test_what_members_say_of_themselves_is_bounded() -> None:
    world = numbered()
    large = JoinClassic(
        GROUP, "", protocol_type="consumer", protocols=(("range", bytes(300 << 10)),)
    )
    with pytest.raises(TooLarge):
        world.execute(large)
    name, round_ = joined(world)
    share = SyncClassic(
        GROUP, name, generation=round_.generation, assignments={name: bytes(300 << 10)}
    )
    with pytest.raises(TooLarge):
        world.execute(share)

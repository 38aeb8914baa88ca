"""A membership under random calls, against a naive model that keeps one row a partition."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api.groups import Cause
from penstock.api.members import Assignor
from penstock.errors import NotOwner, Refused, StaleGeneration, UnknownMember
from penstock.groups import GroupTime, JoinRequest, Membership, commands
from penstock.groups.membership import REVOCATION_MS
from penstock.groups.records import (
    MemberJoined,
    MemberRemoved,
    PartitionsGiven,
    PartitionsReleased,
    ReleaseAsked,
)
from penstock.model import TopicPartition

MS = 1_000_000
SESSION_MS = 10_000
NAMES = ("ann", "bob", "eve", "joe")
TOPIC = "orders"


class Naive:
    """Who may read what, by the rules as a user would write them down. Times are in ms."""

    def __init__(self):
        self.owner = {}
        self.seen = {}
        self.asked = {}

    def check(self, record, now_ms, calling):
        """A record has to be something that the rules allow at this time."""
        match record:
            case MemberJoined():
                self.seen[record.member] = now_ms
            case MemberRemoved(member, cause):
                assert member == calling or now_ms - self.seen[member] >= SESSION_MS
                assert (cause is Cause.LEFT) == (member == calling)
                del self.seen[member]
                for one in [one for one, owner in self.owner.items() if owner == member]:
                    self.free(one)
            case ReleaseAsked(member, partitions, deadline_ns):
                for one in partitions:
                    assert self.owner[one] == member
                    assert one not in self.asked
                    self.asked[one] = deadline_ns // MS
            case PartitionsReleased(member, partitions, is_forced):
                for one in partitions:
                    assert self.owner[one] == member
                    assert one in self.asked
                    assert not is_forced or calling == member or now_ms >= self.asked[one]
                    assert is_forced or calling == member
                    self.free(one)
            case PartitionsGiven(member, partitions):
                for one in partitions:
                    assert one not in self.owner, "it still has an owner"
                    assert member in self.seen
                    self.owner[one] = member

    def free(self, one):
        del self.owner[one]
        self.asked.pop(one, None)


class Life:
    """One group, and the same group as the naive model sees it."""

    def __init__(self, count):
        self.group, self.naive = Membership("g"), Naive()
        self.count, self.now_ms = count, 0

    @property
    def partitions(self):
        return [TopicPartition(TOPIC, number) for number in range(self.count)]

    @property
    def time(self):
        return GroupTime(self.now_ms * MS, self.now_ms * MS)

    @property
    def next_generation(self):
        return self.group.generation + 1

    def record(self, records, calling=""):
        generation = self.group.generation
        for record in records:
            self.naive.check(record, self.now_ms, calling)
            self.group.apply(record)
            self.naive.asked = {
                one: at for one, at in self.naive.asked.items() if one in self.group.asked
            }
        assert self.group.generation in (generation, generation + 1)
        self.require_consistent()

    def require_consistent(self):
        group = self.group
        assert group.owners == self.naive.owner
        assert set(group.asked) == set(self.naive.asked)
        for member in group.members.values():
            assert member.owned == {one for one, who in group.owners.items() if who == member.id}
        for one, to in group.target.items():
            assert group.owners.get(one) == to or one in group.asked
        if group.members:
            assert set(group.owners) == set(group.target) == set(self.partitions)
        assert (group.state == "rebalancing") == bool(group.asked)
        if group.rebalances and not group.asked:
            assert group.rebalances[-1].took_ms is not None

    def join(self, name):
        request = JoinRequest(
            member=name, client="c", topics=frozenset({TOPIC}), session_ms=SESSION_MS
        )
        records = commands.join(
            self.group, request, self.partitions, self.time, self.next_generation
        )
        self.record(records, calling=name)

    def leave(self, name):
        records = commands.leave(self.group, name, self.partitions, self.time, self.next_generation)
        self.record(records, calling=name)

    def beat(self, name, generation=None):
        self.record(commands.heartbeat(self.group, name, generation, self.time), calling=name)
        self.naive.seen[name] = self.now_ms

    def release(self, name, generation=None):
        wanted = self.group.to_release(name) if name in self.group.members else []
        outcome = commands.release(self.group, name, generation, wanted, self.time)
        self.record(outcome.records, calling=name)
        self.naive.seen[name] = self.now_ms

    def wait(self, ms):
        self.now_ms += ms
        while self.group.next_due_ns() <= self.now_ms * MS:
            records = commands.expire(self.group, self.partitions, self.time, self.next_generation)
            assert records, "what is due is dealt with"
            self.record(records)

    def grow(self, by):
        self.count += by
        records = commands.repartition(self.group, self.partitions, self.time, self.next_generation)
        self.record(records)


STEPS = ("join", "join", "beat", "beat", "release", "release", "leave", "wait", "wait", "grow")


@given(st.integers(1, 7), st.lists(st.sampled_from(STEPS), max_size=60), st.integers(0, 2**32))
def test_a_partition_has_one_owner_at_a_time_whoever_comes_and_goes(count, steps, seed):
    life, entropy = Life(count), random.Random(seed)
    for step in steps:
        name = entropy.choice(NAMES)
        try:
            match step:
                case "wait":
                    life.wait(entropy.choice((1, 4000, 9000, 30_000)))
                case "grow":
                    if life.group.members:
                        life.grow(entropy.randint(1, 2))
                case _:
                    getattr(life, step)(name)
        except UnknownMember:
            assert name not in life.group.members


@given(st.integers(1, 9), st.integers(2, 4), st.integers(0, 2**32))
def test_a_group_whose_members_answer_comes_to_rest_and_is_even(count, size, seed):
    life, entropy = Life(count), random.Random(seed)
    for name in NAMES[:size]:
        life.join(name)
    for name in entropy.sample(NAMES[:size], size):
        life.beat(name)
        life.release(name)
    owned = [len(one.owned) for one in life.group.members.values()]
    assert life.group.state == "stable"
    assert max(owned) - min(owned) <= 1


def two_members(count=4):
    life = Life(count)
    life.join("ann")
    life.join("bob")
    return life


def test_a_partition_passes_on_only_after_its_owner_released_it():
    life = two_members()
    asked = life.group.to_release("ann")
    assert len(asked) == 2
    assert life.group.readable("bob") == []
    life.release("ann")
    assert life.group.readable("bob") == asked


def test_a_partition_that_is_not_released_passes_on_at_the_deadline_and_not_before():
    life = two_members()
    for _ in range(6):
        life.wait(9_999)
        life.beat("ann")
        life.beat("bob")
    assert life.group.readable("bob") == []
    life.wait(REVOCATION_MS - 6 * 9_999)
    assert len(life.group.readable("bob")) == 2
    assert life.group.rebalances[-1].forced == 2


def test_what_stays_is_never_asked_for():
    life = two_members(6)
    life.release("ann")
    before = set(life.group.readable("ann")), set(life.group.readable("bob"))
    life.join("eve")
    after = set(life.group.readable("ann")), set(life.group.readable("bob"))
    assert [len(one - two) for one, two in zip(before, after, strict=True)] == [1, 1]
    assert all(two <= one for one, two in zip(before, after, strict=True))


def test_a_stale_generation_is_refused_but_a_heartbeat_may_learn():
    life = two_members()
    with pytest.raises(StaleGeneration) as refused:
        life.release("ann", generation=1)
    assert refused.value.fields["generation"] == 2
    life.beat("ann", generation=1)
    with pytest.raises(StaleGeneration):
        life.beat("bob", generation=1)  # Before it joined.
    with pytest.raises(StaleGeneration):
        life.beat("bob", generation=3)


def test_a_member_that_joins_again_keeps_its_partitions_and_fences_its_former_self():
    life = two_members()
    life.release("ann")
    mine = life.group.readable("bob")
    life.join("bob")
    assert life.group.readable("bob") == mine
    with pytest.raises(StaleGeneration):
        life.beat("bob", generation=2)
    assert life.group.rebalances[-1].passed == ()
    assert life.group.rebalances[-1].cause is Cause.REPLACED


def test_only_the_owner_releases():
    life = two_members()
    asked = life.group.to_release("ann")
    with pytest.raises(NotOwner):
        commands.release(life.group, "bob", None, asked, life.time)
    with pytest.raises(UnknownMember):
        commands.release(life.group, "eve", None, asked, life.time)


def test_a_member_that_waits_is_not_missed():
    life = two_members()
    life.release("ann")
    life.record(commands.wait(life.group, "ann", life.time, is_over=False))
    life.wait(SESSION_MS * 3)
    assert set(life.group.members) == {"ann"}
    life.record(commands.wait(life.group, "ann", life.time, is_over=True))
    life.naive.seen["ann"] = life.now_ms
    life.wait(SESSION_MS)
    assert life.group.state == "empty"


def test_the_group_says_why_it_was_rebalanced():
    life = two_members()
    life.release("ann")
    life.wait(4000)
    life.beat("ann")
    life.wait(7000)
    told = [str(one) for one in life.group.rebalances]
    assert told == [
        "generation 1: ann joined; 4 partitions pass on",
        "generation 2: bob joined; 2 partitions pass on",
        "generation 3: bob was not heard of within its session timeout; 2 partitions pass on",
    ]
    for number in range(30):
        life.join(NAMES[number % 3])
    assert len(life.group.rebalances) == 20


@pytest.mark.parametrize(
    "wrong",
    [
        {"topics": frozenset()},
        {"session_ms": 999},
        {"session_ms": 3_600_001},
        {"assignor": Assignor.RANGE},
    ],
)
def test_a_member_that_asks_for_what_cannot_be_changes_nothing(wrong):
    life = two_members()
    asked = {"topics": frozenset({TOPIC}), "session_ms": SESSION_MS} | wrong
    with pytest.raises(Refused):
        commands.join(life.group, JoinRequest(member="eve", client="c", **asked), [], life.time, 9)
    assert set(life.group.members) == {"ann", "bob"}

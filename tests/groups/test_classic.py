"""Groups whose members assign partitions themselves: rounds, leaders, time-outs."""

import random

import pytest

from penstock.errors import Refused, StaleGeneration, UnknownMember
from penstock.groups.classic import (
    FIRST_JOIN_NS,
    MEMBERS_MAX,
    ClassicGroup,
    ClassicMember,
    ClassicState,
    FencedMember,
    ProtocolConflict,
    RebalanceInProgress,
)

S = 1_000_000_000


def member(
    name: str, *, instance: str = "", protocols: str = "range", said: bytes = b""
) -> ClassicMember:
    known = tuple((one, said) for one in protocols.split())
    return ClassicMember(name, instance, "client", "/host", 6_000, 10_000, known)


def joined(group: ClassicGroup, *names: str, now_ns: int = 0) -> int:
    """A group in which these have joined for the first time; the time then."""
    for name in names:
        group.join(member(name), "consumer", now_ns)
    now_ns += FIRST_JOIN_NS
    group.tick(now_ns)
    return now_ns


def stable(group: ClassicGroup, *names: str) -> int:
    now_ns = joined(group, *names)
    shares = {name: name.encode() for name in names}
    group.sync(group.members[group.leader], shares, now_ns)
    return now_ns


def test_the_first_members_join_one_round() -> None:
    group = ClassicGroup("g")
    group.join(member("a"), "consumer", 0)
    group.join(member("b"), "consumer", 1)
    assert group.state is ClassicState.JOINING
    assert all(one.is_joining for one in group.members.values())
    group.tick(FIRST_JOIN_NS)
    assert group.state is ClassicState.SYNCING
    assert (group.generation, group.leader, group.protocol) == (1, "a", "range")


def test_members_wait_for_what_the_leader_assigns() -> None:
    group = ClassicGroup("g")
    now_ns = joined(group, "a", "b")
    assert group.sync(group.members["b"], {}, now_ns) is None
    changes = group.changes
    assert group.sync(group.members["a"], {"a": b"1", "b": b"2"}, now_ns) == b"1"
    assert group.changes > changes
    assert group.sync(group.members["b"], {}, now_ns) == b"2"
    assert group.state is ClassicState.STABLE


def test_a_new_member_has_all_others_join_again() -> None:
    group = ClassicGroup("g")
    now_ns = stable(group, "a", "b")
    group.join(member("c"), "consumer", now_ns)
    assert group.state is ClassicState.JOINING
    with pytest.raises(RebalanceInProgress):
        group.heartbeat(group.members["a"], now_ns)
    group.join(member("a"), "consumer", now_ns)
    assert group.members["a"].is_joining
    group.join(member("b"), "consumer", now_ns)
    assert (group.state, group.generation, group.leader) == (ClassicState.SYNCING, 2, "a")


def test_a_member_that_does_not_join_again_in_time_is_dropped() -> None:
    group = ClassicGroup("g")
    now_ns = stable(group, "a", "b")
    group.join(member("c"), "consumer", now_ns)
    # The session of `b` is over first.
    group.join(member("a"), "consumer", now_ns + 5 * S)
    group.tick(now_ns + 7 * S)
    assert sorted(group.members) == ["a", "c"]
    assert group.state is ClassicState.SYNCING


def test_a_member_that_is_not_heard_of_is_missed() -> None:
    group = ClassicGroup("g")
    now_ns = stable(group, "a", "b")
    group.heartbeat(group.members["a"], now_ns + 5 * S)
    assert group.next_due_ns() == now_ns + 6 * S
    group.tick(now_ns + 6 * S)
    assert list(group.members) == ["a"]
    assert group.state is ClassicState.JOINING


def test_a_leader_that_does_not_assign_is_dropped() -> None:
    group = ClassicGroup("g")
    now_ns = joined(group, "a", "b")
    group.sync(group.members["b"], {}, now_ns)
    group.tick(now_ns + 6 * S)
    assert list(group.members) == ["b"]
    with pytest.raises(RebalanceInProgress):
        group.sync(group.members["b"], {}, now_ns + 6 * S)


def test_the_last_to_leave_leaves_an_empty_group() -> None:
    group = ClassicGroup("g")
    now_ns = stable(group, "a", "b")
    group.leave("a", now_ns)
    assert group.state is ClassicState.JOINING
    group.leave("b", now_ns)
    assert group.state is ClassicState.EMPTY
    assert group.next_due_ns() == float("inf")


def test_the_leader_leaves_and_another_leads() -> None:
    group = ClassicGroup("g")
    now_ns = stable(group, "a", "b")
    group.leave("a", now_ns)
    group.join(member("b"), "consumer", now_ns)
    assert (group.state, group.leader) == (ClassicState.SYNCING, "b")


def test_a_repeated_join_of_a_follower_changes_nothing() -> None:
    group = ClassicGroup("g")
    now_ns = stable(group, "a", "b")
    group.join(member("b"), "consumer", now_ns)
    assert group.state is ClassicState.STABLE
    assert not group.members["b"].is_joining
    assert group.members["b"].assignment == b"b"


def test_a_follower_that_subscribes_to_something_else_begins_a_round() -> None:
    group = ClassicGroup("g")
    now_ns = stable(group, "a", "b")
    group.join(member("b", said=b"other"), "consumer", now_ns)
    assert group.state is ClassicState.JOINING


def test_the_protocol_is_one_that_all_members_know() -> None:
    group = ClassicGroup("g")
    group.join(member("a", protocols="sticky range"), "consumer", 0)
    group.join(member("b", protocols="range"), "consumer", 0)
    with pytest.raises(ProtocolConflict):
        group.join(member("c", protocols="sticky"), "consumer", 0)
    with pytest.raises(ProtocolConflict):
        group.join(member("c"), "connect", 0)
    group.tick(FIRST_JOIN_NS)
    assert group.protocol == "range"


def test_a_process_that_is_started_again_keeps_its_place() -> None:
    group = ClassicGroup("g")
    group.join(member("a"), "consumer", 0)
    group.join(member("b", instance="pod-1"), "consumer", 0)
    group.tick(FIRST_JOIN_NS)
    group.sync(group.members["a"], {"a": b"1", "b": b"2"}, FIRST_JOIN_NS)
    group.join(member("b2", instance="pod-1"), "consumer", FIRST_JOIN_NS)
    assert group.state is ClassicState.STABLE
    assert group.members["b2"].assignment == b"2"
    with pytest.raises(FencedMember):
        group.require("b", "pod-1")


def test_members_and_generations_are_checked() -> None:
    group = ClassicGroup("g")
    stable(group, "a")
    with pytest.raises(UnknownMember):
        group.require("x", "")
    with pytest.raises(StaleGeneration):
        group.require("a", "", 7)
    assert group.require("a", "", 1).id == "a"


def test_promised_ids_run_out_and_count() -> None:
    group = ClassicGroup("g")
    for number in range(MEMBERS_MAX):
        group.promise(f"m{number}", 6_000, 0)
    with pytest.raises(Refused):
        group.promise("more", 6_000, 0)
    group.tick(6 * S)
    assert not group.promised


@pytest.mark.parametrize("seed", range(40))
def test_whatever_members_do_a_group_comes_to_rest(seed: int) -> None:
    """Clients that follow the protocol, in any order, end in one generation with what their leader assigned."""
    chance, group, now_ns = random.Random(seed), ClassicGroup("g"), 0
    for _ in range(200):
        now_ns += chance.randrange(0, S)
        name = f"m{chance.randrange(5)}"
        known = group.members.get(name)
        group.tick(now_ns)
        match chance.randrange(4):
            case 0:
                group.join(member(name, said=chance.choice([b"", b"x"])), "consumer", now_ns)
            case 1 if known is not None and name in group.members:
                group.leave(name, now_ns)
            case 2 if name in group.members and not group.members[name].is_joining:
                try:
                    group.sync(group.members[name], dict.fromkeys(group.members, b"s"), now_ns)
                except RebalanceInProgress:
                    group.join(member(name), "consumer", now_ns)
        assert (group.state is ClassicState.EMPTY) == (not group.members)
        assert (
            not group.members
            or group.state is ClassicState.JOINING
            or group.leader in group.members
        )
        if group.state is not ClassicState.JOINING:
            assert not any(one.is_joining for one in group.members.values())
    for _ in range(20):
        now_ns += S // 2
        group.tick(now_ns)
        for name in [*group.members]:
            known = group.members[name]
            if known.is_joining:
                continue
            try:
                group.sync(known, dict.fromkeys(group.members, b"s"), now_ns)
            except RebalanceInProgress:
                group.join(member(name), "consumer", now_ns)
    assert group.state in (ClassicState.STABLE, ClassicState.EMPTY)


def test_members_that_wait_for_a_slow_leader_are_not_missed() -> None:
    """Slow, not dead: the leader assigns for longer than a session, and says that it is alive."""
    group = ClassicGroup("g")
    now_ns = joined(group, "a", "b", "c")
    for name in ("b", "c"):
        assert group.sync(group.members[name], {}, now_ns) is None
    for _ in range(4):
        # Half of a session, in all twice as long; a round has 10 seconds.
        now_ns += 2 * S
        group.heartbeat(group.members["a"], now_ns)
        group.tick(now_ns)
    assert [*group.members] == ["a", "b", "c"]
    assert group.sync(group.members["a"], {"b": b"2"}, now_ns) == b""
    assert group.sync(group.members["b"], {}, now_ns) == b"2"

"""Assigned groups through the public library, restarts included."""

import subprocess
import sys
from collections import Counter, defaultdict

import pytest

import penstock
from penstock.errors import (
    GroupBusy,
    ModeConflict,
    NotFound,
    NotOwner,
    Refused,
    StaleGeneration,
    StaleReceipt,
    UnknownMember,
)
from penstock.model import Message
from penstock.testing import VirtualClock


@pytest.fixture
def clock():
    return VirtualClock()


@pytest.fixture
def start(tmp_path, clock):
    """Opens a broker with a topic, and opens it again."""
    opened = []

    def open_broker():
        for broker in opened:
            broker.close()
        opened.append(penstock.Broker(tmp_path / "data", clock=clock))
        if len(opened) == 1:
            opened[0].create_topic("t", partitions=6)
        return opened[-1]

    yield open_broker
    opened[-1].close()


@pytest.fixture
def broker(clock):
    """In memory."""
    with penstock.Broker(clock=clock) as broker:
        broker.create_topic("t", partitions=6)
        yield broker


def publish(broker, first, last, topic="t"):
    broker.publish_many(
        topic, [Message(b"%d" % one, b"k%d" % (one % 12)) for one in range(first, last)]
    )


def settle(*members):
    for _ in range(2):
        for member in members:
            member.heartbeat()


def owned(broker, group="g"):
    """Partitions by member; every one has to be there once."""
    facts = broker.describe_group(group)
    counts = Counter(str(one) for member in facts.members for one in member.assigned)
    assert facts.state == "stable"
    assert set(counts.values()) == {1}
    assert sum(counts.values()) == sum(len(broker.describe(topic)) for topic in facts.modes)
    return {member.id: {str(one) for one in member.assigned} for member in facts.members}


def values(messages):
    return [message.value for message in messages]


class Workers:
    """Members that take everything in turn, and write down what each key saw."""

    def __init__(self):
        self.members, self.seen = {}, defaultdict(list)

    def add(self, broker, name, **options):
        self.members[name] = broker.join("t", "g", member=name, **options)

    def work(self, rounds=8, limit=3):
        for _ in range(rounds):
            for member in self.members.values():
                got = member.poll(limit=limit)
                for message in got:
                    self.seen[message.key].append(int(message.value))
                if got:
                    member.commit(got)


@pytest.mark.parametrize("order", ["strict", "relaxed"])
def test_members_come_and_go_and_every_message_is_seen_once_in_order(start, clock, order):
    broker, workers = start(), Workers()
    publish(broker, 0, 60)
    for name in ("a", "b"):
        workers.add(broker, name, order=order)
    workers.work(2)
    assert {len(one) for one in owned(broker).values()} == {3}

    workers.add(broker, "c")
    publish(broker, 60, 120)
    workers.work(2)
    assert {len(one) for one in owned(broker).values()} == {2}

    dead = workers.members.pop("a")
    for _ in range(11):
        clock.advance(3)
        workers.work(1)
    assert {len(one) for one in owned(broker).values()} == {3}
    with pytest.raises(UnknownMember):
        dead.poll()

    workers.members.pop("b").leave()
    assert owned(broker) == {"c": {f"t/{number}" for number in range(6)}}
    publish(broker, 120, 180)
    workers.work(3)

    broker = start()
    assert broker.describe_group("g").state == "empty"
    workers.members.clear()
    workers.add(broker, "d")
    workers.work(60)
    assert {key: sorted(seen) for key, seen in workers.seen.items()} == {
        b"k%d" % key: list(range(key, 180, 12)) for key in range(12)
    }
    assert all(seen == sorted(seen) for seen in workers.seen.values())
    assert [(one.lag, one.lag_seconds) for one in broker.lag("g")] == [(0, 0.0)] * 6


def test_more_members_than_partitions_is_legal_and_the_spare_one_takes_over(broker):
    members = [broker.join("t", "g", member=f"m{number}") for number in range(8)]
    settle(*members)
    assert sorted(len(one) for one in owned(broker).values()) == [0, 0, 1, 1, 1, 1, 1, 1]
    spare = next(one for one in members if not one.assigned)
    assert spare.poll() == []
    next(one for one in members if one.assigned).leave()
    settle(*[one for one in members if one.id in owned_names(broker)])
    assert sorted(len(one) for one in owned(broker).values()) == [0, 1, 1, 1, 1, 1, 1]


def owned_names(broker):
    return {member.id for member in broker.describe_group("g").members}


CRASH = """
import os, sys, penstock
broker = penstock.Broker(sys.argv[1], fsync="always")
broker.create_topic("t", partitions=1)
broker.publish_many("t", [b"%d" % number for number in range(10)])
member = broker.join("t", "g", member="a")
held = member.poll(limit=8)
assert member.commit(held[4])
assert not member.commit({"t/0": 3})
os._exit(7)
"""


def test_commit_then_crash_resumes_exactly_there(tmp_path, clock):
    path = tmp_path / "data"
    child = subprocess.run([sys.executable, "-c", CRASH, path], check=False)
    assert child.returncode == 7
    with penstock.Broker(path, clock=clock) as broker:
        for name in ("b", "a"):
            with broker.join("t", "g", member=name) as member:
                assert values(member.poll()) == [b"5", b"6", b"7", b"8", b"9"]


def test_a_commit_of_messages_reaches_to_the_furthest_in_whatever_order(broker):
    for number in range(4):
        broker.publish("t", b"%d" % number, partition=0)
    member = broker.join("t", "g", member="a")
    held = member.poll()
    assert member.commit([held[2], held[0], held[1]])
    assert [one.floor for one in broker.lag("g") if one.partition == 0] == [3]


def test_only_the_owner_commits(broker):
    publish(broker, 0, 12)
    a, b = broker.join("t", "g", member="a"), broker.join("t", "g", member="b")
    settle(a, b)
    got = a.poll()
    with pytest.raises(NotOwner):
        b.commit(got)
    with pytest.raises(NotOwner):
        broker.commit("t", got[0].partition, "g", 1)
    with pytest.raises(StaleGeneration):
        a.commit(got, generation=a.generation - 1)
    assert a.commit(got, generation=a.generation)
    a.leave()
    with pytest.raises(UnknownMember):
        a.commit(got)
    with pytest.raises(Refused, match="orders/0"):
        b.commit({"0": 4})


def test_a_member_that_was_missed_can_answer_nothing_any_more(broker, clock):
    publish(broker, 0, 12)
    a = broker.join("t", "g", member="a", session_timeout=2)
    held = a.poll()
    b = broker.join("t", "g", member="b")
    clock.advance(3)
    assert len(b.poll()) == 12
    with pytest.raises(StaleReceipt):
        broker.ack(held)
    with pytest.raises(UnknownMember):
        a.heartbeat()


def test_who_joins_under_a_name_that_is_taken_replaces_its_owner(broker):
    publish(broker, 0, 12)
    old = broker.join("t", "g", member="a")
    held = old.poll()
    new = broker.join("t", "g", member="a")
    assert sorted(values(new.poll())) == sorted(values(held))
    for call in (old.poll, old.heartbeat, lambda: old.commit(held), old.leave):
        with pytest.raises(StaleGeneration):
            call()
    assert owned(broker) == {"a": {f"t/{number}" for number in range(6)}}


def test_generations_never_come_again(start):
    broker = start()
    seen = [broker.join("t", "g", member=name).generation for name in "ab"]
    broker = start()
    seen += [broker.join("t", "g", member=name).generation for name in "ab"]
    broker = start()
    seen += [broker.join("t", group, member="a").generation for group in "gh"]
    assert seen == [1, 2, 1001, 1002, 2001, 2001]


def test_strict_order_holds_a_partition_until_its_failed_message_is_finished(broker, clock):
    broker.create_topic("s", partitions=1, max_retries=1)
    broker.publish_many("s", [b"0", b"1", b"2", b"3"])
    member = broker.join("s", "strict", order="strict")
    held = member.poll(limit=3)
    assert member.poll() == []  # One batch at a time.
    broker.ack(held[0])
    broker.nack(held[1], "not now")
    assert member.poll() == []
    with pytest.raises(StaleReceipt):
        broker.ack(held[2])  # It was behind the failed one.
    clock.advance(1)
    again = member.poll()
    assert [(one.value, one.attempts) for one in again] == [(b"1", 2), (b"2", 1), (b"3", 1)]
    broker.nack(again[0], "never")
    assert values(member.poll()) == []  # The rest is still out.
    broker.ack(again[1:])
    assert [one.message.value for one in broker.dead_letters("s")] == [b"1"]
    assert [one.lag for one in broker.lag("strict")] == [0]


def test_an_expired_lease_holds_its_partition_too(broker, clock):
    broker.create_topic("s", partitions=1)
    broker.publish_many("s", [b"0", b"1", b"2"])
    member = broker.join("s", "g", order="strict", session_timeout="10m")
    held = member.poll(limit=2, visibility_timeout=5)
    broker.extend(held[1], 60)
    clock.advance("5s")
    assert member.poll() == []
    with pytest.raises(StaleReceipt):
        broker.ack(held[1])
    clock.advance("1s")
    assert values(member.poll()) == [b"0", b"1", b"2"]


def test_relaxed_order_goes_on_behind_a_failed_message(broker):
    broker.create_topic("s", partitions=1)
    broker.publish_many("s", [b"0", b"1", b"2"])
    member = broker.join("s", "g")
    broker.nack(member.poll(limit=1))
    assert values(member.poll()) == [b"1", b"2"]


def test_the_first_use_fixes_the_mode_until_the_empty_group_is_reset(start):
    broker = start()
    member = broker.join("t", "assigned", order="strict")
    broker.poll("t", "shared")
    broker = start()
    with pytest.raises(ModeConflict) as conflict:
        broker.poll("t", "assigned")
    assert conflict.value.fields["mode"] == "assigned, order strict"
    with pytest.raises(ModeConflict):
        broker.join("t", "assigned", order="relaxed")
    with pytest.raises(ModeConflict):
        broker.join("t", "shared")
    member = broker.join("t", "assigned")
    with pytest.raises(GroupBusy):
        broker.reset("assigned", "latest")
    with pytest.raises(GroupBusy):
        broker.forget_group("t", "assigned")
    broker.reset("assigned", "earliest", force=True)
    with pytest.raises(ModeConflict):
        broker.poll("t", "assigned")
    member.leave()
    broker.reset("assigned", "earliest")
    assert broker.describe_group("assigned").modes == {"t": "undecided"}
    broker.poll("t", "assigned")
    assert broker.describe_group("assigned").modes == {"t": "shared"}


def test_partitions_added_while_consuming_are_shared_out_and_read(broker):
    a, b = (broker.join("t", "g", member=name, order="strict") for name in "ab")
    settle(a, b)
    before = owned(broker)
    broker.add_partitions("t", 10)
    after = owned(broker)
    assert all(before[name] < after[name] and len(after[name]) == 5 for name in "ab")
    publish(broker, 0, 100)
    assert len(a.poll()) + len(b.poll()) == 100
    assert a.poll() == []  # New partitions have the order of the group, too.


def test_a_deleted_topic_is_taken_from_its_members(broker):
    broker.create_topic("other", partitions=2)
    lost = []
    member = broker.join(["t", "other"], "g", on_revoked=lost.extend)
    assert len(member.assigned) == 8
    broker.delete_topic("other")
    assert member.poll() == []
    assert lost == ["other/0", "other/1"]


def test_callbacks_hear_of_each_partition_that_comes_or_goes(broker):
    publish(broker, 0, 12)
    told = []
    a = broker.join(
        "t",
        "g",
        member="a",
        on_revoked=lambda names: told.append(("-", names)),
        on_assigned=lambda names: told.append(("+", names)),
    )
    held = a.poll()
    b = broker.join("t", "g", member="b")
    assert b.poll() == []
    a.poll()
    passed = sorted({f"t/{number}" for number in range(6)} - set(a.assigned))
    assert told == [("+", [f"t/{number}" for number in range(6)]), ("-", passed)]
    # What it still held there went with the partitions.
    assert {f"t/{one.partition}" for one in b.poll()} <= set(passed)
    broker.ack([one for one in held if f"t/{one.partition}" in a.assigned])
    b.leave()
    a.heartbeat()
    assert told[2:] == [("+", passed)]


def test_without_a_callback_a_partition_waits_for_its_answers(broker, clock):
    publish(broker, 0, 24)
    a = broker.join("t", "g", member="a")
    held = a.poll()
    b = broker.join("t", "g", member="b")
    a.poll()
    b.heartbeat()
    assert b.assigned == []
    broker.ack(held)
    a.poll()
    b.heartbeat()
    assert len(b.assigned) == 3


def test_a_holder_that_does_not_release_loses_the_partition_at_the_deadline(broker, clock):
    publish(broker, 0, 24)
    a = broker.join("t", "g", member="a")
    held = a.poll(visibility_timeout="10m")
    b = broker.join("t", "g", member="b")
    for _ in range(59):
        clock.advance(1)
        settle(a, b)
    assert b.assigned == []
    clock.advance(1)
    settle(a, b)
    assert len(b.assigned) == 3
    lost = [one for one in held if f"t/{one.partition}" in b.assigned]
    with pytest.raises(StaleReceipt):
        broker.ack(lost)
    assert sorted(values(b.poll())) == sorted(values(lost))


def test_auto_commit_finishes_the_last_poll_with_the_next_one_after_5_s_and_on_leaving(
    broker, clock
):
    broker.create_topic("s", partitions=1)
    broker.publish_many("s", [b"%d" % number for number in range(6)])
    member = broker.join("s", "g", auto_commit=True)

    def floor():
        return broker.lag("g")[0].floor

    member.poll(limit=2)
    clock.advance("4s")
    assert floor() == 0
    member.poll(limit=2)
    assert floor() == 2
    clock.advance("5s")
    assert floor() == 4
    member.poll()
    member.leave()
    assert floor() == 6


def test_a_repeated_request_gets_the_same_messages_and_costs_no_attempt(broker):
    publish(broker, 0, 24)
    member = broker.join("t", "g")
    first = member.poll(limit=5, request_id="r1")
    assert member.poll(limit=5, request_id="r1") == first
    second = member.poll(limit=5, request_id="r2")
    assert not {one.receipt for one in second} & {one.receipt for one in first}
    assert all(one.attempts == 1 for one in first + second)


def test_what_cannot_be_is_refused(broker):
    with pytest.raises(NotFound):
        broker.join("nowhere", "g")
    with pytest.raises(NotFound):
        broker.describe_group("g")
    for wrong in ({"order": "loose"}, {"assignor": "best"}, {"session_timeout": 0.5}):
        with pytest.raises(Refused):
            broker.join("t", "g", **wrong)


@pytest.mark.parametrize("assignor", ["range", "round_robin", "sticky"])
def test_every_assignor_gives_every_partition_to_one_member(broker, assignor):
    broker.create_topic("other", partitions=5)
    members = [
        broker.join(["t", "other"], "g", member=name, assignor=assignor) for name in ("a", "b", "c")
    ]
    settle(*members)
    assert len(owned(broker)) == 3
    assert broker.describe_group("g").assignor == assignor


def test_two_groups_do_not_disturb_each_other(broker):
    publish(broker, 0, 24)
    a, b = broker.join("t", "red"), broker.join("t", "blue")
    assert len(a.poll()) == len(b.poll()) == 24
    assert len(broker.poll("t", "green")) == 24

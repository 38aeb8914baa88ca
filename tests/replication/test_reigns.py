"""A node that leads begins an epoch in meta before anything else, and touches no log in which nothing is to change."""

import random

import pytest

from penstock.api.answers import Answer, Kind, LeaseAnswer
from penstock.api.consume import Poll
from penstock.api.publish import Publish
from penstock.api.topics import CreateTopic
from penstock.broker.meta import read_meta
from penstock.broker.node import Node
from penstock.broker.partition.slots import Fault
from penstock.errors import NoSpace, NotEnoughReplicas, PenstockError
from penstock.model import Message
from penstock.replication.replica import Replica
from penstock.runtime.commit_gate import CommitGate
from penstock.sim import SimDisk, faults

from . import planted
from .trio import NOW, Member, elect, exchange, follow, values_of


def led_by_first(count: int = 3, partitions: int = 1) -> list[Member]:
    """Nodes of which the first leads, all in sync, with a topic."""
    members = [Member(number) for number in range(1, count + 1)]
    first = members[0]
    first.lead(257)
    streams = [follow(first, one) for one in members[1:]]
    first.execute(CreateTopic("orders", partitions, {}))
    first.sync()
    for stream, member in zip(streams, members[1:], strict=True):
        exchange(stream, member)
    first.leader.advance()
    assert first.leader.committed == first.leader.sequence
    return members


def lose_what_was_committed() -> list[bytes]:
    """What the leader has at the end of a walk in which two leaders each had a message that no other node got.

    The first one's message is committed in a later reign of it, with no message of that reign behind it.
    """
    first, second, third = led_by_first()
    first.execute(Publish("orders", [Message(b"x")]))
    first.sync()
    first.kill()
    assert elect(second, third) is second
    second.execute(Publish("orders", [Message(b"y")]))
    second.sync()
    second.kill()
    assert elect(first, third) is first
    follow(first, third)
    assert first.leader.committed_end(first.node.partition("orders", 0).messages) == 1
    first.kill()
    third.kill()
    leading = elect(second, third)
    return values_of(leading.node.partition("orders", 0).messages)


def test_what_a_later_reign_has_committed_is_not_lost_to_a_node_that_led_before_it() -> None:
    assert lose_what_was_committed() == [b"x"]


def test_without_the_record_of_the_reign_it_would_be_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    planted.reign_not_recorded(monkeypatch)
    assert lose_what_was_committed() == [b"y"]


def finished_before_a_publish() -> list[int]:
    """Up to where a group had finished, on each node that leads in turn: what it finished came after a promotion, and
    before a message of that reign."""
    members = led_by_first()
    first, second, third = members
    first.execute(Publish("orders", [Message(b"x")]))
    first.sync()
    follow(first, second)
    follow(first, third)
    first.kill()
    leading = elect(second, third)
    (lent,) = leading.execute(Poll("orders", "billing", "m", 1, 60_000)).leased()
    leading.execute(Answer([LeaseAnswer(Kind.ACK, *lent.place, lent.lease, [*lent.offsets])]))
    leading.node.partition("orders", 0).take_snapshot()
    leading.sync()
    follow(leading, third)
    found = []
    for asked in ((second, third), (third, second)):
        for one in members:
            one.kill()
        elect(*asked)
        chosen = next(one for one in asked if one.leader is not None)
        partition = chosen.node.partition("orders", 0)
        found += [one.progress.lowest_unfinished() for _, one in partition.user_groups()]
    return found


def test_what_is_finished_before_the_first_message_of_a_reign_outlives_it() -> None:
    assert finished_before_a_publish() == [1, 1]


def test_an_end_in_an_epoch_without_a_message_would_lose_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planted.state_decided_in_an_epoch_without_a_batch(monkeypatch)
    with pytest.raises((AssertionError, PenstockError)):
        assert finished_before_a_publish() == [1, 1]


def faults_after_meta_was_cut() -> list[Fault]:
    """The partitions that a node cannot open, after meta was cut, and a checkpoint knew it to be longer."""
    first, second, third = led_by_first()
    streams = [follow(first, one) for one in (second, third)]
    for _ in range(2):
        first.execute(Publish("orders", [Message(b"x" * 70_000)]))
        first.sync()
        for stream, member in zip(streams, (second, third), strict=True):
            exchange(stream, member)
    first.execute(CreateTopic("unknown", 1, {}))
    first.sync()
    exchange(streams[0], second)
    second.replica.close()
    second.start()
    first.kill()
    third.kill()
    # With all three needed for a commit the third has all that is committed.
    assert elect(third, min_isr=3) is third
    follow(third, second)
    second.kill()
    # As a node alone opens it, which knows no more than the disk.
    return Node(SimDisk(second.disk.tree()), now=NOW, entropy=random.Random(7)).faults()


def test_a_checkpoint_never_knows_more_of_meta_than_there_is_after_a_cut() -> None:
    assert faults_after_meta_was_cut() == []


def test_checkpoints_that_know_a_meta_that_was_cut_keep_partitions_from_being_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planted.checkpoints_know_a_meta_that_is_cut(monkeypatch)
    assert faults_after_meta_was_cut()


def test_nothing_is_admitted_and_no_letter_leaves_before_the_reign_is_committed() -> None:
    first, second, third = led_by_first()
    first.execute(Publish("orders", [Message(b"x")]))
    (lent,) = first.execute(Poll("orders", "billing", "m", 1, 60_000)).leased()
    first.execute(Answer([LeaseAnswer(Kind.REJECT, *lent.place, lent.lease, [*lent.offsets])]))
    first.sync()
    follow(first, second)
    first.kill()
    second.kill()
    leading = elect(first, second)
    gate = CommitGate(leading.leader, 1, 1000, lambda: 0)
    with pytest.raises(NotEnoughReplicas):
        gate.admit()
    assert not leading.node.pump(NOW)
    follow(leading, third)
    gate.admit()
    assert leading.node.pump(NOW)


def test_a_node_without_room_for_the_record_does_not_lead() -> None:
    first, second, third = led_by_first()
    first.kill()
    second.disk.inject(
        faults.Fault(
            call=faults.Call.APPEND,
            does=faults.Misbehaviour.NO_SPACE,
            path_part="meta",
            times=faults.ALWAYS,
        )
    )
    with pytest.raises(NoSpace):
        elect(second, third)


def test_a_reign_is_recorded_before_any_other_log_is_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second, third = led_by_first()
    first.kill()
    disk, recorded = second.disk, []
    listed = disk.list

    def list_and_look(directory: str) -> list[str]:
        if directory.endswith("partition-0") and not recorded:
            recorded.append(read_meta(SimDisk(disk.tree()))[0].reigns.latest)
        return listed(directory)

    monkeypatch.setattr(disk, "list", list_and_look)
    leading = elect(second, third)
    assert [one.epoch for one in recorded] == [leading.leader.epoch]


def changed_below(disk: SimDisk, directory: str) -> set[str]:
    """The files and directories below this one that any call has touched since the last look."""
    paths = {str(getattr(one, "path", "")) for one in disk.operations}
    disk.operations.clear()
    # An index is not synced, and is made anew where it is not whole.
    return {one for one in paths if one.startswith(directory) and not one.endswith("index")}


def test_to_lead_touches_no_log_but_meta_and_those_that_are_appended_to() -> None:
    first, second, third = led_by_first(partitions=20)
    streams = [follow(first, second), follow(first, third)]
    # Much lies behind the checkpoints, which each log gets with its first batch.
    for size in (1, 70_000):
        for number in range(20):
            first.execute(Publish("orders", [Message(b"x" * size)], partition=number))
        first.sync()
        exchange(streams[0], second)
        exchange(streams[1], third)
    first.kill()
    second.disk.operations.clear()
    leading = elect(second, third)
    follow(leading, third)
    assert changed_below(second.disk, "topics/") == set()
    leading.execute(Publish("orders", [Message(b"y")], partition=7))
    leading.sync()
    changed = changed_below(second.disk, "topics/")
    assert {one.split("/")[3] for one in changed} == {"partition-7"}
    assert {one.split("/")[4] for one in changed} == {"messages"}
    leading.kill()
    assert not elect(second, third).node.faults()


def opened_paths(disk: SimDisk, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Gets the path of each file of a topic that is opened from now on."""
    paths: list[str] = []
    opened = disk.open

    def open_and_note(path: str):
        if path.startswith("topics/"):
            paths.append(path)
        return opened(path)

    monkeypatch.setattr(disk, "open", open_and_note)
    return paths


def test_a_node_that_changes_its_role_reads_and_writes_nothing_of_its_logs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second, third = led_by_first(partitions=20)
    for size in (1, 70_000):
        for number in range(20):
            first.execute(Publish("orders", [Message(b"x" * size)], partition=number))
        first.sync()
    streams = [follow(first, second), follow(first, third)]
    for stream, member in zip(streams, (second, third), strict=True):
        exchange(stream, member)
    changed_below(first.disk, "topics/")
    read = opened_paths(first.disk, monkeypatch)
    first.step_down()
    assert read == []
    assert changed_below(first.disk, "topics/") == set()
    known = Replica(SimDisk(first.disk.tree()), node=1, entropy=random.Random(1), cluster_id="c")
    assert first.replica.inventory() == known.inventory()
    leading = elect(first, third)
    assert leading is first
    # Messages that no snapshot covers are read, for the state of the partition.
    assert {one.rpartition(".")[2] for one in read} <= {"log", "index", "timeindex"}
    follow(first, second)
    assert values_of(first.node.partition("orders", 7).messages) == [b"x", b"x" * 70_000]


def test_what_a_leader_wrote_that_no_other_node_got_is_cut_when_it_follows() -> None:
    first, second, third = led_by_first(partitions=3)
    follow(first, second)
    follow(first, third)
    first.execute(Publish("orders", [Message(b"lost")], partition=1))
    first.execute(CreateTopic("lost", 2, {}))
    first.sync()
    first.step_down()
    leading = elect(second, third)
    leading.execute(Publish("orders", [Message(b"kept")], partition=1))
    leading.sync()
    follow(leading, first)
    assert "topics/default/lost" not in "".join(first.replica.inventory())
    third.kill()
    assert elect(first, third) is first
    assert values_of(first.node.partition("orders", 1).messages) == [b"kept"]
    assert not first.node.faults()


def test_only_checkpoints_that_know_more_are_written_before_meta_is_cut() -> None:
    first, second, third = led_by_first(partitions=20)
    for number in range(20):
        first.execute(Publish("orders", [Message(b"x")], partition=number))
    first.sync()
    follow(first, second)
    follow(first, third)
    first.execute(CreateTopic("unknown", 1, {}))
    first.execute(Publish("orders", [Message(b"x" * 70_000)], partition=7))
    first.sync()
    first.kill()
    leading = elect(second, third)
    changed_below(first.disk, "topics/")
    follow(leading, first)
    written = {
        one for one in changed_below(first.disk, "topics/default/orders") if "checkpoint" in one
    }
    assert {one.split("/")[3] for one in written} == {"partition-7"}


def test_meta_says_who_began_each_reign() -> None:
    first, second, third = led_by_first()
    first.kill()
    leading = elect(second, third)
    leading.node.close()
    machine, _ = read_meta(second.disk)
    latest = machine.reigns.latest
    assert (latest.epoch, latest.node) == (leading.leader.epoch, 2)
    assert machine.reigns.begun_in_all_logs == 256

"""One partition that cannot be opened does not stop the others, and nothing of it is touched."""

import random
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.api.answers import Kind, ReleaseMember
from penstock.api.consume import Poll
from penstock.api.dead_letters import RedriveDeadLetters
from penstock.api.delays import ListDelayed
from penstock.api.groups import (
    CloseGroup,
    DescribeGroup,
    DescribeLag,
    DescribeLanes,
    ListGroups,
    ListRebalances,
)
from penstock.api.health import EventKind, Findings, SeeHealth
from penstock.api.members import JoinGroup, LeaveGroup, PollMember
from penstock.api.principals import LOCAL
from penstock.api.publish import Delayed, Publish, PublishEach, Schedule
from penstock.api.topics import CreateTopic
from penstock.broker import Node, Now
from penstock.broker.partition import FORMAT
from penstock.broker.partition.partitioner import partition_of
from penstock.broker.partition.records import GroupClosed, PartitionRecord
from penstock.config import StorageConfig
from penstock.errors import DamagedFile, NotFound, PartitionFaulty
from penstock.log.journal import Journal
from penstock.log.records import RecordFormat
from penstock.model import Message
from penstock.runtime import RealDisk

from .losses import flipped, tree_with, with_version, without
from .world import GROUP, TOPIC, WALL_NS, World, values

LOST = f"topics/default/{TOPIC}.1/partition-1"
KEYS = {partition_of(b"%d" % one, 3): b"%d" % one for one in range(50)}


def with_a_fault(part: str = LOST, **settings: object) -> World:
    """Three partitions with a message each, and the second is gone."""
    world = World()
    world.topic(partitions=3, **settings)
    world.group()
    for number in range(3):
        world.publish(b"%d" % number, partition=number)
    world.sync()
    return World(tree_with(world.disk.tree(), without(part)))


def test_a_faulty_partition_is_told_and_described_and_the_others_serve() -> None:
    world = with_a_fault()
    (event,) = world.node.recovery
    assert event.kind is EventKind.PARTITION_FAULTY
    assert (event.topic, event.partition, event.is_damage) == (TOPIC, 1, True)
    first, second, third = world.describe()
    assert (first.messages, second.messages, third.messages) == (1, 0, 1)
    assert LOST in second.fault
    assert not first.fault
    assert sorted(values(world.drain())) == [b"0", b"2"]
    with pytest.raises(PartitionFaulty) as refused:
        world.node.partition(TOPIC, 1)
    assert not refused.value.retriable
    fields = refused.value.fields
    assert (fields["topic"], fields["partition"]) == (TOPIC, 1)
    assert fields["path"] == LOST


def test_a_partition_that_fails_later_is_none_that_the_start_found() -> None:
    world = with_a_fault()
    lost = DamagedFile(LOST.replace("partition-1", "partition-0"), "it has vanished")
    world.node.fail(world.node.partition(TOPIC, 0), lost)
    found = world.execute(SeeHealth()).findings
    assert found.recovery_text() == "1 event at the start, 0 bytes cut off"
    assert (found.damage_text(), found.is_damaged) == ("2 faulty partitions", True)
    late = Findings([], found.faulty[1:], [], 0)
    assert (late.recovery_text(), late.is_damaged) == ("ok", True)


def test_a_group_of_a_topic_that_cannot_be_read_is_not_said_to_be_unknown() -> None:
    world = with_a_fault(f"topics/default/{TOPIC}.1")
    for command in (
        ReleaseMember(TOPIC, GROUP, "m"),
        DescribeGroup(GROUP, topic=TOPIC),
        DescribeLag(GROUP, topic=TOPIC),
        CloseGroup(GROUP, topic=TOPIC),
        JoinGroup(GROUP, "m", (TOPIC,)),
        DescribeLanes(topic=TOPIC, group=GROUP),
        ListGroups(topic=TOPIC),
        ListRebalances(topic=TOPIC),
    ):
        with pytest.raises(PartitionFaulty, match=f"{TOPIC}/0"):
            world.execute(command)
    # While some partitions serve they know every group.
    with pytest.raises(NotFound):
        with_a_fault().execute(DescribeGroup("unknown", topic=TOPIC))


def test_round_robin_goes_around_a_faulty_partition_and_keys_do_not() -> None:
    world = with_a_fault()
    used = {world.publish(b"x")[0].partition for _ in range(10)}
    assert used == {0, 2}
    for number, key in KEYS.items():
        message = Message(b"x", key=key)
        if number == 1:
            with pytest.raises(PartitionFaulty):
                world.publish(message)
        else:
            assert world.publish(message)[0].partition == number
    with pytest.raises(PartitionFaulty):
        world.publish(b"x", partition=1)


def test_of_many_messages_only_those_for_the_faulty_partition_are_refused() -> None:
    world = with_a_fault()
    messages = [Message(b"x", key=KEYS[number]) for number in (0, 1, 2, 1)]
    answers = world.execute(PublishEach(TOPIC, messages))
    refused = [isinstance(one, PartitionFaulty) for one in answers]
    assert refused == [False, True, False, True]


def test_delayed_messages_and_cancellations_pass_it_by() -> None:
    world = with_a_fault()
    due_ns = world.now().wall_ns + 1_000_000_000
    for _ in range(4):
        world.schedule([Delayed(Message(b"later"), due_ns)])
    assert len(world.execute(ListDelayed(TOPIC)).messages) == 4
    world.wait(2000)
    assert values(world.drain()).count(b"later") == 4


def test_an_assigned_group_owns_it_and_gets_nothing_of_it() -> None:
    world = with_a_fault()
    joined = world.execute(JoinGroup("team", "", (TOPIC,), client="a"))
    assert len(joined.standing.assigned) == 3
    found = []
    for _ in range(6):
        got = world.execute(PollMember("team", joined.member, 10))
        world.ack(*got)
        found += values(got)
    assert sorted(found) == [b"0", b"2"]
    world.execute(LeaveGroup("team", joined.member))


def test_receipts_for_it_are_refused_one_by_one() -> None:
    world = World()
    world.topic(partitions=3)
    world.group()
    for number in range(3):
        world.publish(b"%d" % number, partition=number)
    receipts = [one.receipt for one in world.poll(10)]
    world.sync()
    world = World(tree_with(world.disk.tree(), without(LOST)))
    results = world.answer(Kind.ACK, receipts)
    assert sorted(isinstance(one, PartitionFaulty) for one in results) == [False, False, True]


def test_dead_letters_for_a_faulty_partition_wait_and_the_others_go() -> None:
    world = World()
    world.topic(partitions=2, max_retries=0)
    world.group()
    for number in range(2):
        world.publish(b"%d" % number, partition=number)
    world.reject(*world.poll(10))
    world.settle()
    for number in range(2):
        world.publish(b"%d again" % number, partition=number)
    world.reject(*world.poll(10))
    world.sync()
    disk = tree_with(world.disk.tree(), without(f"topics/default/{TOPIC}.dlq.2/partition-1/state"))
    world = World(disk)
    world.settle()
    assert sorted(values([one.message for one in world.letters()])) == [b"0", b"0 again"]
    assert world.node.partition(TOPIC, 1).machine.outbox.pending
    order = RedriveDeadLetters(TOPIC, is_dry_run=True)
    assert world.execute(order).matched == 2
    world.sweep()
    world.restart()
    assert world.node.partition(TOPIC, 1).machine.outbox.pending


def test_redriving_to_a_faulty_partition_fails_for_that_letter_alone() -> None:
    world = World()
    world.topic(partitions=2, max_retries=0)
    world.group()
    for number in range(2):
        world.publish(b"%d" % number, partition=number)
    world.reject(*world.poll(10))
    world.settle()
    world = World(
        tree_with(world.disk.tree(), without(f"topics/default/{TOPIC}.1/partition-1/messages"))
    )
    answer = world.execute(RedriveDeadLetters(TOPIC))
    assert (answer.matched, answer.redriven) == (2, 1)
    assert "cannot be used" in answer.failed[0][2]


def test_a_topic_without_any_partition_that_serves_says_so() -> None:
    world = World()
    world.topic(partitions=1)
    world.group()
    world = World(tree_with(world.disk.tree(), without(f"topics/default/{TOPIC}.1")))
    for call in (
        lambda: world.publish(b"x"),
        lambda: world.execute(Poll(TOPIC, GROUP, "m", 1, 0)),
        lambda: world.fetch(),
    ):
        with pytest.raises(PartitionFaulty):
            call()
    world.wait(1000)
    world.sweep()
    world.topic(name="other")
    world.publish(b"x", topic="other")


@pytest.mark.parametrize("stop", ["restart", "kill"])
def test_what_is_left_of_a_faulty_partition_stays_as_it_is_and_serves_again_when_whole(
    stop,
) -> None:
    world = with_a_fault(f"{LOST}/state")
    rest = {p: d for p, d in world.disk.tree().files.items() if p.startswith(LOST)}
    world.publish(b"x")
    world.sync()
    getattr(world, stop)()
    assert {p: d for p, d in world.disk.tree().files.items() if p.startswith(LOST)} == rest
    whole = with_a_fault("nothing")
    state = {p: d for p, d in whole.disk.tree().files.items() if p.startswith(f"{LOST}/state")}
    world = World(tree_with(world.disk.tree(), lambda files: files.update(state)))
    assert world.node.faults() == []
    assert b"1" in values(world.drain())


def test_another_log_in_the_place_of_one_makes_its_partition_faulty() -> None:
    world = with_a_fault("nothing")
    other = f"topics/default/{TOPIC}.1/partition-2/messages/identity"

    def exchange(files: dict[str, bytes]) -> None:
        files[f"{LOST}/messages/identity"] = files[other]

    world = World(tree_with(world.disk.tree(), exchange))
    (fault,) = world.node.faults()
    assert fault.number == 1


def test_damage_in_the_middle_of_the_state_makes_its_partition_faulty() -> None:
    world = with_a_fault("nothing")
    world.restart()
    path = f"{LOST}/state/00000000000000000000.snapshot"
    snapshots = [one for one in world.disk.tree().files if ".snapshot" in one and LOST in one]
    assert snapshots != [path]
    disk = tree_with(
        world.disk.tree(), lambda files: [flipped(files, one, 60) for one in snapshots]
    )
    world = World(disk)
    assert [fault.number for fault in world.node.faults()] in ([1], [])


def test_a_topic_that_is_made_again_under_the_name_of_a_faulty_one_is_not_faulty() -> None:
    world = with_a_fault()
    assert world.execute(SeeHealth()).findings.faulty
    world.delete()
    world.topic(partitions=3)
    found = world.execute(SeeHealth()).findings
    assert (found.faulty, found.is_damaged, found.damage_text()) == ([], False, "ok")


def open_files(directory: Path) -> list[str]:
    """Files below a directory that this process has open."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found.append(str(descriptor.readlink()))
    return [one for one in found if one.startswith(f"{directory}/")]


@pytest.mark.parametrize("log", ["messages", "state", "delayed"])
@pytest.mark.parametrize("version", [1, 3])
def test_a_log_of_another_version_makes_its_partition_faulty_and_stays_as_it_is(log, version):
    world = with_a_fault("nothing")
    due_ns = world.wall_ns + 1_000_000_000
    world.schedule([Delayed(Message(b"d"), due_ns)], partition=1)
    world.node.close()
    disk = tree_with(world.disk.tree(), with_version(f"{LOST}/{log}/checkpoint", version))
    before = {path: data for path, data in disk.tree().files.items() if path.startswith(LOST)}
    world = World(disk)
    (fault,) = world.node.faults()
    assert (fault.topic, fault.number) == (TOPIC, 1)
    assert fault.path == f"{LOST}/{log}/checkpoint"
    assert f"of version {version}, and this Penstock reads version 2 only" in fault.reason
    assert sorted(values(world.drain())) == [b"0", b"2"]
    world.restart()
    after = {path: data for path, data in world.disk.tree().files.items() if path.startswith(LOST)}
    assert after == before


def test_records_of_a_later_version_make_their_partition_faulty():
    world = with_a_fault("nothing")
    partition = world.node.partition(TOPIC, 1)
    version = FORMAT.version + 1
    later = Journal(partition.journal.log, RecordFormat(PartitionRecord, version=version))
    later.append([GroupClosed(1)], decided_at=partition.messages.end, now_ns=world.wall_ns)
    world.sync()
    world.kill()
    (fault,) = world.node.faults()
    said = f"holds records of version {version}, and this Penstock reads version 1 to {FORMAT.version} only"
    assert said in fault.reason
    assert sorted(values(world.drain())) == [b"0", b"2"]


@pytest.mark.parametrize("log", ["messages", "state", "delayed"])
def test_what_could_not_be_opened_has_no_open_files(tmp_path, log):
    def node(disk: RealDisk) -> Node:
        return Node(disk, now=Now(WALL_NS, 0), entropy=random.Random(1))

    now = Now(WALL_NS, 0)
    with RealDisk(tmp_path, StorageConfig()) as disk:
        first = node(disk)
        first.execute(CreateTopic(TOPIC, 2), LOCAL, now).outcome()
        for number in range(2):
            first.execute(Publish(TOPIC, [Message(b"x")], number), LOCAL, now)
            delayed = Delayed(Message(b"later"), WALL_NS + 1)
            first.execute(Schedule(TOPIC, [delayed], number), LOCAL, now)
        for partition in first.partitions():
            partition.sync()  # And no close, so that a start has to read them.
    for segment in (tmp_path / LOST / log).glob("*.log"):
        segment.unlink()
    with RealDisk(tmp_path, StorageConfig()) as disk:
        second = node(disk)
        assert [fault.number for fault in second.faults()] == [1]
        assert open_files(tmp_path / LOST) == []
        assert open_files(tmp_path / "topics")

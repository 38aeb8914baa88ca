"""What a follower is sent while much happens to the leader's logs, byte by byte and without a network."""

import random

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.api.publish import Publish
from penstock.api.topics import CreateTopic, DeleteTopic
from penstock.log.snapshot import snapshot_offsets
from penstock.model import Epoch, Message
from penstock.replication.frames import Batches, Frame, FrameReader, Snapshot, decode_head
from penstock.replication.replica import Replica
from penstock.replication.replica_file import read_record
from penstock.sim import SimDisk

from .test_uncommitted import Led


class Copied:
    """A node that leads, and a follower that is sent everything when `exchange` is called."""

    def __init__(self, led: Led | None = None, node: int = 2) -> None:
        self.led = led or Led()
        entropy = random.Random(6 + node)
        self.replica = Replica(SimDisk(), node=node, entropy=entropy, cluster_id="c")
        self.stream = self.led.leader.follow(self.replica.hello())
        self.reader = FrameReader(decode_head)
        # What the follower was sent.
        self.frames: list[Frame] = []

    def connect_again(self) -> None:
        self.stream.close()
        self.replica.disconnect()
        self.stream = self.led.leader.follow(self.replica.hello())
        self.reader = FrameReader(decode_head)
        self.frames.clear()

    def exchange(self) -> None:
        is_quiet = False
        while not is_quiet:
            sent = self.stream.take(1 << 20)
            for parts in sent:
                for frame, payload in self.reader.feed(b"".join(parts)):
                    self.frames.append(frame)
                    for answer in self.replica.receive(frame, payload):
                        self.stream.receive(answer)
            plan = self.replica.plan_sync()
            plan.run()
            durable = self.replica.synced(plan)
            if durable is not None and sent:
                self.stream.receive(durable)
            is_quiet = not sent


def test_a_follower_that_was_slow_is_sent_what_is_left_of_many_logs_that_came_and_went() -> None:
    copied = Copied()
    copied.exchange()
    led = copied.led
    led.execute(CreateTopic("short", 700, {}))
    led.execute(DeleteTopic("short"))
    led.execute(Publish("orders", [Message(b"b")]))
    led.sync()
    copied.exchange()
    assert copied.stream.durable == led.leader.sequence
    ends = {path: log.end_offset for path, log in led.leader.logs.items()}
    assert {path: log.end_offset for path, log in copied.replica.storage.logs.items()} == ends


@given(st.lists(st.sampled_from(["publish", "first", "second"]), max_size=10))
def test_with_two_standbys_what_is_committed_is_on_both_however_fast_one_of_them_is(
    steps: list[str],
) -> None:
    led = Led()
    standbys = {"first": Copied(led, 2), "second": Copied(led, 3)}
    for standby in standbys.values():
        standby.exchange()
        standby.frames.clear()
    led.leader.min_isr = 2
    for step in (*steps, "publish", "first", "publish", "first", "second"):
        if step in standbys:
            standbys[step].exchange()
        else:
            led.execute(Publish("orders", [Message(b"b")]))
            led.sync()
        led.leader.advance()
        in_sync = [one.stream for one in standbys.values() if one.stream.is_in_sync]
        assert led.leader.committed <= min(stream.durable for stream in in_sync)
    assert led.leader.committed == led.leader.sequence
    # Neither was ever sent from files what was still in memory.
    for standby in standbys.values():
        batches = [frame for frame in standby.frames if isinstance(frame, Batches)]
        assert all(frame.sequence >= 0 for frame in batches), "what is in memory is read from files"


def copied_with_two_committed() -> tuple[Copied, str]:
    """A follower that was told that two messages are committed, and the path of their log."""
    copied = Copied()
    copied.exchange()
    led = copied.led
    led.execute(Publish("orders", [Message(b"b")]))
    led.sync()
    copied.exchange()
    led.leader.advance()
    told = copied.stream.beat()
    assert told is not None
    for frame, payload in copied.reader.feed(b"".join(told)):
        copied.replica.receive(frame, payload)
    return copied, led.node.partition("orders", 0).messages.directory


def test_what_a_follower_was_told_is_committed_is_so_when_it_leads_without_that_leader() -> None:
    copied, path = copied_with_two_committed()
    copied.replica.disconnect()
    assert copied.replica.lead(Epoch(514)).committed[path] == 2


def test_what_is_not_in_a_history_that_was_begun_by_force_is_committed_no_more() -> None:
    copied, path = copied_with_two_committed()
    forced = Led()
    forced.leader.hello = replace(forced.leader.hello, forced_epoch=257)
    forced.sync()
    copied.led = forced
    copied.connect_again()
    copied.exchange()
    assert copied.replica.storage.logs[path].end_offset == 1
    record = read_record(copied.replica.disk)
    assert record is not None
    assert record.committed[path] == 1


PARTITIONS = 30


def with_snapshots(led: Led) -> None:
    """Each partition has a snapshot of its state, which a follower lacks."""
    led.execute(CreateTopic("many", PARTITIONS, {}))
    for number in range(PARTITIONS):
        led.execute(Publish("many", [Message(b"a")], partition=number))
    led.sync()
    led.commit()
    for partition in led.node.partitions():
        plan = partition.plan_snapshot()
        plan.run()
        partition.synced(plan)


def snapshots_of(disk: SimDisk) -> set[tuple[str, int]]:
    return {
        (path, offset)
        for path in (f"topics/default/many.2/partition-{number}/state" for number in range(30))
        for offset in snapshot_offsets(disk, path)
    }


def test_snapshots_are_installed_in_one_round_of_syncs(monkeypatch) -> None:
    copied = Copied()
    with_snapshots(copied.led)
    rounds: list[tuple[int, int]] = []
    sync_all = SimDisk.sync_all

    def count(disk: SimDisk, files, directories) -> None:
        rounds.append((len(files), len(directories)))
        sync_all(disk, files, directories)

    monkeypatch.setattr(SimDisk, "sync_all", count)
    copied.exchange()
    assert max(rounds)[0] >= PARTITIONS
    installed = snapshots_of(copied.replica.disk)
    assert len(installed) == PARTITIONS
    assert installed == snapshots_of(copied.led.disk)


def test_a_catch_up_that_broke_goes_on_where_it_was() -> None:
    copied = Copied()
    with_snapshots(copied.led)
    copied.exchange()
    sent = [frame for frame in copied.frames if isinstance(frame, Snapshot)]
    assert len(sent) >= PARTITIONS
    copied.connect_again()
    copied.exchange()
    assert [frame for frame in copied.frames if isinstance(frame, Snapshot | Batches)] == []
    assert copied.stream.is_in_sync


def test_a_snapshot_that_came_before_the_connection_broke_is_not_installed_behind_a_cut() -> None:
    copied = Copied()
    with_snapshots(copied.led)
    received = 0
    while received < PARTITIONS // 2:
        for parts in copied.stream.take(1):
            for frame, payload in copied.reader.feed(b"".join(parts)):
                received += isinstance(frame, Snapshot)
                for answer in copied.replica.receive(frame, payload):
                    copied.stream.receive(answer)
    copied.replica.disconnect()
    # The next leader may cut what they speak of.
    copied.replica.plan_sync().run()
    assert snapshots_of(copied.replica.disk) == set()

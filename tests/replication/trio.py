"""Nodes that lead and follow in one process, on disks in memory, in exactly the steps that a test says."""

import random

from penstock.api.principals import LOCAL
from penstock.broker.node import Node
from penstock.broker.partition import Now
from penstock.codec import decode_messages
from penstock.log import Log
from penstock.model import Epoch
from penstock.replication.ballots import next_ballot
from penstock.replication.frames import FrameReader, decode_head
from penstock.replication.leader import Leader
from penstock.replication.reconcile import longest
from penstock.replication.replica import Replica, as_leader
from penstock.replication.stream import Stream
from penstock.sim import SimDisk

NOW = Now(1_700_000_000_000_000_000, 1)


def values_of(log: Log) -> list[bytes]:
    return [
        one.data
        for head, batch in log.batches_from(log.start_offset)
        for one in decode_messages(batch, head)
    ]


class Member:
    """One node. Killed, it loses nothing that was written; what it did not sync is synced by the next open."""

    def __init__(self, number: int) -> None:
        self.number, self.disk = number, SimDisk()
        self.leader: Leader | None = None
        self.start()

    def start(self) -> None:
        self.node = self.leader = None
        self.replica = Replica(
            self.disk, node=self.number, entropy=random.Random(self.number), cluster_id="c"
        )

    kill = start

    def step_down(self) -> None:
        """Close the data because another node leads, and follow."""
        self.leader.is_over = True
        self.node.close()
        closed_logs = self.leader.closed_logs
        self.node = self.leader = None
        self.replica = Replica(
            self.disk,
            node=self.number,
            entropy=random.Random(self.number),
            cluster_id="c",
            closed_logs=closed_logs,
        )

    def lead(self, epoch: int, min_isr: int = 2) -> None:
        hello = as_leader(self.replica.hello(), Epoch(epoch))
        closed = self.replica.lead(Epoch(epoch))
        self.leader = Leader(hello, min_isr=min_isr, **closed._asdict())
        self.node = Node(self.disk, now=NOW, entropy=random.Random(7), reign=self.leader)

    def execute(self, command):
        return self.node.execute(command, LOCAL, NOW).outcome()

    def sync(self) -> None:
        plans = [(one, one.plan_sync()) for one in self.node.partitions() if one.is_dirty]
        for _, plan in plans:
            plan.run()
        self.node.synced(plans, NOW)
        self.leader.advance()


def follow(leading: Member, following: Member) -> Stream:
    """Copy all that the leader has, and confirm it."""
    stream = leading.leader.follow(following.replica.hello())
    exchange(stream, following)
    leading.leader.advance()
    return stream


def exchange(stream: Stream, following: Member) -> None:
    reader, replica = FrameReader(decode_head), following.replica
    while sent := stream.take(1 << 20):
        for parts in sent:
            for frame, payload in reader.feed(b"".join(parts)):
                for answer in replica.receive(frame, payload):
                    stream.receive(answer)
        plan = replica.plan_sync()
        plan.run()
        if (durable := replica.synced(plan)) is not None:
            stream.receive(durable)


def elect(*asked: Member, min_isr: int = 2) -> Member:
    """As the runbook says: all of these promise, and the longest leads."""
    highest = max(one.replica.epoch for one in asked)
    for one in asked:
        one.replica.promise(next_ballot(highest, asked[0].number))
        one.replica.disconnect()
    number = longest([one.replica.inventory() for one in asked])
    assert number is not None
    chosen = asked[number]
    chosen.lead(next_ballot(chosen.replica.epoch, chosen.number), min_isr)
    return chosen

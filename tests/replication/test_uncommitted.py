"""What a node does where other nodes have the same logs, before they have all of it: what may still be cut is in no
snapshot, and letters between partitions leave when no change of leader takes their intent."""

import random

from hypothesis import given
from hypothesis import strategies as st

from penstock.api.answers import Answer, Kind, LeaseAnswer
from penstock.api.consume import Poll
from penstock.api.principals import LOCAL
from penstock.api.publish import Delayed, Publish
from penstock.api.topics import CreateTopic
from penstock.api.transaction_answers import StageAnswers
from penstock.api.transactions import EndTransaction, InitProducer, ListTransactions, Stage
from penstock.broker.node import Node
from penstock.broker.partition import Now
from penstock.broker.partition.removal import retain
from penstock.model import Message
from penstock.replication.frames import LEVEL, Hello
from penstock.replication.leader import Leader
from penstock.sim import SimDisk

NOW = Now(1_700_000_000_000_000_000, 1)
HOUR_NS = 3600 * 1_000_000_000


class Led:
    """A node that leads, and a topic; nothing is committed before `commit`."""

    def __init__(self) -> None:
        self.disk = SimDisk()
        self.leader = Leader(Hello("c", 1, 11, 12, LEVEL, 257, "leader"), min_isr=1)
        self.node = Node(self.disk, now=NOW, entropy=random.Random(7), reign=self.leader)
        self.execute(CreateTopic("orders", 1, {}))
        self.execute(Publish("orders", [Message(b"a")]))

    def execute(self, command):
        return self.node.execute(command, LOCAL, NOW).outcome()

    def sync(self) -> None:
        plans = [(one, one.plan_sync()) for one in self.node.partitions() if one.is_dirty]
        for _, plan in plans:
            plan.run()
        self.node.synced(plans, NOW)

    def commit(self) -> None:
        """As if another node had confirmed all that is synced here."""
        self.leader.min_isr = 1
        self.leader.advance()
        self.leader.min_isr = 2


def test_a_snapshot_waits_until_all_that_it_speaks_of_is_committed() -> None:
    led = Led()
    led.sync()
    led.commit()
    led.execute(Publish("orders", [Message(b"b")]))
    partition = led.node.partition("orders", 0)
    held = partition.plan_snapshot()
    held.run()
    partition.synced(held)
    assert not held.is_snapshot_written

    led.commit()
    plan = partition.plan_sync()
    plan.run()
    partition.synced(plan)
    assert plan.is_snapshot_written


def test_a_dead_letter_waits_until_its_intent_is_committed_and_is_done_when_it_is_itself() -> None:
    led = Led()
    led.sync()
    led.commit()
    node = led.node
    (lent,) = led.execute(Poll("orders", "billing", "m", 1, 60_000)).leased()
    led.execute(Answer([LeaseAnswer(Kind.REJECT, *lent.place, lent.lease, [*lent.offsets])]))
    led.sync()
    outbox = node.partition("orders", 0).machine.outbox
    assert not node.pump(NOW)
    assert not outbox.sent

    led.commit()
    assert node.pump(NOW)
    assert node.partition("orders.dlq", 0).messages.end_offset == 1
    led.sync()
    node.pump(NOW)
    # Synced here, and on no other node: a leader without it would have no other copy.
    assert outbox.pending

    led.commit()
    node.pump(NOW)
    assert not outbox.pending


def test_what_is_not_committed_stays_and_is_no_want_of_room() -> None:
    led = Led()
    led.sync()
    partition, late = led.node.partition("orders", 0), Now(NOW.wall_ns + 200 * HOUR_NS, 2)
    led.leader.min_isr = 2
    assert retain(partition, late).segments_removed == 0
    led.commit()
    assert retain(partition, late).segments_removed == 1


@given(st.lists(st.sampled_from(["sync", "pump", "commit"]), max_size=12))
def test_a_transaction_ends_when_its_delays_are_committed_and_not_when_they_are_durable_here(
    steps: list[str],
) -> None:
    led = Led()
    session = led.execute(InitProducer("p"))
    delayed = [Delayed(Message(b"later"), NOW.wall_ns + HOUR_NS)]
    led.execute(Stage(*session, "orders", [], 0, delayed=delayed))
    led.sync()
    led.commit()
    led.execute(EndTransaction(*session, is_commit=True))
    partition = led.node.partition("orders", 0)
    for step in (*steps, *("sync", "commit", "pump") * 4):
        if step == "pump":
            led.node.pump(NOW)
        else:
            getattr(led, step)()
        log = partition.delayed
        assert partition.machine.stagings.open or log.committed_end == log.end_offset > 0
    assert not partition.machine.stagings.open


@given(st.lists(st.sampled_from(["sync", "pump", "commit"]), max_size=12), st.booleans())
def test_a_transaction_is_decided_when_all_of_it_is_committed_and_not_when_it_is_durable_here(
    steps: list[str], has_answers: bool
) -> None:
    led = Led()
    session = led.execute(InitProducer("p"))
    led.sync()
    led.commit()
    led.execute(Stage(*session, "orders", [Message(b"staged")], 0))
    if has_answers:
        (lent,) = led.execute(Poll("orders", "billing", "m", 1, 60_000)).leased()
        answer = LeaseAnswer(Kind.ACK, *lent.place, lent.lease, [*lent.offsets])
        led.execute(StageAnswers(*session, [answer]))
    partition = led.node.partition("orders", 0)
    ends = partition.staging.end_offset, partition.journal.log.end_offset
    for step in (*steps, *("sync", "commit", "pump") * 4):
        led.execute(EndTransaction(*session, is_commit=True))
        if step == "pump":
            led.node.pump(NOW)
        else:
            getattr(led, step)()
        (transaction,) = led.execute(ListTransactions())
        is_committed = (
            partition.staging.committed_end >= ends[0]
            and partition.journal.log.committed_end >= ends[1]
        )
        assert is_committed or transaction.state == "Ongoing"
    assert transaction.state == "CompleteCommit"

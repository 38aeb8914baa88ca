"""Letters between partitions, where other nodes have the same logs: they leave when no change of leader takes their
intent, and are done when none takes them from where they went."""

import random

from penstock.api.answers import Answer, Kind, LeaseAnswer
from penstock.api.consume import Poll
from penstock.api.principals import LOCAL
from penstock.api.publish import Publish
from penstock.api.topics import CreateTopic
from penstock.broker.node import Node
from penstock.broker.partition import Now
from penstock.model import Message
from penstock.replication.frames import LEVEL, Hello
from penstock.replication.leader import Leader
from penstock.sim import SimDisk

NOW = Now(1_700_000_000_000_000_000, 1)


def commit(leader: Leader) -> None:
    """Have all committed that is synced here, as if another node had confirmed it."""
    leader.min_isr = 1
    leader.advance()
    leader.min_isr = 2


def test_a_dead_letter_waits_until_its_intent_is_committed_and_is_done_when_it_is_itself() -> None:
    leader = Leader(Hello("c", 1, 11, 12, LEVEL, 257, "leader"), min_isr=1)
    node = Node(SimDisk(), now=NOW, entropy=random.Random(7), reign=leader)

    def execute(command):
        return node.execute(command, LOCAL, NOW).outcome()

    def sync() -> None:
        plans = [(one, one.plan_sync()) for one in node.partitions() if one.is_dirty]
        for _, plan in plans:
            plan.run()
        node.synced(plans, NOW)

    execute(CreateTopic("orders", 1, {}))
    execute(Publish("orders", [Message(b"a")]))
    sync()
    commit(leader)
    (lent,) = execute(Poll("orders", "billing", "m", 1, 60_000)).leased()
    execute(Answer([LeaseAnswer(Kind.REJECT, *lent.place, lent.lease, [*lent.offsets])]))
    sync()
    outbox = node.partition("orders", 0).machine.outbox
    assert not node.pump(NOW)
    assert not outbox.sent

    commit(leader)
    assert node.pump(NOW)
    assert node.partition("orders.dlq", 0).messages.end_offset == 1
    sync()
    node.pump(NOW)
    # Synced here, and on no other node: a leader without it would have no other copy.
    assert outbox.pending

    commit(leader)
    node.pump(NOW)
    assert not outbox.pending

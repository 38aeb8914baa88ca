"""What a follower is sent while much happens to the leader's logs, byte by byte and without a network."""

import random

from penstock.api.publish import Publish
from penstock.api.topics import CreateTopic, DeleteTopic
from penstock.model import Message
from penstock.replication.frames import FrameReader, decode_head
from penstock.replication.replica import Replica
from penstock.sim import SimDisk

from .test_uncommitted import Led


class Copied:
    """A node that leads, and a follower that is sent everything when `exchange` is called."""

    def __init__(self) -> None:
        self.led = Led()
        self.replica = Replica(SimDisk(), node=2, entropy=random.Random(8), cluster_id="c")
        self.stream = self.led.leader.follow(self.replica.hello())
        self.reader = FrameReader(decode_head)

    def exchange(self) -> None:
        is_quiet = False
        while not is_quiet:
            sent = self.stream.take(1 << 20)
            for parts in sent:
                for frame, payload in self.reader.feed(b"".join(parts)):
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

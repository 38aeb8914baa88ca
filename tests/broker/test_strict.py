"""Strict order against the rule itself: whatever is handed out is all of the lowest that is not finished."""

import random

from hypothesis import given
from hypothesis import strategies as st

from penstock.api.groups import Mode, PartitionOffset
from penstock.api.members import CommitAsMember
from penstock.broker.memberships import Ask, Join

from .world import GROUP, TOPIC, World

STEPS = ("publish", "poll", "poll", "ack", "ack", "nack", "reject", "extend", "wait", "commit")


class Strict:
    """One member on one partition, and the messages in its hands."""

    def __init__(self, entropy: random.Random) -> None:
        self.world, self.entropy, self.held = World(), entropy, []
        self.world.topic(max_retries=2, backoff_base_ms=500, visibility_timeout_ms=2000)
        wish = Join(frozenset({TOPIC}), member="m", session_ms=3_600_000, mode=Mode.STRICT)
        self.world.node.assigned.join(GROUP, wish, self.world.now())
        self.partition = self.world.node.partition(TOPIC, 0)

    @property
    def delivery(self):
        return self.partition.group(GROUP)

    def unfinished(self) -> list[int]:
        progress = self.delivery.progress
        return [
            one
            for one in range(self.partition.messages.end_offset)
            if not progress.is_finished(one)
        ]

    def publish(self) -> None:
        count = self.entropy.randint(1, 6)
        self.world.publish(*[b"x"] * count)

    def poll(self) -> None:
        self.world.wait(0)
        due, out = self.unfinished(), self.delivery.leases.in_flight
        waiting = min(self.delivery.waiting, default=None)
        ask = Ask("m", self.entropy.randint(1, 5))
        got = self.world.node.assigned.poll(GROUP, ask, self.world.now())
        offsets = [one.offset for one in got]
        assert offsets == due[: len(offsets)]
        assert not (out and offsets)
        if not out and waiting is None:
            assert len(offsets) == min(ask.limit, len(due))
        assert waiting is None or all(one < waiting for one in offsets)
        self.held += got

    def some(self):
        return self.entropy.sample(self.held, self.entropy.randint(0, min(3, len(self.held))))

    def ack(self) -> None:
        self.world.ack(*self.some())

    def nack(self) -> None:
        self.world.nack(*self.some())
        self.require_barrier()

    def reject(self) -> None:
        self.world.reject(*self.some()[:1])

    def extend(self) -> None:
        self.world.extend(*self.some(), ms=9000)

    def wait(self) -> None:
        self.world.wait(self.entropy.choice((100, 600, 2000)))
        self.require_barrier()

    def commit(self) -> None:
        if self.entropy.random() < 0.2 and (due := self.unfinished()):
            offsets = (PartitionOffset(TOPIC, 0, due[0] + 1),)
            self.world.execute(CommitAsMember(GROUP, "m", offsets))

    def require_barrier(self) -> None:
        """Nothing is out behind a message that waits."""
        waiting = min(self.delivery.waiting, default=None)
        out = [max(one.offsets()) for one in self.delivery.leases.by_number.values()]
        assert waiting is None or all(one < waiting for one in out)


@given(st.lists(st.sampled_from(STEPS), max_size=60), st.integers(0, 2**32))
def test_what_is_handed_out_is_always_the_lowest_that_is_not_finished(steps, seed):
    life = Strict(random.Random(seed))
    for step in ("publish", *steps):
        getattr(life, step)()
    # And it comes to its end.
    for _ in range(200):
        if not life.unfinished():
            break
        life.world.wait(1000)
        life.poll()
        life.world.ack(*life.held)
    assert life.unfinished() == []

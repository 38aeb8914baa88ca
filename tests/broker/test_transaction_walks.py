"""Workers that consume, transform and produce at random, with crashes, time-outs and zombies: every input once in the
output."""

import random
from collections import Counter
from contextlib import suppress

import pytest

from penstock.api.answers import Kind
from penstock.api.transactions import EndTransaction
from penstock.errors import (
    ProducerFenced,
    StaleReceipt,
    TransactionEnded,
    TransactionInProgress,
)

from .test_transaction_answers import GROUP, OUT, Consumer, out
from .world import TOPIC, Answered, World

WORKERS = 3
INPUTS = 24
STEPS = 260
LEASE_MS = 1500
TIMEOUT_MS = 4000
# Of a session: the worker begins another one.
LOST = (ProducerFenced, TransactionEnded)
SHARDS = 2


class Worker:
    """One name and one member. `zombie` is a former session of it, which goes on."""

    def __init__(self, world: World, number: int, chance: random.Random) -> None:
        self.world, self.name, self.chance = world, f"worker-{number}", chance
        self.consumer: Consumer | None = None
        self.zombie: Consumer | None = None
        self.held: list = []
        self.claimed: list = []
        self.committed = self.aborted = 0
        # The end that was asked for, a commit or not, and has no answer yet.
        self.ending: bool | None = None

    def step(self) -> None:
        try:
            if self.consumer is None:
                self.consumer = Consumer(self.world, self.name, timeout_ms=TIMEOUT_MS)
            elif self.ending is not None:
                self._end(self.consumer, is_commit=self.ending)
            else:
                self._work(self.consumer)
        except TransactionInProgress:
            return
        except LOST:
            self._forget()

    def _forget(self) -> None:
        self.zombie, self.consumer = self.consumer, None
        self.held, self.claimed, self.ending = [], [], None

    def _work(self, consumer: Consumer) -> None:
        lot = self.chance.random()
        if lot < 0.3:
            self.held += self.world.poll(self.chance.randint(1, 4), member=self.name, ms=LEASE_MS)
        elif lot < 0.65:
            if self.held:
                self._transform(consumer)
        elif lot < 0.93:
            if self.claimed:
                self._end(consumer, is_commit=self.chance.random() < 0.75)
        elif lot < 0.95:
            self._forget()
        elif lot < 0.97:
            self.world.release(self.name)
        elif self.zombie is not None:
            self._haunt(self.zombie)

    def _transform(self, consumer: Consumer) -> None:
        one = self.held.pop(self.chance.randrange(len(self.held)))
        try:
            consumer.ack(one)
        except StaleReceipt:
            return
        consumer.put(one.value)
        self.claimed.append(one)
        if self.chance.random() < 0.3:
            consumer.ack(one)
        if self.chance.random() < 0.3:
            (refused,) = self.world.ack(one)
            assert isinstance(refused, StaleReceipt), "an ack outside of what a transaction has"

    def _end(self, consumer: Consumer, *, is_commit: bool) -> None:
        """One step of it; the world syncs and moves letters in its own time."""
        end = self.world.execute(EndTransaction(consumer.id, consumer.epoch, is_commit))
        if not end.is_complete:
            self.ending = is_commit
            return
        consumer.epoch, self.ending = end.epoch, None
        if is_commit:
            self.committed += 1
        else:
            self.aborted += 1
            self._answer_again()
        self.claimed = []

    def _answer_again(self) -> None:
        """What was claimed is with its lease again, unless the member has left meanwhile."""
        if self.claimed and self.chance.random() < 0.5:
            (answered,) = self.world.nack(self.claimed[0], delay_ms=0)
            assert isinstance(answered, Answered | StaleReceipt)
            self.claimed = self.claimed[1:]
        self.held += self.claimed

    def _haunt(self, zombie: Consumer) -> None:
        with suppress(*LOST, TransactionInProgress, StaleReceipt):
            zombie.answer(Kind.ACK, *self.world.poll(1, member="zombie", ms=LEASE_MS))
            zombie.put(b"zombie")
            raise AssertionError("a former session goes on")


def disturb(world: World, chance: random.Random) -> None:
    lot = chance.random()
    if lot < 0.35:
        world.sync()
        world.node.pump(world.now())
    elif lot < 0.7:
        world.wait(chance.choice((10, 200, 900)))
    elif lot < 0.76:
        world.kill()
    elif lot < 0.8:
        world.restart()
    elif lot < 0.82:
        world.wait(TIMEOUT_MS)
    elif lot < 0.85:
        world.node.partition(TOPIC, chance.randrange(2)).take_snapshot()


@pytest.mark.parametrize("shard", range(SHARDS))
def test_every_input_is_once_in_the_output(shard: int, effort) -> None:
    committed = aborted = 0
    for seed in range(shard, effort(check=6, test=12, torture=3000), SHARDS):
        chance = random.Random(seed)
        world = World()
        world.topic(2, max_retries=-1, backoff_base_ms=1)
        world.topic(1, OUT)
        world.group()
        values = [b"%d" % number for number in range(INPUTS)]
        for number, value in enumerate(values):
            world.publish(value, partition=number % 2)
        workers = [Worker(world, number, chance) for number in range(WORKERS)]
        for number in range(STEPS):
            chance.choice(workers).step()
            disturb(world, chance)
            if number % 20 == 0:
                found = Counter(out(world))
                assert max(found.values(), default=0) <= 1, (seed, found)
        finish(world)
        assert Counter(out(world)) == Counter(values), seed
        committed += sum(one.committed for one in workers)
        aborted += sum(one.aborted for one in workers)
    assert committed > aborted > 0


def finish(world: World) -> None:
    """What is open times out, leases end, and one worker does the rest."""
    last = Consumer(world, "last")
    for _ in range(60):
        world.settle()
        world.wait(TIMEOUT_MS)
        got = world.poll(100, member="last", ms=10 * TIMEOUT_MS)
        for one in got:
            assert one.value is not None
            last.put(one.value)
        if got:
            last.ack(*got)
            last.end()
        if not sum(one.lag for one in world.lag(GROUP)):
            return
    raise AssertionError("some inputs never come again")

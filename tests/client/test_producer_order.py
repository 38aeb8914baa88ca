"""Several batches in flight: in order, none lost, none twice, whatever the connection and the server do to them."""

import asyncio
import time
from collections import deque
from random import Random
from types import SimpleNamespace

import pytest

from penstock.api.contents import LIMITS
from penstock.api.frames import ClientDefaults
from penstock.api.publish import BUFFERED, BatchStored, Published, PublishedRun
from penstock.api.topics import PartitionFacts
from penstock.broker.partition.producers import Producers
from penstock.client import ClientSettings, RetryPolicy
from penstock.client.asynchronous.producer import AsyncProducer
from penstock.client.partition_queue import IN_FLIGHT_MAX
from penstock.codec import decode_messages, read_head
from penstock.codec.head import UNSYNCED_MAX, place
from penstock.errors import OutOfSequence, PenstockError, Refused, TooManyRequests, Unreachable

BATCHES, BATCH_MESSAGES = 40, 2
UNWANTED = b"unwanted"


class Connection:
    """Carries requests out in order, also after it was cut; the client hears answers only before."""

    def __init__(self):
        self.requests, self.answers = deque(), deque()
        self.is_cut = False


class Server:
    """One partition: the broker's own memory of producers, and a list as the log.

    `mishaps` are what may happen at a step, with their chances.
    """

    def __init__(self, chance, mishaps):
        self.chance, self.mishaps = chance, mishaps
        self.log, self.producers = [], Producers()
        self.connections = [Connection()]
        self.in_flight_max = 0
        self.is_forgetful = False

    def send(self, pending):
        newest = self.connections[-1]
        newest.requests.append(pending)
        # A flush that is interrupted while it waits sends the same batch again, with the same number.
        waiting = [*newest.requests, *(one for one, _ in newest.answers)]
        in_flight = {one.command.batch[0] for one in waiting}
        self.in_flight_max = max(self.in_flight_max, len(in_flight))

    def step(self):
        """Carry out a request, deliver an answer, or have something happen."""
        roll = self.chance.random()
        for what, share in self.mishaps.items():
            roll -= share
            if roll < 0:
                getattr(self, what)()
                return
        ready = [one.requests for one in self.connections if one.requests]
        ready += [one.answers for one in self.connections if one.answers and not one.is_cut]
        if not ready:
            return
        found = self.chance.choice(ready)
        for connection in self.connections:
            if found is connection.requests:
                pending = found.popleft()
                connection.answers.append((pending, self._answer(pending.command)))
            elif found is connection.answers:
                pending, pending.outcome = found.popleft()

    def cut(self):
        newest = self.connections[-1]
        newest.is_cut = True
        for pending in (*newest.requests, *(one for one, _ in newest.answers)):
            pending.outcome = Unreachable("there", "cut", is_sent=True)
        self.connections.append(Connection())

    def refuse(self):
        """One request is answered that the server is busy."""
        newest = self.connections[-1]
        if newest.requests:
            error = TooManyRequests("requests", limit=1, retry_after_ms=0)
            newest.answers.append((newest.requests.popleft(), error))

    def forget(self):
        """The topic is deleted and made anew."""
        self.log, self.producers, self.is_forgetful = [], Producers(), True

    def _answer(self, command):
        batch = b"".join(command.batch)
        head = read_head(batch)
        values = [one.value for one in decode_messages(batch, head)]
        if UNWANTED in values:
            return Refused("unwanted")
        try:
            repeat = self.producers.repeat_of(head)
        except OutOfSequence as error:
            return error
        base = len(self.log) if repeat is None else repeat.base_offset
        if repeat is None:
            self.producers.add(
                place(head, base_offset=base, epoch=0, append_time=0, unsynced=UNSYNCED_MAX)
            )
            self.log += values
        published = Published(0, base, repeat is not None, base + len(values))
        return BatchStored(PublishedRun(published, len(values)), 1)


class Pending:
    def __init__(self, command):
        self.command, self.outcome = command, None
        self.sent_at_s = time.monotonic()

    @property
    def is_settled(self):
        return self.outcome is not None


class Connector:
    """What a producer asks of `AsyncConnector`. The server takes a step whenever the producer waits."""

    name = "there"
    retry = RetryPolicy(backoff_ms=1, backoff_ms_max=1)
    settings = ClientSettings()
    limits = LIMITS

    def __init__(self, server):
        self.server = server

    async def execute(self, _command):
        return SimpleNamespace(value=SimpleNamespace(partitions=[PartitionFacts(0, 0, 0, 0, 0)]))

    async def hello(self):
        return SimpleNamespace(defaults=ClientDefaults())

    async def begin(self, call):
        pending = Pending(call.command)
        self.server.send(pending)

        async def is_answered(_within_s):
            for _ in range(self.server.chance.randrange(3)):
                if not pending.is_settled:
                    self.server.step()
                    await asyncio.sleep(0)
            return pending.is_settled

        pending.is_answered = is_answered
        return SimpleNamespace(pending=pending)

    async def end(self, sent):
        while not sent.pending.is_settled:
            self.server.step()
            await asyncio.sleep(0)
        if isinstance(sent.pending.outcome, PenstockError):
            raise sent.pending.outcome
        return SimpleNamespace(value=sent.pending.outcome, safety=BUFFERED)


async def story(server, chance, *, unwanted=0.0, interrupted=0.0):
    """Send values of rising numbers; returns those that were stored, with where, and those that failed, with why."""
    deliveries, stored, failed = {}, {}, {}
    producer = AsyncProducer(
        Connector(server), "t", {"batch_messages_max": BATCH_MESSAGES, "linger_ms": 0.1}
    )
    for number in range(BATCHES * BATCH_MESSAGES):
        value = UNWANTED if chance.random() < unwanted else b"%d" % number
        deliveries[number] = value, await producer.send(value)
        if chance.random() < interrupted:
            flushing = asyncio.create_task(producer.flush())
            for _ in range(chance.randrange(8)):
                await asyncio.sleep(0)
            flushing.cancel()
            await asyncio.gather(flushing, return_exceptions=True)
    try:
        await producer.close()
    except PenstockError:
        assert producer.failed
    for number, (value, delivery) in deliveries.items():
        try:
            stored[number] = value, (await delivery.result(60)).offset
        except PenstockError as error:
            failed[number] = error
    return stored, failed


def check(server, stored):
    numbers = [int(one) for one in server.log]
    assert numbers == sorted(set(numbers)), "in order, none twice"
    for value, offset in () if server.is_forgetful else stored.values():
        assert server.log[offset] == value, "where it was said to be"


@pytest.mark.parametrize(
    ("mishaps", "unwanted", "interrupted"),
    [
        ({}, 0.0, 0.0),
        ({"cut": 0.1}, 0.0, 0.0),
        ({"refuse": 0.2}, 0.0, 0.0),
        ({"cut": 0.1, "refuse": 0.1}, 0.0, 0.05),
        ({"cut": 0.02}, 0.0, 0.5),
        ({"refuse": 0.1}, 0.05, 0.0),
        ({"cut": 0.1, "refuse": 0.1, "forget": 0.03}, 0.05, 0.05),
    ],
    ids=["calm", "cuts", "refusals", "interrupted", "often interrupted", "unwanted", "everything"],
)
async def test_in_order_and_once(mishaps, unwanted, interrupted, effort):
    for seed in range(effort(check=6, test=30, torture=5000)):
        chance = Random(seed)
        server = Server(chance, mishaps)
        stored, failed = await story(server, chance, unwanted=unwanted, interrupted=interrupted)
        check(server, stored)
        assert server.in_flight_max <= IN_FLIGHT_MAX
        if "forget" not in mishaps and "cut" not in mishaps:
            # Only what the server does not want fails: not the batches that were in flight behind it.
            assert all(isinstance(one, Refused) for one in failed.values()), seed
        elif not unwanted and "forget" not in mishaps:
            assert not failed, (seed, failed)
            assert len(server.log) == BATCHES * BATCH_MESSAGES
        if not mishaps:
            assert server.in_flight_max > 1

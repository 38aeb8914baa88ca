"""Measures transactions: beside plain publishes, a reader beside an open one, and how stagings are collected.

The broker is driven in this process by an event loop, as a server drives it; every answer waits for an fsync. So many
producers have something under way at once, and a transaction begins with its first message.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count

from penstock import Broker
from penstock.api.fetch import Fetch
from penstock.api.principals import LOCAL
from penstock.api.publish import PublishBatch
from penstock.api.start import Start
from penstock.api.topics import CreateTopic, SweepTopics
from penstock.api.transactions import EndTransaction, InitProducer, ProducerSession, StageBatch
from penstock.codec import Columns, Marks, encode
from penstock.runtime.asynchronous import AsyncDriver

from .embedded import make_values, scratch
from .measure import FULL, Clock, Effort, best_ns
from .report import Case, CaseResult, Unit, on_ratio

TOPIC = "orders"
PARTITIONS = 3
IN_FLIGHT = 64
READ, READ_QUICK = 1_000_000, 100_000
STAGINGS, STAGINGS_QUICK = 1_000_000, 100_000
STAGED_AT_ONCE = 1000
_S = 1e9
Parts = Sequence[Sequence[bytes]]
"""Values by partition."""


class Rig:
    """A broker that syncs always, a topic, and as many producers as there are transactions at once."""

    def __init__(self, broker: Broker, loop: asyncio.AbstractEventLoop) -> None:
        self.loop, self.driver = loop, AsyncDriver(broker.driver, loop)
        # What is published is removed again, or the disk fills up.
        settings = {"retention_bytes": 1 << 26}
        broker.driver.execute(CreateTopic(TOPIC, PARTITIONS, settings))
        sessions = [broker.driver.execute(InitProducer(f"p{one}")) for one in range(IN_FLIGHT)]
        self.producers = [Transactional(self.driver, session) for session in sessions]

    def together(self, call: Callable[["Transactional"], Awaitable[None]]) -> None:
        """Have every producer do this once, at the same time."""

        async def all_of_them() -> None:
            await asyncio.gather(*map(call, self.producers))

        self.loop.run_until_complete(all_of_them())


class Transactional:
    """A producer that numbers its messages, with transactions and without."""

    def __init__(self, driver: AsyncDriver, session: ProducerSession) -> None:
        self.driver, self.session = driver, session
        self.plain_id = session.producer_id + (1 << 51)
        self.plain_next = [0] * PARTITIONS

    async def publish(self, parts: Parts) -> None:
        """Publish without a transaction; the last answer comes when all are durable."""
        last = len(parts) - 1
        for partition, values in enumerate(parts):
            first = self.plain_next[partition]
            self.plain_next[partition] += len(values)
            batch = _batch(values, self.plain_id, 0, first)
            command = PublishBatch(TOPIC, partition, batch)
            if partition == last:
                await self.driver.execute(command, LOCAL)
            else:
                self.driver.start(command)

    async def commit(self, parts: Parts) -> None:
        """Publish the same in one transaction."""
        self.stage(parts)
        await self.end(is_commit=True)

    def stage(self, parts: Parts) -> None:
        for partition, values in enumerate(parts):
            batch = _batch(values, *self.session, 0)
            self.driver.driver.stage(StageBatch(TOPIC, partition, batch))

    async def end(self, *, is_commit: bool) -> None:
        end = await self.driver.execute(EndTransaction(*self.session, is_commit=is_commit), LOCAL)
        self.session = ProducerSession(self.session.producer_id, end.epoch)


def _batch(values: Sequence[bytes], producer_id: int, epoch: int, first: int) -> bytes:
    marks = Marks(producer_id=producer_id, producer_epoch=epoch, first_sequence=first)
    return encode(Columns(values=values, timestamps=1), marks=marks).to_bytes()


@contextmanager
def rig(fsync: str = "always") -> Iterator[Rig]:
    loop = asyncio.new_event_loop()
    try:
        with scratch() as path, Broker(path, fsync=fsync) as broker:
            yield Rig(broker, loop)
    finally:
        loop.close()


def measure_rate(messages: int, partitions: int, effort: Effort) -> CaseResult:
    """Measure transactions of so many messages over so many partitions, next to plain publishes of the same."""
    values = make_values(messages)
    parts = [values[one::partitions] for one in range(partitions)]
    with rig() as one:
        found = best_ns(
            {
                "transactions": lambda: one.together(lambda each: each.commit(parts)),
                "plain": lambda: one.together(lambda each: each.publish(parts)),
            },
            effort,
            clock=Clock.WALL,
        )
    total = messages * IN_FLIGHT * _S
    return CaseResult(
        total / found["transactions"],
        total / found["plain"],
        settings={"messages": messages, "partitions": partitions, "in_flight": IN_FLIGHT},
    )


def measure_reader(effort: Effort) -> CaseResult:
    """Measure a reader of a partition in which a transaction is open, next to one of a partition without."""
    total = READ if effort == FULL else READ_QUICK
    values = make_values(500)
    with rig("never") as one:
        execute = one.driver.driver.execute
        plain = encode(Columns(values=values, timestamps=1)).to_bytes()
        for partition in range(2):
            for _ in range(total // len(values)):
                execute(PublishBatch(TOPIC, partition, plain))
        one.producers[0].stage([values])

        def read(partition: int) -> None:
            offset = 0
            while offset < total:
                offset = execute(Fetch(TOPIC, partition, Start.at_offset(offset))).next_offset

        found = best_ns({"beside": lambda: read(0), "alone": lambda: read(1)}, effort)
    return CaseResult(total * _S / found["beside"], total * _S / found["alone"])


def measure_collected(effort: Effort) -> CaseResult:
    """Measure publishes while stagings that were aborted are collected, next to those with nothing to collect."""
    total = STAGINGS if effort == FULL else STAGINGS_QUICK
    values = make_values(STAGED_AT_ONCE)
    parts = [[value] for value in values[:PARTITIONS]]
    with rig() as one:
        producer = one.producers[0]

        def published_in(seconds: float, *, is_sweeping: bool) -> float:
            """Messages a second of all others, while a thread sweeps again and again."""
            done, until_s = count(), time.perf_counter() + seconds

            async def publish(each: Transactional) -> None:
                while time.perf_counter() < until_s:
                    await each.publish(parts)
                    next(done)

            async def sweep() -> None:
                while is_sweeping and time.perf_counter() < until_s:
                    await one.driver.execute(SweepTopics(TOPIC), LOCAL)
                    await asyncio.sleep(0.05)

            async def both() -> None:
                await asyncio.gather(sweep(), *map(publish, one.producers[1:]))

            started_s = time.perf_counter()
            one.loop.run_until_complete(both())
            return next(done) * PARTITIONS / (time.perf_counter() - started_s)

        seconds = effort.turns * effort.turn_ms_min / 300
        best = {"collecting": 0.0, "usual": 0.0}
        for _ in range(3):
            for first in range(0, total, STAGED_AT_ONCE):
                batch = _batch(values, *producer.session, first)
                one.driver.start(StageBatch(TOPIC, 0, batch))
            one.loop.run_until_complete(producer.end(is_commit=False))
            found = published_in(seconds, is_sweeping=True)
            best["collecting"] = max(best["collecting"], found)
            best["usual"] = max(best["usual"], published_in(seconds, is_sweeping=False))
    return CaseResult(best["collecting"], best["usual"], settings={"stagings": total})


CASES = (
    Case(
        name="hundred",
        unit=Unit.MESSAGES_PER_S,
        measure=partial(measure_rate, 100, PARTITIONS),
        goal=on_ratio(">=0.5"),
        baseline="plain publishes of the same messages",
    ),
    Case(
        name="one",
        unit=Unit.MESSAGES_PER_S,
        measure=partial(measure_rate, 1, 1),
        goal=on_ratio(">=0.25"),
        baseline="plain publishes of the same messages",
    ),
    Case(
        name="reader",
        unit=Unit.MESSAGES_PER_S,
        measure=measure_reader,
        goal=on_ratio(">=0.95"),
        baseline="a reader without an open transaction",
    ),
    Case(
        name="collected",
        unit=Unit.MESSAGES_PER_S,
        measure=measure_collected,
        goal=on_ratio(">=0.9"),
        baseline="publishes with nothing to collect",
    ),
)

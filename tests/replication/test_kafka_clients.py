"""Clients of Kafka that know both addresses go on by themselves when another node leads."""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, Message, Producer

from .pairs import PATIENCE_S, Pair, pair

pytestmark = pytest.mark.tier("test")
GROUP = "readers"


class Client(ABC):
    """A producer that is idempotent, until `is_over`, and a member of a group that reads to the end of it.

    `produced` was acknowledged, and `read` came in this order; both are numbers. A member that was moved may get again
    what it had not committed.
    """

    def __init__(self, topic: str, bootstrap: str) -> None:
        self.topic, self.bootstrap = topic, bootstrap
        self.produced: list[int] = []
        self.read: list[int] = []
        self.failures: list[BaseException] = []
        self.is_over, self.is_given_up = threading.Event(), threading.Event()
        self.threads = [
            threading.Thread(target=self._run, args=(work,), daemon=True)
            for work in (self.produce, self.consume)
        ]

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self.failures.append(error)
            raise

    @abstractmethod
    def produce(self) -> None:
        """Send one number after the other."""

    @abstractmethod
    def consume(self) -> None:
        """Read until `is_finished`."""

    @property
    def is_finished(self) -> bool:
        """Whether the producer has ended, and all of it was read; or the test has failed."""
        if self.is_given_up.is_set():
            return True
        return not self.threads[0].is_alive() and {*self.produced} <= {*self.read}


class Confluent(Client):
    """librdkafka, with some messages on their way at any time."""

    def produce(self) -> None:
        def delivered(error: KafkaError | None, message: Message) -> None:
            assert error is None, error
            self.produced.append(int(message.value()))

        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "message.timeout.ms": PATIENCE_S * 1000,
                "log_level": 0,
            }
        )
        number = 0
        while not self.is_over.is_set():
            while len(producer) < 5:
                producer.produce(self.topic, str(number), partition=0, on_delivery=delivered)
                number += 1
            producer.poll(0.05)
        assert producer.flush(PATIENCE_S) == 0

    def consume(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 100,
                "log_level": 0,
            }
        )
        consumer.subscribe([self.topic])
        while not self.is_finished:
            message = consumer.poll(0.2)
            # An error is one that the client goes on after.
            if message is not None and message.error() is None:
                self.read.append(int(message.value()))
        consumer.close()


class Aiokafka(Client):
    """One message at a time."""

    def produce(self) -> None:
        asyncio.run(self._produce())

    def consume(self) -> None:
        asyncio.run(self._consume())

    async def _produce(self) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap,
            enable_idempotence=True,
            request_timeout_ms=PATIENCE_S * 1000,
        )
        async with producer:
            while not self.is_over.is_set():
                number = len(self.produced)
                await producer.send_and_wait(self.topic, str(number).encode(), partition=0)
                self.produced.append(number)

    async def _consume(self) -> None:
        consumer = AIOKafkaConsumer(
            self.topic,
            bootstrap_servers=self.bootstrap,
            group_id=GROUP,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=100,
        )
        async with consumer:
            while not self.is_finished:
                found = await consumer.getmany(timeout_ms=200)
                self.read += [int(one.value) for batch in found.values() for one in batch]


class Clients:
    """All of them at once, on topics of their own."""

    def __init__(self, nodes: Pair) -> None:
        self._nodes = nodes
        bootstrap = ",".join(f"{one.host}:{one.binary}" for one in nodes)
        self.each = [kind(kind.__name__.lower(), bootstrap) for kind in (Confluent, Aiokafka)]

    def __enter__(self) -> "Clients":
        for one in self.each:
            made = self._nodes.first.call(
                "POST", "/topics", {"name": one.topic, "num_partitions": 1}
            )
            assert made.status == 201, made.json
        for one in self.each:
            for thread in one.threads:
                thread.start()
        return self

    def __exit__(self, failure: object, *_: object) -> None:
        for one in self.each:
            one.is_over.set()
            if failure is not None:
                one.is_given_up.set()
        for one in self.each:
            for thread in one.threads:
                thread.join(PATIENCE_S)

    def until(self, more: int) -> None:
        """Return when each was told of so many messages more, and has read so many more."""
        wanted = {one: (len(one.produced) + more, len({*one.read}) + more) for one in self.each}

        def is_so() -> bool:
            assert not any(one.failures for one in self.each)
            return all(
                len(one.produced) >= produced and len({*one.read}) >= read
                for one, (produced, read) in wanted.items()
            )

        self._nodes.first.until(is_so, str([(one.topic, len(one.read)) for one in self.each]))


def test_clients_move_over_promotions_and_lose_and_double_nothing(tmp_path, effort):
    with pair(tmp_path) as nodes:
        leader, other = nodes
        with Clients(nodes) as clients:
            clients.until(10)
            for _ in range(effort(check=1, test=1, torture=10)):
                # One that was asked for, and one after a kill.
                other.promote()
                other.until_in_sync()
                clients.until(10)
                other.kill()
                leader.promote()
                other.start()
                leader.until_in_sync()
                clients.until(10)
        for one in clients.each:
            assert not one.failures
            assert not any(thread.is_alive() for thread in one.threads), one.topic
            found = [*map(int, leader.values(one.topic))]
            assert found == one.produced == [*range(len(found))]
            # Read in order, and nothing left out.
            assert [*dict.fromkeys(one.read)] == found

"""What tests with confluent-kafka (librdkafka) share."""

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.kafka.brokers import KafkaAddress

PATIENCE_S = 120.0


def producer(broker: KafkaAddress, **settings: Any) -> Producer:
    return Producer({"bootstrap.servers": str(broker), "linger.ms": 5, **settings})


def consumer(broker: KafkaAddress, group: str, **settings: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": str(broker),
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "heartbeat.interval.ms": 300,
            "session.timeout.ms": 45_000,
            **settings,
        }
    )


def produce(client: Producer, topic: str, values: list[bytes], **more: Any) -> list[int]:
    """Offsets of the values, once all of them are stored."""
    offsets: list[int] = []
    errors: list[KafkaError] = []

    def told(error: KafkaError | None, message: Any) -> None:
        if error is None:
            offsets.append(message.offset())
        else:
            errors.append(error)

    for value in values:
        client.produce(topic, value, callback=told, **more)
    assert client.flush(PATIENCE_S) == 0
    assert not errors
    return offsets


def received(client: Consumer, count: int, timeout_s: float = PATIENCE_S) -> list[Any]:
    found: list[Any] = []
    until = time.monotonic() + timeout_s
    while len(found) < count and time.monotonic() < until:
        message = client.poll(0.2)
        if message is not None:
            assert message.error() is None, message.error()
            found.append(message)
    return found


def until(is_so: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
    end = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < end, "it took too long"


def make_topic(admin: AdminClient, name: str, partitions: int = 1, **config: str) -> None:
    admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(PATIENCE_S)

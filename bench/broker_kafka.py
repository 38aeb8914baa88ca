"""A stock Kafka client, confluent-kafka, at the same work against our broker's binary port."""

from collections.abc import Sequence
from typing import Any

# As the figures of Kafka were taken: confirmed without a sync, in batches as large as the client makes them.
_PRODUCER = {
    "acks": 1,
    "batch.num.messages": 10_000,
    "batch.size": 1_000_000,
    "linger.ms": 5,
    "queue.buffering.max.messages": 1_000_000,
}
_CONSUMER = {
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "fetch.wait.max.ms": 100,
    "max.partition.fetch.bytes": 4 << 20,
    "queued.min.messages": 1_000_000,
}
_TOGETHER = 10_000
_PATIENCE_S = 60


class ConfluentClient:
    """A producer and consumers of one broker. The topics are there."""

    def __init__(self, port: int) -> None:
        from confluent_kafka import Producer

        self._server = {"bootstrap.servers": f"127.0.0.1:{port}"}
        self._producer: Any = Producer({**self._server, **_PRODUCER})

    def publish(self, topic: str, values: Sequence[bytes]) -> None:
        """Publish and wait until all is confirmed."""
        for first in range(0, len(values), _TOGETHER):
            left = [{"value": value} for value in values[first : first + _TOGETHER]]
            while (queued := self._producer.produce_batch(topic, left)) < len(left):
                left = left[queued:]
                self._producer.poll(0.01)
        assert self._producer.flush(_PATIENCE_S) == 0, "not all was confirmed"

    def consume(self, topic: str, count: int) -> None:
        from confluent_kafka import Consumer, TopicPartition

        consumer: Any = Consumer({**self._server, **_CONSUMER, "group.id": f"{topic}-bench"})
        consumer.assign([TopicPartition(topic, 0, 0)])
        touched = 0
        while touched < count:
            found = consumer.consume(_TOGETHER, _PATIENCE_S)
            assert found, f"{touched} of {count} messages"
            for message in found:
                assert message.error() is None, message.error()
                touched += message.value() is not None
        consumer.close()

    def close(self) -> None:
        self._producer.flush(_PATIENCE_S)

"""Consume, transform, produce with confluent-kafka, until it is killed: PORT SOURCE TARGET PARTITIONS.

Prints a line for each transaction that it knows to be committed.
"""

import sys
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

A_BATCH = 5
PATIENCE_S = 120.0


def main(port: str, source: str, target: str, partitions: str) -> None:
    settings = {
        "bootstrap.servers": f"127.0.0.1:{port}",
        "log_level": 0,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 200,
        # By default librdkafka forgets a broker that is away, but not that it was the coordinator of the group, and
        # waits for that one in send_offsets_to_transaction without an end (confluentinc/librdkafka issue 5511).
        "metadata.recovery.strategy": "none",
    }
    producer = Producer({**settings, "transactional.id": "confluent", "linger.ms": 0})
    again(lambda: producer.init_transactions(PATIENCE_S))
    while True:
        reader = Consumer({**settings, "group.id": "k", "enable.auto.commit": False})
        try:
            places = [TopicPartition(source, one) for one in range(int(partitions))]
            transform(producer, reader, places, target)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            producer.abort_transaction(PATIENCE_S)
        finally:
            reader.close()


def transform(
    producer: Producer, reader: Consumer, places: list[TopicPartition], target: str
) -> None:
    """From where the group is, until a transaction fails."""
    known = reader.committed(places, PATIENCE_S)
    reader.assign([TopicPartition(one.topic, one.partition, max(0, one.offset)) for one in known])
    while True:
        some = [one for one in reader.consume(A_BATCH, 0.2) if one.error() is None]
        if some:
            publish(producer, reader, some, target)
            sys.stdout.write("committed\n")
            sys.stdout.flush()


def publish(producer: Producer, reader: Consumer, some: list[Any], target: str) -> None:
    ends: dict[tuple[str, int], int] = {}
    producer.begin_transaction()
    for one in some:
        producer.produce(target, one.value(), partition=0)
        ends[one.topic(), one.partition()] = one.offset() + 1
    positions = [TopicPartition(*place, end) for place, end in ends.items()]
    metadata = reader.consumer_group_metadata()
    again(lambda: producer.send_offsets_to_transaction(positions, metadata, PATIENCE_S))
    again(lambda: producer.commit_transaction(PATIENCE_S))


def again(call: Callable[[], None]) -> None:
    """Until it is answered with something that another try would not change."""
    while True:
        try:
            call()
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
        else:
            return


if __name__ == "__main__":
    main(*sys.argv[1:])

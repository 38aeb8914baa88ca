"""Requests of Kafka clients that wait: for messages, or for the other members of a group."""

import re
import urllib.request

import pytest
from confluent_kafka.admin import AdminClient

from tests.kafka.brokers import KafkaAddress
from tests.kafka.librdkafka import make_topic, produce, producer, until
from tests.kafka.test_reconnect import Wire

pytestmark = pytest.mark.tier("test")
FETCH, METADATA, JOIN = 1, 3, 11
FENCED_LEADER_EPOCH = 74
COUNT = 30


def metric(broker: KafkaAddress, name: str) -> int:
    with urllib.request.urlopen(f"{broker.http}/metrics") as answer:
        found = re.search(rf"^{name} ([0-9.]+)$", answer.read().decode(), re.MULTILINE)
    assert found is not None
    return int(float(found[1]))


def fetch(topic: str, offset: int, max_wait_ms: int = 60_000, epoch: int = -1) -> dict[str, object]:
    part = {
        "partition": 0,
        "current_leader_epoch": epoch,
        "fetch_offset": offset,
        "partition_max_bytes": 1 << 20,
    }
    return {
        "replica_id": -1,
        "max_wait_ms": max_wait_ms,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [part]}],
    }


def test_fetches_wait_without_a_task_each(broker: KafkaAddress, admin: AdminClient) -> None:
    make_topic(admin, "awaited")
    before = metric(broker, "penstock_tasks")
    wires = [Wire(broker) for _ in range(COUNT)]
    try:
        for wire in wires:
            wire.begin(FETCH, 11, **fetch("awaited", 0))
        until(lambda: metric(broker, "penstock_http_waiting") >= COUNT)
        until(lambda: metric(broker, "penstock_tasks") <= before + 2)
        produce(producer(broker), "awaited", [b"a"])
        for wire in wires:
            (topic,) = wire.answer(FETCH, 11)["responses"]
            assert topic["partitions"][0]["high_watermark"] == 1
        assert wires[0].ask(FETCH, 11, **fetch("awaited", 1, max_wait_ms=1))["responses"]
    finally:
        for wire in wires:
            wire.close()


def test_a_fetch_whose_client_leaves_waits_no_longer(
    broker: KafkaAddress, admin: AdminClient
) -> None:
    make_topic(admin, "left")
    before = metric(broker, "penstock_http_waiting")
    wires = [Wire(broker) for _ in range(COUNT)]
    for wire in wires:
        wire.begin(FETCH, 11, **fetch("left", 0))
    until(lambda: metric(broker, "penstock_http_waiting") >= before + COUNT)
    for wire in wires:
        wire.cut()
    until(lambda: metric(broker, "penstock_http_waiting") == before)


def test_a_client_that_has_not_heard_of_the_newest_epoch_gets_no_message(
    broker: KafkaAddress, admin: AdminClient
) -> None:
    make_topic(admin, "fenced")
    produce(producer(broker), "fenced", [b"a"])
    wire = Wire(broker)

    def asked(offset: int, epoch: int) -> tuple[int, bool]:
        (topic,) = wire.ask(FETCH, 11, **fetch("fenced", offset, epoch=epoch))["responses"]
        (part,) = topic["partitions"]
        return part["error_code"], bool(part["records"])

    try:
        topics = [{"name": "fenced"}]
        (topic,) = wire.ask(METADATA, 7, topics=topics)["topics"]
        epoch = topic["partitions"][0]["leader_epoch"]
        # Also behind the end: where it may be is for the check of its position to say.
        assert [asked(offset, epoch - 1) for offset in (0, 1, 2)] == [
            (FENCED_LEADER_EPOCH, False)
        ] * 3
        assert asked(0, epoch) == asked(0, -1) == (0, True)
    finally:
        wire.close()

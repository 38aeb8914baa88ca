"""kill -9 under idempotent producers: nothing that was acknowledged is lost, nothing is doubled."""

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from tests.client.servers import Server, restartable

pytestmark = pytest.mark.tier("test")
TOPIC, PARTITIONS = "kills", 3
PATIENCE_S = 240.0
# librdkafka needs two seconds to find a broker again that it has given up: some lives are longer.
KILLS_A_FLUSH = 5


def test_kills(tmp_path: Path, effort, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_BROKER__AUTO_CREATE_TOPICS", "true")
    with restartable(tmp_path / "data") as server:
        kill_often(server, effort(check=2, test=4, torture=200))


def kill_often(server: Server, kills: int) -> None:
    acknowledged: list[bytes] = []
    failed: list[Any] = []

    def told(error: KafkaError | None, message: Any) -> None:
        if error is None:
            acknowledged.append(message.value())
        else:
            failed.append(error)

    client = Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{server.port}",
            "enable.idempotence": True,
            "linger.ms": 1,
            "batch.num.messages": 50,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "retry.backoff.ms": 20,
            "retry.backoff.max.ms": 200,
            "log_level": 0,
        }
    )
    sent = 0

    def send(seconds: float) -> None:
        nonlocal sent
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for _ in range(20):
                client.produce(TOPIC, b"%d" % sent, partition=sent % PARTITIONS, callback=told)
                sent += 1
            client.poll(0.002)

    send(1.0)
    for number in range(kills):
        send(0.1 + number % 7 * 0.05)
        server.kill()
        send(0.05)
        server.start()
        if number % KILLS_A_FLUSH == 0:
            assert client.flush(PATIENCE_S) == 0
    send(0.5)
    assert client.flush(PATIENCE_S) == 0
    assert not failed, Counter(str(one) for one in failed)
    assert len(acknowledged) == sent
    stored = read_all(server.port, sent)
    assert Counter(value for values in stored for value in values) == Counter(
        b"%d" % number for number in range(sent)
    )
    for values in stored:
        assert values == sorted(values, key=int)


def read_all(port: int, count: int) -> list[list[bytes]]:
    """The values of each partition, in their order."""
    reader = Consumer({"bootstrap.servers": f"127.0.0.1:{port}", "group.id": "all"})
    reader.assign([TopicPartition(TOPIC, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
    stored: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    until = time.monotonic() + PATIENCE_S
    found = 0
    idle = 0
    while time.monotonic() < until and idle < 3:
        some = reader.consume(1000, 0.5)
        idle = idle + 1 if found >= count and not some else 0
        for message in some:
            assert message.error() is None
            stored[message.partition()].append(message.value())
            found += 1
    reader.close()
    return stored

"""kill -9 under idempotent producers: nothing that was acknowledged is lost, nothing is doubled."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

pytestmark = pytest.mark.tier("test")
TOPIC, PARTITIONS = "kills", 3
PATIENCE_S = 60.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def start(data: Path, port: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "penstock", "serve", "--port", "0", "--data-dir", str(data)]
    server = subprocess.Popen(
        [*command, "--binary-port", str(port)],
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PENSTOCK_BROKER__AUTO_CREATE_TOPICS": "true"},
    )
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            assert server.poll() is None, "the broker did not start"
            time.sleep(0.02)
        else:
            return server
    raise AssertionError("the broker took too long")


def test_kills(tmp_path: Path, effort) -> None:
    kills, port = effort(check=2, test=12, torture=200), free_port()
    server = start(tmp_path / "data", port)
    acknowledged: list[bytes] = []
    failed: list[Any] = []

    def told(error: KafkaError | None, message: Any) -> None:
        if error is None:
            acknowledged.append(message.value())
        else:
            failed.append(error)

    client = Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
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

    try:
        send(1.0)
        for number in range(kills):
            send(0.1 + number % 7 * 0.05)
            server.send_signal(signal.SIGKILL)
            server.wait()
            send(0.05)
            server = start(tmp_path / "data", port)
        send(0.5)
        assert client.flush(PATIENCE_S) == 0
        assert not failed, Counter(str(one) for one in failed)
        assert len(acknowledged) == sent
        stored = read_all(port, sent)
    finally:
        server.kill()
        server.wait()
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

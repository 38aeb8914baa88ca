"""What /metrics says of the binary port."""

import re
import socket
import urllib.request

import pytest
from confluent_kafka.admin import AdminClient

from penstock.client import Client
from penstock.errors import NotFound
from tests.kafka.brokers import KafkaAddress
from tests.kafka.librdkafka import make_topic, produce, producer, until
from tests.kafka.test_hostile import frame
from tests.kafka.test_reconnect import Wire
from tests.kafka.test_waiting import fetch

pytestmark = pytest.mark.tier("test")
FETCH = 1


def figures(broker: KafkaAddress, name: str) -> dict[tuple[str, ...], float]:
    """The samples of a metric by the values of their labels."""
    with urllib.request.urlopen(f"{broker.http}/metrics") as answer:
        lines = re.findall(rf"^{name}(?:\{{(.*)\}})? (\S+)$", answer.read().decode(), re.MULTILINE)
    return {tuple(re.findall(r'"([^"]*)"', labels)): float(value) for labels, value in lines}


def is_ended(stream: socket.socket) -> bool:
    """The broker ends it in good order, or at once if something is left unread."""
    try:
        return stream.recv(1) == b""
    except ConnectionError:
        return True


def test_requests_are_counted_by_name_and_outcome(broker: KafkaAddress, admin: AdminClient) -> None:
    make_topic(admin, "counted")
    produce(producer(broker), "counted", [b"a"])
    wire = Wire(broker)
    wire.ask(FETCH, 11, **fetch("counted", 7))
    before = figures(broker, "penstock_binary_connections")[()]
    assert before >= 1
    wire.close()
    with socket.create_connection((broker.host, broker.port), timeout=60) as stream:
        stream.sendall(frame(9999, 0, b""))
        assert is_ended(stream)
        # Longer than any frame may be.
    with socket.create_connection((broker.host, broker.port), timeout=60) as stream:
        stream.sendall(b"\x7f\xff\xff\xff" + bytes(20))
        assert is_ended(stream)
    with Client(f"penstock://{broker}") as client:
        client.publish("counted", b"b")
        with pytest.raises(NotFound):
            client.topic("none")
    found = figures(broker, "penstock_binary_requests_total")
    assert found["Produce", "ok"] >= 1
    assert found["CreateTopics", "ok"] == 1
    assert found["Fetch", "offset_out_of_range"] == 1
    assert found["unknown", "closed"] == 1
    assert found["DescribeTopic", "NOT_FOUND"] >= 1
    assert any(api.startswith("Publish") and outcome == "ok" for api, outcome in found)
    refused = figures(broker, "penstock_binary_refused_total")
    assert {reason: count for reason, count in refused.items() if count} == {("frame",): 1}
    sizes = figures(broker, "penstock_binary_bytes_total")
    assert sizes["in",] > 100
    assert sizes["out",] > 100
    until(lambda: figures(broker, "penstock_binary_connections")[()] < before)

"""Consumers of a dead-letter topic get the provenance beside the headers that the producer gave."""

import time

import pytest

import penstock
from penstock.client import Client
from penstock.testing import VirtualClock

from .rigs import in_process, served


def until(found, seconds=60):
    end = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


HEADERS = [["from", "web"], ["from", "app"]]


def required(died, group="g"):
    assert (died.original_topic, died.original_partition, died.original_offset) == ("orders", 0, 0)
    assert (died.delivery_attempts, died.group, died.last_error) == (1, group, "no stock")
    assert died.dlq_reason == "REJECTED"


async def test_over_http_every_way_to_read_shows_it(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        sent = {"messages": [{"key": "k", "value": "a", "headers": HEADERS}]}
        await broker.call("POST", "/topics/orders/messages", sent)
        (message,) = await broker.poll("&owner=me")
        assert "dead_letter" not in message
        answer = {"receipt_handle": message["receipt_handle"], "reason": "no stock"}
        assert (await broker.call("POST", "/messages/reject", answer)).status == 200
        broker.settle()
        path = "/topics/orders.dlq/partitions/0/messages"
        (read,) = (await broker.call("GET", path)).json["messages"]
        (polled,) = await broker.poll(topic="orders.dlq")
        for found in (read, polled):
            assert (found["key"], found["value"], found["headers"]) == ("k", "a", HEADERS)
            died = found["dead_letter"]
            assert (died["originalTopic"], died["originalPartition"]) == ("orders", 0)
            assert (died["originalOffset"], died["deliveryAttempts"]) == (0, 1)
            assert (died["group"], died["lastConsumer"]) == ("g", "me")
            assert (died["lastError"], died["dlqReason"]) == ("no stock", "REJECTED")
        (plain,) = (await broker.call("GET", "/topics/orders/partitions/0/messages")).json[
            "messages"
        ]
        assert "dead_letter" not in plain


async def test_a_header_of_that_name_that_a_producer_gave_stays_a_header(tmp_path):
    async with in_process(tmp_path) as broker:
        for name in ("orders", "orders.dlq"):
            await broker.topic(name)
            own = [["__penstock.dead_letter", "mine"]]
            sent = {"messages": [{"value": "a", "headers": own}]}
            await broker.call("POST", f"/topics/{name}/messages", sent)
            (polled,) = await broker.poll(topic=name)
            assert polled["headers"] == own
            assert "dead_letter" not in polled


def test_the_library_has_it_as_a_field(tmp_path):
    with penstock.Broker(tmp_path, clock=VirtualClock()) as broker:
        broker.create_topic("orders", partitions=1)
        broker.publish("orders", b"a", headers={"from": "web"})
        (message,) = broker.poll("orders", "g")
        assert message.dead_letter is None
        broker.reject(message, "no stock")
        broker.sync()
        (read,) = broker.read("orders.dlq", 0)
        (polled,) = broker.poll("orders.dlq", "undertaker")
        for found in (read, polled):
            assert found.headers == (("from", b"web"),)
            required(found.dead_letter)


def test_the_client_has_it_as_a_field(tmp_path):
    with (
        served(tmp_path / "data", "--binary-port", "0") as server,
        Client(server.binary_address) as client,
    ):
        client.create_topic("orders", partitions=1)
        client.publish("orders", b"a", headers={"from": "web"})
        with client.consumer("orders", "g") as consumer:
            (message,) = consumer.poll(1, wait="30s")
            message.reject("no stock")
            consumer.flush()
        until(lambda: "orders.dlq" in client.topics())
        with client.consumer("orders.dlq", "undertaker") as consumer:
            (polled,) = consumer.poll(1, wait="30s")
            polled.ack()
        (read,) = client.fetch("orders.dlq", 0)
        for found in (read, polled):
            assert tuple(found.headers) == (("from", b"web"),)
            required(found.dead_letter)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_redriven_dead_letter_is_an_ordinary_message(tmp_path, is_first):
    with penstock.Broker(tmp_path, clock=VirtualClock()) as broker:
        broker.create_topic("orders", partitions=1)
        broker.publish("orders", b"a", headers={"from": "web"} if is_first else {})
        broker.reject(broker.poll("orders", "g"), "no stock")
        broker.sync()
        assert broker.redrive("orders").redriven == 1
        broker.sync()
        (again,) = broker.poll("orders", "g")
        assert (again.dead_letter, bool(again.headers)) == (None, is_first)

"""Topics that ask for schemas, over HTTP and the binary port: JSON, lines, encoded batches, our client; and the log."""

import json
import threading
from typing import Any

import pytest

from penstock.api.publish import PublishValues
from penstock.api.schemas import NewSchema, RegisterSchema
from penstock.client import Client
from penstock.codec import Columns, encode
from penstock.errors import SchemaViolation

from .rigs import in_process, served
from .test_messages import BATCH

INTEGER = {"type": "object", "properties": {"id": {"type": "integer"}}}
GOOD, WRONG = '{"id": 1}', '{"id": "one"}'
REGISTER = {"schemaType": "JSON", "schema": json.dumps(INTEGER)}


async def ask(broker: Any, validation: str = "reject", **more: Any) -> None:
    await broker.topic(validation=validation, **more)
    reply = await broker.call("POST", "/subjects/orders-value/versions", REGISTER)
    assert reply.status == 200, reply.body


def sent(*values: str, **more: Any) -> dict[str, Any]:
    return {"messages": [{"value": one, **more} for one in values]}


@pytest.mark.parametrize("more", [{}, {"key": "k"}, {"delay": "1h"}], ids=["plain", "key", "delay"])
async def test_json_gets_an_answer_for_each_message(tmp_path, more):
    async with in_process(tmp_path) as broker:
        await ask(broker)
        reply = await broker.call(
            "POST", "/topics/orders/messages", sent(GOOD, WRONG, GOOD, **more)
        )
        assert reply.status == 200
        first, second, third = reply.json["results"]
        assert (first["offset"], third["offset"]) == (0, 1)
        assert (second["error"], second["status"]) == ("SCHEMA_VIOLATION", 422)
        assert (second["path"], second["schema_id"], second["part"]) == ("/id", 1, "value")
        assert second["index"] == 1
        reply = await broker.call("POST", "/topics/orders/messages", sent(WRONG, WRONG, **more))
        assert (reply.status, reply.json["error"], reply.json["index"]) == (
            422,
            "SCHEMA_VIOLATION",
            0,
        )
        assert [one["index"] for one in reply.json["results"]] == [0, 1]


async def test_lines_one_message_and_a_batch(tmp_path):
    async with in_process(tmp_path) as broker:
        await ask(broker)
        lines = f'{{"value": {json.dumps(WRONG)}}}\n{{"value": {json.dumps(GOOD)}}}\n'.encode()
        reply = await broker.call(
            "POST",
            "/topics/orders/messages",
            lines,
            headers={"content-type": "application/x-ndjson"},
        )
        assert [one.get("error") for one in reply.json["results"]] == ["SCHEMA_VIOLATION", None]
        reply = await broker.call("POST", "/produce", {"topic": "orders", "value": WRONG})
        assert (reply.status, reply.json["error"]) == (422, "SCHEMA_VIOLATION")
        columns = Columns(values=[GOOD.encode(), WRONG.encode()], timestamps=1)
        batch = encode(columns).to_bytes()
        reply = await broker.call(
            "POST", "/topics/orders/partitions/0/batches", batch, headers={"content-type": BATCH}
        )
        assert (reply.status, reply.json["error"]) == (422, "SCHEMA_VIOLATION")
        assert (reply.json["index"], reply.json["path"]) == (1, "/id")
        assert len(await broker.poll()) == 1


async def test_requests_of_one_turn_do_not_disturb_each_other(tmp_path):
    async with in_process(tmp_path) as broker:
        await ask(broker)
        publish = broker.app.coalescer.publish
        waits = [
            publish("orders", None, [one.encode()], is_synced=False) for one in (WRONG, GOOD, WRONG)
        ]
        (first,), (second,), (third,) = [await one for one in waits]
        assert isinstance(first, SchemaViolation)
        assert isinstance(third, SchemaViolation)
        assert second.offset == 0


async def test_warnings_are_counted_and_logged_at_a_bounded_rate(tmp_path, caplog):
    async with in_process(tmp_path) as broker:
        await ask(broker, "warn")
        for _ in range(50):
            await broker.publish(WRONG, GOOD)
        page = (await broker.call("GET", "/metrics")).body.decode()
        assert 'penstock_schema_violations_total{topic="orders",validation="warn"} 50' in page
        assert len(await broker.poll("&max=200")) == 100
        assert sum("orders-value" in one.getMessage() for one in caplog.records) == 1
        broker.clock.advance("11s")
        await broker.publish(WRONG)
        (_, last) = [
            one.getMessage() for one in caplog.records if "orders-value" in one.getMessage()
        ]
        assert "50 messages" in last


@pytest.mark.parametrize(
    "config", [{"validation": "maybe"}, {"key_subject": "\n"}, {"value_subject": "x" * 256}]
)
async def test_settings_that_are_none(tmp_path, config):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        reply = await broker.call("PATCH", "/topics/orders", {"config": config})
        assert (reply.status, reply.json["error"]) == (400, "INVALID_CONFIG")


async def test_messages_are_compared_while_another_command_has_its_turn(tmp_path):
    async with in_process(tmp_path) as broker:
        await ask(broker)
        await broker.publish(GOOD)
        driver, found = broker.driver, []
        command = PublishValues("orders", [GOOD.encode(), WRONG.encode()])
        thread = threading.Thread(target=lambda: found.append(driver.validated(command)))
        with driver.lock:
            thread.start()
            thread.join(120)
            assert [*found[0].verdict.wrong] == [1]


def test_our_client_and_a_restart(tmp_path):
    for _ in range(2):
        with served(tmp_path / "data") as server, Client(server.binary_address) as client:
            if "orders" not in client.topics():
                client.create_topic("orders", partitions=1, validation="reject")
                client.execute(
                    RegisterSchema("orders-value", NewSchema("JSON", json.dumps(INTEGER)))
                )
            with client.producer("orders", linger_ms=0) as producer:
                producer.send(GOOD).result()
                with pytest.raises(SchemaViolation) as caught:
                    producer.send(WRONG).result()
                assert caught.value.fields["path"] == "/id"
                with pytest.raises(SchemaViolation):
                    producer.flush()
                producer.send(GOOD).result()

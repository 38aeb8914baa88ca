"""Journeys over HTTP: a message is followed by hand, and found by key, header and trace id."""

import pytest

from penstock.api.principals import Role
from penstock.sim import SimDisk

from .rigs import in_process

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
PLACE = "/topics/orders/partitions/0/messages/0/journey"


async def answer(broker, kind, received, **more):
    body = {"receipt_handle": received["receipt_handle"], **more}
    reply = await broker.call("POST", f"/messages/{kind}", body)
    assert reply.status == 200, reply.body


async def test_a_message_is_followed_through_delay_failures_dead_letter_redrive_and_ack(tmp_path):
    disk = SimDisk()
    async with in_process(tmp_path, disk=disk) as broker:
        await broker.topic(max_retries=1)
        sent = {"messages": [{"key": "k", "value": "v", "delay": "1s"}]}
        assert (await broker.call("POST", "/topics/orders/messages", sent)).json["results"]
        await broker.poll()
        for error in ("first", "second"):
            broker.clock.advance("2s")
            broker.driver.tick()
            (received,) = await broker.poll("&owner=worker")
            broker.clock.advance("1s")
            await answer(broker, "nack", received, reason=error)
        broker.settle()
        redriven = {"all": True, "target": "group"}
        reply = await broker.call("POST", "/topics/orders/dlq/redrive", redriven)
        assert reply.json["redriven"] == 1
        (received,) = await broker.poll("&owner=last")
        broker.clock.advance("1s")
        await answer(broker, "ack", received)
        before = (await broker.call("GET", PLACE)).json
    # Another broker on the same disk: the story is the same.
    async with in_process(tmp_path, disk=SimDisk(disk.tree())) as broker:
        found = (await broker.call("GET", PLACE)).json
        assert found == before
        assert [one["event_type"] for one in found["spans"]] == [
            "delay.scheduled",
            "delay.fired",
            "publish.persisted",
            "consume.fetched",
            "consume.nacked",
            "consume.fetched",
            "consume.nacked",
            "dlq.routed",
            "publish.persisted",
            "dlq.redriven",
            "consume.reopened",
            "consume.fetched",
            "consume.acked",
        ]
        assert found["status"] == "completed"
        assert found["gaps"] == []
        by_trace = (await broker.call("GET", f"/traces/{found['trace_id']}")).json
        assert by_trace == found
        (row,) = (await broker.call("GET", "/traces/search?topic=orders&key=k")).json["traces"]
        assert (row["trace_id"], row["status"]) == (found["trace_id"], "completed")
        (row,) = (await broker.call("GET", "/v1/traces?topic=orders")).json["traces"]
        assert row["trace_id"] == found["trace_id"]
        stats = (await broker.call("GET", "/traces/stats")).json
        assert [one["topic"] for one in stats["topics"]] == ["orders", "orders.dlq"]


async def test_the_trace_of_a_request_goes_with_its_messages(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        sent = {"messages": [{"value": "a"}, {"value": "b", "headers": {"traceparent": "own"}}]}
        headers = {"traceparent": PARENT, "tracestate": "a=1"}
        for body in (sent, {"messages": [{"value": "c"}]}):
            reply = await broker.call("POST", "/topics/orders/messages", body, headers=headers)
            assert reply.status == 200
        received = await broker.poll()
        trace = [["traceparent", PARENT], ["tracestate", "a=1"]]
        assert [one["headers"] for one in received] == [trace, [["traceparent", "own"]], trace]
        found = (await broker.call("GET", f"/traces/{PARENT.split('-')[1]}")).json
        assert (found["offset"], found["trace_id"]) == (0, PARENT.split("-")[1])
        by_header = await broker.call("GET", "/traces/search?header=traceparent=own")
        assert [one["offset"] for one in by_header.json["traces"]] == [1]
        bad = {"traceparent": "00-nonsense"}
        await broker.call("POST", "/produce?topic=orders&value=d", headers=bad)
        assert (await broker.poll())[0]["headers"] == []


@pytest.mark.parametrize(
    ("target", "status", "error"),
    [
        ("/topics/orders/partitions/0/messages/5/journey", 404, "OFFSET_OUT_OF_RANGE"),
        ("/topics/nothing/partitions/0/messages/0/journey", 404, "NOT_FOUND"),
        ("/topics/orders/partitions/9/messages/0/journey", 404, "NOT_FOUND"),
        (f"/traces/{'1' * 32}", 404, "TRACE_NOT_FOUND"),
        ("/traces/nonsense", 400, "INVALID_ARGUMENT"),
        ("/traces/search?status=odd", 400, "MALFORMED_REQUEST"),
        ("/traces/search?cursor=odd", 400, "INVALID_ARGUMENT"),
        ("/traces/search?start=odd", 400, "MALFORMED_REQUEST"),
        ("/traces?limit=0", 400, "MALFORMED_REQUEST"),
    ],
)
async def test_bad_requests_are_refused(tmp_path, target, status, error):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        await broker.publish("a")
        reply = await broker.call("GET", target)
        assert (reply.status, reply.json["error"]) == (status, error)


async def test_a_key_sees_journeys_of_its_own_topics(tmp_path):
    settings = {("auth", "enabled"): True}
    async with in_process(tmp_path, settings) as broker:
        admin = {"authorization": f"Bearer {broker.key('a', Role.ADMIN).text}"}
        reader = {"authorization": f"Bearer {broker.key('r', Role.READONLY, 'own').text}"}
        producer = {"authorization": f"Bearer {broker.key('p', Role.PRODUCER).text}"}
        traces = {}
        for name in ("own", "other"):
            topic = {"name": name, "num_partitions": 1}
            await broker.call("POST", "/topics", topic, headers=admin)
            message = {"messages": [{"value": name}]}
            await broker.call("POST", f"/topics/{name}/messages", message, headers=admin)
            place = f"/topics/{name}/partitions/0/messages/0/journey"
            traces[name] = (await broker.call("GET", place, headers=admin)).json["trace_id"]
            assert (await broker.call("GET", place, headers=producer)).status == 403
            status = 200 if name == "own" else 403
            assert (await broker.call("GET", place, headers=reader)).status == status
            found = await broker.call("GET", f"/traces/{traces[name]}", headers=reader)
            assert found.status == (200 if name == "own" else 404)
            found = await broker.call("GET", f"/traces/search?topic={name}", headers=reader)
            assert found.status == status
        for target in ("/traces", "/traces/search"):
            found = (await broker.call("GET", target, headers=reader)).json["traces"]
            assert [one["trace_id"] for one in found] == [traces["own"]]

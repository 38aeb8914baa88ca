"""Messages over HTTP: published, read, lent and answered."""

import asyncio
import base64
import json
import re

import pytest

from penstock.codec import encode_messages, read_head
from penstock.model import Message

from .rigs import in_process, served, until
from .wires import connected, is_answered

BATCH = "application/vnd.penstock.batch"


async def test_any_bytes_survive_as_text_or_base64(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        odd = {"base64": base64.b64encode(bytes(range(256))).decode()}
        sent = [
            {"key": "käse", "value": "", "headers": {"a": "b"}},
            {"key": odd, "value": odd, "headers": [["a", odd], ["a", "again"], ["", None]]},
            {"value": None},
        ]
        await broker.call("POST", "/topics/orders/messages", {"messages": sent})
        found = await broker.poll()
        assert [(one["key"], one["value"]) for one in found] == [
            ("käse", ""),
            (odd, odd),
            (None, None),
        ]
        assert found[1]["headers"] == [["a", odd], ["a", "again"], ["", None]]
        read = await broker.call("GET", "/topics/orders/partitions/0/messages?encoding=base64")
        assert read.json["messages"][0]["key"] == {
            "base64": base64.b64encode("käse".encode()).decode()
        }


async def test_a_message_that_is_wrong_does_not_hold_up_the_others(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        sent = [
            {"value": "1"},
            {"value": "2", "priority": "urgent"},
            {"value": "3", "partition": 7},
        ]
        reply = await broker.call("POST", "/topics/orders/messages", {"messages": sent})
        good, bad, lost = reply.json["results"]
        assert (reply.status, good["offset"]) == (200, 0)
        assert (bad["status"], bad["error"]) == (400, "MALFORMED_REQUEST")
        assert (lost["status"], lost["error"]) == (404, "NOT_FOUND")
        only = await broker.call("POST", "/topics/orders/messages", {"messages": [sent[2]]})
        assert (only.status, only.json["error"]) == (404, "NOT_FOUND")


async def test_what_is_wrong_is_not_repeated_at_length(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        sent = {"messages": [{"value": "x", "ttl": "9" * 100_000 + "d"}]}
        reply = await broker.call("POST", "/topics/orders/messages", sent)
        assert (reply.status, reply.json["field"]) == (400, "ttl")
        assert len(reply.json["message"]) < 200


async def test_ndjson_in(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        lines = b'{"value":"1"}\n\n{"value":"2"}\n'
        reply = await broker.call(
            "POST",
            "/topics/orders/messages?acks=all",
            lines,
            headers={"content-type": "application/x-ndjson"},
        )
        assert [one["guarantee"] for one in reply.json["results"]] == ["fsynced", "fsynced"]
        assert [one["value"] for one in await broker.poll()] == ["1", "2"]


async def test_a_wrong_line_is_named_and_none_is_stored(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        kind = {"content-type": "application/x-ndjson"}
        for wrong in (b'{"valu":"2"}', b'{"value":', b'{"value":"\xff"}'):
            lines = b'{"value":"1"}\n\n' + wrong + b'\n{"value":"3"}'
            reply = await broker.call("POST", "/topics/orders/messages", lines, headers=kind)
            assert (reply.status, reply.json["line"]) == (400, 3)
            assert reply.json["message"].startswith("line 3: ")
        assert await broker.poll() == []


async def test_binary_batches_in_and_out(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        batch = encode_messages(
            [Message(b"\x00\xff", timestamp=5), Message(None, timestamp=6)]
        ).to_bytes()
        reply = await broker.call(
            "POST", "/topics/orders/partitions/0/batches", batch, headers={"content-type": BATCH}
        )
        assert (reply.json["base_offset"], reply.json["count"]) == (0, 2)
        out = await broker.call(
            "GET", "/topics/orders/partitions/0/messages?offset=1", headers={"accept": BATCH}
        )
        head = read_head(out.body, seed=int(out.headers["penstock-seed"]))
        assert (head.message_count, out.headers["penstock-next-offset"]) == (2, "2")
        spoiled = bytearray(batch)
        spoiled[-12] ^= 1
        bad = await broker.call(
            "POST",
            "/topics/orders/partitions/0/batches",
            bytes(spoiled),
            headers={"content-type": BATCH},
        )
        assert (bad.status, bad.json["error"]) == (400, "CHECKSUM_MISMATCH")


async def test_what_waits_for_nothing_is_said_to_be_in_memory_where_all_else_is_synced(tmp_path):
    async with in_process(tmp_path, fsync="always") as broker:
        await broker.topic()
        for acks, guarantee in (("none", "buffered"), ("leader", "fsynced")):
            for message in ({"value": "plain"}, {"value": "keyed", "key": "k"}):
                sent = {"messages": [message], "acks": acks}
                reply = await broker.call("POST", "/topics/orders/messages", sent)
                assert reply.json["results"][0]["guarantee"] == guarantee


async def test_repeats_are_recognised_also_when_they_come_together(tmp_path):
    async with in_process(tmp_path, fsync="always") as broker:
        await broker.topic()
        sent = {"messages": [{"value": "1", "idempotency_key": "k"}]}
        calls = [broker.call("POST", "/topics/orders/messages", sent) for _ in range(100)]
        results = [reply.json["results"][0] for reply in await asyncio.gather(*calls)]
        assert [one["duplicate"] for one in results].count(False) == 1
        assert {one["offset"] for one in results} == {0}
        assert {one["guarantee"] for one in results} == {"fsynced"}


async def test_an_empty_idempotency_key_is_no_key(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic(partitions=4)
        item = {"value": "x", "idempotency_key": ""}
        for more in ({}, {"delay": "1h"}):
            sent = {"messages": [{**item, **more}] * 3}
            for _ in range(4):
                reply = await broker.call("POST", "/topics/orders/messages", sent)
                assert [one["duplicate"] for one in reply.json["results"]] == [False] * 3
            called = [
                await broker.call("POST", "/produce?topic=orders&value=x&idempotency_key="),
                await broker.call("POST", "/produce", {"topic": "orders", **item, **more}),
            ]
            assert [one.json["duplicate"] for one in called] == [False, False]
        batch = encode_messages([Message(b"x", timestamp=1, idempotency_key=b"")] * 2).to_bytes()
        kind = {"content-type": BATCH}
        for _ in range(2):
            target = "/topics/orders/partitions/0/batches"
            assert not (await broker.call("POST", target, batch, headers=kind)).json["duplicate"]
        found = (await broker.call("GET", "/topics/orders")).json
        assert found["total_messages"] == 12 + 2 + 1 + 4
        # Without any key the partitions take turns.
        ends = [one["latest"] for one in found["partition_offsets"].values()]
        assert all(ends), ends
        read = await broker.call("GET", "/topics/orders/partitions/1/messages")
        assert {one["idempotency_key"] for one in read.json["messages"]} == {None}


async def test_produce_takes_a_query_or_json(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        first = await broker.call("POST", "/produce?topic=orders&value=1&key=a&priority=high")
        second = await broker.call("POST", "/produce", {"topic": "orders", "value": "2"})
        assert [first.json["offset"], second.json["offset"]] == [0, 1]
        assert first.json["priority"] == "high"


async def test_a_long_poll_is_answered_when_something_comes(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        waiting = asyncio.ensure_future(broker.poll("&timeout=60s"))
        await until(lambda: broker.driver.is_awaited)
        await broker.publish("1")
        assert [one["value"] for one in await waiting] == ["1"]
        assert await broker.poll("&timeout=1ms") == []


async def test_a_reader_at_the_end_waits_for_more(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        target = "/topics/orders/partitions/0/messages?offset=0&timeout=60s"
        waiting = asyncio.ensure_future(broker.call("GET", target))
        await until(lambda: broker.app.driver.waiting)
        await broker.publish("1")
        assert [one["value"] for one in (await waiting).json["messages"]] == ["1"]


async def test_reading_by_time(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        await broker.publish("1")
        broker.clock.advance("1h")
        await broker.publish("2")
        (first, second) = (await broker.call("GET", "/topics/orders/partitions/0/messages")).json[
            "messages"
        ]
        target = f"/topics/orders/partitions/0/messages?from_time={second['timestamp']}"
        found = (await broker.call("GET", target)).json
        assert [one["value"] for one in found["messages"]] == ["2"]
        assert (found["next_offset"], found["latest"]) == (2, 2)
        assert first["timestamp"] < second["timestamp"]


async def test_reading_goes_on_over_the_ends_of_segments_up_to_the_limits(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic(segment_messages_max=2)
        for number in range(9):
            await broker.publish(f"{number}" * 100)

        async def read(query: str) -> tuple[list[int], int]:
            target = f"/topics/orders/partitions/0/messages?{query}"
            found = (await broker.call("GET", target)).json
            return [one["offset"] for one in found["messages"]], found["next_offset"]

        assert await read("") == ([*range(9)], 9)
        assert await read("offset=1&limit=5") == ([1, 2, 3, 4, 5], 6)
        assert await read("offset=3&max_bytes=1") == ([3], 4)
        few, following = await read("max_bytes=1000")
        assert 2 < len(few) == following < 9
        assert await read("offset=9") == ([], 9)


async def test_reading_a_compacted_topic_gives_no_empty_pages(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic(segment_messages_max=3, cleanup="compact")
        first = {"messages": [{"value": "0", "key": "first"}]}
        await broker.call("POST", "/topics/orders/messages", first)
        again = {"messages": [{"value": "x", "key": "k"}]}
        for _ in range(60):
            await broker.call("POST", "/topics/orders/messages", again)
        await broker.call("POST", "/admin/topics/orders/compact")
        target = "/topics/orders/partitions/0/messages"
        for query in ("limit=1", "limit=1&max_bytes=1", "max_bytes=1", "limit=7", ""):
            offset, pages = 0, []
            while offset < 61:
                found = (await broker.call("GET", f"{target}?offset={offset}&{query}")).json
                pages.append([one["offset"] for one in found["messages"]])
                assert found["next_offset"] > offset
                offset = found["next_offset"]
            assert all(pages), query
            assert [one for page in pages for one in page] == [0, 59, 60]


async def test_one_receipt_is_answered_flat_and_many_one_by_one(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        await broker.publish("1", "2", "3")
        first, second, third = [one["receipt_handle"] for one in await broker.poll()]
        alone = await broker.call("POST", "/messages/ack", {"receipt_handle": second})
        assert alone.json == {
            "receipt_handle": second,
            "success": True,
            "topic": "orders",
            "partition": 0,
            "offset": 1,
            "committed_offset": -1,
            "offset_advanced": False,
            "in_flight_count": 2,
        }
        many = {"receipt_handles": [first, "nonsense", second, first.replace("orders", "other")]}
        results = (await broker.call("POST", "/messages/ack", many)).json["results"]
        assert [one.get("status", 200) for one in results] == [200, 400, 200, 404]
        assert results[0]["committed_offset"] == 1
        broker.clock.advance("31s")
        late = await broker.call("POST", "/messages/ack", {"receipt_handle": third})
        assert (late.status, late.json["error"]) == (409, "STALE_RECEIPT")


async def test_nack_reject_and_extend(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic(max_retries=1)
        await broker.publish("1", "2", "3")
        first, second, third = [one["receipt_handle"] for one in await broker.poll()]
        nack = {"receipt_handle": first, "reason": "no ink", "delay": "5s"}
        found = (await broker.call("POST", "/messages/nack", nack)).json
        assert (found["action"], found["dlq_topic"]) == ("requeued", None)
        reject = {"receipt_handle": second, "reason": "torn"}
        found = (await broker.call("POST", "/messages/reject", reject)).json
        assert (found["action"], found["dlq_topic"]) == ("dlq", "orders.dlq")
        extend = {"receipt_handle": third, "extension_seconds": 100}
        assert (await broker.call("POST", "/messages/visibility", extend)).status == 200
        broker.clock.advance("60s")
        (again,) = await broker.poll()
        assert (again["value"], again["attempts"], again["last_error"]) == ("1", 2, "no ink")
        ack = {"receipt_handle": third}
        assert (await broker.call("POST", "/messages/ack", ack)).status == 200


class ByOffset:
    """Answers for messages of the group g on the only partition of orders, in a query or as JSON."""

    def __init__(self, broker, form: str = "json") -> None:
        self._broker, self._form = broker, form

    async def __call__(self, route: str, offset: int, **more: object):
        fields = {"topic": "orders", "group": "g", "partition": 0, "offset": offset, **more}
        if self._form == "json":
            reply = await self._broker.call("POST", route, fields)
        else:
            query = "&".join(f"{name}={value}" for name, value in fields.items())
            reply = await self._broker.call("POST", f"{route}?{query}")
        assert reply.status != 409 or reply.json["error"] == "FAILED_PRECONDITION"
        return reply.status

    async def lag(self) -> int:
        return (await self._broker.call("GET", "/groups/g/lag")).json["total"]


@pytest.mark.parametrize("form", ["query", "json"])
async def test_answers_by_offset(tmp_path, form):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        await broker.publish("1", "2", "3", "4")
        await broker.poll("&owner=me&max=2")
        await broker.poll("&owner=you&max=1")
        answer = ByOffset(broker, form)
        assert await answer("/ack", 0, owner="me") == 204
        assert await answer("/ack", 0, owner="me") == 204
        assert await answer("/ack", 2, owner="me") == 409
        assert await answer("/nack", 2, owner="me") == 409
        assert await answer("/ack-cumulative", 2, owner="me") == 409
        assert await answer("/ack-cumulative", 1, owner="me") == 204
        assert await answer("/nack", 2) == 204
        broker.clock.advance("2s")
        assert [one["value"] for one in await broker.poll()] == ["3", "4"]


async def test_an_answer_by_offset_for_what_was_never_handed_out_is_refused(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        await broker.publish("1", "2", "3")
        await broker.poll("&owner=me&max=1")
        answer = ByOffset(broker)
        for route in ("/ack", "/nack", "/ack-cumulative"):
            for owner in ({}, {"owner": "me"}):
                assert await answer(route, 1, **owner) == 409
                assert await answer(route, 3, **owner) == 404
                assert await answer(route, -1, **owner) == 400
                assert await answer(route, 0, group="none", **owner) == 404
                assert await answer(route, 0, topic="none", **owner) == 404
                assert await answer(route, 0, partition=1, **owner) == 404
        assert await answer.lag() == 3
        assert [one["value"] for one in await broker.poll("&owner=you")] == ["2", "3"]


@pytest.mark.parametrize("owner", [{}, {"owner": "me"}])
async def test_a_late_ack_counts_unless_another_consumer_holds_the_message(tmp_path, owner):
    async with in_process(tmp_path) as broker:
        await broker.topic(backoff_base_ms=5000)
        await broker.publish("waits", "is ready", "is held", "failed", "was acked")
        assert len(await broker.poll("&owner=me")) == 5
        answer = ByOffset(broker)
        assert await answer("/nack", 3, owner="me") == 204
        assert await answer("/ack", 4, owner="me") == 204
        broker.clock.advance("31s")
        # All leases are over: what waits for its retry can be acked, and not be nacked.
        assert await answer("/nack", 0, **owner) == 409
        assert await answer("/ack", 0, **owner) == 204
        assert await answer("/ack", 0, **owner) == 204
        assert await answer("/nack", 0, **owner) == 409
        assert await answer("/ack", 3, owner="another") == 409
        broker.clock.advance("31s")
        assert await answer("/ack", 1, **owner) == 204
        assert await answer("/ack", 3, **owner) == 204
        (held,) = await broker.poll("&owner=you")
        assert (held["value"], held["attempts"]) == ("is held", 2)
        assert await answer("/ack", 2, owner="me") == 409
        assert await answer("/nack", 2, owner="me") == 409
        assert await answer.lag() == 1
        assert await answer("/ack", 2, owner="you") == 204
        assert await answer("/nack", 4, **owner) == 409
        assert await answer("/ack", 4, **owner) == 204
        assert await answer.lag() == 0


@pytest.mark.tier("test")
async def test_a_late_ack_by_a_consumer_that_went_away_counts_and_survives_a_restart(tmp_path):
    with served(tmp_path / "data", "--fsync", "always") as broker:
        broker.call("POST", "/topics", {"name": "orders", "num_partitions": 1})
        broker.call("POST", "/topics/orders/messages", {"messages": [{"value": "x"}] * 3})
        stream = broker.connect()
        stream.request("GET", "/consume?topic=orders&group=g&owner=me")
        answer = stream.getresponse()
        assert [json.loads(answer.readline())["offset"] for _ in range(3)] == [0, 1, 2]
        answer.close()
        stream.close()
        place = "topic=orders&group=g&partition=0"
        while broker.call("GET", "/groups/g/inflight").json["in_flight"]:
            pass
        assert broker.call("POST", f"/ack?{place}&offset=2&owner=another").status == 409
        assert broker.call("POST", f"/ack?{place}&offset=2&owner=me").status == 204
        broker.kill()
    with served(tmp_path / "data") as broker:
        assert broker.call("POST", f"/ack?{place}&offset=1&owner=another").status == 409
        assert broker.call("POST", f"/ack?{place}&offset=1&owner=me").status == 204
        found = broker.call("GET", "/topics/orders/messages?group=g").json["messages"]
        assert [one["offset"] for one in found] == [0]


async def test_a_stream_holds_no_more_than_it_may(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        await broker.publish("1", "2", "3")
        connection, wire = connected(broker)

        def values() -> list[str]:
            return re.findall(r'"value":"(\d)"', wire.written.decode())

        target = b"/consume?topic=orders&group=g&max=2&lease_ms=60000"
        connection.data_received(b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % target)
        await until(lambda: broker.app.driver.waiting)
        assert values() == ["1", "2"]
        receipt = re.search(r'"receipt_handle":"(.*?)"', wire.written.decode())[1]
        await broker.call("POST", "/messages/ack", {"receipt_handle": receipt})
        await until(lambda: values() == ["1", "2", "3"])
        connection.connection_lost(None)
        await until(lambda: is_answered(connection))
        assert [one["value"] for one in await broker.poll()] == ["2", "3"]


async def test_server_sent_events(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        await broker.publish("1", "2")
        broker.app.drain()
        reply = await broker.call(
            "GET", "/consume?topic=orders&group=g", headers={"accept": "text/event-stream"}
        )
        events = reply.body.split(b"\n\n")
        assert reply.headers["content-type"] == "text/event-stream"
        assert [json.loads(one.removeprefix(b"data: "))["value"] for one in events if one] == [
            "1",
            "2",
        ]


async def test_a_full_disk_refuses_publishes_and_nothing_else(tmp_path, monkeypatch):
    async with in_process(tmp_path, {("storage", "min_free_bytes"): 1 << 30}) as broker:
        await broker.topic()
        await broker.publish("1", "2")
        first, second = [one["receipt_handle"] for one in await broker.poll()]
        monkeypatch.setattr(broker.disk, "free_bytes", lambda: 1 << 20)
        broker.clock.advance("1s")
        refused = await broker.call(
            "POST", "/topics/orders/messages", {"messages": [{"value": "3"}, {"value": "4"}]}
        )
        assert (refused.status, refused.json["error"]) == (507, "NO_SPACE")
        assert [one["status"] for one in refused.json["results"]] == [507, 507]
        ack = await broker.call("POST", "/messages/ack", {"receipt_handle": first})
        assert ack.status == 200
        nack = await broker.call("POST", "/messages/nack", {"receipt_handle": second, "delay": 0})
        assert nack.status == 200
        assert [one["value"] for one in await broker.poll()] == ["2"]
        assert (await broker.call("GET", "/health")).json["status"] == "degraded"
        monkeypatch.setattr(broker.disk, "free_bytes", lambda: 1 << 40)
        broker.clock.advance("1s")
        await broker.publish("3")
        assert (await broker.call("GET", "/health")).json["status"] == "ok"


async def test_over_the_backlog_is_429_with_retry_after(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic(max_backlog_messages=2)
        await broker.publish("1", "2")
        refused = await broker.call(
            "POST", "/topics/orders/messages", {"messages": [{"value": "3"}]}
        )
        assert (refused.status, refused.json["error"]) == (429, "RESOURCE_EXHAUSTED")
        assert (refused.json["reason"], refused.headers["retry-after"]) == ("backlog_messages", "1")

"""What a request may cost, the same on each port: refused by name before it is paid, and nothing has happened."""

import asyncio
import json
from functools import partial
from itertools import count

import pytest

from penstock.api.answers import Answer, Kind, LeaseAnswer, TakeBack
from penstock.api.commits import StageNamedAnswers
from penstock.api.topics import CreateTopic, DescribeLayouts, DescribeTopics, ListTopics
from penstock.api.transaction_answers import StageAnswers
from penstock.errors import TooLarge
from penstock.server.bounds_reference import bounds_reference

from .binary.raw_client import connected
from .rigs import in_process

NDJSON = {"content-type": "application/x-ndjson"}
JSON_BYTES_MAX = 8 << 20


def test_names_that_are_there_again_are_looked_at_once(shared_broker):
    with connected(shared_broker.binary_port) as client:
        client.hello()
        client.call(CreateTopic("big", 1))
        for kind in (DescribeTopics, DescribeLayouts):
            assert [one.name for one in client.call(kind(["big"] * 10_000))] == ["big"]
            with pytest.raises(
                TooLarge, match="names in one request is 100000, the limit is 10000"
            ):
                client.call(kind(["big"] * 100_000))
        # The connection goes on.
        assert "big" in client.call(ListTopics())


async def test_http_has_the_bounds_of_commands(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        body = {"offsets": {"orders": {str(number): 0 for number in range(100_001)}}}
        reply = await broker.call("POST", "/groups/g/offsets", body)
        assert reply.status == 413
        assert reply.json["error"] == "TOO_LARGE"
        assert (await broker.call("GET", "/groups")).json["groups"] == []


@pytest.mark.parametrize("kind", [Answer, TakeBack, StageAnswers, StageNamedAnswers])
def test_the_reason_of_an_answer_is_bounded_in_whatever_command_it_comes(shared_broker, kind):
    answer = LeaseAnswer(Kind.REJECT, "big", 0, 1, 1, [0], reason="x" * 100_000)
    staging = {Answer: (), TakeBack: (), StageAnswers: (1, 0), StageNamedAnswers: ("1",)}[kind]
    with connected(shared_broker.binary_port) as client:
        client.hello()
        with pytest.raises(TooLarge, match="reason in characters"):
            client.call(kind(*staging, [answer]))


async def test_large_json_is_sent_back_with_what_to_do(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        message = {"value": "v" * 1000}
        count = JSON_BYTES_MAX // 1000
        body = json.dumps({"messages": [message] * count}).encode()
        target, of_json = "/topics/orders/messages", {"content-type": "application/json"}
        reply = await broker.call("POST", target, body, headers=of_json)
        assert reply.status == 413
        assert "application/x-ndjson" in reply.json["message"]
        lines = b"\n".join([json.dumps(message).encode()] * count)
        assert len(lines) > JSON_BYTES_MAX
        reply = await broker.call("POST", target, lines, headers=NDJSON)
        assert (reply.status, len(reply.json["results"])) == (200, count)
        described = (await broker.call("GET", "/topics/orders")).json
        assert described["total_messages"] == count


async def test_other_requests_have_their_turns_while_lines_are_read(tmp_path):
    """Each thousand lines, and each quarter of a MiB."""
    async with in_process(tmp_path) as broker:
        await broker.topic()
        turns = 0

        async def take_turns():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        async def turns_of(lines):
            nonlocal turns
            turns = 0
            body = b"\n".join(lines)
            reply = await broker.call("POST", "/topics/orders/messages", body, headers=NDJSON)
            assert reply.status == 200
            return turns

        other = asyncio.create_task(take_turns())
        try:
            small = await turns_of([b'{"value":"v"}'] * 10)
            many = await turns_of([b'{"value":"v"}'] * 20_000)
            large = await turns_of([b'{"value":"%b"}' % (b"v" * 400_000)] * 20)
        finally:
            other.cancel()
        assert many >= small + 20
        assert large >= small + 10


async def test_many_messages_are_stored_with_others_in_between_and_answered_in_their_order(
    tmp_path, monkeypatch
):
    async with in_process(tmp_path) as broker:
        ticking(broker, monkeypatch)
        await broker.topic(partitions=4)
        lines = [b'{"value":"%d","key":"%d"}' % (number, number) for number in range(2000)]
        lines += [b'{"value":"%d","partition":3}' % number for number in range(2000, 2500)]
        lines += [b'{"value":"wrong","priority":9}', b'{"value":"lost","partition":9}']
        ended = []

        async def publish(name, body):
            reply = await broker.call("POST", "/topics/orders/messages", body, headers=NDJSON)
            ended.append(name)
            return reply.json["results"]

        many = asyncio.create_task(publish("many", b"\n".join(lines)))
        while broker.driver.node.topic("orders").partitions[3].messages.end_offset == 0:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0)
        await publish("between", b'{"value":"v","partition":0}')
        *results, wrong, lost = await many
        assert ended == ["between", "many"]
        assert (wrong["error"], lost["error"]) == ("MALFORMED_REQUEST", "NOT_FOUND")
        assert [result["partition"] for result in results[2000:]] == [3] * 500
        stored = {}
        for partition in range(4):
            page = f"/topics/orders/partitions/{partition}/messages?limit=10000"
            for message in (await broker.call("GET", page)).json["messages"]:
                stored[partition, message["offset"]] = message["value"]
        places = [(result["partition"], result["offset"]) for result in results]
        assert [stored[place] for place in places] == [str(number) for number in range(2500)]
        assert len(stored) == 2501


def ticking(broker, monkeypatch):
    """A tenth of a millisecond passes with each look at the clock."""
    ticks = count(broker.clock.monotonic_ns(), 100_000)
    monkeypatch.setattr(broker.clock, "monotonic_ns", partial(next, ticks))


async def turns_of(work):
    """How often others had their turn of the loop, and what came of the work."""
    turns = 0

    async def take_turns():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    others = asyncio.create_task(take_turns())
    reply = await work
    others.cancel()
    return turns, reply


@pytest.mark.parametrize(
    "target", ["/messages/ack", "/messages/reject", "/transactions/ack", "/stagings/1-1/nack"]
)
async def test_others_have_their_turns_while_receipts_are_read(tmp_path, monkeypatch, target):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        ticking(broker, monkeypatch)
        session = {"producer_id": 1, "epoch": 0} if target.startswith("/transactions") else {}

        async def answer(receipts):
            body = {"receipt_handles": [f"orders:0:{n}:1:1.1" for n in range(receipts)]} | session
            return await turns_of(broker.call("POST", target, body))

        few, _ = await answer(10)
        many, reply = await answer(20_000)
        assert many >= few + 5
        if target == "/messages/ack":
            results = reply.json["results"]
            assert [result["receipt_handle"] for result in results[:2]] == [
                "orders:0:0:1:1.1",
                "orders:0:1:1:1.1",
            ]
            assert {result["error"] for result in results} == {"NOT_FOUND"}
            assert len(results) == 20_000


@pytest.mark.parametrize("target", ["/messages/ack", "/stagings/1-1/ack"])
async def test_receipts_of_too_many_leases_in_one_request(tmp_path, target):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        body = {"receipt_handles": [f"orders:0:1:1:1.{lease:x}" for lease in range(10_001)]}
        reply = await broker.call("POST", target, body)
        assert (reply.status, reply.json["error"]) == (413, "TOO_LARGE")


@pytest.mark.parametrize("ending", [b"", b"\n", b"\n\n"])
async def test_a_bad_line_is_named_and_nothing_is_stored(tmp_path, ending):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        lines = [b'{"value":"v"}'] * 2500 + [b"{"]
        body = b"\n".join(lines) + ending
        reply = await broker.call("POST", "/topics/orders/messages", body, headers=NDJSON)
        assert reply.status == 400
        assert "line 2501" in reply.json["message"]
        assert (await broker.call("GET", "/topics/orders")).json["total_messages"] == 0


async def test_more_lines_than_messages_in_one_request(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        body = b"{}\n" * 100_001
        reply = await broker.call("POST", "/topics/orders/messages", body, headers=NDJSON)
        assert reply.status == 413


def test_the_reference_has_every_bound_once():
    rows = [line for line in bounds_reference()[1:] if line]
    assert len(rows) == len(set(rows))
    assert "| `DescribeTopics` | `names` | 10000 items, each looked at once | refused |" in rows
    assert "| `Read` | `limit` | 10000 | cut |" in rows

"""Shapes of answers that clients of the contract declare, and requests that are refused instead of misread."""

import re

import pytest

from penstock.api.receipts import read_receipt, write_receipt
from penstock.api.units import duration_ns
from penstock.server.http.table import ROUTES

from .rigs import in_process

STAND_INS = {
    "topic": "orders",
    "group": "g",
    "partition": "0",
    "offset": "0",
    "query": "q",
    "key_id": "k",
    "pipeline": "p",
    "producer_id": "1",
    "transaction": "t",
    "trace_id": "0" * 32,
}


async def held(broker, **settings):
    await broker.topic(**settings)
    await broker.publish("a")
    (message,) = await broker.poll()
    return message


@pytest.mark.parametrize("answer", ["ack", "nack", "reject", "visibility"])
async def test_a_receipt_with_another_delivery_count_is_stale(tmp_path, answer):
    async with in_process(tmp_path) as broker:
        message = await held(broker)
        place, offset, attempts, lease = read_receipt(message["receipt_handle"])
        sent = {"timeout": "1s"} if answer == "visibility" else {}
        for count in (attempts - 1, attempts + 1):
            forged = write_receipt(place, offset, count, lease)
            refused = await broker.call(
                "POST", f"/messages/{answer}", {**sent, "receipt_handle": forged}
            )
            assert (refused.status, refused.json["error"]) == (409, "STALE_RECEIPT")
        await broker.publish("b")
        (other,) = await broker.poll()
        many = {**sent, "receipt_handles": [forged, other["receipt_handle"]]}
        results = (await broker.call("POST", f"/messages/{answer}", many)).json["results"]
        assert [one["success"] for one in results] == [False, True]


async def test_an_ack_that_is_repeated_is_a_success(tmp_path):
    async with in_process(tmp_path) as broker:
        sent = {"receipt_handle": (await held(broker))["receipt_handle"]}
        for _ in range(2):
            assert (await broker.call("POST", "/messages/ack", sent)).status == 200


async def test_an_answer_names_the_dead_letter_topic_only_if_there_is_one(tmp_path):
    async with in_process(tmp_path) as broker:
        message = await held(broker, max_retries=0)
        sent = {"receipt_handle": message["receipt_handle"]}
        kept = (await broker.call("POST", "/messages/nack", sent)).json
        assert (kept["action"], kept["dlq_topic"]) == ("dlq", "orders.dlq")
        broker.settle()
        (letter,) = await broker.poll(topic="orders.dlq")
        sent = {"receipt_handle": letter["receipt_handle"]}
        again = (await broker.call("POST", "/messages/reject", sent)).json
        assert (again["action"], again["dlq_topic"]) == ("kept", None)
        await broker.topic("other", dlq_enabled=False)
        await broker.publish("a", topic="other")
        (message,) = await broker.poll(topic="other")
        sent = {"receipt_handle": message["receipt_handle"]}
        dropped = (await broker.call("POST", "/messages/reject", sent)).json
        assert (dropped["action"], dropped["dlq_topic"]) == ("dropped", None)
        names = (await broker.call("GET", "/topics")).json["topics"]
        assert names == ["orders", "orders.dlq", "other"]


@pytest.mark.parametrize(
    "route", [one for one in ROUTES if one.refusal is None], ids=lambda one: one.method + one.path
)
async def test_a_field_of_the_query_that_a_route_does_not_have_is_refused(tmp_path, route):
    is_page = route.tag == "console" or "text/html" in str(route.other_answers)
    path = re.sub(r"{(\w+)}", lambda name: STAND_INS.get(name[1], "1"), route.path)
    async with in_process(tmp_path) as broker:
        body = None if route.method in {"GET", "DELETE"} else {}
        reply = await broker.call(route.method, f"{path}?colour=red", body)
        if is_page:
            assert reply.status != 400
        else:
            assert (reply.status, reply.json["error"]) == (400, "MALFORMED_REQUEST")
            assert "colour" in reply.json["message"], (
                "the field is named, before anything else is looked at"
            )


@pytest.mark.parametrize("path", ["/topics", "/groups", "/topics/orders/partitions", "/pipelines"])
@pytest.mark.parametrize("cursor", ["a", "orders", "b3JkZXJz", "AAAAAG9yZGVycw", "%C3%A4", "="])
async def test_a_cursor_that_no_list_gave_is_refused(tmp_path, path, cursor):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        reply = await broker.call("GET", f"{path}?cursor={cursor}")
        assert (reply.status, reply.json["field"]) == (400, "cursor")


async def test_pages_go_on_where_the_last_one_ended(tmp_path):
    async with in_process(tmp_path) as broker:
        names = sorted(f"topic-{number}" for number in range(5))
        for name in names:
            await broker.topic(name)
        found, cursor = [], ""
        while cursor is not None:
            page = (await broker.call("GET", f"/topics?limit=2&cursor={cursor}")).json
            found, cursor = found + page["topics"], page["cursor"]
        assert found == names


@pytest.mark.parametrize(
    ("method", "target", "body"),
    [
        ("POST", "/topics/orders/messages", {"messages": []}),
        ("GET", "/topics/orders/partitions/0/messages?offset=-1", None),
        ("POST", "/groups/g/offsets", {"offsets": {"orders": {"0": -1}}}),
        ("POST", "/groups/g/offsets/reset", {"to": -1}),
        ("POST", "/ack?topic=orders&group=g&partition=0&offset=-1", None),
        ("GET", "/topics/orders/messages?group=g&start=-1", None),
    ],
)
async def test_nothing_to_publish_and_offsets_below_zero_are_bad_requests(
    tmp_path, method, target, body
):
    async with in_process(tmp_path) as broker:
        await held(broker)
        assert (await broker.call(method, target, body)).status == 400


async def test_no_line_to_publish_is_a_bad_request(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        lines = {"content-type": "application/x-ndjson"}
        reply = await broker.call("POST", "/topics/orders/messages", b"\n", headers=lines)
        assert (reply.status, reply.json["field"]) == (400, "messages")


async def test_groups_are_names_and_with_details_objects(tmp_path):
    async with in_process(tmp_path) as broker:
        await held(broker)
        assert (await broker.call("GET", "/groups")).json == {"groups": ["g"], "cursor": None}
        detailed = (await broker.call("GET", "/groups?details=true")).json["groups"]
        (shown,) = detailed
        assert shown == {**(await broker.call("GET", "/groups/g")).json, "lag": 1}
        (member,) = shown["members"]
        assert member["last_heartbeat"] == member["last_poll"] is not None


async def test_members_say_when_they_were_heard_of_last(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        joining = {"client_id": "c", "topics": ["orders"], "session_timeout": "10s"}
        joined = (await broker.call("POST", "/groups/g/join", joining)).json
        seen = []
        for _ in range(2):
            broker.clock.advance("1s")
            seen.append((await broker.call("GET", "/groups/g")).json["members"][0])
        sent = {"member_id": joined["member_id"], "generation": joined["generation"]}
        await broker.call("POST", "/groups/g/heartbeat", sent)
        seen.append((await broker.call("GET", "/groups/g")).json["members"][0])
        assert seen[0]["last_heartbeat"] == seen[1]["last_heartbeat"] < seen[2]["last_heartbeat"]


async def test_offsets_of_a_group_are_of_one_topic_if_it_is_named(tmp_path):
    async with in_process(tmp_path) as broker:
        await held(broker)
        await broker.topic("other")
        await broker.poll(topic="other")
        everything = (await broker.call("GET", "/groups/g/offsets")).json["offsets"]
        assert everything == {"orders": {"0": 0}, "other": {"0": 0}}
        one = (await broker.call("GET", "/groups/g/offsets?topic=other")).json["offsets"]
        assert one == {"other": {"0": 0}}
        assert (await broker.call("GET", "/groups/g/offsets?topic=none")).status == 404


@pytest.mark.parametrize("sent", ["critical", 0, "0"])
async def test_a_priority_is_sent_by_name_or_number_and_answered_by_name(tmp_path, sent):
    async with in_process(tmp_path) as broker:
        await broker.topic(max_retries=0)
        message = {"value": "a", "priority": sent}
        published = await broker.call("POST", "/topics/orders/messages", {"messages": [message]})
        assert published.json["results"][0]["priority"] == "critical"
        later = {"value": "b", "priority": sent, "delay": "1h"}
        await broker.call("POST", "/topics/orders/messages", {"messages": [later]})
        (waiting,) = (await broker.call("GET", "/topics/orders/delayed")).json["messages"]
        read = (await broker.call("GET", "/topics/orders/partitions/0/messages")).json["messages"]
        (polled,) = await broker.poll(f"&priority={sent}")
        assert {one["priority"] for one in (waiting, *read, polled)} == {"critical"}
        await broker.call("POST", "/messages/reject", {"receipt_handle": polled["receipt_handle"]})
        broker.settle()
        (letter,) = (await broker.call("GET", "/topics/orders/dlq")).json["dead_letters"]
        assert letter["priority"] == "critical"


async def test_a_publish_without_a_priority_is_normal(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        for message in ({"value": "a"}, {"value": "a", "key": "k"}):
            sent = {"messages": [message]}
            found = (await broker.call("POST", "/topics/orders/messages", sent)).json
            assert found["results"][0]["priority"] == "normal"


@pytest.mark.parametrize("path", ["/health", "/healthz", "/readyz", "/livez"])
async def test_probes_pass_and_say_what_they_looked_at(tmp_path, path):
    async with in_process(tmp_path, {("broker", "id"): "b-7"}) as broker:
        found = (await broker.call("GET", path)).json
        assert found["status"] == ("ok" if path == "/health" else "pass")
        assert found["broker"]["node_id"] == "b-7"
        assert duration_ns(found["uptime"]) >= 0
        assert ("checks" in found) == (path != "/readyz")
        found = (await broker.call("GET", f"{path}?verbose")).json
        assert {one["status"] for one in found["checks"].values()} == {"pass"}


async def test_a_reset_takes_partitions(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic(partitions=2)
        offsets = {"offsets": {"orders": {"0": 1, "1": 1}}}
        for number in range(2):
            sent = {"messages": [{"value": "a", "partition": number}]}
            await broker.call("POST", "/topics/orders/messages", sent)
        assert (await broker.call("POST", "/groups/g/offsets", offsets)).status == 200
        asked = {"to": "earliest", "topic": "orders", "partitions": [1]}
        dry = await broker.call("POST", "/groups/g/offsets/reset", {**asked, "dry_run": True})
        done = await broker.call("POST", "/groups/g/offsets/reset", asked)
        assert dry.json["partitions"] == done.json["partitions"]
        assert [one["partition"] for one in done.json["partitions"]] == [1]
        found = (await broker.call("GET", "/groups/g/offsets")).json["offsets"]
        assert found == {"orders": {"0": 1, "1": 0}}
        for wrong, status in (([], 400), ([2], 404), ([-1], 404)):
            refused = await broker.call(
                "POST", "/groups/g/offsets/reset", {**asked, "partitions": wrong}
            )
            assert refused.status == status, wrong

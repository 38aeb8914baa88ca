"""Delay, priority and assigned groups over HTTP."""

import asyncio

import pytest

from penstock.codec import decode_messages
from penstock.codec.leased import decode_leased

from .rigs import in_process, until

PUBLISH = "/topics/orders/messages"


async def test_delayed_messages_come_when_they_are_due(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        sent = [
            {"value": "now"},
            {"value": "soon", "delay": "30s", "ttl": "10s"},
            {"value": "later", "deliver_at": "2026-01-01T02:00:00Z", "delay_key": "bill-7"},
            {"value": "too", "deliverAt": "2026-01-01T03:00:00.5Z"},
            {"value": "wrong", "delay": "1s", "deliver_at": "2026-01-01T02:00:00Z"},
        ]
        reply = await broker.call("POST", PUBLISH, {"messages": sent, "acks": "all"})
        now, soon, later, too, wrong = reply.json["results"]
        assert [one["delayed"] for one in (now, soon, later, too)] == [False, True, True, True]
        assert later["deliver_at"] == later["deliverAt"] == "2026-01-01T02:00:00.000000000Z"
        assert wrong["status"] == 400
        assert [one["value"] for one in await broker.poll("&visibility_timeout=1h")] == ["now"]
        listed = (await broker.call("GET", "/topics/orders/delayed")).json
        assert [(one["value"], one["state"]) for one in listed["messages"]] == [
            ("soon", "PENDING"),
            ("later", "PENDING"),
            ("too", "PENDING"),
        ]
        assert listed["messages"][0]["time_remaining"] == 30_000
        page = (await broker.call("GET", "/topics/orders/delayed?limit=2")).json
        rest = await broker.call("GET", f"/topics/orders/delayed?cursor={page['cursor']}")
        assert [one["value"] for one in rest.json["messages"]] == ["too"]
        broker.clock.advance("31s")
        (message,) = await broker.poll()
        assert (message["value"], message["expires_at"]) == (
            "soon",
            "2026-01-01T00:00:40.000000000Z",
        )
        place = f"/topics/orders/delayed/{soon['partition']}/{soon['offset']}"
        assert (await broker.call("GET", place)).json["state"] == "DELIVERED"
        fired = await broker.call("DELETE", place)
        assert (fired.status, fired.json["error"]) == (409, "NOT_PENDING")


async def test_delayed_messages_are_cancelled_and_moved_by_place_and_by_key(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        sent = [{"value": str(one), "delay": "1h", "delay_key": f"k{one}"} for one in range(4)]
        reply = await broker.call("POST", PUBLISH, {"messages": sent})
        first, second = [
            f"/topics/orders/delayed/{one['partition']}/{one['offset']}"
            for one in reply.json["results"][:2]
        ]
        assert (await broker.call("DELETE", first)).json["state"] == "CANCELLED"
        moved = await broker.call("PATCH", second, {"delay": "5s"})
        assert moved.json["time_remaining"] == 5000
        by_key = "/topics/orders/delayed?delay_key=k2"
        assert (await broker.call("DELETE", by_key)).json["state"] == "CANCELLED"
        last = "/topics/orders/delayed?delay_key=k3"
        assert (await broker.call("PATCH", last, {"delay": 1000})).status == 200
        assert (await broker.call("PATCH", second, {})).status == 400
        assert (await broker.call("GET", "/topics/orders/delayed/99")).status == 404
        assert (await broker.call("GET", "/topics/orders/delayed/1")).json["value"] == "1"
        broker.clock.advance("10s")
        assert sorted(one["value"] for one in await broker.poll()) == ["1", "3"]
        stats = (await broker.call("GET", "/delay/stats")).json
        assert (stats["pending"], stats["delivered"], stats["cancelled"]) == (0, 2, 2)
        assert stats["wheel"] == stats["by_topic"]["orders"]["wheel"] == [0] * 6
        delays = ["20ms", "1s", "1m", "1h", "3d", "30d"]
        later = [{"value": one, "delay": one} for one in delays]
        await broker.call("POST", PUBLISH, {"messages": later})
        stats = (await broker.call("GET", "/delay/stats")).json
        assert sum(stats["wheel"]) == stats["pending"] == len(delays)
        assert sum(one > 0 for one in stats["wheel"]) >= 3


async def test_priorities(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        names = ["background", "low", "normal", "high", "critical"]
        sent = [{"value": name, "priority": name} for name in names]
        await broker.call("POST", PUBLISH, {"messages": sent})
        (only,) = await broker.poll("&priority=low")
        assert only["value"] == "low"
        stats = (await broker.call("GET", "/priority/stats")).json
        lanes = stats["topics"]["orders"]["partitions"]["0"]
        assert lanes["ready"] == [1, 1, 1, 0, 1]
        assert lanes["in_flight"] == [0, 0, 0, 1, 0]
        assert [one > 0 for one in lanes["enqueue_rate"]] == [True] * 5
        assert [one > 0 for one in lanes["dequeue_rate"]] == [False, False, False, True, False]
        assert [one is None for one in lanes["last_served"]] == [True, True, True, False, True]
        assert lanes["last_served"][3].startswith("2026-01-01T")
        assert stats["totals"]["critical"]["ready"] == 1
        assert stats["totals"]["low"]["in_flight"] == 1
        rest = [one["value"] for one in await broker.poll()]
        assert rest == ["critical", "high", "normal", "background"]
        assert (await broker.call("GET", f"{PUBLISH}?group=g&priority=urgent")).status == 400


async def test_a_poll_that_is_repeated_gets_the_same_answer(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        await broker.publish("1", "2")
        first = await broker.poll("&max=1&request_id=r1")
        assert await broker.poll("&max=1&request_id=r1") == first
        assert [one["value"] for one in await broker.poll("&request_id=r2")] == ["2"]
        waiting = asyncio.ensure_future(broker.poll("&request_id=r3&timeout=60s"))
        await until(lambda: broker.driver.is_awaited)
        await broker.publish("3")
        third = await waiting
        assert [one["value"] for one in third] == ["3"]
        assert await broker.poll("&request_id=r3") == third


async def test_members_share_partitions_and_pass_them_on(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic(partitions=2)

        async def post(name: str, **fields: object):
            reply = await broker.call("POST", f"/groups/g/{name}", fields)
            assert reply.status in {200, 204}, reply.body
            return reply.json if reply.body else None

        first = await post("join", topics=["orders"], client_id="a")
        assert first["assigned_partitions"] == ["orders/0", "orders/1"]
        one = first["member_id"]
        second = await post("join", topics=["orders"], client_id="b")
        other = second["member_id"]
        told = await post("heartbeat", member_id=one)
        assert (told["rebalance_required"], len(told["partitions_to_revoke"])) == (True, 1)
        released = await post(
            "revoke",
            member_id=one,
            generation=told["generation"],
            partitions=told["partitions_to_revoke"],
        )
        assert released["released"] == told["partitions_to_revoke"]
        taken = await post("heartbeat", member_id=other)
        assert taken["partitions_assigned"] == told["partitions_to_revoke"]
        group = (await broker.call("GET", "/groups/g")).json
        assert sorted(m["client_id"] for m in group["members"]) == ["a", "b"]
        mine = (await post("heartbeat", member_id=one))["partitions_assigned"][0].split("/")[1]
        messages = {"messages": [{"value": "x", "partition": int(mine)}]}
        await broker.call("POST", PUBLISH, messages)
        target = f"/groups/g/poll?member_id={one}&max_messages=5&timeout=5s"
        found = (await broker.call("GET", target)).json
        assert [m["value"] for m in found["messages"]] == ["x"]
        commit = {"offsets": {"orders": {mine: 1}}}
        stranger = await broker.call("POST", "/groups/g/offsets", {**commit, "member_id": other})
        assert (stranger.status, stranger.json["error"]) == (409, "NOT_OWNER")
        assert (await broker.call("POST", "/groups/g/offsets", commit)).status == 409
        done = await broker.call("POST", "/groups/g/offsets", {**commit, "member_id": one})
        assert done.json["advanced"] is True
        await post("leave", member_id=other)
        gone = await broker.call("POST", "/groups/g/heartbeat", {"member_id": other})
        assert (gone.status, gone.json["error"]) == (404, "UNKNOWN_MEMBER")
        stats = (await broker.call("GET", "/rebalance/stats")).json["groups"]["g"]
        assert len(stats) >= 2
        shared = await broker.call("GET", f"{PUBLISH}?group=g")
        assert (shared.status, shared.json["error"]) == (409, "MODE_CONFLICT")


async def test_a_members_long_poll_ends_when_it_has_to_hear_of_something(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic(partitions=2)
        joined = await broker.call("POST", "/groups/g/join", {"topics": ["orders"]})
        target = f"/groups/g/poll?member_id={joined.json['member_id']}&timeout=60s"
        waiting = asyncio.ensure_future(broker.call("GET", target))
        await until(lambda: broker.driver.is_awaited)
        await broker.call("POST", "/groups/g/join", {"topics": ["orders"]})
        reply = (await waiting).json
        assert (reply["messages"], reply["rebalance_required"]) == ([], True)


async def test_leased_polls_in_binary_carry_their_receipts(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        sent = [{"value": str(one), "key": "k", "headers": {"a": "b"}} for one in range(3)]
        await broker.call("POST", PUBLISH, {"messages": sent})
        accept = {"accept": "application/vnd.penstock.batch"}
        reply = await broker.call("GET", f"{PUBLISH}?group=g", headers=accept)
        assert reply.headers["content-type"] == accept["accept"]
        (part,) = decode_leased(reply.body)
        messages = decode_messages(part.batch, part.head)
        assert [one.value for one in messages] == [b"0", b"1", b"2"]
        assert list(messages[0].headers) == [("a", b"b")]
        receipts = {"receipt_handles": part.lent.receipts()}
        results = (await broker.call("POST", "/messages/ack", receipts)).json["results"]
        assert all(one["success"] for one in results)
        assert (await broker.call("GET", f"{PUBLISH}?group=g", headers=accept)).body == b""
        joined = await broker.call("POST", "/groups/a/join", {"topics": ["orders"]})
        target = f"/groups/a/poll?member_id={joined.json['member_id']}&timeout=0"
        reply = await broker.call("GET", target, headers=accept)
        assert reply.headers["penstock-generation"] == str(joined.json["generation"])
        assert len(next(decode_leased(reply.body)).lent.offsets) == 3


async def test_members_of_a_shared_group_poll_all_their_topics(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic("orders")
        await broker.topic("invoices")
        joining = {"topics": ["orders", "invoices"], "mode": "shared", "client_id": "a"}
        joined = (await broker.call("POST", "/groups/g/join", joining)).json
        member = joined["member_id"]
        target = f"/groups/g/poll?member_id={member}&timeout=60s"
        waiting = asyncio.ensure_future(broker.call("GET", target))
        await until(lambda: broker.driver.is_awaited)
        await broker.publish("1", topic="invoices")
        found = (await waiting).json["messages"]
        assert [(one["topic"], one["value"]) for one in found] == [("invoices", "1")]
        assert not broker.driver.is_awaited
        beat = await broker.call("POST", "/groups/g/heartbeat", {"member_id": member})
        assert (beat.status, beat.json["partitions_assigned"]) == (200, [])
        assigned = {"topics": ["orders"]}
        assert (await broker.call("POST", "/groups/g/join", assigned)).status == 409
        left = await broker.call("POST", "/groups/g/leave", {"member_id": member})
        assert left.status == 204
        assert [one["value"] for one in await broker.poll(topic="invoices")] == ["1"]
        again = await broker.call("POST", "/groups/g/leave", {"member_id": member})
        assert (again.status, again.json["error"]) == (404, "UNKNOWN_MEMBER")


async def test_a_shared_member_that_is_missed_gives_back_what_it_holds(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        await broker.publish("1")
        joining = {"topics": ["orders"], "mode": "shared", "session_timeout": "1s"}
        member = (await broker.call("POST", "/groups/g/join", joining)).json["member_id"]
        target = f"/groups/g/poll?member_id={member}&timeout=0"
        assert len((await broker.call("GET", target)).json["messages"]) == 1
        broker.app.sweep()
        assert await broker.poll() == []
        broker.app.shared.find("g", member).until = 0
        broker.app.sweep()
        assert len(await broker.poll()) == 1


async def test_a_repeated_delayed_publish_answers_when_the_first_one_comes(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()

        async def publish(**more: str) -> dict:
            sent = {"messages": [{"value": "v", "idempotency_key": "k", **more}]}
            (found,) = (await broker.call("POST", "/topics/orders/messages", sent)).json["results"]
            return found

        first = await publish(delay="1h")
        assert not first["duplicate"]
        for again in (await publish(delay="5h"), await publish()):
            assert (again["duplicate"], again["delayed"], again["offset"]) == (True, True, 0)
            assert again["deliver_at"] == again["deliverAt"] == first["deliver_at"]
        produced = {"topic": "orders", "value": "v", "idempotency_key": "k", "delay": "9h"}
        again = (await broker.call("POST", "/produce", produced)).json
        assert (again["duplicate"], again["deliver_at"]) == (True, first["deliver_at"])
        # Another time was given to it since.
        moved = await broker.call("PATCH", "/topics/orders/delayed/0/0", {"delay": "2h"})
        assert (await publish(delay="5h"))["deliver_at"] == moved.json["deliver_at"]
        # The first one came at once, so there is no time to wait for.
        sent = {"messages": [{"value": "v", "idempotency_key": "at once"}]}
        await broker.call("POST", "/topics/orders/messages", sent)
        later = await publish(idempotency_key="at once", delay="1h")
        assert (later["duplicate"], later["delayed"], later["deliver_at"]) == (True, False, None)


async def test_a_message_that_was_delayed_names_its_delay_id(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic(segment_messages_max=1)
        await broker.publish("at once")
        items = [{"value": f"{one}", "delay": f"{one}s"} for one in (3, 1, 2)]
        await broker.call("POST", "/topics/orders/messages", {"messages": items})
        broker.clock.advance("5s")
        await broker.publish("and again")
        expected = [None, 1, 2, 0, None]
        read = await broker.call("GET", "/topics/orders/partitions/0/messages")
        assert [one["delay_id"] for one in read.json["messages"]] == expected
        assert [one["delay_id"] for one in await broker.poll("&max=2")] == expected[:2]
        member = (await broker.call("POST", "/groups/a/join", {"topics": ["orders"]})).json
        target = f"/groups/a/poll?member_id={member['member_id']}"
        polled = (await broker.call("GET", target)).json["messages"]
        assert [one["delay_id"] for one in polled] == expected
        for one in polled[1:4]:
            delayed = await broker.call("GET", f"/topics/orders/delayed/0/{one['delay_id']}")
            assert delayed.json["state"] == "DELIVERED"
            assert delayed.json["value"] == one["value"]


async def test_a_dead_letter_that_was_never_delivered_has_no_times_of_delivery(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic(ttl_action="dlq", max_retries=0)
        sent = {"messages": [{"value": "late", "ttl": "1s"}, {"value": "failed"}]}
        await broker.call("POST", "/topics/orders/messages", sent)
        broker.clock.advance("2s")
        (failed,) = await broker.poll()
        nack = {"receipt_handle": failed["receipt_handle"]}
        await broker.call("POST", "/messages/nack", nack)
        broker.settle()
        letters = (await broker.call("GET", "/topics/orders/dlq")).json["dead_letters"]
        late, failed = sorted(letters, key=lambda one: one["originalOffset"])
        assert (late["dlqReason"], late["deliveryAttempts"]) == ("TTL_EXPIRED", 0)
        assert (late["firstDelivery"], late["lastDelivery"]) == (None, None)
        assert failed["firstDelivery"] == failed["lastDelivery"]
        assert failed["lastDelivery"].startswith("2026-")


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("2100-01-31T12:00:00Z", "2100-01-31T12:00:00.000000000Z"),
        ("2100-01-31T12:00:00.5Z", "2100-01-31T12:00:00.500000000Z"),
        ("2100-01-31 12:00:00.25+01:00", "2100-01-31T11:00:00.250000000Z"),
        ("2100-01-31t12:00:00.000000001z", "2100-01-31T12:00:00.000000001Z"),
        ("4105080000000000007", "2100-01-31T12:00:00.000000007Z"),
    ],
)
async def test_a_moment_is_read_to_the_nanosecond(tmp_path, written, read):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        sent = {"messages": [{"value": "later", "deliver_at": written}]}
        reply = await broker.call("POST", "/topics/orders/messages", sent)
        assert reply.json["results"][0]["deliver_at"] == read

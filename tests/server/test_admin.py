"""Topics, groups and dead letters over HTTP."""

import asyncio
import json

import pytest

from penstock.api.keys import RevokeKey
from penstock.api.principals import Role
from penstock.broker.partition.dead_letters import is_listed
from penstock.runtime.loop_turns import LoopTurns
from penstock.runtime.slices import SliceBudgets
from penstock.server.audit_files import AUDIT_FILE
from penstock.server.http import dead_letters

from .rigs import in_process
from .wires import connected, is_answered, until


async def test_topics_from_creation_to_deletion(tmp_path):
    async with in_process(tmp_path) as broker:
        sent = {"name": "orders", "num_partitions": 2, "retention_hours": 5}
        created = await broker.call("POST", "/topics", sent)
        assert (created.status, created.json) == (
            201,
            {"name": "orders", "partitions": 2, "created": True},
        )
        assert (await broker.call("POST", "/topics?name=other&partitions=1")).status == 201
        again = await broker.call("POST", "/topics", {"name": "orders"})
        assert (again.status, again.json["error"]) == (409, "ALREADY_EXISTS")
        assert (await broker.call("GET", "/topics")).json["topics"] == ["orders", "other"]
        page = (await broker.call("GET", "/topics?limit=1")).json
        assert (await broker.call("GET", f"/topics?cursor={page['cursor']}")).json == {
            "topics": ["other"],
            "cursor": None,
        }
        await broker.publish("12345")
        found = (await broker.call("GET", "/topics/orders")).json
        assert found["config"]["retention_hours"] == 5
        assert found["total_messages"] == 1
        change = {"config": {"max_retries": 7}}
        changed = await broker.call("PATCH", "/topics/orders", change)
        assert changed.json["config"]["max_retries"] == 7
        grown = await broker.call("POST", "/admin/topics/orders/partitions", {"count": 5})
        assert grown.json == {
            "success": True,
            "topic_name": "orders",
            "old_partition_count": 2,
            "new_partition_count": 5,
            "partitions_added": [2, 3, 4],
        }
        parts = (await broker.call("GET", "/topics/orders/partitions?limit=3")).json
        assert len(parts["partitions"]) == 3
        swept = await broker.call("POST", "/admin/topics/orders/compact")
        assert swept.json["segments_removed"] == 0
        assert (await broker.call("DELETE", "/topics/orders")).status == 204
        assert (await broker.call("GET", "/topics/orders")).status == 404


@pytest.mark.parametrize(
    ("sent", "named"),
    [
        ({"name": "a/b"}, "a/b"),
        ({"name": "__ours"}, "__ours"),
        ({"name": ".."}, ".."),
        ({"name": "a" * 246}, "245"),
        ({"name": "t", "num_partitions": 0}, "1..10000"),
        ({"name": "t", "config": {"max_retrys": 1}}, "max_retrys"),
        ({"name": "t", "config": {"max_retries": "x"}}, "max_retries"),
        ({"name": "t", "colour": "red"}, "colour"),
        ({}, "name"),
    ],
)
async def test_a_bad_topic_is_refused_with_what_was_wrong(tmp_path, sent, named):
    async with in_process(tmp_path) as broker:
        reply = await broker.call("POST", "/topics", sent)
        assert reply.status == 400
        assert named in reply.json["message"]
        assert (await broker.call("GET", "/topics")).json["topics"] == []


async def test_how_segments_are_closed_and_kept_is_for_each_topic_to_say(tmp_path):
    starts = {("storage", "segment_messages_max"): 2, ("storage", "retention_segments"): 3}
    async with in_process(tmp_path, settings=starts) as broker:
        await broker.topic()
        await broker.topic("other", segment_messages_max=1, retention_check_ms=1000)

        def segments(topic: str) -> int:
            names = broker.disk.list(f"topics/default/{topic}/partition-0/messages")
            return sum(name.endswith(".log") for name in names)

        for _ in range(8):
            await broker.publish("x")
            await broker.publish("x", topic="other")
        assert (segments("orders.1"), segments("other.2")) == (4, 8)
        broker.clock.advance("1s")
        assert (segments("orders.1"), segments("other.2")) == (4, 3)
        change = {"config": {"retention_segments": 1, "retention_check_ms": 500}}
        reply = await broker.call("PATCH", "/topics/orders", change)
        assert reply.json["config"] | change["config"] == reply.json["config"]
        broker.clock.advance("500ms")
        assert (segments("orders.1"), segments("other.2")) == (1, 3)
        change = {"config": {"retention_segments": 1, "retention_check_ms": 604_800_000}}
        await broker.call("PATCH", "/topics/other", change)
        # By hand: of one topic only.
        for _ in range(3):
            await broker.publish("x")
        swept = await broker.call("POST", "/admin/topics/other/compact")
        assert swept.json["segments_removed"] == 2
        assert (segments("orders.1"), segments("other.2")) == (3, 1)
        for name, wrong in (("segment_age_ms", 0), ("retention_check_ms", 1)):
            reply = await broker.call("PATCH", "/topics/orders", {"config": {name: wrong}})
            assert (reply.status, reply.json["setting"]) == (400, name)


async def test_a_reset_to_an_offset_that_is_not_there_changes_nothing_on_any_topic(tmp_path):
    async with in_process(tmp_path) as broker:
        for topic, count in (("long", 6), ("short", 2)):
            await broker.topic(topic)
            await broker.publish(*"abcdef"[:count], topic=topic)
            for one in await broker.poll(topic=topic):
                receipt = {"receipt_handle": one["receipt_handle"]}
                assert (await broker.call("POST", "/messages/ack", receipt)).status == 200
        before = (await broker.call("GET", "/groups/g/offsets")).json
        for to, status in ((5, 404), (7, 404), (-1, 400), (1 << 62, 404)):
            for more in ({}, {"dry_run": True}, {"force": True}):
                target = "/groups/g/offsets/reset"
                reply = await broker.call("POST", target, {"to": to, **more})
                assert reply.status == status, reply.body
                assert (await broker.call("GET", "/groups/g/offsets")).json == before
        # Somebody holds a message of the second topic: the first is not reset either.
        await broker.publish("more", topic="short")
        assert len(await broker.poll(topic="short")) == 1
        reply = await broker.call("POST", "/groups/g/offsets/reset", {"to": 1})
        assert (reply.status, reply.json["error"]) == (409, "GROUP_BUSY")
        assert (await broker.call("GET", "/groups/g/offsets")).json == before


async def test_lists_come_in_pages_and_the_last_one_says_that_it_is_the_last(tmp_path):
    async with in_process(tmp_path) as broker:
        for number in range(4):
            await broker.topic(f"t{number}", partitions=4)
            await broker.poll(topic=f"t{number}", group=f"g{number}")

        async def pages(target: str, name: str, limit: int) -> list[int]:
            found, cursor = [], ""
            while cursor is not None:
                reply = await broker.call("GET", f"{target}?limit={limit}&cursor={cursor}")
                assert reply.status == 200
                found.append(len(reply.json[name]))
                cursor = reply.json["cursor"]
            return found

        lists = {"/topics": "topics", "/groups": "groups", "/topics/t0/partitions": "partitions"}
        for target, name in lists.items():
            assert await pages(target, name, 2) == [2, 2]
            assert await pages(target, name, 3) == [3, 1]
            assert await pages(target, name, 4) == [4]
            assert await pages(target, name, 5) == [4]


async def test_groups_lag_commit_and_reset(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        await broker.publish("1", "2", "3", "4")
        first, *_ = await broker.poll("&max=2&owner=me")
        await broker.call("POST", "/messages/ack", {"receipt_handle": first["receipt_handle"]})
        broker.clock.advance("10s")
        lag = (await broker.call("GET", "/groups/g/lag")).json
        (partition,) = lag["partitions"]
        assert (lag["total"], partition["floor"], partition["in_flight"]) == (3, 1, 1)
        assert partition["lag_seconds"] == 10
        group = (await broker.call("GET", "/groups/g")).json
        assert group["modes"] == {"orders": "shared"}
        assert [(one["member_id"], one["in_flight"]) for one in group["members"]] == [("me", 1)]
        assert (await broker.call("GET", "/groups")).json["groups"] == ["g"]
        reset = {"to": "earliest", "topic": "orders"}
        busy = await broker.call("POST", "/groups/g/offsets/reset", reset)
        assert (busy.status, busy.json["error"]) == (409, "GROUP_BUSY")
        dry = await broker.call("POST", "/groups/g/offsets/reset", {**reset, "dry_run": True})
        assert dry.json["partitions"] == [
            {
                "topic": "orders",
                "partition": 0,
                "floor_before": 1,
                "floor_after": 0,
                "in_flight": 1,
            }
        ]
        commit = await broker.call("POST", "/groups/g/offsets", {"offsets": {"orders": {"0": 3}}})
        assert (commit.json["advanced"], commit.json["offsets"]) == (True, {"orders": {"0": 3}})
        again = await broker.call("POST", "/groups/g/offsets", {"offsets": {"orders": {"0": 2}}})
        assert again.json["advanced"] is False
        assert (await broker.call("GET", "/groups/g/offsets")).json["offsets"] == {
            "orders": {"0": 3}
        }
        forced = await broker.call("POST", "/groups/g/offsets/reset", {**reset, "force": True})
        assert forced.status == 200
        assert len(await broker.poll()) == 4
        assert (await broker.call("DELETE", "/groups/g")).status == 204
        assert (await broker.call("GET", "/groups/g")).status == 404


async def test_what_members_hold_can_be_seen_and_taken_back(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        await broker.publish("1", "2", "3")
        await broker.poll("&owner=me")
        held = (await broker.call("GET", "/groups/g/inflight")).json["in_flight"]
        assert [(one["offset"], one["consumer"]) for one in held] == [
            (0, "me"),
            (1, "me"),
            (2, "me"),
        ]
        first, second, third = [{"receipt_handle": one["receipt_handle"]} for one in held]
        released = await broker.call("POST", "/groups/g/inflight/release", first)
        assert released.json["action"] == "requeued"
        stale = await broker.call("POST", "/groups/g/inflight/release", first)
        assert stale.status == 409
        buried = await broker.call("POST", "/groups/g/inflight/dead-letter", second)
        assert buried.json["action"] == "dlq"
        more = {**third, "timeout": "1h"}
        assert (await broker.call("POST", "/groups/g/inflight/extend", more)).status == 200
        (again,) = await broker.poll()
        assert (again["offset"], again["attempts"]) == (0, 1)


async def test_dead_letters_are_browsed_counted_edited_and_sent_back(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic(max_retries=0)
        await broker.publish("1", "2", "3")
        for one in await broker.poll("&owner=me"):
            nack = {"receipt_handle": one["receipt_handle"], "reason": f"bad {one['value']}"}
            await broker.call("POST", "/messages/nack", nack)
        broker.settle()
        page = (await broker.call("GET", "/topics/orders/dlq?limit=2")).json
        assert [one["originalValue"] for one in page["dead_letters"]] == ["1", "2"]
        letter = page["dead_letters"][0]
        assert (letter["dlqReason"], letter["lastError"]) == ("MAX_RETRIES_EXCEEDED", "bad 1")
        rest = (await broker.call("GET", f"/topics/orders/dlq?cursor={page['cursor']}")).json
        assert ([one["originalValue"] for one in rest["dead_letters"]], rest["cursor"]) == (
            ["3"],
            None,
        )
        counts = (await broker.call("GET", "/topics/orders/dlq?group_by=reason")).json["groups"]
        assert [(one["reason"], one["count"]) for one in counts] == [("MAX_RETRIES_EXCEEDED", 3)]
        assert (await broker.call("POST", "/topics/orders/dlq/redrive", {})).status == 400
        dry = {"filter": {"error": "bad 2"}, "dry_run": True}
        found = (await broker.call("POST", "/topics/orders/dlq/redrive", dry)).json
        assert (found["matched"], found["redriven"]) == (1, 1)
        edited = {"filter": {"error": "bad 2"}, "set": {"value": "two"}}
        await broker.call("POST", "/topics/orders/dlq/redrive", edited)
        await broker.call("POST", "/topics/orders/dlq/redrive", {"all": True, "target": "group"})
        left = (await broker.call("GET", "/topics/orders/dlq")).json["dead_letters"]
        assert left == []
        assert sorted(one["value"] for one in await broker.poll()) == ["1", "3", "two"]


async def fail_all(broker, *values: str) -> None:
    """Publish, and have every message become a dead letter."""
    await broker.publish(*values)
    for one in await broker.poll():
        await broker.call("POST", "/messages/reject", {"receipt_handle": one["receipt_handle"]})
    broker.settle()


async def test_a_paced_redrive_sends_so_many_a_second_and_answers_in_time(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        await fail_all(broker, *(str(one) for one in range(25)))
        left: list[int] = []

        async def sleep(seconds: float) -> None:
            assert seconds == 1.0
            page = (await broker.call("GET", "/topics/orders/dlq")).json
            left.append(len(page["dead_letters"]))

        broker.app.sleep = sleep
        order = {"all": True, "rate": 2}
        redrive = "/topics/orders/dlq/redrive"
        found = (await broker.call("POST", redrive, order)).json
        assert (found["matched"], found["redriven"], found["failed"]) == (25, 20, [])
        assert left == list(range(23, 4, -2))
        found = (await broker.call("POST", redrive, {**order, "limit": 3})).json
        assert (found["matched"], found["redriven"]) == (3, 3)
        found = (await broker.call("POST", redrive, order)).json
        assert (found["matched"], found["redriven"]) == (2, 2)
        assert len(await broker.poll("&max=100")) == 25
        for rate in (0, -1, 1_000_001):
            reply = await broker.call("POST", redrive, {"all": True, "rate": rate})
            assert (reply.status, reply.json["field"]) == (400, "rate")


async def test_a_paced_redrive_asks_for_no_more_letters_at_once_than_a_command_may_name(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(dead_letters, "REDRIVE_LIMIT", 2)
    async with in_process(tmp_path) as broker:
        await broker.topic()
        await fail_all(broker, *map(str, range(5)))
        pauses: list[float] = []

        async def sleep(seconds: float) -> None:
            pauses.append(seconds)

        broker.app.sleep = sleep
        order = {"all": True, "rate": 1_000_000}
        reply = (await broker.call("POST", "/topics/orders/dlq/redrive", order)).json
        assert (reply["matched"], reply["redriven"]) == (5, 5)
        assert pauses == [1.0, 1.0]


async def test_a_paced_redrive_passes_over_what_cannot_go_and_ends_with_the_broker(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        await fail_all(broker, "1", "2", "3")
        redrive = "/topics/orders/dlq/redrive"
        order = {"all": True, "rate": 1, "target": "group"}

        async def sleep(_seconds: float) -> None:
            broker.app.is_draining = True

        broker.app.sleep = sleep
        found = (await broker.call("POST", redrive, order)).json
        assert (found["matched"], found["redriven"]) == (3, 2)
        broker.app.is_draining = False
        assert (await broker.call("DELETE", "/groups/g")).status in {200, 204}
        found = (await broker.call("POST", redrive, order)).json
        assert (found["matched"], found["redriven"], len(found["failed"])) == (1, 0, 1)


async def test_health_stats_and_metrics(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        await broker.publish("1", "2")
        await broker.poll("&max=1")
        assert (await broker.call("GET", "/health")).json["status"] == "ok"
        stats = (await broker.call("GET", "/stats")).json
        assert stats["topic_stats"]["orders"]["messages"] == 2
        figures = (await broker.call("GET", "/reliability/stats")).json
        assert figures["groups"]["g"]["in_flight"] == 1
        text = (await broker.call("GET", "/metrics")).body.decode()
        assert 'penstock_group_lag_messages{group="g",topic="orders",partition="0"} 2' in text
        assert "penstock_publish_messages_total 2" in text
        assert 'route="/topics/{topic}/messages",status="200"' in text
        broker.app.drain()
        stopping = await broker.call("GET", "/readyz")
        assert (stopping.status, stopping.headers["retry-after"]) == (503, "1")
        assert (await broker.call("GET", "/livez")).status == 200


class OneEntry(SliceBudgets):
    """A slice is one entry."""

    def entries_for(self, _kind) -> int:
        return 1


class SlowClock:
    """Each look at it takes longer than a turn of the loop may."""

    at_ns = 0

    def monotonic_ns(self) -> int:
        self.at_ns += 10_000_000
        return self.at_ns


@pytest.mark.parametrize("how", ["left", "key ended"])
@pytest.mark.parametrize("what", ["redrive", "discard"])
async def test_dead_letters_that_have_begun_to_go_all_go_and_the_audit_log_has_how_many(
    tmp_path, what, how
):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        await fail_all(broker, *map(str, range(60)))
        broker.driver.slice_budgets = OneEntry(broker.clock)
        broker.app.driver.turns = LoopTurns(asyncio.get_running_loop(), SlowClock())
        broker.key("other", Role.ADMIN)
        key = broker.key("admin", Role.ADMIN)
        broker.app.auth.is_on = True
        head = [
            b"POST /topics/orders/dlq/%b HTTP/1.1" % what.encode(),
            b"Host: localhost",
            b"Authorization: Bearer %b" % key.text.encode(),
            b"Content-Type: application/json",
            b"Content-Length: 13",
        ]
        connection, wire = connected(broker)
        connection.data_received(b"\r\n".join([*head, b"", b'{"all": true}']))
        partition = broker.driver.node.partition("orders.dlq", 0)
        async with asyncio.timeout(10):
            await until(lambda: any(not is_listed(partition, one) for one in range(60)))
        assert is_listed(partition, 59), "it is under way"
        if how == "left":
            wire.close()
            connection.connection_lost(None)
        else:
            broker.driver.execute(RevokeKey(key.key.key_id))
            broker.app.auth.ends.look()
        async with asyncio.timeout(10):
            await until(lambda: is_answered(connection))
        assert not any(is_listed(partition, one) for one in range(60))
    lines = (tmp_path / AUDIT_FILE).read_text().splitlines()
    assert "60 dead letters" in json.loads(lines[-1])["where"]

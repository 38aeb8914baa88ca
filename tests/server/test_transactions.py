"""Transactions over HTTP: what is staged is seen after the commit alone, and what is refused says why."""

import pytest

from penstock.api.receipts import read_receipt, write_receipt

from .rigs import in_process


async def session(broker, name="p", **options):
    body = {"transactional_id": name, **options}
    return (await broker.call("POST", "/producers/init", body)).json


async def values(broker, partition=0):
    path = f"/topics/orders/partitions/{partition}/messages"
    found = await broker.call("GET", path)
    return [one["value"] for one in found.json["messages"]]


@pytest.mark.parametrize("fsync", ["always", "interval", "never"])
async def test_a_transaction_over_two_partitions(tmp_path, fsync):
    async with in_process(tmp_path, fsync=fsync) as broker:
        await broker.topic("orders", partitions=2)
        mine = await session(broker)
        for partition, value in ((0, "a"), (1, "b"), (0, "c")):
            body = {**mine, "topic": "orders", "partition": partition, "value": value}
            staged = (await broker.call("POST", "/transactions/publish", body)).json
            assert (staged["staged"], staged["offset"], staged["partition"]) == (
                True,
                None,
                partition,
            )
        assert await values(broker) == []
        stats = (await broker.call("GET", "/transactions/stats")).json
        assert (stats["states"], stats["staged_messages"]) == ({"Ongoing": 1}, 3)
        end = (await broker.call("POST", "/transactions/commit", mine)).json
        assert end["offsets"] == [
            {"topic": "orders", "partition": 0, "offset": 0, "count": 2},
            {"topic": "orders", "partition": 1, "offset": 0, "count": 1},
        ]
        assert (end["state"], end["complete"], end["epoch"]) == ("CompleteCommit", True, 0)
        assert await values(broker) == ["a", "c"]
        assert await values(broker, 1) == ["b"]
        # The answer was lost, say.
        assert (await broker.call("POST", "/transactions/commit", mine)).json == end


async def test_abort_time_out_and_an_administrator(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic("orders")
        mine = await session(broker)
        body = {**mine, "topic": "orders", "value": "a"}
        await broker.call("POST", "/transactions/publish", body)
        end = (await broker.call("POST", "/transactions/abort", mine)).json
        assert end["state"] == "CompleteAbort"
        mine["epoch"] = end["epoch"]
        begun = (await broker.call("POST", "/transactions/begin", mine)).json["transaction_id"]
        path = f"/transactions/{begun}"
        assert (await broker.call("GET", path)).json["state"] == "Ongoing"
        heartbeat = f"/producers/{mine['producer_id']}/heartbeat"
        assert (await broker.call("POST", heartbeat, {"epoch": mine["epoch"]})).status == 204
        aborted = await broker.call("POST", f"{path}/force-abort", {})
        assert aborted.json["state"] == "CompleteAbort"
        late = await broker.call("POST", "/transactions/commit", mine)
        assert (late.status, late.json["error"]) == (409, "TRANSACTION_ENDED")
        listed = (await broker.call("GET", "/transactions?state=CompleteAbort")).json
        assert [one["transaction_id"] for one in listed["transactions"]] == [begun]
        assert await values(broker) == []


async def test_what_is_refused(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic("orders")
        old = await session(broker)
        mine = await session(broker)
        unknown = {**mine, "producer_id": 12}
        message = {"topic": "orders", "value": "a"}
        number = mine["producer_id"]
        for path, body, status, code in (
            ("/producers/init", {"transactional_id": ""}, 400, "INVALID_ARGUMENT"),
            ("/producers/init", {"transactional_id": "x" * 251}, 400, "INVALID_ARGUMENT"),
            (
                "/producers/init",
                {"transactional_id": "x", "transaction_timeout_ms": 900_001},
                400,
                "INVALID_ARGUMENT",
            ),
            ("/producers/12/heartbeat", {"epoch": 0}, 404, "NOT_FOUND"),
            (f"/producers/{number}/heartbeat", {"epoch": 0}, 409, "PRODUCER_FENCED"),
            (
                f"/producers/{number}/heartbeat",
                {"epoch": 1, "transactional_id": "other"},
                404,
                "NOT_FOUND",
            ),
            (
                "/transactions/begin",
                {**mine, "transactional_id": "other"},
                404,
                "NOT_FOUND",
            ),
            ("/transactions/begin", old, 409, "PRODUCER_FENCED"),
            ("/transactions/begin", unknown, 404, "NOT_FOUND"),
            ("/transactions/publish", {**old, **message}, 409, "PRODUCER_FENCED"),
            ("/transactions/publish", {**unknown, **message}, 404, "NOT_FOUND"),
            ("/transactions/publish", {**mine, "topic": "none", "value": "a"}, 404, "NOT_FOUND"),
            (
                "/transactions/publish",
                {**mine, **message, "partition": 0, "sequence": -1},
                400,
                "INVALID_ARGUMENT",
            ),
            (
                "/transactions/publish",
                {**mine, **message, "idempotency_key": "k"},
                400,
                "MALFORMED_REQUEST",
            ),
            ("/transactions/commit", old, 409, "PRODUCER_FENCED"),
            ("/transactions/commit", unknown, 404, "NOT_FOUND"),
            ("/transactions/nothing/force-abort", {}, 404, "NOT_FOUND"),
        ):
            found = await broker.call("POST", path, body)
            assert (found.status, found.json["error"]) == (status, code), path
        for path in ("?state=Open", "?limit=0", "?cursor=x"):
            assert (await broker.call("GET", f"/transactions{path}")).status == 400
        assert (await broker.call("GET", "/transactions/1-1")).status == 404
        assert (await broker.call("GET", "/topics/__transactions")).status == 404
        assert await values(broker) == []


async def test_a_late_end_does_nothing_to_the_next_transaction(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic("orders")
        mine = await session(broker)
        ids = []
        for value in ("a", "b"):
            body = {**mine, "topic": "orders", "partition": 0}
            begun = (await broker.call("POST", "/transactions/add-partition", body)).json
            body |= {"value": value}
            assert (await broker.call("POST", "/transactions/publish", body)).status == 200
            ids.append(begun["transaction_id"])
            if value == "a":
                end = await broker.call("POST", "/transactions/commit", mine)
                assert (end.status, end.json["transaction_id"]) == (200, ids[0])
        for way in ("commit", "abort"):
            late = {**mine, "transaction_id": ids[0]}
            reply = await broker.call("POST", f"/transactions/{way}", late)
            assert (reply.status, reply.json["error"]) == (409, "TRANSACTION_ENDED")
        again = await broker.call("POST", "/transactions/begin", mine)
        assert (again.status, again.json["error"]) == (409, "TRANSACTION_IN_PROGRESS")
        assert await values(broker) == ["a"]
        this = {**mine, "transaction_id": ids[1]}
        for _ in range(2):
            assert (await broker.call("POST", "/transactions/commit", this)).status == 200
        assert await values(broker) == ["a", "b"]


@pytest.mark.parametrize("key", [None, "k"])
async def test_a_sequence_without_a_partition_recognises_a_repeat(tmp_path, key):
    async with in_process(tmp_path) as broker:
        await broker.topic("orders", partitions=5)
        mine = await session(broker)
        body = {**mine, "topic": "orders", "value": "a", "key": key}
        homes = set()
        for sequence in (7, 7, 8, 7, 8, 9):
            staged = await broker.call(
                "POST", "/transactions/publish", body | {"sequence": sequence}
            )
            homes.add((staged.json["partition"], staged.json["sequence"] == sequence))
        assert len(homes) == 1
        gap = await broker.call("POST", "/transactions/publish", body | {"sequence": 11})
        assert (gap.status, gap.json["error"]) == (400, "OUT_OF_SEQUENCE")
        assert gap.json["next_sequence"] == 10
        end = (await broker.call("POST", "/transactions/commit", mine)).json
        assert [placed["count"] for placed in end["offsets"]] == [3]


async def test_pages_of_transactions(tmp_path):
    async with in_process(tmp_path) as broker:
        names = {f"p{number}" for number in range(5)}
        for name in sorted(names):
            await session(broker, name)
        found, cursor = set(), ""
        while cursor is not None:
            page = (await broker.call("GET", f"/transactions?limit=2&cursor={cursor}")).json
            found |= {one["transactional_id"] for one in page["transactions"]}
            cursor = page["cursor"]
        assert found == names


async def test_acks_and_offsets_inside_count_with_the_commit(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic("orders")
        for value in ("a", "b", "c", "d"):
            await broker.call("POST", "/topics/orders/messages", {"messages": [{"value": value}]})
        mine = await session(broker)
        found = await broker.call("GET", "/topics/orders/messages?group=g&max=3")
        receipts = [one["receipt_handle"] for one in found.json["messages"]]
        body = {**mine, "receipt_handles": receipts[:1]}
        staged = await broker.call("POST", "/transactions/ack", body)
        assert staged.json == {"staged": True, "count": 1}
        outside = await broker.call("POST", "/messages/ack", {"receipt_handle": receipts[0]})
        assert outside.json["error"] == "STALE_RECEIPT"
        body = {**mine, "receipt_handle": receipts[1], "reason": "later", "delay": "1h"}
        assert (await broker.call("POST", "/transactions/nack", body)).status == 200
        body = {**mine, "receipt_handle": receipts[2], "reason": "bad"}
        assert (await broker.call("POST", "/transactions/reject", body)).status == 200
        body = {**mine, "group": "other", "offsets": {"orders": {"0": 2}}}
        staged = await broker.call("POST", "/transactions/offsets", body)
        assert staged.json == {"staged": True, "group": "other", "offsets": {"orders": {"0": 2}}}
        assert (await broker.call("GET", "/groups/g/lag")).json["partitions"][0]["lag"] == 4
        shown = (await broker.call("GET", "/transactions")).json["transactions"][0]
        assert shown["participants"] == [
            {"topic": "orders", "partition": 0, "messages": 0, "bytes": 0, "answers": 3}
        ]
        assert (await broker.call("POST", "/transactions/commit", mine)).json["complete"]
        assert (await broker.call("GET", "/groups/g/lag")).json["partitions"][0]["lag"] == 2
        assert (await broker.call("GET", "/groups/other/lag")).json["partitions"][0]["lag"] == 2


async def test_a_receipt_with_another_count_is_stale_inside_too(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic("orders")
        await broker.publish("a")
        mine = await session(broker)
        (one,) = await broker.poll()
        place, offset, attempts, lease = read_receipt(one["receipt_handle"])
        for count in (attempts - 1, attempts + 1):
            forged = write_receipt(place, offset, count, lease)
            for answer in ("ack", "nack", "reject"):
                body = {**mine, "receipt_handle": forged}
                refused = await broker.call("POST", f"/transactions/{answer}", body)
                assert (refused.status, refused.json["error"]) == (409, "STALE_RECEIPT")
        body = {**mine, "receipt_handle": one["receipt_handle"]}
        assert (await broker.call("POST", "/transactions/ack", body)).status == 200


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("ack", {"receipt_handle": "orders:0:0:1:1.1"}, "STALE_RECEIPT"),
        ("ack", {"receipt_handle": "nonsense"}, "INVALID_ARGUMENT"),
        ("ack", {}, "MALFORMED_REQUEST"),
        ("ack", {"receipt_handle": "nowhere:0:0:1:1.1"}, "NOT_FOUND"),
        ("ack", {"receipt_handle": "orders:0:0:1:1.1", "epoch": 7}, "PRODUCER_FENCED"),
        ("offsets", {"group": "g", "offsets": {"orders": {"0": 7}}}, "OFFSET_OUT_OF_RANGE"),
        ("offsets", {"group": "g", "offsets": {}}, "MALFORMED_REQUEST"),
        (
            "offsets",
            {"group": "g", "offsets": {"orders": {"0": 0}}, "member_id": "m"},
            "UNKNOWN_MEMBER",
        ),
    ],
)
async def test_what_is_wrong_inside_says_why_and_begins_nothing(tmp_path, path, body, code):
    async with in_process(tmp_path) as broker:
        await broker.topic("orders")
        mine = await session(broker)
        found = await broker.call("POST", f"/transactions/{path}", {**mine, **body})
        assert found.json["error"] == code
        assert (await broker.call("GET", "/transactions/stats")).json["states"] == {"Empty": 1}


async def test_a_delayed_message_is_scheduled_with_the_commit(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic("orders")
        mine = await session(broker)
        body = {**mine, "topic": "orders", "value": "a", "delay": "1h", "delay_key": "k"}
        assert (await broker.call("POST", "/transactions/publish", body)).json["staged"]
        assert (await broker.call("GET", "/topics/orders/delayed")).json["messages"] == []
        done = (await broker.call("POST", "/transactions/commit", mine)).json
        assert (done["complete"], done["offsets"]) == (True, [])
        (waiting,) = (await broker.call("GET", "/topics/orders/delayed")).json["messages"]
        assert waiting["delay_key"] == "k"
        assert await values(broker) == []

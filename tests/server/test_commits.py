"""Named commits over HTTP: published once, with the offsets, and what is refused says why."""

import pytest

from .rigs import in_process


async def opened(broker, sequence, *, name="sink", writer="w", **more):
    body = {"sequence": sequence, "writer": writer, **more}
    answer = await broker.call("POST", f"/commits/{name}/stagings", body)
    assert answer.status == 201
    return answer.json["staging"]


async def stage(broker, staging, *texts, partition=0, **more):
    body = {"topic": "orders", "messages": [{"value": one} for one in texts], **more}
    return await broker.call(
        "POST", f"/stagings/{staging}/messages", {**body, "partition": partition}
    )


async def commit(broker, sequence, *refs, name="sink", writer="w", **more):
    stagings = [{"staging": one, "messages": count} for one, count in refs]
    body = {"sequence": sequence, "writer": writer, "stagings": stagings, **more}
    return await broker.call("POST", f"/commits/{name}", body)


async def values(broker, partition=0):
    path = f"/topics/orders/partitions/{partition}/messages"
    found = await broker.call("GET", path)
    return [one["value"] for one in found.json["messages"]]


@pytest.mark.parametrize("fsync", ["always", "interval", "never"])
async def test_a_commit_over_two_partitions_and_its_repeat(tmp_path, fsync):
    async with in_process(tmp_path, fsync=fsync) as broker:
        await broker.topic("orders", partitions=2)
        one, two = await opened(broker, 4), await opened(broker, 4, attempt="second")
        answer = (await stage(broker, one, "a", "b")).json
        assert answer["staged"] == 2
        assert answer["results"][1] == {"partition": 0, "sequence": 1, "duplicate": False}
        repeat = (await stage(broker, one, "a", "b", sequence=0)).json
        assert all(each["duplicate"] for each in repeat["results"])
        await stage(broker, two, "loser")
        await stage(broker, one, "c", partition=1)
        assert await values(broker) == []
        shown = (await broker.call("GET", "/commits/sink")).json
        assert (shown["sequence"], shown["staging_count"], shown["staged_messages"]) == (None, 2, 4)
        assert {each["attempt"] for each in shown["stagings"]} == {"", "second"}
        done = (await commit(broker, 4, (one, 3))).json
        assert done == {
            "name": "sink",
            "sequence": 4,
            "last_sequence": 4,
            "already_committed": False,
            "complete": True,
            "offsets": [
                {"topic": "orders", "partition": 0, "offset": 0, "count": 2},
                {"topic": "orders", "partition": 1, "offset": 0, "count": 1},
            ],
        }
        again = (await commit(broker, 4, (one, 3))).json
        assert again == {**done, "already_committed": True}
        older = (await commit(broker, 1)).json
        assert (older["already_committed"], older["offsets"]) == (True, [])
        assert await values(broker) == ["a", "b"]
        assert await values(broker, 1) == ["c"]
        listed = (await broker.call("GET", "/commits")).json
        assert [(each["name"], each["sequence"]) for each in listed["commits"]] == [("sink", 4)]


async def test_refusals_have_codes_and_change_nothing(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic("orders")
        await commit(broker, 0, (await opened(broker, 0), 0), fingerprint="1 row")
        one, other = await opened(broker, 1), await opened(broker, 1, name="other")
        await stage(broker, one, "a")
        message = {"topic": "orders", "messages": [{"value": "x"}]}
        delayed = {"topic": "orders", "messages": [{"value": "x", "delay": "1s"}, {"value": "y"}]}
        good, ref = {"sequence": 1, "writer": "w"}, {"staging": one, "messages": 1}
        for path, body, status, code in (
            ("/commits/sink/stagings", {**good, "sequence": 0}, 409, "SEQUENCE_COMMITTED"),
            (
                "/commits/sink",
                {"sequence": 0, "writer": "w", "stagings": [], "fingerprint": "2 rows"},
                409,
                "REPEAT_DIFFERS",
            ),
            ("/commits/sink/stagings", {**good, "writer": "v"}, 409, "COMMIT_NAME_TAKEN"),
            ("/commits/sink/stagings", {**good, "sequence": -1}, 400, "INVALID_ARGUMENT"),
            ("/commits/sink/stagings", {**good, "sequence": 1 << 53}, 400, "INVALID_ARGUMENT"),
            ("/commits/sink/stagings", {"sequence": 1}, 400, "MALFORMED_REQUEST"),
            (f"/commits/{'x' * 300}/stagings", good, 400, "INVALID_NAME"),
            ("/commits/new/stagings", {**good, "writer": ""}, 400, "INVALID_ARGUMENT"),
            ("/stagings/4444444444444444/messages", message, 404, "UNKNOWN_STAGING"),
            ("/stagings/nonsense/messages", message, 404, "UNKNOWN_STAGING"),
            (f"/stagings/{one}/messages", {**message, "topic": "none"}, 404, "NOT_FOUND"),
            (f"/stagings/{one}/messages", delayed, 400, "INVALID_ARGUMENT"),
            (
                f"/stagings/{one}/messages",
                {**message, "partition": 0, "sequence": 7},
                400,
                "OUT_OF_SEQUENCE",
            ),
            ("/commits/sink", {**good, "writer": "v", "stagings": []}, 409, "COMMIT_NAME_TAKEN"),
            ("/commits/unknown", {**good, "stagings": []}, 404, "NOT_FOUND"),
            (
                "/commits/sink",
                {**good, "stagings": [{**ref, "messages": 2}]},
                409,
                "STAGING_MISMATCH",
            ),
            (
                "/commits/sink",
                {**good, "stagings": [{"staging": other, "messages": 0}]},
                409,
                "STAGING_MISMATCH",
            ),
            (
                "/commits/sink",
                {**good, "stagings": [{"staging": "4" * 16, "messages": 0}]},
                404,
                "UNKNOWN_STAGING",
            ),
            ("/commits/sink", {**good, "stagings": [ref, ref]}, 400, "INVALID_ARGUMENT"),
            ("/commits/none/reset", None, 404, "NOT_FOUND"),
        ):
            answer = await broker.call("POST", path, body)
            assert (answer.status, answer.json["error"]) == (status, code), (path, body)
        taken = await broker.call("POST", "/commits/sink/stagings", {**good, "writer": "v"})
        assert "penstock commits reset sink" in taken.json["message"]
        assert (await commit(broker, 1, (one, 1))).json["complete"]
        assert await values(broker) == ["a"]


async def test_a_reset_gives_the_name_to_another_writer(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic("orders")
        await commit(broker, 5, (await opened(broker, 5), 0))
        was = (await broker.call("POST", "/commits/sink/reset")).json
        assert (was["sequence"], was["writer"]) == (5, "w")
        assert (await broker.call("GET", "/commits/sink")).status == 404
        staging = await opened(broker, 0, writer="v")
        await stage(broker, staging, "a")
        given_up = await opened(broker, 0, writer="v")
        dropped = await broker.call("POST", "/stagings/drop", {"stagings": [given_up, "x"]})
        assert dropped.json == {"dropped": 1}
        done = (await commit(broker, 0, (staging, 1), writer="v")).json
        assert not done["already_committed"]
        assert await values(broker) == ["a"]


async def test_metrics_say_what_is_staged_and_what_became_of_it(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic("orders")
        one, two = await opened(broker, 0), await opened(broker, 0)
        await stage(broker, one, "a", "b")
        await stage(broker, two, "c")

        async def figures():
            text = (await broker.call("GET", "/metrics")).body.decode()
            lines = [line.rsplit(" ", 1) for line in text.splitlines() if line[:1] != "#"]
            return {name: float(value) for name, value in lines}

        before = await figures()
        assert before['penstock_staged_messages{topic="orders"}'] == 3
        assert before['penstock_staged_bytes{topic="orders"}'] > 0
        assert before["penstock_commit_names"] == 1
        await commit(broker, 0, (one, 2))
        after = await figures()
        assert after['penstock_staged_messages{topic="orders"}'] == 0
        assert after['penstock_staged_bytes{topic="orders"}'] == 0
        assert after['penstock_staged_ended_total{topic="orders",outcome="published"}'] == 2
        assert after['penstock_staged_ended_total{topic="orders",outcome="dropped"}'] == 1


async def test_acks_nacks_and_rejects_count_with_the_commit(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic("orders")
        for value in ("a", "b", "c", "d"):
            await broker.publish(value)
        found = await broker.poll("&max=3")
        receipts = [one["receipt_handle"] for one in found]
        one = await opened(broker, 0)
        path = f"/stagings/{one}"
        staged = await broker.call("POST", f"{path}/ack", {"receipt_handles": receipts[:1]})
        assert staged.json == {"staged": True, "count": 1}
        body = {"receipt_handle": receipts[1], "reason": "later", "delay": "1h"}
        assert (await broker.call("POST", f"{path}/nack", body)).status == 200
        body = {"receipt_handle": receipts[2], "reason": "bad"}
        assert (await broker.call("POST", f"{path}/reject", body)).status == 200
        outside = await broker.call("POST", "/messages/ack", {"receipt_handle": receipts[0]})
        assert outside.json["error"] == "STALE_RECEIPT"
        shown = (await broker.call("GET", "/commits/sink")).json["stagings"][0]
        assert shown["participants"] == [
            {"topic": "orders", "partition": 0, "messages": 0, "bytes": 0, "answers": 3}
        ]
        for where, body, status, code in (
            (one, {"receipt_handle": "orders:0:3:1:9.1"}, 409, "STALE_RECEIPT"),
            (one, {"receipt_handle": "nonsense"}, 400, "INVALID_ARGUMENT"),
            (one, {"receipt_handle": "nowhere:0:0:1:1.1"}, 404, "NOT_FOUND"),
            (one, {}, 400, "MALFORMED_REQUEST"),
            ("4" * 16, {"receipt_handle": receipts[0]}, 404, "UNKNOWN_STAGING"),
        ):
            refused = await broker.call("POST", f"/stagings/{where}/ack", body)
            assert (refused.status, refused.json["error"]) == (status, code)
        assert (await broker.call("GET", "/groups/g/lag")).json["partitions"][0]["lag"] == 4
        assert (await commit(broker, 0, (one, 0))).json["complete"]
        assert (await broker.call("GET", "/groups/g/lag")).json["partitions"][0]["lag"] == 2
        again = (await commit(broker, 0, (one, 0))).json
        assert again["already_committed"]

"""What engines ask for: ends of many partitions, where a query first began, and files."""

from random import Random

import pytest

from penstock.api.principals import LOCAL, Role
from penstock.api.queries import ForgetQueryStart, KeepQueryStart, QueryStart, SeeQueryStart
from penstock.broker.node import Node, Now
from penstock.broker.partition.pins import Pins
from penstock.broker.queries import Queries
from penstock.config import LimitsConfig
from penstock.errors import Refused, ShareFull
from penstock.sim import SimDisk

from .rigs import in_process

START = {"offsets": {"orders/0": 3}, "ids": {"orders": 1}, "asked": "latest"}


async def test_ends_of_many_topics_in_one_call(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic("orders", partitions=2)
        await broker.topic("bills")
        await broker.publish("a", "b", topic="bills")
        broker.clock.advance("1h")
        found = (await broker.call("GET", "/offsets?topics=orders,bills,none")).json
        assert found["missing"] == ["none"]
        assert found["topics"]["bills"]["partitions"] == {"0": {"earliest": 0, "latest": 2}}
        assert sorted(found["topics"]["orders"]["partitions"]) == ["0", "1"]
        await broker.publish("c", topic="bills")
        middle = broker.clock.now_ns() - 1
        at = (await broker.call("GET", f"/offsets?topics=bills&at={middle}")).json
        assert at["topics"]["bills"]["partitions"]["0"]["at"] == 2
        first = found["topics"]["bills"]["id"]
        await broker.call("DELETE", "/topics/bills")
        await broker.topic("bills")
        again = (await broker.call("GET", "/offsets?topics=bills")).json
        assert again["topics"]["bills"]["id"] != first


@pytest.mark.parametrize("query", ["", "?topics=", "?topics=a&at=soon", "?topics=a&more=1"])
async def test_bad_questions_for_ends_are_refused(tmp_path, query):
    async with in_process(tmp_path) as broker:
        assert (await broker.call("GET", f"/offsets{query}")).status == 400


async def test_the_first_start_of_a_query_stays_until_it_is_forgotten(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        path = "/queries/daily/start"
        assert (await broker.call("GET", path)).status == 404
        assert (await broker.call("POST", path, START)).json == {"query": "daily", **START}
        later = {**START, "offsets": {"orders/0": 9}}
        assert (await broker.call("POST", path, later)).json["offsets"] == {"orders/0": 3}
        # One that asks for something else is another query.
        changed = {**later, "asked": "earliest"}
        assert (await broker.call("POST", path, changed)).json["offsets"] == {"orders/0": 9}
        assert (await broker.call("DELETE", path)).status == 204
        assert (await broker.call("DELETE", path)).status == 404


@pytest.mark.parametrize(
    "change", [{"offsets": {}}, {"offsets": {"orders/0": -1}}, {"asked": "x" * 1001}, {"more": 1}]
)
async def test_a_bad_start_is_refused(tmp_path, change):
    async with in_process(tmp_path) as broker:
        assert (await broker.call("POST", "/queries/q/start", {**START, **change})).status == 400


async def test_a_start_of_topics_that_are_not_theirs_is_nobodys_business(tmp_path):
    async with in_process(tmp_path, {("auth", "enabled"): True}) as broker:
        mine = {"x-api-key": broker.key("mine", Role.CONSUMER).text}
        theirs = {"x-api-key": broker.key("theirs", Role.CONSUMER, "bills").text}
        path = "/queries/daily/start"
        assert (await broker.call("POST", path, START, headers=mine)).status == 200
        assert (await broker.call("POST", path, START, headers=theirs)).status == 403
        disguised = {"offsets": {"bills/0": 1}, "ids": {"bills": 2}}
        same, other = ({**disguised, "asked": asked} for asked in (START["asked"], "earliest"))
        for method, body in (("GET", None), ("DELETE", None), ("POST", same), ("POST", other)):
            reply = await broker.call(method, path, body, headers=theirs)
            assert (reply.status, b"orders" in reply.body) == (403, False)
        kept = await broker.call("GET", path, headers=mine)
        assert kept.json == {"query": "daily", **START}
        assert (await broker.call("GET", "/offsets?topics=orders", headers=theirs)).status == 403


def test_starts_survive_a_restart_and_a_snapshot():
    disk, now = SimDisk(), Now(1, 1)
    for _ in range(2):
        node = Node(disk, now=now, entropy=Random(1))
        keep = KeepQueryStart("q", {"a/0": 5}, {"a": 1}, "latest")
        assert node.execute(keep, LOCAL, now).outcome().offsets == {"a/0": 5}
        node.close()
    node = Node(disk, now=now, entropy=Random(1))
    moved = KeepQueryStart("q", {"a/0": 8}, {"a": 1}, "latest")
    assert node.execute(moved, LOCAL, now).outcome().offsets == {"a/0": 5}
    node.execute(ForgetQueryStart("q"), LOCAL, now).outcome()
    assert node.execute(moved, LOCAL, now).outcome().offsets == {"a/0": 8}
    node.close()


def test_a_full_list_of_starts_takes_no_more_and_loses_none():
    disk, now, limits = SimDisk(), Now(1, 1), LimitsConfig(query_starts_max=3)
    node = Node(disk, now=now, entropy=Random(1), limits=limits)

    def keep(name: str, **more: object) -> QueryStart:
        start = {"query": name, "offsets": {"a/0": 1}, "ids": {}, "asked": "x", **more}
        return node.execute(KeepQueryStart(**start), LOCAL, now).outcome()

    for name in ("p", "q", "r"):
        keep(name)
    with pytest.raises(ShareFull, match="query_starts_max is 3"):
        keep("s")
    assert [node.execute(SeeQueryStart(one), LOCAL, now).outcome().query for one in "pqr"] == [
        *"pqr"
    ]
    node.execute(ForgetQueryStart("q"), LOCAL, now).outcome()
    keep("s")
    node.close()


@pytest.mark.parametrize(
    "change",
    [
        {"query": "a/b"},
        {"ids": {"a": 1, "b": 2}},
        {"ids": {"a": -1}},
        {"ids": {"a" * 300: 1}},
        {"offsets": {"a/0": 1 << 63}},
        {"offsets": {"a": 1}},
        {"offsets": {"a/first": 1}},
        {"offsets": {f"a/{number}": 1 for number in range(10_001)}},
    ],
)
def test_a_start_that_is_none_is_refused(change):
    start = {"query": "q", "offsets": {"a/0": 1}, "ids": {}, "asked": "latest", **change}
    with pytest.raises(Refused):
        Queries().keep(QueryStart(**start), owner="")


def test_pins_end_and_never_keep_less_than_they_should():
    pins = Pins()
    assert pins.lowest(0) is None
    pins.hold(50, until_ns=100)
    pins.hold(20, until_ns=60)
    assert [pins.lowest(now) for now in (10, 60, 99, 100)] == [20, 50, 50, None]
    for offset in range(300, 0, -1):
        pins.hold(offset, until_ns=1000)
        assert pins.lowest(0) == offset


async def test_files_are_listed_within_limits(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        await broker.publish("a")
        path = "/topics/orders/partitions/0/files"
        found = (await broker.call("POST", path, {"offset": 0, "end": 1})).json
        # The only file still grows.
        assert found["files"] == []
        for bad in ({"offset": 0, "end": 1, "hold": "2h"}, {"offset": 0}):
            assert (await broker.call("POST", path, bad)).status == 400
        assert found["data_dir"].startswith("/")
        beyond = (await broker.call("POST", path, {"offset": 5, "end": 9})).json
        assert (beyond["error"], beyond["end"]) == ("OFFSET_OUT_OF_RANGE", 1)
        assert (
            await broker.call("POST", "/topics/none/partitions/0/files", {"offset": 0, "end": 1})
        ).status == 404


async def test_files_that_were_listed_stay_as_long_as_was_said(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic(segment_size_bytes=200, retention_hours=1)
        for number in range(6):
            await broker.publish(f"{number}" * 100)
        asked = {"offset": 2, "end": 4, "hold": "30m"}
        path = "/topics/orders/partitions/0/files"
        found = (await broker.call("POST", path, asked)).json["files"]
        assert [(one["start"], one["end"]) for one in found] == [(2, 3), (3, 4)]

        async def swept() -> tuple[int, set[str]]:
            await broker.call("POST", "/admin/topics/orders/compact")
            topic = (await broker.call("GET", "/topics/orders")).json
            left = {one["path"] for one in found if broker.disk.exists(one["path"])}
            return topic["partition_offsets"]["0"]["earliest"], left

        await broker.call("POST", path, {**asked, "hold": "1h"})
        broker.clock.advance("59m")
        assert await swept() == (0, {one["path"] for one in found})
        # A minute later retention may take all of it, but for what is held.
        await broker.call("POST", path, asked)
        broker.clock.advance("29m")
        assert await swept() == (2, {one["path"] for one in found})
        broker.clock.advance("2m")
        assert await swept() == (6, set())


async def test_a_key_that_only_reads_is_not_told_where_the_data_is(tmp_path):
    async with in_process(tmp_path, {("auth", "enabled"): True}) as broker:
        admin, reader = (broker.key(one.value, one).text for one in (Role.ADMIN, Role.READONLY))
        bearer = {"authorization": f"Bearer {admin}"}
        config = {"name": "orders", "num_partitions": 1}
        assert (await broker.call("POST", "/topics", config, headers=bearer)).status == 201
        path, asked = "/topics/orders/partitions/0/files", {"offset": 0, "end": 1}
        assert (await broker.call("POST", path, asked, headers=bearer)).json["data_dir"]
        bearer = {"authorization": f"Bearer {reader}"}
        reply = await broker.call("POST", path, asked, headers=bearer)
        assert (reply.status, reply.json["data_dir"]) == (200, None)

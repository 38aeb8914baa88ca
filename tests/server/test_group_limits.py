"""Groups are bounded, whoever makes them, and so are their labels in the metrics."""

import asyncio
import re

import pytest

import penstock
from penstock.api.principals import Role
from penstock.api.topics import CreateTopic
from penstock.errors import TooManyGroups
from penstock.sim import SimDisk

from .rigs import in_process
from .test_security import bearer

LIMITS = {("limits", "groups_per_topic_max"): 3, ("limits", "groups_max"): 5}
MAKING = {
    "poll": ("GET", "/topics/{topic}/messages?group={group}", None),
    "stream": ("GET", "/consume?topic={topic}&group={group}", None),
    "join": ("POST", "/groups/{group}/join", {"topics": ["{topic}"]}),
    "shared join": ("POST", "/groups/{group}/join", {"topics": ["{topic}"], "mode": "shared"}),
    "commit": ("POST", "/groups/{group}/offsets", {"offsets": {"{topic}": {"0": 0}}}),
}


async def make(broker, how: str, group: str, *topics: str, headers=None):
    method, target, body = MAKING[how]
    if body is not None and "topics" in body:
        body = {**body, "topics": list(topics)}
    elif body is not None:
        body = {"offsets": {topic: {"0": 0} for topic in topics}}
    target = target.format(topic=topics[0], group=group)
    return await broker.call(method, target, body, headers=headers)


async def names(broker) -> list[str]:
    return (await broker.call("GET", "/groups")).json["groups"]


@pytest.mark.parametrize("how", [one for one in MAKING if one != "stream"])
async def test_one_group_too_many_is_refused_and_not_made(tmp_path, how):
    async with in_process(tmp_path, LIMITS) as broker:
        await broker.topic("orders")
        await broker.topic("bills")
        for group in ("a", "b", "c"):
            assert (await make(broker, how, group, "orders")).status == 200
        refused = await make(broker, how, "d", "orders")
        assert (refused.status, refused.json["error"]) == (409, "TOO_MANY_GROUPS")
        assert (refused.json["limit"], refused.json["setting"]) == (
            3,
            "limits.groups_per_topic_max",
        )
        # Those that are there go on, and on another topic there is room.
        assert (await make(broker, how, "a", "orders")).status == 200
        for group in ("a", "d"):
            assert (await make(broker, how, group, "bills")).status == 200
        refused = await make(broker, how, "e", "bills")
        assert (refused.json["limit"], refused.json["setting"]) == (5, "limits.groups_max")
        assert await names(broker) == ["a", "b", "c", "d"]
        if how not in {"join", "shared join"}:
            assert (await broker.call("DELETE", "/groups/b")).status == 204
            assert (await make(broker, how, "e", "bills")).status == 200


@pytest.mark.parametrize("how", MAKING)
async def test_a_key_makes_so_many_groups_and_another_key_its_own(tmp_path, how):
    settings = {("auth", "enabled"): True, ("limits", "groups_per_key_max"): 2}
    disk, way = SimDisk(), "poll" if how == "stream" else how
    async with in_process(tmp_path, settings, disk=disk) as broker:
        broker.driver.execute(CreateTopic("orders", 3))
        ann, ben = (bearer(broker.key(name, Role.CONSUMER).text) for name in ("ann", "ben"))
        root = bearer(broker.key("root", Role.ADMIN).text)
        for group in ("a", "b"):
            assert (await make(broker, way, group, "orders", headers=ann)).status == 200
    async with in_process(tmp_path, settings, disk=disk) as broker:
        refused = await make(broker, how, "c", "orders", headers=ann)
        assert (refused.status, refused.json["error"]) == (409, "SHARE_FULL")
        facts = {name: refused.json[name] for name in ("kind", "used", "limit", "setting")}
        assert facts == {
            "kind": "groups",
            "used": 2,
            "limit": 2,
            "setting": "limits.groups_per_key_max",
        }
        # Those that are there go on, also for another key, and that has its own.
        for by, group in ((ann, "a"), (ben, "b"), (ben, "c"), (ben, "d")):
            assert (await make(broker, way, group, "orders", headers=by)).status == 200
        assert (await make(broker, way, "e", "orders", headers=ben)).status == 409
        listed = (await broker.call("GET", "/groups", headers=root)).json["groups"]
        assert listed == ["a", "b", "c", "d"]


async def test_a_stream_of_one_group_too_many_is_refused(tmp_path):
    async with in_process(tmp_path, LIMITS) as broker:
        await broker.topic("orders")
        for group in ("a", "b", "c"):
            await broker.poll(group=group)
        async with asyncio.timeout(10):
            assert (await make(broker, "stream", "d", "orders")).status == 409
        assert await names(broker) == ["a", "b", "c"]


@pytest.mark.parametrize("how", ["join", "shared join", "commit"])
async def test_of_several_topics_none_is_touched(tmp_path, how):
    async with in_process(tmp_path, LIMITS) as broker:
        await broker.topic("orders")
        await broker.topic("bills")
        for group in ("a", "b", "c"):
            await broker.poll(topic="bills", group=group)
        refused = await make(broker, how, "d", "orders", "bills")
        assert (refused.status, refused.json["error"]) == (409, "TOO_MANY_GROUPS")
        assert await names(broker) == ["a", "b", "c"]


def test_a_broker_in_the_process_has_the_limit_too(tmp_path):
    with penstock.Broker(tmp_path / "data") as broker:
        broker.create_topic("orders", partitions=1)
        for number in range(1000):
            broker.open_group("orders", f"g{number}")
        with pytest.raises(TooManyGroups, match="1000"):
            broker.open_group("orders", "one-more")


def samples(text: str, metric: str) -> dict[str, float]:
    """By group: the sum over all other labels."""
    found: dict[str, float] = {}
    for labels, value in re.findall(rf"^{metric}{{(.*?)}} (\S+)$", text, re.MULTILINE):
        group = re.search(r'group="(.*?)"', labels)[1]
        found[group] = found.get(group, 0) + float(value)
    return found


async def test_metrics_name_the_groups_with_the_largest_lag_and_sum_the_rest(tmp_path):
    async with in_process(tmp_path, {("http", "metrics_groups_max"): 2}) as broker:
        await broker.topic()
        await broker.publish(*map(str, range(10)))
        done = {"a": 9, "b": 0, "c": 5, "other": 4, "d": 10}
        for group, offset in done.items():
            sent = {"offsets": {"orders": {"0": offset}}}
            await broker.call("POST", f"/groups/{group}/offsets", sent)
        for _ in range(3):
            await broker.poll("&max=1", group="a")
        text = (await broker.call("GET", "/metrics")).body.decode()
        # Of `other` there is a real one, which would be among the first two.
        assert samples(text, "penstock_group_lag_messages") == {"b": 10, "other": 1 + 5 + 6 + 0}
        assert samples(text, "penstock_group_in_flight") == {"b": 0, "other": 1}
        assert set(samples(text, "penstock_group_waiting")) == {"b", "other"}
        assert set(samples(text, "penstock_lane_ready")) == {"b"}
        assert samples(text, "penstock_delivery_seconds_count") == {"other": 1}
        await broker.poll("&max=2", group="b")
        text = (await broker.call("GET", "/metrics")).body.decode()
        assert samples(text, "penstock_delivery_seconds_count") == {"b": 2, "other": 1}
        series = [line.rpartition(" ")[0] for line in text.splitlines() if line[:1] != "#"]
        assert len(series) == len(set(series))


async def test_metrics_name_all_groups_that_are_few(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        for group in ("a", "other"):
            await broker.poll(group=group)
        assert (await broker.call("POST", "/groups/c/join", {"topics": ["orders"]})).status == 200
        text = (await broker.call("GET", "/metrics")).body.decode()
        assert set(samples(text, "penstock_group_lag_messages")) == {"a", "other", "c"}
        assert samples(text, "penstock_group_members") == {"c": 1}
        assert set(samples(text, "penstock_group_generation")) == {"c"}


async def test_a_poll_that_is_refused_for_its_lease_makes_no_group(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        for wrong in ("visibility_timeout=0", "visibility_timeout=36600d"):
            reply = await broker.call("GET", f"/topics/orders/messages?group=new&{wrong}")
            assert reply.status == 400
        assert (await broker.call("GET", "/groups")).json["groups"] == []

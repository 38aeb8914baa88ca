"""`goqueue-client` 1.0.0 from PyPI, as it is, against a broker: every method of its classes.

Its package cannot be imported (its `__init__` names a type that it does not have), so its module is.
"""

import importlib
import importlib.util
import json
import sys
from types import ModuleType
from typing import Any

import pytest

from .rigs import served

pytestmark = pytest.mark.tier("test")


def stock_client() -> Any:
    spec = importlib.util.find_spec("goqueue_client")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    package = ModuleType("goqueue_client")
    package.__path__ = [*spec.submodule_search_locations]
    sys.modules["goqueue_client"] = package
    return importlib.import_module("goqueue_client.client")


GOQUEUE = stock_client()


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    with served(tmp_path_factory.mktemp("goqueue") / "data") as broker:
        yield broker.address


@pytest.fixture
async def client(address):
    async with GOQUEUE.GoQueueClient(address, max_retries=0) as found:
        yield found


async def refused(status: int, call: Any) -> None:
    with pytest.raises(GOQUEUE.GoQueueError) as caught:
        await call
    assert caught.value.status == status


async def test_health(client):
    assert (await client.health.liveness())["status"] == "pass"
    assert (await client.health.readiness(verbose=True))["checks"]
    assert "checks" not in await client.health.readiness()
    assert (await client.health.check())["status"] == "ok"
    assert (await client.health.startup())["status"] == "pass"
    assert (await client.health.check())["timestamp"]
    assert (await client.health.version())["version"]
    stats = await client.health.stats()
    assert (stats["topics"] >= 0, type(stats["uptime"])) == (True, str)
    assert "penstock_" in await client.health.metrics()


async def test_topics_and_messages(client):
    await client.topics.create({"name": "orders", "num_partitions": 1, "retention_hours": 24})
    assert "orders" in str(await client.topics.list())
    assert (await client.topics.get("orders"))["name"] == "orders"
    sent = await client.messages.publish(
        "orders", [{"key": "k", "value": "a"}, {"value": "b", "priority": "high"}]
    )
    assert [result["offset"] for result in sent["results"]] == [0, 1]
    found = await client.messages.consume("orders", 0, offset=0, limit=10)
    assert [message["value"] for message in found["messages"]] == ["a", "b"]
    assert await client.messages.reliability_stats()
    assert await client.priority.stats()
    await client.topics.create({"name": "gone"})
    await client.topics.delete("gone")
    await refused(404, client.topics.get("gone"))
    added = await client.admin.add_partitions("orders", {"count": 2})
    assert (added["new_partition_count"], added["partitions_added"]) == (2, [1])


async def test_groups(client):
    await client.topics.create({"name": "jobs", "num_partitions": 1})
    values = [str(number) for number in range(4)]
    await client.messages.publish("jobs", [{"value": value} for value in values])
    joined = await client.groups.join(
        "workers", {"client_id": "w", "topics": ["jobs"], "session_timeout": "30s"}
    )
    member = {"member_id": joined["member_id"], "generation": joined["generation"]}
    await client.groups.heartbeat("workers", member)
    polled = await client.groups.poll("workers", joined["member_id"])
    receipts = [message["receipt_handle"] for message in polled["messages"]]
    assert [message["value"] for message in polled["messages"]] == values
    await client.messages.ack(receipts[0], consumer_id="w")
    await client.messages.ack(receipts[1])
    await client.messages.nack(receipts[2], delay="1m")
    await client.messages.extend_visibility(receipts[3], "60s")
    await client.messages.reject(receipts[3], reason="poison")
    assert await client.groups.get_offsets("workers", topic="jobs")
    await client.groups.commit_offsets(
        "workers", {"member_id": joined["member_id"], "offsets": {"jobs": {"0": 2}}}
    )
    assert "workers" in str(await client.groups.list())
    group = await client.groups.get("workers")
    assert (group["state"], len(group["members"])) == ("stable", 1)
    await client.groups.leave("workers", {"member_id": joined["member_id"]})
    await client.groups.delete("workers")


async def test_delays(client):
    await client.topics.create({"name": "later", "num_partitions": 1})
    sent = await client.messages.publish("later", [{"value": "x", "delay": "1h"}])
    (listed,) = (await client.delayed.list("later"))["messages"]
    assert (listed["partition"], listed["offset"]) == (0, sent["results"][0]["offset"])
    assert await client.delayed.get("later", listed["offset"])
    await client.delayed.cancel("later", 0, listed["offset"])
    assert await client.delayed.stats()


async def test_schemas(client):
    schema = json.dumps({"type": "object", "properties": {"id": {"type": "integer"}}})
    made = await client.schemas.register("goqueue", {"schema": schema})
    assert (await client.schemas.get_by_id(made["id"]))["schema"] == schema
    assert (await client.schemas.get_version("goqueue", "latest"))["version"] == 1
    assert "goqueue" in await client.schemas.list_subjects()
    assert await client.schemas.list_versions("goqueue") == [1]
    assert await client.schemas.get_config() == {"compatibilityLevel": "BACKWARD"}
    await client.schemas.set_config({"compatibilityLevel": "BACKWARD"})
    assert (await client.schemas.stats())["versions"] == 1
    assert await client.schemas.delete_version("goqueue", 1) == 1


async def test_tracing(client):
    await client.topics.create({"name": "traced", "num_partitions": 1})
    await client.messages.publish("traced", [{"value": "x"}])
    (trace,) = (await client.tracing.search({"topic": "traced"}))["traces"]
    assert (await client.tracing.get(trace["trace_id"]))["trace_id"] == trace["trace_id"]
    assert await client.tracing.stats()
    assert await client.tracing.list(limit=5)


async def test_tenants_are_not_there_yet(client):
    await refused(404, client.admin.list_tenants())
    await refused(404, client.admin.create_tenant({"id": "t", "name": "T"}))


async def test_transactions_with_one_epoch(client):
    """The epoch of `init` holds for the whole session, and each request names the producer."""
    await client.topics.create({"name": "sales", "num_partitions": 1})
    calls = client.transactions
    session = await calls.init_producer({"transactional_id": "till"})
    named = {**session, "transactional_id": "till"}
    sequence = 1  # The first one is any number.
    for value, is_commit in (("a", True), ("b", False), ("c", True)):
        begun = await calls.begin(named)
        assert begun["transaction_id"] in str(await calls.list())
        await refused(409, calls.begin(named))
        message = {**session, "topic": "sales", "value": value, "sequence": sequence}
        staged = await calls.publish(message)
        assert (staged["partition"], staged["duplicate"]) == (0, False)
        assert (await calls.publish(message))["duplicate"]
        await refused(400, calls.publish({**message, "sequence": sequence + 2}))
        await calls.producer_heartbeat(session["producer_id"], {"epoch": session["epoch"]})
        assert (await calls.stats())["active_transactions"] == 1
        await (calls.commit if is_commit else calls.abort)(named)
        sequence += 1
    assert (await calls.stats())["active_transactions"] == 0
    found = await client.messages.consume("sales", 0)
    assert [message["value"] for message in found["messages"]] == ["a", "c"]
    await refused(404, calls.begin({**named, "transactional_id": "other"}))
    again = await calls.init_producer({"transactional_id": "till"})
    assert again["epoch"] > session["epoch"]
    await refused(409, calls.begin(named))
    assert (await calls.init_producer())["producer_id"] != again["producer_id"]

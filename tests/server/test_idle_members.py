"""Members of groups are shown while they poll, also those that hold nothing: their host, and their last poll."""

import pytest

import penstock
from penstock.client import Client
from penstock.testing import VirtualClock

from .rigs import in_process, served


async def members(broker, group="g"):
    found = (await broker.call("GET", f"/groups/{group}")).json["members"]
    return {one["member_id"]: one for one in found}


async def test_a_member_of_a_shared_group_that_got_nothing_is_listed(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        assert await broker.poll("&owner=idle") == []
        first = (await members(broker))["idle"]
        assert (first["in_flight"], first["host"]) == (0, "127.0.0.1")
        broker.clock.advance("5s")
        await broker.poll("&owner=idle")
        await broker.publish("a")
        await broker.poll("&owner=busy")
        found = await members(broker)
        assert {name: one["in_flight"] for name, one in found.items()} == {"busy": 1, "idle": 0}
        assert found["idle"]["last_poll"] > first["last_poll"]


async def test_a_member_that_left_or_is_silent_for_long_is_not_listed(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        joined = {"topics": ["orders"], "mode": "shared"}
        for name in ("leaver", "silent"):
            await broker.call("POST", "/groups/g/join", {**joined, "member_id": name})
            await broker.call("GET", f"/groups/g/poll?member_id={name}&timeout=0s")
        assert set(await members(broker)) == {"leaver", "silent"}
        await broker.call("POST", "/groups/g/leave", {"member_id": "leaver"})
        assert set(await members(broker)) == {"silent"}
        broker.clock.advance("11m")
        assert await members(broker) == {}


async def test_members_of_assigned_groups_say_when_they_polled(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        sent = {"topics": ["orders"], "member_id": "m"}
        await broker.call("POST", "/groups/g/join", sent)
        assert (await members(broker))["m"]["last_poll"] is None
        await broker.call("GET", "/groups/g/poll?member_id=m&timeout=0s")
        assert (await members(broker))["m"]["last_poll"] is not None


async def test_a_group_that_is_forgotten_has_no_members_when_it_comes_again(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        await broker.poll("&owner=before")
        assert (await broker.call("DELETE", "/groups/g")).status == 204
        await broker.poll("&owner=after")
        assert set(await members(broker)) == {"after"}


@pytest.mark.parametrize("mode", ["shared", "assigned"])
def test_the_client_and_the_command_line_show_host_and_last_poll(tmp_path, mode):
    with (
        served(tmp_path / "data", "--binary-port", "0") as server,
        Client(server.binary_address) as client,
    ):
        client.create_topic("t", partitions=1)
        with client.consumer("t", "g", mode=mode, member="me") as consumer:
            assert len(consumer.poll(1)) == 0
            (found,) = client.group("g").members
            assert (found["member_id"], found["host"], found["in_flight"]) == ("me", "127.0.0.1", 0)
            assert found["last_poll"] is not None
        assert client.group("g").members == []


def test_the_library_shows_who_polls(tmp_path):
    clock = VirtualClock()
    with penstock.Broker(tmp_path, clock=clock) as broker:
        broker.create_topic("t")
        broker.poll("t", "g", member="idle")
        (found,) = broker.describe_group("g").pollers
        assert (found.id, found.topics, found.last_poll_ns) == ("idle", ("t",), clock.now_ns())
        broker.release("t", "g", "idle")
        assert broker.describe_group("g").pollers == ()

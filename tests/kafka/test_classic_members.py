"""What HTTP says of a group whose members are those of Kafka's classic protocol."""

import asyncio
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.in_process import KafkaRig
from tests.server.rigs import in_process

JOIN_GROUP, SYNC_GROUP, CONSUMER_GROUP_DESCRIBE = 11, 14, 69
GROUP_ID_NOT_FOUND = 69


def name(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def subscription(*topics: str) -> bytes:
    return struct.pack(">hi", 0, len(topics)) + b"".join(map(name, topics)) + bytes(4)


def assignment(**topics: list[int]) -> bytes:
    places = [
        name(one) + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
        for one, numbers in topics.items()
    ]
    return struct.pack(">hi", 0, len(topics)) + b"".join(places) + bytes(4)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Any]:
    async with in_process(tmp_path) as made:
        await made.topic("orders", partitions=3)
        yield made


async def join(rig: KafkaRig, *topics: str) -> dict[str, Any]:
    answer = await rig.client().ask(
        JOIN_GROUP,
        3,
        group_id="billing",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id="",
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": subscription(*topics)}],
    )
    assert answer["error_code"] == 0
    return answer


async def sync(rig: KafkaRig, joined: dict[str, Any], **assigned: bytes) -> None:
    answer = await rig.client().ask(
        SYNC_GROUP,
        2,
        group_id="billing",
        generation_id=joined["generation_id"],
        member_id=joined["member_id"],
        assignments=[{"member_id": one, "assignment": said} for one, said in assigned.items()],
    )
    assert answer["error_code"] == 0


@pytest.mark.parametrize("strange", [b"of another form", assignment(secret=[0])])
async def test_members_are_shown_with_what_their_leader_assigned(
    broker: Any, strange: bytes
) -> None:
    """Before they commit anything."""
    rig = KafkaRig(broker)
    joins = [join(rig, "orders"), join(rig, "orders", "not-there-yet")]
    joining = [asyncio.create_task(one) for one in joins]
    members: list[Any] = []
    while len(members) < 2:
        members = (await broker.call("GET", "/groups/billing")).json.get("members", [])
    broker.clock.advance(0.3)
    both = await asyncio.gather(*joining)
    (leader,) = [one for one in both if one["members"]]
    (other,) = [one for one in both if not one["members"]]
    mine = {leader["member_id"]: assignment(orders=[0, 2]), other["member_id"]: strange}
    described = (await broker.call("GET", "/groups/billing")).json
    assert described["state"] == "rebalancing"
    await sync(rig, leader, **mine)
    described = (await broker.call("GET", "/groups/billing")).json
    assert {key: described[key] for key in ("state", "generation", "protocol", "modes")} == {
        "state": "stable",
        "generation": leader["generation_id"],
        "protocol": "range",
        "modes": {"orders": "classic"},
    }
    members = {one["member_id"]: one for one in described["members"]}
    assert members.keys() == mine.keys()
    first, second = members[leader["member_id"]], members[other["member_id"]]
    assert first["client_id"] == "test"
    assert first["assigned_partitions"] == ["orders/0", "orders/2"]
    assert second["assigned_partitions"] == []
    (listed,) = (await broker.call("GET", "/groups?details=true")).json["groups"]
    assert (listed["group"], listed["topics"]) == ("billing", ["orders"])
    assert {member["member_id"] for member in listed["members"]} == mine.keys()
    assert (await broker.call("GET", "/groups/billing/lag")).json["partitions"] == []
    assert (await broker.call("GET", "/groups/billing/inflight")).json["in_flight"] == []
    kip_848 = await rig.client().ask(CONSUMER_GROUP_DESCRIBE, 0, group_ids=["billing"])
    assert kip_848["groups"][0]["error_code"] == GROUP_ID_NOT_FOUND

"""Share groups: whose members they are, and what a member is told of topics that come and go."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from penstock.api.principals import Principal, Role
from tests.kafka.in_process import KafkaClient, KafkaRig
from tests.server.rigs import in_process

HEARTBEAT, DESCRIBE, FETCH, ACKNOWLEDGE = 76, 77, 78, 79
JOIN, LEAVE = 0, -1
ASSIGNED_GROUP, GROUP_FORBIDDEN = 23, 30


class ShareRig(KafkaRig):
    """A broker with the topics a1 and b1, which has HTTP, too."""

    def __init__(self, broker: Any) -> None:
        super().__init__(broker)
        self.http = broker

    async def call(self, method: str, target: str, body: object = None) -> tuple[int, Any]:
        reply = await self.http.call(method, target, body)
        return reply.status, reply.json if reply.body else None


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[ShareRig]:
    async with in_process(tmp_path) as broker:
        for name in ("a1", "b1"):
            await broker.topic(name)
            await broker.publish("one", "two", topic=name)
        yield ShareRig(broker)


async def heartbeat(
    client: KafkaClient,
    epoch: int,
    topics: list[str] | None = None,
    group: str = "g",
    member: str = "m",
) -> dict[str, Any]:
    return await client.ask(
        HEARTBEAT,
        1,
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        subscribed_topic_names=topics,
    )


async def described(client: KafkaClient, group: str = "g") -> dict[str, Any]:
    asked = {"group_ids": [group], "include_authorized_operations": False}
    (found,) = (await client.ask(DESCRIBE, 1, **asked))["groups"]
    return found


@pytest.mark.parametrize("role", [Role.READONLY, Role.PRODUCER])
async def test_a_key_that_may_not_consume_takes_the_place_of_no_member(
    rig: ShareRig, role: Role
) -> None:
    joined = {"topics": ["a1"], "member_id": "victim", "mode": "shared"}
    assert (await rig.call("POST", "/groups/g/join", joined))[0] == 200
    client = rig.client(Principal("other", role))
    for epoch in (JOIN, LEAVE):
        answer = await heartbeat(client, epoch, ["a1"], member="victim")
        assert answer["error_code"] == GROUP_FORBIDDEN
    alive = {"member_id": "victim"}
    assert (await rig.call("POST", "/groups/g/heartbeat", alive))[0] == 200


async def test_a_key_takes_the_place_of_no_member_whose_topics_it_does_not_reach(
    rig: ShareRig,
) -> None:
    limited = rig.client(Principal("limited", Role.CONSUMER, ("a",)))
    assert (await heartbeat(limited, JOIN, ["a1"]))["error_code"] == 0
    everywhere = rig.client(Principal("everywhere", Role.CONSUMER))
    assert (await heartbeat(everywhere, JOIN, ["b1"]))["error_code"] == 0
    # It was its name before.
    for epoch in (JOIN, 1, LEAVE):
        assert (await heartbeat(limited, epoch, ["a1"]))["error_code"] == GROUP_FORBIDDEN
    (member,) = (await described(everywhere))["members"]
    assert member["subscribed_topic_names"] == ["b1"]


@pytest.mark.parametrize("member", ["w1", "another"])
async def test_an_assigned_group_has_no_share_members(rig: ShareRig, member: str) -> None:
    joined = {"topics": ["a1"], "member_id": "w1"}
    assert (await rig.call("POST", "/groups/g/join", joined))[0] == 200
    client = rig.client(Principal("consumer", Role.CONSUMER))
    assert (await heartbeat(client, JOIN, ["a1"], member=member))["error_code"] == ASSIGNED_GROUP
    status, polled = await rig.call("GET", "/groups/g/poll?member_id=w1")
    assert (status, len(polled["messages"])) == (200, 2)
    assert polled["generation"] > 0


async def test_share_groups_are_described_to_keys_that_may_see_groups(rig: ShareRig) -> None:
    assert (await heartbeat(rig.client(), JOIN, ["a1"]))["error_code"] == 0
    found = await described(rig.client(Principal("producer", Role.PRODUCER)))
    assert (found["error_code"], found["members"]) == (GROUP_FORBIDDEN, [])
    found = await described(rig.client(Principal("readonly", Role.READONLY)))
    assert (found["error_code"], len(found["members"])) == (0, 1)

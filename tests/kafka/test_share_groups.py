"""Share groups: whose members they are, and what a member is told of topics that come and go."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from penstock.api.answers import ReleaseMember
from penstock.api.consume import Poll
from penstock.api.principals import Principal, Role
from penstock.server.shared_members import SharedMembers
from tests.kafka.in_process import KafkaClient, KafkaRig
from tests.server.rigs import in_process

HEARTBEAT, DESCRIBE, FETCH, ACKNOWLEDGE = 76, 77, 78, 79
JOIN, LEAVE = 0, -1
UNKNOWN_PARTITION, ASSIGNED_GROUP, UNKNOWN_MEMBER, GROUP_FORBIDDEN = 3, 23, 25, 30
INVALID_REQUEST, UNKNOWN_TOPIC_ID, INVALID_STATE, NO_SESSION = 42, 100, 121, 122


class ShareRig(KafkaRig):
    """A broker with the topics a1 and b1, which has HTTP, too."""

    def __init__(self, broker: Any) -> None:
        self.now_s = 0.0
        broker.app.shared = SharedMembers(lambda: self.now_s)
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


async def joined_ids(client: KafkaClient, *topics: str) -> list[bytes]:
    """The ids of these topics, as a member learns them that reads them."""
    answer = await heartbeat(client, JOIN, [*topics])
    return [one["topic_id"] for one in answer["assignment"]["topic_partitions"]]


async def fetched(
    client: KafkaClient, epoch: int, *places: tuple[bytes, int], **more: Any
) -> list[tuple[bytes, int, int, int]]:
    """For each partition of an answer its topic, its number, its error, and how many messages it has."""
    asked: dict[str, Any] = {
        "group_id": "g",
        "member_id": "m",
        "share_session_epoch": epoch,
        "max_wait_ms": 0,
        "min_bytes": 0,
        "max_records": 100,
        "batch_size": 100,
        "topics": [topic_of(*place) for place in places],
        "forgotten_topics_data": [],
    }
    answer = await client.ask(FETCH, 1, **(asked | more))
    assert answer["error_code"] == 0
    return [
        (topic["topic_id"], part["partition_index"], part["error_code"], acquired_in(part))
        for topic in answer["responses"]
        for part in topic["partitions"]
    ]


def topic_of(topic_id: bytes, number: int, batches: tuple[Any, ...] = ()) -> dict[str, Any]:
    part = {"partition_index": number, "acknowledgement_batches": [*batches]}
    return {"topic_id": topic_id, "partitions": [part]}


def acquired_in(part: dict[str, Any]) -> int:
    return sum(one["last_offset"] - one["first_offset"] + 1 for one in part["acquired_records"])


@pytest.mark.parametrize("is_made_again", [False, True])
async def test_a_member_goes_on_with_its_other_topics_when_one_is_deleted(
    rig: ShareRig, is_made_again: bool
) -> None:
    client = rig.client()
    a1, b1 = await joined_ids(client, "a1", "b1")
    assert await fetched(client, 0, (a1, 0), (b1, 0)) == [(a1, 0, 0, 2), (b1, 0, 0, 2)]
    assert (await rig.call("DELETE", "/topics/b1"))[0] == 204
    if is_made_again:
        await rig.http.topic("b1")
        await rig.http.publish("of another topic", topic="b1")
    await rig.http.publish("three", topic="a1")
    assert await fetched(client, 1) == [(a1, 0, 0, 1), (b1, 0, UNKNOWN_TOPIC_ID, 0)]
    await rig.http.publish("four", topic="a1")
    forgotten = [{"topic_id": b1, "partitions": [0]}]
    assert await fetched(client, 2, forgotten_topics_data=forgotten) == [(a1, 0, 0, 1)]
    assert await fetched(client, 3) == []
    # The client has not heard of it yet.
    accepted = ({"first_offset": 0, "last_offset": 1, "acknowledge_types": [1]},)
    answer = await client.ask(
        ACKNOWLEDGE,
        1,
        group_id="g",
        member_id="m",
        share_session_epoch=4,
        topics=[topic_of(a1, 0, accepted), topic_of(b1, 0, accepted)],
    )
    codes = {one["topic_id"]: one["partitions"][0]["error_code"] for one in answer["responses"]}
    assert codes == {a1: 0, b1: UNKNOWN_TOPIC_ID}


async def test_an_answer_that_came_too_late_is_told_though_another_one_was_taken(
    rig: ShareRig,
) -> None:
    client, driver = rig.client(), rig.http.driver
    (a1,) = await joined_ids(client, "a1")
    assert await fetched(client, 0, (a1, 0), max_records=1) == [(a1, 0, 0, 1)]
    driver.execute(ReleaseMember("a1", "g", "m"))
    assert len(driver.execute(Poll("a1", "g", "other", 1))) == 1
    assert await fetched(client, 1) == [(a1, 0, 0, 1)]
    accepted = ({"first_offset": 0, "last_offset": 1, "acknowledge_types": [1]},)
    answer = await client.ask(
        ACKNOWLEDGE,
        1,
        group_id="g",
        member_id="m",
        share_session_epoch=2,
        topics=[topic_of(a1, 0, accepted)],
    )
    (topic,) = answer["responses"]
    assert topic["partitions"][0]["error_code"] == INVALID_STATE


async def test_a_fetch_that_waits_outlives_the_deletion_of_a_topic(rig: ShareRig) -> None:
    client = rig.client()
    a1, b1 = await joined_ids(client, "a1", "b1")
    await fetched(client, 0, (a1, 0), (b1, 0))
    waiting = asyncio.create_task(fetched(client, 1, max_wait_ms=60_000))
    while not rig.http.driver.polls.waiting:  # noqa: ASYNC110 - what is waited for sets no event
        await asyncio.sleep(0)
    assert (await rig.call("DELETE", "/topics/b1"))[0] == 204
    await rig.http.publish("three", topic="a1")
    found = await waiting or await fetched(client, 2)
    assert (a1, 0, 0, 1) in found


async def test_a_partition_that_a_topic_does_not_have_is_unknown(rig: ShareRig) -> None:
    client = rig.client()
    (a1,) = await joined_ids(client, "a1")
    assert await fetched(client, 0, (a1, 0), (a1, 7), (a1, -1)) == [
        (a1, -1, UNKNOWN_PARTITION, 0),
        (a1, 0, 0, 2),
        (a1, 7, UNKNOWN_PARTITION, 0),
    ]
    assert await fetched(client, 1, (bytes(16), 0)) == [(bytes(16), 0, UNKNOWN_TOPIC_ID, 0)]


async def test_a_member_that_is_missed_is_forgotten(rig: ShareRig) -> None:
    client = rig.client()
    (a1,) = await joined_ids(client, "a1")
    assert await fetched(client, 0, (a1, 0)) == [(a1, 0, 0, 2)]
    rig.now_s += 44
    rig.http.app.sweep()
    assert (await heartbeat(client, 1))["error_code"] == 0
    rig.now_s += 46
    rig.http.app.sweep()
    assert (await heartbeat(client, 1))["error_code"] == UNKNOWN_MEMBER
    answer = await client.ask(
        ACKNOWLEDGE, 1, group_id="g", member_id="m", share_session_epoch=1, topics=[]
    )
    assert answer["error_code"] == NO_SESSION
    assert await joined_ids(client, "a1") == [a1]


async def test_a_member_waits_for_topics_but_not_for_any_number(rig: ShareRig) -> None:
    client = rig.client()
    assert len(await joined_ids(client, "a1", "later")) == 1
    await rig.http.topic("later")
    answer = await heartbeat(client, 1)
    assert len(answer["assignment"]["topic_partitions"]) == 2
    for hostile in ([f"topic-{number}" for number in range(101)], ["x" * 10_000]):
        answer = await heartbeat(client, JOIN, ["a1", *hostile], member="hostile")
        assert answer["error_code"] == INVALID_REQUEST

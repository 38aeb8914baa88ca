"""aiokafka against a broker."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.structs import OffsetAndMetadata

from tests.kafka.brokers import KafkaAddress

pytestmark = [
    pytest.mark.tier("test"),
    # Its sockets end when they are collected.
    pytest.mark.filterwarnings("ignore"),
]
PATIENCE_S = 120.0


@asynccontextmanager
async def producer(broker: KafkaAddress, **settings: Any) -> AsyncIterator[AIOKafkaProducer]:
    client = AIOKafkaProducer(bootstrap_servers=str(broker), **settings)
    await client.start()
    try:
        yield client
    finally:
        await client.stop()


async def consumer(broker: KafkaAddress, *topics: str, **settings: Any) -> AIOKafkaConsumer:
    usual = {
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "heartbeat_interval_ms": 300,
        "session_timeout_ms": 45_000,
    }
    client = AIOKafkaConsumer(*topics, bootstrap_servers=str(broker), **(usual | settings))
    await client.start()
    return client


@asynccontextmanager
async def administrator(broker: KafkaAddress) -> AsyncIterator[AIOKafkaAdminClient]:
    client = AIOKafkaAdminClient(bootstrap_servers=str(broker))
    await client.start()
    try:
        yield client
    finally:
        await client.close()


async def make_topic(broker: KafkaAddress, name: str, partitions: int = 1) -> None:
    async with administrator(broker) as admin:
        await admin.create_topics([NewTopic(name, partitions, 1)])


async def received(client: AIOKafkaConsumer, count: int) -> list[Any]:
    found: list[Any] = []
    until = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < until:
        for some in (await client.getmany(timeout_ms=200)).values():
            found += some
    return found


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("is_idempotent", [False, True])
async def test_produce_with_every_compression_and_consume(
    broker: KafkaAddress, codec: str | None, is_idempotent: bool
) -> None:
    topic = f"compressed-{codec}-{is_idempotent}"
    await make_topic(broker, topic)
    values = [b"value %d " % number * 30 for number in range(300)]
    async with producer(
        broker, compression_type=codec, linger_ms=5, enable_idempotence=is_idempotent
    ) as client:
        sent = [await client.send(topic, one, headers=[("a", b"1")]) for one in values]
        assert [(await one).offset for one in sent] == list(range(300))
    reader = await consumer(broker, topic, group_id=f"readers-{codec}-{is_idempotent}")
    found = await received(reader, 300)
    await reader.stop()
    assert [one.value for one in found] == values
    assert list(found[3].headers) == [("a", b"1")]


async def test_seek_commit_and_resume(broker: KafkaAddress) -> None:
    await make_topic(broker, "resume")
    place = TopicPartition("resume", 0)
    async with producer(broker) as client:
        for number in range(20):
            time_ms = 1_700_000_000_000 + number * 1000
            await client.send_and_wait("resume", b"%d" % number, timestamp_ms=time_ms)
    reader = await consumer(broker, "resume", group_id="resuming")
    assert (await received(reader, 1))[0].offset == 0
    reader.seek(place, 15)
    assert (await received(reader, 1))[0].offset == 15
    timed = await reader.offsets_for_times({place: 1_700_000_000_000 + 6500})
    assert timed[place].offset == 7
    assert await reader.end_offsets([place]) == {place: 20}
    await reader.commit({place: OffsetAndMetadata(8, "note")})
    await reader.stop()
    reader = await consumer(broker, "resume", group_id="resuming")
    assert (await received(reader, 1))[0].offset == 8
    assert await reader.committed(place) == 8
    await reader.stop()


async def test_three_members_share_the_partitions(broker: KafkaAddress) -> None:
    await make_topic(broker, "shared", 6)
    members = await asyncio.gather(*(consumer(broker, "shared", group_id="trio") for _ in range(3)))
    found: Counter[bytes] = Counter()

    async def turn(members: list[AIOKafkaConsumer]) -> list[int]:
        for one in members:
            for some in (await one.getmany(timeout_ms=50)).values():
                found.update(message.value for message in some)
        return [len(one.assignment()) for one in members]

    until = time.monotonic() + PATIENCE_S
    while await turn(members) != [2, 2, 2]:
        assert time.monotonic() < until
    async with producer(broker) as client:
        for number in range(60):
            await client.send("shared", b"%d" % number)
    while len(found) < 60 and time.monotonic() < until:
        await turn(members)
    assert sorted(found.values()) == [1] * 60
    await members.pop().stop()
    until = time.monotonic() + PATIENCE_S
    while await turn(members) != [3, 3]:
        assert time.monotonic() < until
    for one in members:
        await one.stop()


async def test_administration(broker: KafkaAddress) -> None:
    await make_topic(broker, "admin", 2)
    async with administrator(broker) as admin:
        assert "admin" in await admin.list_topics()
        await admin.create_partitions({"admin": NewPartitions(4)})
        (described,) = await admin.describe_topics(["admin"])
        assert len(described["partitions"]) == 4
        asked = ConfigResource(
            ConfigResourceType.TOPIC, "admin", configs={"retention.ms": "3600000"}
        )
        await admin.alter_configs([asked])
        (answer,) = await admin.describe_configs(
            [ConfigResource(ConfigResourceType.TOPIC, "admin")]
        )
        assert "3600000" in str(answer)
        assert (await admin.describe_cluster())["brokers"]
        await admin.delete_topics(["admin"])
        assert "admin" not in await admin.list_topics()

"""What one request names many times over: it is looked at once, or refused, and there is a most of it."""

import struct

import pytest

from penstock.api.frames import RequestHeader
from penstock.errors import BadRequest
from penstock.server.kafka.errors import Code
from penstock.server.kafka.schema import REQUESTS
from penstock.server.kafka.wire import ITEMS_MAX, PARTITIONS_MAX, TooManyItems, items_max
from tests.kafka.client_wire import decode_response
from tests.kafka.in_process import KafkaRig
from tests.server.rigs import in_process

FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_FETCH = 1, 2, 3, 8, 9
FIND_COORDINATOR, DELETE_RECORDS = 10, 21
DESCRIBE_GROUPS, CREATE_TOPICS, DELETE_TOPICS, DELETE_GROUPS = 15, 19, 20, 42
DESCRIBE_CONFIGS, ALTER_CONFIGS, CREATE_PARTITIONS, INCREMENTAL = 32, 33, 37, 44
TOPIC = 2


class ListeningTransport:
    def get_extra_info(self, _name):
        return "127.0.0.1", 9092


@pytest.fixture
async def kafka(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic("big", partitions=2)
        client = KafkaRig(broker).client()
        client._connection.transport = ListeningTransport()
        yield broker, client


@pytest.fixture
def executed(kafka, monkeypatch):
    """How many commands the broker has carried out."""
    broker, _ = kafka
    counted = []
    execute = broker.app.driver.execute

    async def count(command, *given, **more):
        counted.append(type(command).__name__)
        return await execute(command, *given, **more)

    monkeypatch.setattr(type(broker.app.driver), "execute", lambda _self, *a, **k: count(*a, **k))
    return counted


async def test_a_partition_that_is_fetched_many_times_is_read_once(kafka, executed):
    broker, client = kafka
    await broker.publish("v", topic="big")
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    found = await client.ask(
        FETCH,
        12,
        max_wait_ms=0,
        min_bytes=0,
        topics=[{"topic": "big", "partitions": [part] * 9000}],
    )
    (topic,) = found["responses"]
    assert len(topic["partitions"]) == 1
    assert topic["partitions"][0]["error_code"] == 0
    assert len(executed) <= 3


async def test_partitions_whose_offsets_are_asked_twice_are_refused(kafka, executed):
    _, client = kafka
    parts = [{"partition_index": number, "timestamp": -1} for number in (0, 1, 0)]
    found = await client.ask(
        LIST_OFFSETS, 7, topics=[{"name": "big", "partitions": parts}, {"name": "big"}]
    )
    told = [(one["partition_index"], one["error_code"]) for one in found["topics"][0]["partitions"]]
    assert told == [(0, Code.INVALID_REQUEST), (1, 0), (0, Code.INVALID_REQUEST)]
    assert len(executed) == 1


async def test_topics_and_groups_are_described_once(kafka, executed):
    _, client = kafka
    found = await client.ask(METADATA, 12, topics=[{"name": "big"}] * 5000)
    assert [topic["name"] for topic in found["topics"]] == ["big"]
    uuid = found["topics"][0]["topic_id"]
    unknown = [{"name": None, "topic_id": bytes([1]) * 16}, {"name": None, "topic_id": bytes(16)}]
    asked = [{"name": None, "topic_id": uuid}] * 5000 + unknown * 2
    found = await client.ask(METADATA, 12, topics=asked)
    assert [topic["error_code"] for topic in found["topics"]] == [
        0,
        Code.UNKNOWN_TOPIC_ID,
        Code.UNKNOWN_TOPIC_ID,
    ]
    assert len(executed) <= 4
    executed.clear()
    found = await client.ask(DESCRIBE_GROUPS, 5, groups=["g"] * 9000)
    assert [group["group_id"] for group in found["groups"]] == ["g"]
    found = await client.ask(DELETE_GROUPS, 2, groups_names=["g"] * 9000)
    assert [group["group_id"] for group in found["results"]] == ["g"]
    groups = [{"group_id": "g", "topics": None}] * 9000
    found = await client.ask(OFFSET_FETCH, 8, groups=groups)
    assert [group["group_id"] for group in found["groups"]] == ["g"]
    assert executed == ["DescribeClassic", "CloseGroup", "ListCommitted"]
    resource = {"resource_type": TOPIC, "resource_name": "big"}
    found = await client.ask(DESCRIBE_CONFIGS, 4, resources=[resource] * 9000)
    assert [one["resource_name"] for one in found["results"]] == ["big"]


async def test_changes_that_name_a_topic_twice_change_nothing_of_it(kafka):
    broker, client = kafka
    new = {"name": "new", "num_partitions": 1, "replication_factor": 1}
    other = {**new, "name": "other"}
    found = await client.ask(CREATE_TOPICS, 7, topics=[new, other, new])
    assert [(one["name"], one["error_code"]) for one in found["topics"]] == [
        ("new", Code.INVALID_REQUEST),
        ("other", 0),
    ]
    resource = {"resource_type": TOPIC, "resource_name": "big"}
    config = {"name": "retention.bytes", "value": "5"}
    for key in (ALTER_CONFIGS, INCREMENTAL):
        found = await client.ask(key, 1, resources=[{**resource, "configs": [config]}] * 2)
        assert [one["error_code"] for one in found["responses"]] == [Code.INVALID_REQUEST]
    found = await client.ask(CREATE_PARTITIONS, 3, topics=[{"name": "big", "count": 5}] * 2)
    assert [one["error_code"] for one in found["results"]] == [Code.INVALID_REQUEST]
    found = await client.ask(DELETE_TOPICS, 5, topic_names=["big", "big", "other"])
    assert [(one["name"], one["error_code"]) for one in found["responses"]] == [
        ("big", Code.INVALID_REQUEST),
        ("other", 0),
    ]
    described = (await broker.call("GET", "/topics/big")).json
    assert (described["partitions"], described["config"]["retention_bytes"]) == (2, -1)
    assert (await broker.call("GET", "/topics/new")).status == 404


async def test_the_last_offset_counts_of_a_partition_that_is_trimmed_twice(kafka, executed):
    broker, client = kafka
    messages = [{"value": f"{number}", "partition": 0} for number in range(3)]
    await broker.call("POST", "/topics/big/messages", {"messages": messages})
    executed.clear()
    parts = [{"partition_index": 0, "offset": offset} for offset in [3] * 5000 + [1]]
    topics = [{"name": "big", "partitions": parts}] * 2
    found = await client.ask(DELETE_RECORDS, 2, timeout_ms=1000, topics=topics)
    assert [(one["name"], len(one["partitions"])) for one in found["topics"]] == [("big", 1)]
    assert found["topics"][0]["partitions"][0]["low_watermark"] == 1
    assert executed == ["TrimPartition"]


async def test_requests_and_responses_of_many_items_leave_the_loop_to_others(kafka, monkeypatch):
    broker, client = kafka
    in_thread, works = broker.app.driver.in_thread, []

    async def count(work):
        works.append(work)
        return await in_thread(work)

    monkeypatch.setattr(type(broker.app.driver), "in_thread", lambda _self, work: count(work))
    for names, threads in ((100, 0), (9000, 2)):
        keys = [f"group-{number}" for number in range(names)]
        found = await client.ask(FIND_COORDINATOR, 4, key_type=0, coordinator_keys=keys)
        assert [one["key"] for one in found["coordinators"]] == keys
        assert len(works) == threads


def flexible_array(count):
    """The beginning of a request with so many items, which are not there."""
    return b"\0" + bytes(((count + 1) & 0x7F | 0x80, (count + 1) >> 7 & 0x7F | 0x80, count >> 14))


async def test_a_request_of_too_many_items_is_refused_before_they_are_read(kafka):
    _, client = kafka
    header = RequestHeader(FETCH, 12, 7, "test")
    head = struct.pack(">iiiibii", -1, 0, 0, 1 << 20, 0, 0, -1)
    body = flexible_array(PARTITIONS_MAX + 1)
    body = body[:1] + head + body[1:] + bytes(PARTITIONS_MAX + 100)
    pieces = await client._server.answer(header, memoryview(body), client._connection)
    answer = decode_response(FETCH, 12, b"".join(pieces)[1:])
    assert answer["error_code"] == Code.INVALID_REQUEST
    # A response that cannot say it: the connection ends, and the log says why.
    body = flexible_array(ITEMS_MAX + 1) + bytes(ITEMS_MAX + 100)
    header = RequestHeader(DESCRIBE_GROUPS, 5, 7, "test")
    with pytest.raises(TooManyItems, match="10001 items in one request, the limit is 10000"):
        await client._server.answer(header, memoryview(body), client._connection)


def test_every_request_has_a_most_of_items():
    assert issubclass(TooManyItems, BadRequest)
    for key in REQUESTS:
        assert 0 < items_max(key) <= PARTITIONS_MAX
    assert items_max(DESCRIBE_GROUPS) == ITEMS_MAX


async def test_each_partition_of_a_commit_has_a_code_of_its_own(kafka):
    _, client = kafka
    parts = [
        {"partition_index": number, "committed_offset": offset, "committed_metadata": None}
        for number, offset in ((0, 0), (1, 99), (0, 0), (7, 0))
    ]
    member = {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
    topics = [{"name": "big", "partitions": parts}]
    reply = await client.ask(OFFSET_COMMIT, 7, group_id="g", **member, topics=topics)
    (topic,) = reply["topics"]
    assert [one["error_code"] for one in topic["partitions"]] == [
        Code.NONE,
        Code.OFFSET_OUT_OF_RANGE,
        Code.NONE,
        Code.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def numbered(field, **values):
    return lambda number: {field: number, **values}


COMMITTED = {"committed_offset": 1, "committed_metadata": None}
MEMBER = {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
PRODUCED = {"transactional_id": None, "acks": -1, "timeout_ms": 1000}
# Requests about partitions of several topics: key and version, a partition, the rest, and what their lists are called.
OF_PARTITIONS = {
    "Produce": (0, 9, numbered("index", records=None), PRODUCED, "topic_data", "partition_data"),
    "ListOffsets": (2, 7, numbered("partition_index", timestamp=-1), {}),
    "OffsetCommit": (8, 7, numbered("partition_index", **COMMITTED), {"group_id": "g", **MEMBER}),
    "OffsetFetch": (9, 5, int, {"group_id": "g"}, "topics", "partition_indexes"),
    "DeleteRecords": (21, 1, numbered("partition_index", offset=0), {"timeout_ms": 1000}),
}
TOPICS = ["big", "missing", "small"]
TOLD = ("index", "partition_index", "error_code", "committed_offset", "offset", "low_watermark")


def answers_in(response):
    """By topic, what is said of each of its partitions."""
    topics = next(value for value in response.values() if isinstance(value, list) and value)
    return {
        topic["name"]: [
            {field: part[field] for field in TOLD if field in part}
            for parts in topic.values()
            if isinstance(parts, list)
            for part in parts
        ]
        for topic in topics
    }


@pytest.mark.parametrize("api", OF_PARTITIONS)
@pytest.mark.parametrize("first", range(len(TOPICS)))
async def test_each_partition_of_a_request_has_the_answer_that_it_has_alone(kafka, api, first):
    broker, client = kafka
    names = TOPICS[first:] + TOPICS[:first]
    await broker.topic("small", partitions=1)
    for topic in ("big", "small"):
        await broker.publish("v", topic=topic)
    key, version, part_of, rest, *lists = OF_PARTITIONS[api]
    topics, parts = lists or ("topics", "partitions")

    async def ask(wanted):
        asked = [
            {"name": name, parts: [*map(part_of, numbers)]} for name, numbers in wanted.items()
        ]
        return answers_in(await client.ask(key, version, **rest, **{topics: asked}))

    alone = {name: [] for name in names}
    for name in names:
        for number in (0, 1):
            alone[name] += (await ask({name: [number]}))[name]
    assert await ask({name: [0, 1] for name in names}) == alone

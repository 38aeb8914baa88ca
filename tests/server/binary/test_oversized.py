"""Frames over the limit: each is answered with an error that says so, takes no memory, and ends nothing but itself."""

import asyncio
import struct
import tracemalloc

import pytest

from penstock.api.frames import COMMAND, request_frame
from penstock.api.principals import Role
from penstock.api.topics import ListTopics
from penstock.api.wire import decode_reply, encode_command
from penstock.errors import TooLarge
from penstock.server.binary.connection import Connection
from penstock.server.binary.oversized import OversizedFrame
from penstock.server.kafka.port import KafkaServer
from penstock.server.kafka.schema import REQUESTS
from tests.kafka.client_wire import decode_response, encode_request

from ..rigs import in_process
from .services import service_of
from .transports import Wire, on_wire

LIMIT = 1 << 20
LITTLE = {
    ("binary", "frame_bytes_max"): LIMIT,
    ("limits", "batch_bytes_max"): LIMIT // 2,
    ("limits", "value_bytes_max"): LIMIT // 4,
}
PRODUCE, FETCH, METADATA, JOIN_GROUP, SYNC_GROUP = 0, 1, 3, 11, 14
TOO_LARGE, INVALID_REQUEST = 10, 42
RECORDS = bytes(LIMIT)


def kafka_frame(key: int, version: int, correlation: int, **values) -> bytes:
    is_flexible = version >= 9
    head = struct.pack(">hhih", key, version, correlation, 4) + b"test"
    body = (b"\0" if is_flexible else b"") + encode_request(key, version, values)
    return struct.pack(">i", len(head) + len(body)) + head + body


def produce(version: int, correlation: int, acks: int = -1, transaction=None) -> bytes:
    """Two topics; the records in the middle are too large, and there are others before and behind."""
    parts = [
        [{"index": 3, "records": b"abc"}, {"index": 4, "records": RECORDS}],
        [{"index": 0, "records": None}, {"index": 1, "records": b""}],
    ]
    topics = [
        {"name": name, "partition_data": some}
        for name, some in zip(("orders", "bills"), parts, strict=True)
    ]
    return kafka_frame(
        PRODUCE,
        version,
        correlation,
        transactional_id=transaction,
        acks=acks,
        timeout_ms=1000,
        topic_data=topics,
    )


def connected(broker, key=None) -> tuple[Connection, Wire]:
    service = service_of(broker)
    service.kafka = KafkaServer(service)
    return on_wire(service, key)


def feed(connection: Connection, data: bytes, piece: int) -> None:
    for start in range(0, len(data), piece):
        connection.data_received(data[start : start + piece])


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize("piece", [4099, 1 << 18, 1 << 22])
async def test_a_command_of_ours_is_refused_and_the_next_is_carried_out(tmp_path, piece):
    async with in_process(tmp_path, LITTLE) as broker:
        connection, wire = connected(broker)
        large = b"".join(request_frame(COMMAND, 7, [RECORDS], b"a client"))
        small = b"".join(request_frame(COMMAND, 8, encode_command(ListTopics())))
        feed(connection, small.replace(b"\0\0\0\x08", b"\0\0\0\x06", 1) + large + small, piece)
        await turns()
        with pytest.raises(TooLarge) as caught:
            decode_reply(ListTopics, wire.replies[7])
        assert caught.value.fields["limit"] == LIMIT
        assert decode_reply(ListTopics, wire.replies[8]).value == []
        assert not wire.is_over


@pytest.mark.parametrize("version", range(3, 13))
@pytest.mark.parametrize("piece", [4099, 1 << 22])
async def test_kafka_hears_of_each_partition_that_it_was_too_large(tmp_path, version, piece):
    async with in_process(tmp_path, LITTLE) as broker:
        connection, wire = connected(broker)
        small = kafka_frame(METADATA, 8, 9, topics=[])
        feed(connection, produce(version, 7, transaction="t") + small, piece)
        await turns()
        reply = wire.replies[7]
        answer = decode_response(PRODUCE, version, reply[1:] if version >= 9 else reply)
        assert [
            (topic["name"], part["index"], part["error_code"])
            for topic in answer["responses"]
            for part in topic["partition_responses"]
        ] == [(name, index, TOO_LARGE) for name, index in PLACES]
        assert 9 in wire.replies
        assert not wire.is_over


REFUSABLE = [
    (JOIN_GROUP, 2, {"group_id": "g", "protocols": [{"name": "p", "metadata": RECORDS}]}),
    (JOIN_GROUP, 9, {"group_id": "g", "protocols": [{"name": "p", "metadata": RECORDS}]}),
    (FETCH, 12, {"topics": [{"topic": "x" * 30_000, "partitions": []}] * 40}),
    (SYNC_GROUP, 0, {"group_id": "g", "assignments": [{"member_id": "m", "assignment": RECORDS}]}),
]


@pytest.mark.parametrize(("key", "version", "values"), REFUSABLE)
@pytest.mark.parametrize("piece", [11, 4099, 1 << 22])
async def test_kafka_hears_that_a_request_was_refused_whole(tmp_path, key, version, values, piece):
    async with in_process(tmp_path, LITTLE) as broker:
        connection, wire = connected(broker)
        frame = _as_frame(key, version, values)
        feed(connection, frame[:4096], piece)
        feed(connection, frame[4096:] + kafka_frame(METADATA, 8, 9, topics=[]), max(piece, 4099))
        await turns()
        reply, is_flexible = wire.replies[7], version >= REQUESTS[key].flexible
        answer = decode_response(key, version, reply[1:] if is_flexible else reply)
        assert answer["error_code"] == INVALID_REQUEST
        assert 9 in wire.replies
        assert not wire.is_over


def _as_frame(key: int, version: int, values: dict) -> bytes:
    tags = b"\0" if version >= REQUESTS[key].flexible else b""
    body = tags + encode_request(key, version, values)
    head = struct.pack(">hhih", key, version, 7, 4) + b"test"
    return struct.pack(">i", len(head) + len(body)) + head + body


PLACES = [("orders", 3), ("orders", 4), ("bills", 0), ("bills", 1)]


async def test_nothing_is_kept_of_a_frame_while_it_comes(tmp_path):
    async with in_process(tmp_path, LITTLE) as broker:
        connection, wire = connected(broker)
        frame = produce(9, 7)
        connection.data_received(frame[:100])
        tracemalloc.start()
        for start in range(100, len(frame) - 100, 1 << 16):
            connection.data_received(frame[start : min(start + (1 << 16), len(frame) - 100)])
        held, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert held < 64 << 10
        assert peak < 256 << 10
        assert broker.app.memory.used == 0
        connection.data_received(frame[-100:])
        await turns()
        assert 7 in wire.replies


@pytest.mark.parametrize(
    "make",
    [
        lambda: kafka_frame(METADATA, 8, 7, topics=[{"name": "x" * 30_000}] * 40),
        lambda: produce(9, 7, acks=0),
        lambda: produce(3, 7, acks=0),
        # One that is too short for what it says to hold.
        lambda: produce(3, 7)[: LIMIT // 2] + b"\xff" * LIMIT,
    ],
)
async def test_what_cannot_be_answered_ends_its_connection(tmp_path, make):
    async with in_process(tmp_path, LITTLE) as broker:
        connection, wire = connected(broker)
        connection.data_received(make())
        await turns()
        assert (wire.is_over, 7 in wire.replies) == (True, False)


async def test_a_frame_of_names_alone_ends_its_connection_before_they_are_many(tmp_path):
    async with in_process(tmp_path, LITTLE) as broker:
        connection, wire = connected(broker)
        parts = [{"index": number, "records": b""} for number in range(200_000)]
        topics = [{"name": "orders", "partition_data": parts}]
        frame = kafka_frame(
            PRODUCE, 9, 7, transactional_id=None, acks=-1, timeout_ms=1, topic_data=topics
        )
        connection.data_received(frame[: 64 << 10])
        await turns()
        assert wire.is_over


async def test_without_a_key_no_frame_is_read_over(tmp_path):
    async with in_process(tmp_path, {**LITTLE, ("auth", "enabled"): True}) as broker:
        connection, wire = connected(broker)
        connection.data_received(produce(9, 7)[:100])
        assert wire.is_over
        connection, wire = connected(broker, broker.key("writer", Role.PRODUCER))
        connection.data_received(produce(9, 7)[:100])
        assert not wire.is_over


def test_any_bytes_can_be_read_over(effort):
    import random

    chance = random.Random(5)
    good = produce(9, 7)[4:]
    for _ in range(effort(check=300, test=3000, torture=30_000)):
        data = bytearray(good[: chance.choice([60, 200, 2000])])
        for _ in range(chance.randrange(4)):
            data[chance.randrange(len(data))] = chance.choice([0, 1, 0x7F, 0x80, 0xFF])
        frame = OversizedFrame(
            TooLarge("a frame", found=1, limit=0), len(data), lambda _key, _version: False
        )
        rest = memoryview(bytes(data) + b"next")
        while not frame.is_over:
            size = chance.randrange(1, 50)
            behind = frame.feed(rest[:size])
            rest = memoryview(bytes(behind) + bytes(rest[size:]))
        assert bytes(rest) == b"next"
        assert len(frame.kept) <= 64 << 10

"""Record batches through the port: what a producer sends is what a consumer fetches, and what lies is refused."""

import random
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from crc32c import crc32c

from penstock.client import Client
from tests.codec.kafka_twin import Record, batch, read
from tests.kafka.brokers import KafkaAddress
from tests.kafka.client_wire import decode_response, encode_request
from tests.kafka.test_hostile import answered, frame

pytestmark = pytest.mark.tier("test")
NOW_MS = 1_767_268_800_123
SENT = [
    Record(NOW_MS + number, b"k" if number % 2 else None, b"value %d" % number, [("", None)])
    for number in range(90)
]
PRODUCE, FETCH, LIST_OFFSETS = (0, 9), (1, 11), (2, 5)
INVALID_RECORD, CORRUPT_MESSAGE, TOO_LARGE, UNSUPPORTED = 87, 2, 10, 43


class Wire:
    """One connection that speaks in frames."""

    def __init__(self, broker: KafkaAddress) -> None:
        self.stream = socket.create_connection((broker.host, broker.port), timeout=20)

    def call(self, api: tuple[int, int], asked: dict[str, Any]) -> dict[str, Any]:
        self.stream.sendall(frame(*api, encode_request(*api, asked)))
        header_bytes = 5 if api == PRODUCE else 4
        return decode_response(*api, answered(self.stream)[header_bytes:])

    def produce(self, topic: str, records: bytes) -> tuple[int, int]:
        """Kafka's code of an error, and the offset."""
        part = {"index": 0, "records": records}
        asked = {"acks": 1, "timeout_ms": 1000}
        found = self.call(
            PRODUCE, {**asked, "topic_data": [{"name": topic, "partition_data": [part]}]}
        )
        (part,) = found["responses"][0]["partition_responses"]
        return part["error_code"], part["base_offset"]

    def fetch(self, topic: str, offset: int = 0) -> bytes:
        part = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 22}
        asked = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 22}
        asked |= {"session_id": 0, "session_epoch": -1}
        found = self.call(FETCH, {**asked, "topics": [{"topic": topic, "partitions": [part]}]})
        return bytes(found["responses"][0]["partitions"][0]["records"])

    def offset_at(self, topic: str, time_ms: int) -> tuple[int, int]:
        part = {"partition_index": 0, "timestamp": time_ms}
        asked = {"replica_id": -1, "topics": [{"name": topic, "partitions": [part]}]}
        (part,) = self.call(LIST_OFFSETS, asked)["topics"][0]["partitions"]
        return part["offset"], part["timestamp"]


@pytest.fixture
def wire(broker: KafkaAddress) -> Iterator[Wire]:
    one = Wire(broker)
    yield one
    one.stream.close()


@pytest.fixture
def client(broker: KafkaAddress) -> Iterator[Client]:
    with Client(f"penstock://{broker}") as client:
        yield client


def without_place(record_batch: bytes) -> bytes:
    """What the checksum covers, and the length: all but the base offset and the leader epoch."""
    return record_batch[8:12] + record_batch[16:]


@pytest.mark.parametrize("packing", range(5))
def test_a_consumer_gets_the_bytes_that_the_producer_sent(
    wire: Wire, client: Client, packing: int
) -> None:
    topic = f"verbatim-{packing}"
    client.create_topic(topic, partitions=1)
    client.publish(topic, b"ours")
    sent = batch(SENT, packing=packing)
    assert wire.produce(topic, sent) == (0, 1)
    assert wire.produce(topic, sent) == (0, 91)
    found = wire.fetch(topic, 95)
    assert struct.unpack_from(">q", found) == (91,)
    assert without_place(found) == without_place(sent)
    both = wire.fetch(topic, 1)
    assert (len(both), both[len(sent) :]) == (2 * len(sent), found)
    got = list(client.fetch(topic, 0, offset=0, limit=1000))
    assert [one.value for one in got] == [b"ours", *(one.value for one in SENT * 2)]
    assert got[2].headers == (("", None),)
    assert client.fetch(topic, 0, offset=50, limit=1000).arrow().num_rows == 131


def test_a_columnar_topic_gives_the_same_records(wire: Wire, client: Client) -> None:
    client.create_topic("columns", partitions=1, kafka_storage="columnar")
    assert wire.produce("columns", batch(SENT, packing=4)) == (0, 0)
    assert read(wire.fetch("columns")) == [one._replace(headers=[*one.headers]) for one in SENT]


@pytest.mark.parametrize("storage", ["verbatim", "columnar"])
def test_a_time_is_looked_up_inside_of_a_batch(wire: Wire, client: Client, storage: str) -> None:
    topic = f"times-{storage}"
    client.create_topic(topic, partitions=1, kafka_storage=storage)
    wire.produce(topic, batch([Record(NOW_MS + one, None, b"x") for one in (5, 3, 9, 7)]))
    wire.produce(topic, batch([Record(NOW_MS + one, None, b"x") for one in (8, 20)]))
    for wanted, offset, time in ((0, 0, 5), (6, 2, 9), (9, 2, 9), (10, 5, 20), (20, 5, 20)):
        assert wire.offset_at(topic, NOW_MS + wanted) == (offset, NOW_MS + time)
    assert wire.offset_at(topic, NOW_MS + 21) == (-1, -1)
    assert wire.offset_at(topic, -3) == (5, NOW_MS + 20)


def test_batches_that_lie_are_refused_and_nothing_is_stored(wire: Wire, client: Client) -> None:
    client.create_topic("lies", partitions=1)
    good = batch(SENT)
    for data, code in (
        (b"", INVALID_RECORD),
        (good[:-1], INVALID_RECORD),
        (good + good, INVALID_RECORD),
        (batch(SENT, checksum=1), CORRUPT_MESSAGE),
        (batch(SENT, count=89, last_delta=88), INVALID_RECORD),
        (batch(SENT, count=91, last_delta=90), INVALID_RECORD),
        (batch(SENT, attributes=3), INVALID_RECORD),
        (batch(SENT, attributes=7), UNSUPPORTED),
        (good[:16] + b"\1" + good[17:], UNSUPPORTED),
        (batch([Record(NOW_MS, b"k" * 70_000, b"x")]), TOO_LARGE),
    ):
        assert wire.produce("lies", data)[0] == code
    chance, refused = random.Random(4), 0
    for _ in range(300):
        changed = bytearray(good)
        for _ in range(3):
            changed[chance.randrange(61, len(good))] = chance.choice([0x80, 0xFF, 0x7F])
        struct.pack_into(">I", changed, 17, crc32c(bytes(changed[21:])))
        code, _ = wire.produce("lies", bytes(changed))
        assert code in (0, INVALID_RECORD, TOO_LARGE)
        refused += code != 0
    assert refused > 50
    end = client.topic("lies").ends(0).latest
    assert end == 90 * (300 - refused)
    offset = 0
    while offset < end:
        fetched = client.fetch("lies", 0, offset=offset, limit=100_000)
        assert len(list(fetched)) == fetched.next_offset - offset
        offset = fetched.next_offset

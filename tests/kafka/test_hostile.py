"""Frames that no client would send: the broker answers or ends the connection, stores nothing, and goes on."""

import random
import socket
import struct
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from penstock.server.kafka.schema import REQUESTS, Schema
from tests.kafka.brokers import KafkaAddress, running_broker
from tests.kafka.client_wire import decode_response, encode_request
from tests.kafka.test_wire import values_for

pytestmark = pytest.mark.tier("test")
BYTES = (0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF)
LENGTHS = (0, 1, -1, -2, 127, 0x7FFF, 0x7FFFFFFF, -0x80000000)
# Beyond what it had before, whatever the number of frames and connections.
RSS_GROWTH_KIB_MAX = 100 << 10
# These wait for other members or for messages, or make thousands of partitions: their answers would take seconds.
_SLOW = (1, 11, 14, 19, 37, 78)
_BODIES = 4000
_PROBE = 0x7AFE
_BOMB_BYTES = 200 << 20
# gzip, lz4, zstd; one of snappy says how large it is.
_COMPRESSIONS = (1, 3, 4)
PATIENCE_S = 120.0


def frame(key: int, version: int, body: bytes, correlation: int = 7) -> bytes:
    tags = b"\0" if key in REQUESTS and version >= REQUESTS[key].flexible else b""
    header = struct.pack(">hhih", key, version, correlation, 4) + b"test" + tags
    return struct.pack(">i", len(header) + len(body)) + header + body


class HostileFrames:
    """Requests that are cut, changed, of other versions, with lengths that lie, too many items, or bombs."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        known = [one for key, one in REQUESTS.items() if key not in _SLOW]
        # Encoding one takes longer than the broker needs to refuse it: a few are changed again and again.
        self._bodies = [self._body(chance.choice(known)) for _ in range(_BODIES)]
        self._bombs = [*map(_bomb, _COMPRESSIONS)]

    def _body(self, schema: Schema) -> tuple[int, int, bytes]:
        version = self._chance.randint(schema.first, schema.last)
        values = values_for(schema.fields, version, self._chance)
        return schema.key, version, encode_request(schema.key, version, values)

    def next(self) -> bytes:
        chance = self._chance
        key, version, found = chance.choice(self._bodies)
        body = bytearray(found)
        match chance.randrange(8):
            case 0:
                del body[chance.randrange(len(body) + 1) :]
            case 1 if body:
                for _ in range(chance.randint(1, 8)):
                    body[chance.randrange(len(body))] = chance.choice(BYTES)
            case 2 if len(body) >= 4:
                at = chance.randrange(len(body) - 3)
                struct.pack_into(">i", body, at, chance.choice(LENGTHS))
            case 3:
                body = bytearray(chance.randbytes(chance.randrange(200)))
            case 4:
                version = chance.choice([-1, 99, 0x7FFF])
            case 5:
                key, version = chance.choice([-1, 4, 5, 24, 80, 9999]), chance.randrange(5)
            case 6:
                # Arrays in arrays: each count is larger than what is left.
                body[:0] = chance.choice([b"\xff\xff\xff\xff\x07", b"\x7f\xff\xff\xff"]) * 40
            case 7 if chance.random() < 0.05:
                return chance.choice(self._bombs)
        return frame(key, version, bytes(body))


def _bomb(compression: int) -> bytes:
    """A batch whose records are a thousand times larger than it says, in a request that is right but for that."""
    builder = DefaultRecordBatchBuilder(
        2,
        compression,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=_BOMB_BYTES * 2,
    )
    builder.append(0, 1_700_000_000_000, None, bytes(_BOMB_BYTES), [])
    part = {"index": 0, "records": bytes(builder.build())}
    topic = {"name": "there-is-none", "partition_data": [part]}
    return frame(0, 9, encode_request(0, 9, {"acks": -1, "topic_data": [topic]}))


def answered(stream: socket.socket) -> bytes:
    """The next answer; empty if the broker ended the connection."""
    data = b""
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        more = stream.recv(4 + int.from_bytes(data[:4], "big") - len(data) if len(data) > 3 else 4)
        if not more:
            return b""
        data += more
    return data[4:]


def rss_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


def send_hostile(broker: KafkaAddress, count: int, chance: random.Random) -> Counter[str]:
    """Send frames one after the other. Returns how many were answered, left unanswered, or ended their connection.

    A good request follows each, so it is known when the broker is done with it: some have no answer.
    """
    frames, found = HostileFrames(chance), Counter[str]()
    probe, stream = frame(18, 0, b"", _PROBE), None
    for _ in range(count):
        if stream is None:
            stream = socket.create_connection((broker.host, broker.port), timeout=PATIENCE_S)
        outcome = "closed"
        with suppress(ConnectionError):
            stream.sendall(frames.next() + probe)
            answers = [answered(stream)]
            if answers[-1] and not _is_probe(answers[-1]):
                answers.append(answered(stream))
            if _is_probe(answers[-1]):
                outcome = "answered" if len(answers) > 1 else "no answer"
        found[outcome] += 1
        if outcome == "closed" or chance.random() < 0.02:
            stream.close()
            stream = None
    if stream is not None:
        stream.close()
    return found


def _is_probe(answer: bytes) -> bool:
    return answer[:4] == struct.pack(">i", _PROBE)


def test_hostile_frames(tmp_path: Path, effort) -> None:
    count = effort(check=400, test=25_000, torture=2_000_000)
    chance = random.Random(effort(check=1, test=2, torture=random.SystemRandom().getrandbits(32)))
    with running_broker(
        tmp_path / "data", {"PENSTOCK_BROKER__AUTO_CREATE_TOPICS": "false"}
    ) as broker:
        before = rss_kib(broker.pid)
        found = send_hostile(broker, count, chance)
        after = rss_kib(broker.pid)
        # For the record of a long run: it is shown with -s.
        sys.stderr.write(f"{found}, {before >> 10} MiB before, {after >> 10} MiB after\n")
        assert found["answered"] > count // 10
        assert found["closed"] > count // 10
        assert after - before < RSS_GROWTH_KIB_MAX
        nothing_is_stored(broker)


def nothing_is_stored(broker: KafkaAddress) -> None:
    """The broker answers, and whatever topics were made are empty."""
    with socket.create_connection((broker.host, broker.port), timeout=PATIENCE_S) as stream:
        stream.sendall(frame(3, 1, encode_request(3, 1, {"topics": None})))
        topics = decode_response(3, 1, answered(stream)[4:])["topics"]
        for topic in topics:
            wanted = [
                {"partition_index": one["partition_index"], "timestamp": -1}
                for one in topic["partitions"]
            ]
            asked = {"replica_id": -1, "topics": [{"name": topic["name"], "partitions": wanted}]}
            stream.sendall(frame(2, 1, encode_request(2, 1, asked)))
            (found,) = decode_response(2, 1, answered(stream)[4:])["topics"]
            assert {one["offset"] for one in found["partitions"]} == {0}


@pytest.mark.parametrize("version", [5, 99, 0x7FFF])
def test_a_version_of_the_future_is_told_those_of_now(broker: KafkaAddress, version: int) -> None:
    with socket.create_connection((broker.host, broker.port), timeout=PATIENCE_S) as stream:
        stream.sendall(frame(18, version, b""))
        found = decode_response(18, 0, answered(stream)[4:])
    assert found["error_code"] == 35
    assert {one["api_key"] for one in found["api_keys"]} == set(REQUESTS)


def test_a_connection_that_is_cut_at_any_byte_of_a_request(broker: KafkaAddress) -> None:
    """A batch is stored when its request came whole, and not before; once, however often its request was cut."""
    address = (broker.host, broker.port)
    made = {"name": "cut-anywhere", "num_partitions": 1, "replication_factor": 1}
    builder = DefaultRecordBatchBuilder(
        2,
        0,
        is_transactional=False,
        producer_id=77,
        producer_epoch=0,
        base_sequence=0,
        batch_size=1 << 16,
    )
    builder.append(0, 1_700_000_000_000, b"key", b"value", [("a", b"1")])
    records = {"index": 0, "records": bytes(builder.build())}
    produce = {
        "acks": -1,
        "timeout_ms": 1000,
        "topic_data": [{"name": "cut-anywhere", "partition_data": [records]}],
    }
    whole = frame(0, 9, encode_request(0, 9, produce))
    with socket.create_connection(address, timeout=PATIENCE_S) as stream:
        stream.sendall(frame(19, 5, encode_request(19, 5, {"topics": [made]})))
        assert answered(stream)
        for cut in range(len(whole)):
            with socket.create_connection(address, timeout=PATIENCE_S) as other:
                other.sendall(whole[:cut])
        nothing_is_stored(broker)
        # Whole, but the client leaves before it is answered; then again, as a producer does that heard nothing.
        for _ in range(3):
            with socket.create_connection(address, timeout=PATIENCE_S) as other:
                other.sendall(whole)
        stream.sendall(whole)
        found = decode_response(0, 9, answered(stream)[5:])
        (part,) = found["responses"][0]["partition_responses"]
        assert (part["error_code"], part["base_offset"]) == (0, 0)
        asked = {
            "replica_id": -1,
            "topics": [
                {"name": "cut-anywhere", "partitions": [{"partition_index": 0, "timestamp": -1}]}
            ],
        }
        stream.sendall(frame(2, 1, encode_request(2, 1, asked)))
        (topic,) = decode_response(2, 1, answered(stream)[4:])["topics"]
        assert topic["partitions"][0]["offset"] == 1

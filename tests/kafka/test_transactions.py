"""Transactions of confluent-kafka (librdkafka) against a broker."""

import socket
import struct
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from penstock.server.kafka.schema import REQUESTS
from tests.kafka.brokers import KafkaAddress
from tests.kafka.client_wire import decode_response, encode_request
from tests.kafka.librdkafka import PATIENCE_S, consumer, make_topic, producer, received
from tests.kafka.test_hostile import frame

pytestmark = pytest.mark.tier("test")


def transactional(broker: KafkaAddress, name: str, **settings: object) -> Producer:
    client = producer(broker, **{"transactional.id": name, **settings})
    client.init_transactions(PATIENCE_S)
    return client


def values(broker: KafkaAddress, topic: str, count: int, level: str = "read_committed") -> list:
    """The first messages of a topic in all of its partitions."""
    reader = consumer(broker, f"reader-of-{topic}-{level}", **{"isolation.level": level})
    reader.subscribe([topic])
    found = [one.value() for one in received(reader, count)]
    reader.close()
    return sorted(found)


def end_of(broker: KafkaAddress, topic: str) -> int:
    reader = consumer(broker, "ends")
    _, end = reader.get_watermark_offsets(TopicPartition(topic, 0), PATIENCE_S)
    reader.close()
    return end


def test_commit_and_abort(broker: KafkaAddress, admin: AdminClient) -> None:
    make_topic(admin, "committed", 2)
    client = transactional(broker, "commits")
    offsets: list[int | None] = []
    for first in range(0, 6, 2):
        client.begin_transaction()
        for number in (first, first + 1):
            client.produce(
                "committed",
                b"%d" % number,
                partition=number % 2,
                on_delivery=lambda error, message: offsets.append(message.offset()),
            )
        assert client.flush(PATIENCE_S) == 0
        if first == 2:
            client.abort_transaction(PATIENCE_S)
        else:
            client.commit_transaction(PATIENCE_S)
    # None of them claims a place that it does not have.
    assert len(offsets) == 6
    assert all(one is None or one < 0 for one in offsets)
    expected = [b"0", b"1", b"4", b"5"]
    assert values(broker, "committed", 4) == expected
    assert values(broker, "committed", 4, "read_uncommitted") == expected


def test_no_reader_waits_for_an_open_transaction(broker: KafkaAddress, admin: AdminClient) -> None:
    make_topic(admin, "beside")
    open_one = transactional(broker, "open")
    open_one.begin_transaction()
    open_one.produce("beside", b"later", partition=0)
    assert open_one.flush(PATIENCE_S) == 0
    other = producer(broker)
    other.produce("beside", b"now", partition=0)
    assert other.flush(PATIENCE_S) == 0
    assert values(broker, "beside", 1) == [b"now"]
    assert end_of(broker, "beside") == 1
    open_one.commit_transaction(PATIENCE_S)
    assert end_of(broker, "beside") == 2


def test_a_later_producer_of_the_name_fences_the_former(
    broker: KafkaAddress, admin: AdminClient
) -> None:
    make_topic(admin, "fenced")
    zombie = transactional(broker, "same")
    zombie.begin_transaction()
    zombie.produce("fenced", b"zombie", partition=0)
    assert zombie.flush(PATIENCE_S) == 0
    current = transactional(broker, "same")
    with pytest.raises(KafkaException) as refused:
        zombie.commit_transaction(PATIENCE_S)
    assert refused.value.args[0].fatal()
    current.begin_transaction()
    current.produce("fenced", b"current", partition=0)
    current.commit_transaction(PATIENCE_S)
    assert values(broker, "fenced", 1) == [b"current"]
    assert end_of(broker, "fenced") == 1


def test_consume_transform_produce(broker: KafkaAddress, admin: AdminClient) -> None:
    make_topic(admin, "in", 2)
    make_topic(admin, "out")
    source = producer(broker)
    for number in range(20):
        source.produce("in", b"%d" % number, partition=number % 2)
    assert source.flush(PATIENCE_S) == 0
    client = transactional(broker, "transform")
    reader = consumer(broker, "transformers", **{"isolation.level": "read_committed"})
    reader.subscribe(["in"])
    done, rounds = 0, 0
    while done < 20:
        some = received(reader, min(5, 20 - done))
        assert some
        client.begin_transaction()
        for one in some:
            client.produce("out", one.value() + b"!")
        client.send_offsets_to_transaction(
            positions(some), reader.consumer_group_metadata(), PATIENCE_S
        )
        rounds += 1
        if rounds == 2:
            # What it had read comes again, from where the group is.
            client.abort_transaction(PATIENCE_S)
            reader.close()
            reader = consumer(broker, "transformers", **{"isolation.level": "read_committed"})
            reader.subscribe(["in"])
            continue
        client.commit_transaction(PATIENCE_S)
        done += len(some)
    committed = reader.committed([TopicPartition("in", one) for one in (0, 1)], PATIENCE_S)
    assert sorted(one.offset for one in committed) == [10, 10]
    reader.close()
    assert values(broker, "out", 20) == sorted(b"%d!" % number for number in range(20))
    assert end_of(broker, "out") == 20


def positions(messages: list) -> list[TopicPartition]:
    ends: dict[tuple[str, int], int] = {}
    for one in messages:
        ends[one.topic(), one.partition()] = one.offset() + 1
    return [TopicPartition(*place, offset) for place, offset in ends.items()]


def test_offsets_of_an_open_transaction_are_unstable(
    broker: KafkaAddress, admin: AdminClient
) -> None:
    make_topic(admin, "unstable")
    source = producer(broker)
    source.produce("unstable", b"a", partition=0)
    assert source.flush(PATIENCE_S) == 0
    client = transactional(broker, "holds")
    first = consumer(broker, "waits")
    first.subscribe(["unstable"])
    some = received(first, 1)
    client.begin_transaction()
    client.send_offsets_to_transaction(positions(some), first.consumer_group_metadata(), PATIENCE_S)
    place = [TopicPartition("unstable", 0)]

    def committed(reader: Consumer, timeout_s: float) -> int:
        (found,) = reader.committed(place, timeout_s)
        return found.offset

    eager = consumer(broker, "waits", **{"isolation.level": "read_uncommitted"})
    assert committed(eager, PATIENCE_S) < 0
    # The client asks again and again, until its patience ends.
    with pytest.raises(KafkaException) as refused:
        committed(first, 2.0)
    assert refused.value.args[0].code() in {
        KafkaError.UNSTABLE_OFFSET_COMMIT,
        KafkaError._TIMED_OUT,
    }
    client.commit_transaction(PATIENCE_S)
    assert committed(first, PATIENCE_S) == 1
    first.close()
    eager.close()


def test_a_time_out_that_is_too_long_is_refused(broker: KafkaAddress) -> None:
    client = producer(broker, **{"transactional.id": "long", "transaction.timeout.ms": 16 * 60_000})
    with pytest.raises(KafkaException) as refused:
        client.init_transactions(PATIENCE_S)
    assert refused.value.args[0].code() == KafkaError.INVALID_TRANSACTION_TIMEOUT


class RawConnection:
    """A connection that sends what a test says."""

    def __init__(self, broker: KafkaAddress) -> None:
        self._socket = socket.create_connection((broker.host, broker.port), PATIENCE_S)

    def call(self, key: int, version: int, /, **values: object) -> dict[str, Any]:
        self._socket.sendall(frame(key, version, encode_request(key, version, values)))
        (size,) = struct.unpack(">i", self._read(4))
        # The correlation, and of flexible versions no tags.
        head = 5 if version >= REQUESTS[key].flexible else 4
        return decode_response(key, version, self._read(size)[head:])

    def _read(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            found += self._socket.recv(count - len(found)) or pytest.fail("the broker hung up")
        return found

    def close(self) -> None:
        self._socket.close()


def test_an_end_that_comes_late_on_an_older_connection_is_refused(
    broker: KafkaAddress, admin: AdminClient
) -> None:
    make_topic(admin, "late")
    older, newer = RawConnection(broker), RawConnection(broker)
    name = {"transactional_id": "late"}
    # Served first, so that the broker has seen them in this order.
    for one in (older, newer):
        assert one.call(10, 1, key="late", key_type=1)["error_code"] == 0
    found = older.call(22, 1, **name, transaction_timeout_ms=60_000)
    session = {"producer_id": found["producer_id"], "producer_epoch": found["producer_epoch"]}
    begin = {
        "v3and_below_transactional_id": "late",
        "v3and_below_producer_id": session["producer_id"],
        "v3and_below_producer_epoch": session["producer_epoch"],
        "v3and_below_topics": [{"name": "late", "partitions": [0]}],
    }
    (topic,) = newer.call(24, 2, **begin)["results_by_topic_v3and_below"]
    assert topic["results_by_partition"] == [{"partition_index": 0, "partition_error_code": 0}]
    end = {**name, **session, "committed": True}
    assert older.call(26, 2, **end)["error_code"] == KafkaError.INVALID_TXN_STATE
    assert newer.call(26, 2, **end)["error_code"] == 0
    # Asked again, it is the same end.
    assert newer.call(26, 2, **end)["error_code"] == 0
    fenced = {**end, "producer_epoch": 7}
    assert newer.call(26, 2, **fenced)["error_code"] == KafkaError.PRODUCER_FENCED
    assert newer.call(26, 1, **fenced)["error_code"] == KafkaError.INVALID_PRODUCER_EPOCH
    unknown = {**end, "producer_id": 8}
    assert newer.call(26, 2, **unknown)["error_code"] == KafkaError.INVALID_PRODUCER_ID_MAPPING
    older.close()
    newer.close()


def test_a_producer_that_bumps_its_epoch_may_ask_again_and_a_zombie_may_not(
    broker: KafkaAddress,
) -> None:
    """KIP-360: InitProducerId with the id and epoch that the producer has."""
    connection = RawConnection(broker)

    def init(producer_id: int = -1, epoch: int = -1) -> tuple[int, int, int]:
        known = {"producer_id": producer_id, "producer_epoch": epoch}
        found = connection.call(
            22, 4, transactional_id="bumped", transaction_timeout_ms=60_000, **known
        )
        return found["error_code"], found["producer_id"], found["producer_epoch"]

    fenced = (KafkaError.PRODUCER_FENCED, -1, -1)
    _, known, _ = init()
    assert init(known, 0) == (0, known, 1)
    # The answer was lost, say.
    assert init(known, 0) == (0, known, 1)
    assert init(known, 1) == (0, known, 2)
    assert init(known, 0) == fenced
    # Another process has the name now: what was the epoch before is a zombie's.
    assert init() == (0, known, 3)
    assert init(known, 2) == fenced
    assert init(known, 3) == (0, known, 4)
    assert init(known + 1, 4) == fenced
    connection.close()

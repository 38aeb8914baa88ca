"""kafka-python against a broker."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewPartitions, NewTopic
from kafka.errors import TopicAlreadyExistsError
from kafka.structs import OffsetAndMetadata

from tests.kafka.brokers import KafkaAddress

pytestmark = [
    pytest.mark.tier("test"),
    # Its threads and sockets end when they are collected.
    pytest.mark.filterwarnings("ignore"),
]
PATIENCE_S = 120.0


def producer(broker: KafkaAddress, **settings: Any) -> KafkaProducer:
    return KafkaProducer(bootstrap_servers=str(broker), **settings)


def consumer(broker: KafkaAddress, *topics: str, **settings: Any) -> KafkaConsumer:
    usual = {
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "heartbeat_interval_ms": 300,
        "session_timeout_ms": 45_000,
    }
    return KafkaConsumer(*topics, bootstrap_servers=str(broker), **(usual | settings))


def received(client: KafkaConsumer, count: int) -> list[Any]:
    found: list[Any] = []
    until = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < until:
        for some in client.poll(timeout_ms=200).values():
            found += some
    return found


@pytest.fixture
def admin(broker: KafkaAddress) -> Iterator[KafkaAdminClient]:
    with closing(KafkaAdminClient(bootstrap_servers=str(broker))) as client:
        yield client


def make_topic(admin: KafkaAdminClient, name: str, partitions: int = 1) -> None:
    admin.create_topics([NewTopic(name, partitions, 1)])


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_produce_with_every_compression_and_consume(
    broker: KafkaAddress, admin: KafkaAdminClient, codec: str | None
) -> None:
    topic = f"compressed-{codec}"
    make_topic(admin, topic)
    values = [b"value %d " % number * 30 for number in range(300)]
    with closing(producer(broker, compression_type=codec, linger_ms=5)) as client:
        sent = [client.send(topic, one, key=b"k", headers=[("a", b"1")]) for one in values]
        assert [one.get(PATIENCE_S).offset for one in sent] == list(range(300))
    with closing(consumer(broker, topic, group_id=f"readers-{codec}")) as reader:
        found = received(reader, 300)
    assert [one.value for one in found] == values
    assert found[3].key == b"k"
    assert list(found[3].headers) == [("a", b"1")]


def test_seek_commit_and_resume(broker: KafkaAddress, admin: KafkaAdminClient) -> None:
    make_topic(admin, "resume")
    place = TopicPartition("resume", 0)
    with closing(producer(broker)) as client:
        for number in range(20):
            client.send("resume", b"%d" % number, timestamp_ms=1_700_000_000_000 + number * 1000)
        client.flush(PATIENCE_S)
    with closing(consumer(broker, "resume", group_id="resuming")) as reader:
        assert received(reader, 1)[0].offset == 0
        reader.seek(place, 15)
        assert received(reader, 1)[0].offset == 15
        timed = reader.offsets_for_times({place: 1_700_000_000_000 + 6500})
        assert timed[place].offset == 7
        assert reader.beginning_offsets([place]) == {place: 0}
        assert reader.end_offsets([place]) == {place: 20}
        reader.commit({place: OffsetAndMetadata(8, "note", -1)})
    with closing(consumer(broker, "resume", group_id="resuming")) as reader:
        assert received(reader, 1)[0].offset == 8
        assert reader.committed(place) == 8


class Member:
    """A consumer in a thread of its own, as a process of its own would run it.

    A poll that ends while its member joins gives the join up, and the next
    poll begins another rebalance: members that take turns in one thread could
    go on like that without end.
    """

    def __init__(self, broker: KafkaAddress, topic: str, group: str) -> None:
        self.found: list[bytes] = []
        self._client = consumer(broker, topic, group_id=group)
        self._leaves = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def share(self) -> int:
        return len(self._client.assignment())

    def _run(self) -> None:
        with closing(self._client):
            while not self._leaves.is_set():
                for some in self._client.poll(timeout_ms=3000).values():
                    self.found += [message.value for message in some]

    def close(self) -> None:
        self._leaves.set()
        self._thread.join(PATIENCE_S)


def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_three_members_share_the_partitions(broker: KafkaAddress, admin: KafkaAdminClient) -> None:
    make_topic(admin, "shared", 6)
    with ExitStack() as closes:
        members = [
            closes.enter_context(closing(Member(broker, "shared", "trio"))) for _ in range(3)
        ]
        until(lambda: [one.share for one in members] == [2, 2, 2])
        with closing(producer(broker)) as client:
            for number in range(60):
                client.send("shared", b"%d" % number)
        until(lambda: sum(len(one.found) for one in members) >= 60)
        received = Counter(value for one in members for value in one.found)
        assert received == {b"%d" % number: 1 for number in range(60)}
        members.pop().close()
        until(lambda: [one.share for one in members] == [3, 3])


def test_administration(broker: KafkaAddress, admin: KafkaAdminClient) -> None:
    make_topic(admin, "admin", 2)
    assert "admin" in admin.list_topics()
    with pytest.raises(TopicAlreadyExistsError):
        make_topic(admin, "admin")
    admin.create_partitions({"admin": NewPartitions(4)})
    (described,) = admin.describe_topics(["admin"])
    assert len(described["partitions"]) == 4
    with closing(consumer(broker, "admin", group_id="seen")) as reader:
        until(lambda: not reader.poll(timeout_ms=2000) and bool(reader.assignment()))
        reader.commit({TopicPartition("admin", 0): OffsetAndMetadata(0, "", -1)})
        groups = admin.list_groups()
        assert "seen" in str(groups)
        assert "Stable" in str(admin.describe_groups(["seen"]))
    admin.delete_topics(["admin"])
    assert "admin" not in admin.list_topics()

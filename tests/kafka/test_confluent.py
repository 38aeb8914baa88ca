"""confluent-kafka (librdkafka) against a broker."""

import time
from collections import Counter
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    AcknowledgeType,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    ShareConsumer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from tests.kafka.brokers import KafkaAddress, running_broker
from tests.kafka.librdkafka import (
    PATIENCE_S,
    consumer,
    make_topic,
    produce,
    producer,
    received,
    until,
)

pytestmark = pytest.mark.tier("test")


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_produce_with_every_compression_and_consume(
    broker: KafkaAddress, admin: AdminClient, codec: str
) -> None:
    topic = f"compressed-{codec}"
    make_topic(admin, topic)
    values = [b"value %d " % number * 30 for number in range(500)]
    client = producer(broker, **{"compression.type": codec})
    headers = [("name", b"one"), ("name", None), ("empty", b""), ("", b"no name")]
    assert produce(client, topic, values, key=b"k", headers=headers) == list(range(500))
    reader = consumer(broker, f"readers-{codec}")
    reader.subscribe([topic])
    found = received(reader, 500)
    reader.close()
    assert [one.value() for one in found] == values
    assert [one.offset() for one in found] == list(range(500))
    assert found[7].key() == b"k"
    assert found[7].headers() == headers
    assert abs(found[7].timestamp()[1] / 1000 - time.time()) < 60


def test_a_topic_is_made_when_it_is_first_written_to(broker: KafkaAddress) -> None:
    assert len(produce(producer(broker), "made-by-itself", [b"a", b"b"])) == 2


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_acks(broker: KafkaAddress, admin: AdminClient, acks: int) -> None:
    topic = f"acks{acks}"
    make_topic(admin, topic)
    produce(producer(broker, acks=acks), topic, [b"a", b"b", b"c"])
    reader = consumer(broker, f"acks{acks}")
    reader.subscribe([topic])
    assert [one.value() for one in received(reader, 3)] == [b"a", b"b", b"c"]
    reader.close()


def test_an_idempotent_producer(broker: KafkaAddress, admin: AdminClient) -> None:
    make_topic(admin, "idempotent", 3)
    client = producer(broker, **{"enable.idempotence": True})
    values = [b"%d" % number for number in range(3000)]
    produce(client, "idempotent", values)
    reader = consumer(broker, "idempotent")
    reader.subscribe(["idempotent"])
    assert Counter(one.value() for one in received(reader, 3000)) == Counter(values)
    reader.close()


def test_null_and_empty_keys_and_values(broker: KafkaAddress, admin: AdminClient) -> None:
    make_topic(admin, "nulls")
    client = producer(broker)
    for key, value in [(None, None), (b"", b""), (b"k", None), (None, b"v")]:
        client.produce("nulls", value=value, key=key)
    client.flush(PATIENCE_S)
    reader = consumer(broker, "nulls")
    reader.subscribe(["nulls"])
    found = [(one.key(), one.value()) for one in received(reader, 4)]
    reader.close()
    assert found == [(None, None), (b"", b""), (b"k", None), (None, b"v")]


def test_seek_by_offset_and_by_time(broker: KafkaAddress, admin: AdminClient) -> None:
    make_topic(admin, "seek")
    client = producer(broker)
    for number in range(100):
        client.produce("seek", b"%d" % number, timestamp=1_700_000_000_000 + number * 1000)
    client.flush(PATIENCE_S)
    reader = consumer(broker, "seek")
    reader.assign([TopicPartition("seek", 0, OFFSET_BEGINNING)])
    assert received(reader, 1)[0].value() == b"0"
    reader.seek(TopicPartition("seek", 0, 90))
    assert [one.value() for one in received(reader, 10)] == [b"%d" % n for n in range(90, 100)]
    (timed,) = reader.offsets_for_times(
        [TopicPartition("seek", 0, 1_700_000_000_000 + 41_500)], timeout=PATIENCE_S
    )
    assert timed.offset == 42
    assert reader.get_watermark_offsets(TopicPartition("seek", 0), timeout=PATIENCE_S) == (0, 100)
    reader.close()


def test_a_consumer_waits_for_what_comes(broker: KafkaAddress, admin: AdminClient) -> None:
    make_topic(admin, "waits")
    reader = consumer(broker, "waits")
    reader.subscribe(["waits"])
    until(lambda: reader.poll(0.1) is None and bool(reader.assignment()))
    produce(producer(broker), "waits", [b"late"])
    assert received(reader, 1)[0].value() == b"late"
    reader.close()


def test_commit_and_resume(broker: KafkaAddress, admin: AdminClient) -> None:
    make_topic(admin, "resume")
    produce(producer(broker), "resume", [b"%d" % number for number in range(20)])
    first = consumer(broker, "resuming")
    first.subscribe(["resume"])
    found = received(first, 8)
    first.commit(found[7], asynchronous=False)
    first.close()
    second = consumer(broker, "resuming")
    second.subscribe(["resume"])
    assert received(second, 1)[0].offset() == 8
    committed = TopicPartition("resume", 0, 3, metadata="back")
    second.commit(offsets=[committed], asynchronous=False)
    (known,) = second.committed([TopicPartition("resume", 0)], timeout=PATIENCE_S)
    assert (known.offset, known.metadata) == (3, "back")
    second.close()
    third = consumer(broker, "resuming")
    third.subscribe(["resume"])
    assert received(third, 1)[0].offset() == 3
    third.close()


def test_a_group_without_a_commit_begins_where_its_consumer_says(
    broker: KafkaAddress, admin: AdminClient
) -> None:
    make_topic(admin, "latest")
    produce(producer(broker), "latest", [b"old"])
    reader = consumer(broker, "latecomers", **{"auto.offset.reset": "latest"})
    reader.subscribe(["latest"])
    until(lambda: reader.poll(0.2) is None and bool(reader.assignment()))
    # When the client asks where the end is, it does not say: what comes before that is not for it.
    client, found = producer(broker), []

    def is_there() -> bool:
        produce(client, "latest", [b"new"])
        found.extend(received(reader, 1, 1.0))
        return bool(found)

    until(is_there)
    assert {one.value() for one in found} == {b"new"}
    reader.close()


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_three_members_share_the_partitions(
    broker: KafkaAddress, admin: AdminClient, strategy: str
) -> None:
    topic = f"shared-{strategy}"
    make_topic(admin, topic, 6)
    members = [
        consumer(broker, f"trio-{strategy}", **{"partition.assignment.strategy": strategy})
        for _ in range(3)
    ]
    for one in members:
        one.subscribe([topic])

    def are_shared(members: list[Consumer], each: int) -> bool:
        for one in members:
            one.poll(0.05)
        owned = [{part.partition for part in one.assignment()} for one in members]
        return [len(parts) for parts in owned] == [each] * len(members) and len(
            set().union(*owned)
        ) == 6

    until(lambda: are_shared(members, 2))
    produce(producer(broker), topic, [b"%d" % number for number in range(60)])
    seen: Counter[bytes] = Counter()
    end = time.monotonic() + PATIENCE_S
    while len(seen) < 60 and time.monotonic() < end:
        for one in members:
            message = one.poll(0.02)
            if message is not None:
                assert message.error() is None
                seen[message.value()] += 1
    assert sorted(seen.values()) == [1] * 60
    members.pop().close()
    until(lambda: are_shared(members, 3))
    for one in members:
        one.close()


def test_three_members_of_a_group_that_the_broker_assigns(
    broker: KafkaAddress, admin: AdminClient
) -> None:
    make_topic(admin, "kip848", 6)
    settings: dict[str, Any] = {
        "bootstrap.servers": str(broker),
        "group.id": "kip848",
        "group.protocol": "consumer",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    members = [Consumer(settings) for _ in range(3)]
    for one in members:
        one.subscribe(["kip848"])

    def owned(members: list[Consumer]) -> list[int]:
        for one in members:
            one.poll(0.05)
        return sorted(len(one.assignment()) for one in members)

    until(lambda: owned(members) == [2, 2, 2])
    client = producer(broker)
    for partition in range(6):
        values = [b"%d of %d" % (number, partition) for number in range(10)]
        produce(client, "kip848", values, partition=partition)
    seen: Counter[bytes] = Counter()
    end = time.monotonic() + PATIENCE_S
    while len(seen) < 60 and time.monotonic() < end:
        for one in members:
            message = one.poll(0.02)
            if message is not None:
                assert message.error() is None
                seen[message.value()] += 1
    assert sorted(seen.values()) == [1] * 60
    for one in members:
        one.commit(asynchronous=False)
    members.pop().close()
    until(lambda: owned(members) == [3, 3])
    for one in members:
        one.close()
    produce(producer(broker), "kip848", [b"after"])
    later = Consumer(settings)
    later.subscribe(["kip848"])
    found = received(later, 1)
    later.close()
    assert [one.value() for one in found] == [b"after"]


def test_a_share_consumer_has_leases_retries_and_rejections(
    broker: KafkaAddress, admin: AdminClient
) -> None:
    make_topic(admin, "share", 2)
    produce(producer(broker), "share", [b"%d" % number for number in range(10)])
    settings = {
        "bootstrap.servers": str(broker),
        "group.id": "share",
        "share.acknowledgement.mode": "explicit",
    }
    client = ShareConsumer(settings)
    client.subscribe(["share"])
    counts: Counter[bytes] = Counter()
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end and (len(counts) < 10 or counts[b"3"] < 2):
        for message in client.poll(0.5) or ():
            assert message.error() is None
            counts[message.value()] += 1
            if message.value() == b"3" and counts[b"3"] == 1:
                client.acknowledge(message, AcknowledgeType.RELEASE)
            elif message.value() == b"4":
                client.acknowledge(message, AcknowledgeType.REJECT)
            else:
                client.acknowledge(message, AcknowledgeType.ACCEPT)
    client.commit_sync(PATIENCE_S)
    client.close()
    assert counts == Counter({b"%d" % number: 2 if number == 3 else 1 for number in range(10)})


def test_a_member_that_vanishes_is_missed(broker: KafkaAddress, admin: AdminClient) -> None:
    make_topic(admin, "vanish", 2)
    settings = {"group.instance.id": "static", "session.timeout.ms": 2000}
    first = consumer(broker, "vanishing", **settings)
    second = consumer(broker, "vanishing")
    for one in (first, second):
        one.subscribe(["vanish"])

    def each_has_one() -> bool:
        first.poll(0.05), second.poll(0.05)
        return len(first.assignment()) == len(second.assignment()) == 1

    until(each_has_one)
    # A member with a name of its own does not say that it leaves.
    first.close()
    until(lambda: second.poll(0.1) is None and len(second.assignment()) == 2)
    second.close()


def test_administration_of_topics(broker: KafkaAddress, admin: AdminClient) -> None:
    make_topic(admin, "admin", 2, **{"retention.ms": "7200000", "cleanup.policy": "compact"})
    metadata = admin.list_topics(timeout=PATIENCE_S)
    assert len(metadata.topics["admin"].partitions) == 2
    assert len(metadata.brokers) == 1
    resource = ConfigResource(ConfigResource.Type.TOPIC, "admin")
    described = admin.describe_configs([resource])[resource].result(PATIENCE_S)
    assert described["retention.ms"].value == "7200000"
    assert described["cleanup.policy"].value == "compact"
    change = ConfigEntry("retention.ms", "3600000", incremental_operation=AlterConfigOpType.SET)
    ours = ConfigEntry("penstock.ttl_ms", "2h", incremental_operation=AlterConfigOpType.SET)
    changed = ConfigResource(ConfigResource.Type.TOPIC, "admin", incremental_configs=[change, ours])
    admin.incremental_alter_configs([changed])[changed].result(PATIENCE_S)
    described = admin.describe_configs([resource])[resource].result(PATIENCE_S)
    assert described["retention.ms"].value == "3600000"
    assert described["penstock.ttl_ms"].value == "7200000"
    admin.create_partitions([NewPartitions("admin", 5)])["admin"].result(PATIENCE_S)
    assert len(admin.list_topics("admin", timeout=PATIENCE_S).topics["admin"].partitions) == 5
    admin.delete_topics(["admin"])["admin"].result(PATIENCE_S)
    assert "admin" not in admin.list_topics(timeout=PATIENCE_S).topics


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewTopic("twice", 1, 1), KafkaError.TOPIC_ALREADY_EXISTS),
        (NewTopic("three-copies", 1, 3), KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic("sp ace", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("odd", 1, 1, config={"flush.ms": "1"}), KafkaError.INVALID_CONFIG),
        (NewTopic("odd", 1, 1, config={"penstock.ttl_ms": "2 apples"}), KafkaError.INVALID_CONFIG),
    ],
)
def test_topics_that_are_refused(
    broker: KafkaAddress, admin: AdminClient, topic: NewTopic, code: int
) -> None:
    if topic.topic == "twice":
        make_topic(admin, "twice")
    with pytest.raises(KafkaException) as refused:
        admin.create_topics([topic])[topic.topic].result(PATIENCE_S)
    assert refused.value.args[0].code() == code


def test_records_are_deleted(broker: KafkaAddress, admin: AdminClient) -> None:
    make_topic(admin, "cut")
    produce(producer(broker), "cut", [b"%d" % number for number in range(10)])
    place = TopicPartition("cut", 0, OFFSET_END)
    assert admin.delete_records([place])[place].result(PATIENCE_S).low_watermark == 10
    produce(producer(broker), "cut", [b"after"])
    reader = consumer(broker, "cut")
    reader.subscribe(["cut"])
    (found,) = received(reader, 1)
    reader.close()
    assert (found.offset(), found.value()) == (10, b"after")


def test_records_are_deleted_inside_of_a_file_and_a_batch(
    broker: KafkaAddress, admin: AdminClient
) -> None:
    make_topic(admin, "inside")
    produce(producer(broker), "inside", [b"%d" % number for number in range(10)])
    place = TopicPartition("inside", 0, 4)
    assert admin.delete_records([place])[place].result(PATIENCE_S).low_watermark == 4
    # What is deleted already is no error, and what is not there yet is one.
    below, beyond = TopicPartition("inside", 0, 2), TopicPartition("inside", 0, 11)
    assert admin.delete_records([below])[below].result(PATIENCE_S).low_watermark == 4
    with pytest.raises(KafkaException) as refused:
        admin.delete_records([beyond])[beyond].result(PATIENCE_S)
    assert refused.value.args[0].code() == KafkaError.OFFSET_OUT_OF_RANGE
    reader = consumer(broker, "inside", **{"auto.offset.reset": "error"})
    assert reader.get_watermark_offsets(TopicPartition("inside", 0), PATIENCE_S) == (4, 10)
    reader.assign([TopicPartition("inside", 0, 4)])
    assert [one.offset() for one in received(reader, 6)] == [*range(4, 10)]
    reader.assign([TopicPartition("inside", 0, 3)])
    found = None
    while found is None or found.error() is None:
        found = reader.poll(PATIENCE_S)
        assert found is not None
    assert found.error().code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
    reader.close()


def test_administration_of_groups(broker: KafkaAddress, admin: AdminClient) -> None:
    make_topic(admin, "watched", 2)
    produce(producer(broker), "watched", [b"a"], partition=0)
    reader = consumer(broker, "watchers")
    reader.subscribe(["watched"])
    reader.commit(received(reader, 1)[0], asynchronous=False)
    listed = admin.list_consumer_groups().result(PATIENCE_S)
    assert "watchers" in [one.group_id for one in listed.valid]
    described = admin.describe_consumer_groups(["watchers"])["watchers"].result(PATIENCE_S)
    assert len(described.members) == 1
    assert len(described.members[0].assignment.topic_partitions) == 2
    reader.close()
    asked = ConsumerGroupTopicPartitions("watchers")
    offsets = admin.list_consumer_group_offsets([asked])["watchers"].result(PATIENCE_S)
    assert [(one.partition, one.offset) for one in offsets.topic_partitions] == [(0, 1)]
    moved = ConsumerGroupTopicPartitions("watchers", [TopicPartition("watched", 0, 0)])
    admin.alter_consumer_group_offsets([moved])["watchers"].result(PATIENCE_S)
    offsets = admin.list_consumer_group_offsets([asked])["watchers"].result(PATIENCE_S)
    assert offsets.topic_partitions[0].offset == 0
    admin.delete_consumer_groups(["watchers"])["watchers"].result(PATIENCE_S)
    listed = admin.list_consumer_groups().result(PATIENCE_S)
    assert "watchers" not in [one.group_id for one in listed.valid]


def test_a_group_with_another_name_than_ours_is_refused(
    broker: KafkaAddress, admin: AdminClient
) -> None:
    make_topic(admin, "grammar")
    reader = consumer(broker, "not a name/of ours")
    reader.subscribe(["grammar"])
    message = None
    end = time.monotonic() + PATIENCE_S
    while message is None and time.monotonic() < end:
        message = reader.poll(0.5)
    assert message is not None
    assert message.error().code() == KafkaError.INVALID_GROUP_ID
    reader.close()


def test_what_was_stored_and_committed_outlives_the_broker(tmp_path: Any) -> None:
    with running_broker(tmp_path / "data") as address:
        produce(producer(address), "kept", [b"%d" % number for number in range(10)], partition=0)
        reader = consumer(address, "keepers")
        reader.assign([TopicPartition("kept", 0, 0)])
        reader.commit(received(reader, 4)[3], asynchronous=False)
        reader.close()
    with running_broker(tmp_path / "data") as address:
        reader = consumer(address, "keepers")
        reader.subscribe(["kept"])
        assert [one.value() for one in received(reader, 6)] == [b"%d" % n for n in range(4, 10)]
        reader.close()


def test_a_record_that_does_not_fit_its_schema_is_refused(
    broker: KafkaAddress, admin: AdminClient
) -> None:
    topic = "validated"
    asked = NewTopic(topic, 1, config={"penstock.validation": "reject"})
    admin.create_topics([asked])[topic].result(PATIENCE_S)
    with SchemaRegistryClient({"url": broker.http}) as registry:
        registry.register_schema(f"{topic}-value", Schema('{"type": "object"}', "JSON"))
    client = producer(broker)
    assert len(produce(client, topic, [b"{}"])) == 1
    errors: list[KafkaError | None] = []
    client.produce(topic, b"[]", on_delivery=lambda error, _: errors.append(error))
    client.flush(PATIENCE_S)
    assert [one and one.code() for one in errors] == [KafkaError.INVALID_RECORD]
    assert len(produce(client, topic, [b"{}"])) == 1

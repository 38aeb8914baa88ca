"""Headers of records that give plain Kafka clients the features of a queue."""

import json
import time
import urllib.request

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient

from penstock.client import Client
from tests.client.servers import until
from tests.kafka.brokers import KafkaAddress
from tests.kafka.librdkafka import PATIENCE_S, consumer, make_topic, produce, producer, received
from tests.stalls import despite_stalls

pytestmark = pytest.mark.tier("test")


def test_headers_make_a_queue_of_a_topic(broker: KafkaAddress, admin: AdminClient) -> None:
    make_topic(admin, "jobs")
    client = producer(broker)
    produce(client, "jobs", [b"normal"])
    produce(client, "jobs", [b"urgent"], headers=[("penstock-priority", b"critical"), ("a", b"1")])
    produce(client, "jobs", [b"gone"], headers=[("penstock-ttl", b"1ms")])
    refused: list[KafkaError] = []
    client.produce(
        "jobs",
        b"x",
        headers=[("penstock-odd", b"1")],
        callback=lambda error, _: refused.append(error),
    )
    client.flush(PATIENCE_S)
    assert refused[0].code() == KafkaError.INVALID_REQUEST
    time.sleep(0.05)  # It is over after a millisecond of the same clock.
    asked = f"{broker.http}/topics/jobs/messages?group=workers&max=10"
    with urllib.request.urlopen(asked) as answer:
        polled = json.loads(answer.read())["messages"]
    assert [(one["value"], one["priority"]) for one in polled] == [
        ("urgent", "critical"),
        ("normal", "normal"),
    ]
    reader = consumer(broker, "jobs")
    reader.subscribe(["jobs"])
    found = received(reader, 3)
    reader.close()
    assert [one.headers() for one in found] == [None, [("a", b"1")], None]


def polled(broker: KafkaAddress, topic: str, *, wait_ms: int = 0) -> list[str]:
    """The values that a group of ours gets of a topic now, or within some time."""
    asked = f"{broker.http}/topics/{topic}/messages?group=workers&max=10&timeout={wait_ms}ms"
    with urllib.request.urlopen(asked) as answer:
        return [one["value"] for one in json.loads(answer.read())["messages"]]


@pytest.mark.parametrize("is_idempotent", [True, False])
def test_headers_delay_records_and_drop_repeated_ones(
    broker: KafkaAddress, admin: AdminClient, is_idempotent: bool
) -> None:
    def story(delay_s: int) -> None:
        topic = f"later-{is_idempotent}-{delay_s}"
        make_topic(admin, topic)
        records_are_delayed(broker, topic, delay_s, is_idempotent)

    despite_stalls(story)


def records_are_delayed(
    broker: KafkaAddress, topic: str, delay_s: int, is_idempotent: bool
) -> None:
    client = producer(broker, **{"enable.idempotence": is_idempotent, "linger.ms": 200})
    delivered: list[tuple[KafkaError | None, int]] = []
    for value, headers in (
        (b"now", []),
        (b"in a moment", [("penstock-delay", b"%ds" % delay_s)]),
        (b"once", [("penstock-idempotency-key", b"k")]),
        (b"twice", [("penstock-idempotency-key", b"k"), ("a", b"1")]),
        (b"last", []),
    ):
        client.produce(
            topic,
            value,
            partition=0,
            headers=headers,
            callback=lambda error, message: delivered.append((error, message.offset())),
        )
    client.flush(PATIENCE_S)
    assert delivered == [(None, offset) for offset in range(5)]
    assert polled(broker, topic) == ["now", "once", "last"]
    produce(client, topic, [b"after"])
    assert polled(broker, topic, wait_ms=1) == ["after"]
    assert polled(broker, topic, wait_ms=60_000) == ["in a moment"]
    reader = consumer(broker, topic)
    reader.subscribe([topic])
    found = received(reader, 5)
    reader.close()
    assert [(one.offset(), one.value()) for one in found] == [
        (0, b"now"),
        (2, b"once"),
        (4, b"last"),
        (5, b"after"),
        (6, b"in a moment"),
    ]


def test_a_batch_of_delayed_records_only_holds_up_no_consumer(
    broker: KafkaAddress, admin: AdminClient
) -> None:
    make_topic(admin, "hour")
    client = producer(broker)
    produce(client, "hour", [b"x", b"y"], headers=[("penstock-delay", b"1h")])
    produce(client, "hour", [b"now"])
    reader = consumer(broker, "hour")
    reader.subscribe(["hour"])
    (found,) = received(reader, 1)
    reader.close()
    assert (found.offset(), found.value()) == (2, b"now")


def test_headers_of_a_dead_letter_tell_why_it_died(
    broker: KafkaAddress, admin: AdminClient
) -> None:
    make_topic(admin, "failing")
    client = producer(broker)
    produce(client, "failing", [b"bad"], headers=[("a", b"1")])
    with Client(f"penstock://{broker}") as ours:
        (message,) = ours.poll("failing", "workers")
        ours.reject(message, "no such customer")
        until(lambda: len(ours.dead_letters("failing")) == 1)
    reader = consumer(broker, "undertakers")
    reader.subscribe(["failing.dlq"])
    (dead,) = received(reader, 1)
    reader.close()
    told = dict(dead.headers() or ())
    assert (dead.value(), told["a"]) == (b"bad", b"1")
    assert told["penstock-dlq-original-topic"] == b"failing"
    assert told["penstock-dlq-original-offset"] == b"0"
    assert told["penstock-dlq-reason"] == b"REJECTED"
    assert told["penstock-dlq-last-error"] == b"no such customer"
    assert int(told["penstock-dlq-timestamp"]) >= int(told["penstock-dlq-original-timestamp"])
    assert not [name for name in told if name.startswith("__")]
    # Sent again as it was read, it is a message like any other.
    produce(client, "failing", [dead.value() or b""], headers=dead.headers())
    with Client(f"penstock://{broker}") as ours:
        (again,) = ours.poll("failing", "workers")
        assert (again.value, again.headers) == (b"bad", (("a", b"1"),))

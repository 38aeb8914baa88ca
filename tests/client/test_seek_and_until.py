"""Reading from a place and up to a place: seek, start and until."""

from datetime import UTC, datetime
from uuid import uuid4

import numpy as np
import pytest

from penstock.client import Client
from penstock.errors import NotOwner, OffsetOutOfRange, Refused


@pytest.fixture
def client(url):
    with Client(url) as client:
        yield client


@pytest.fixture
def topic(client):
    name = f"places-{uuid4().hex[:8]}"
    client.create_topic(name, partitions=2)
    for number in range(2):
        for letter in (b"a", b"b", b"c"):
            client.publish(name, letter, partition=number)
    return name


def taken(consumer, count):
    """So many messages, acked, by partition and offset."""
    found = []
    while len(found) < count:
        for message in consumer.poll(100, wait="30s"):
            message.ack()
            found.append((message.partition, message.offset))
    consumer.flush()
    return sorted(found)


EVERYTHING = [(partition, offset) for partition in range(2) for offset in range(3)]


@pytest.mark.parametrize("mode", ["shared", "assigned"])
def test_a_consumer_seeks_on_all_of_its_partitions(client, topic, mode):
    with client.consumer(topic, topic, mode=mode) as consumer:
        assert taken(consumer, 6) == EVERYTHING
        consumer.seek(1)
        assert taken(consumer, 4) == [one for one in EVERYTHING if one[1] >= 1]
        consumer.seek("earliest")
        consumer.seek("latest")
        assert len(consumer.poll(10)) == 0


@pytest.mark.parametrize("mode", ["shared", "assigned"])
def test_a_consumer_seeks_on_one_partition(client, topic, mode):
    with client.consumer(topic, topic, mode=mode) as consumer:
        taken(consumer, 6)
        consumer.seek("earliest", [f"{topic}/1"])
        assert taken(consumer, 3) == [(1, 0), (1, 1), (1, 2)]
        assert client.offsets(topic)[topic] == {0: 3, 1: 3}


def test_messages_that_were_held_are_void_and_come_again(client, topic):
    with client.consumer(topic, topic) as consumer:
        held = list(consumer.poll(100, wait="30s"))
        consumer.seek("earliest")
        for one in held:
            one.ack()
        assert taken(consumer, 6) == EVERYTHING


def test_a_place_that_cannot_be_moves_nothing(client, topic):
    with client.consumer(topic, topic) as consumer:
        taken(consumer, 6)
        for wrong, error in ((99, OffsetOutOfRange), ("soon", Refused), (-1, Refused)):
            with pytest.raises(error):
                consumer.seek(wrong)
        with pytest.raises(Refused):
            consumer.seek(0, ["not a place/x"])
        assert client.offsets(topic)[topic] == {0: 3, 1: 3}


def test_a_member_moves_only_what_it_owns(client, topic):
    with client.consumer(topic, topic, mode="assigned") as consumer:
        taken(consumer, 6)
        with pytest.raises(NotOwner):
            consumer.seek(0, [f"{topic}/7"])
        for wrong in (5, "orders/0", [[f"{topic}/0"]], [None]):
            with pytest.raises(Refused, match=r"places are several|a partition is text"):
                consumer.seek(0, wrong)


def test_a_read_ends_before_an_offset_or_a_moment(client, topic):
    read = [(one, message.offset) for one, message in client.read(topic, until=2)]
    assert sorted(read) == [one for one in EVERYTHING if one[1] < 2]
    assert list(client.read(topic, until=0)) == []
    assert len(list(client.read(topic, until=99))) == 6
    between = datetime.now(UTC)
    while datetime.now(UTC) <= between:
        pass
    client.publish(topic, b"later", partition=0)
    assert len(list(client.read(topic, until=between))) == 6
    assert len(list(client.read(topic, until="2020-01-01T00:00:00Z"))) == 0
    assert len(list(client.read(topic))) == 7


def test_the_numbers_of_numpy_are_offsets_too(client, topic):
    for number in (np.int64(1), np.uint8(1)):
        assert [one.offset for _, one in client.read(topic, partition=0, start=number)] == [1, 2]
        assert [one.offset for _, one in client.read(topic, partition=0, until=number)] == [0]


def test_a_read_starts_a_span_ago(client, topic):
    assert len(list(client.read(topic, start="1h"))) == 6
    with pytest.raises(Refused):
        list(client.read(topic, start="an hour"))
    with pytest.raises(Refused):
        next(client.read(topic, follow=True, until=1))


def test_a_delayed_message_is_named_by_a_place(client, topic):
    made = client.publish(topic, b"later", delay="1h", partition=0)
    assert client.cancel_delayed(topic, made.partition, made.offset).state == "CANCELLED"

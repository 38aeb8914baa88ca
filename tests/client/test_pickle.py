"""Messages that go to another process: they can be read there, and answered by their receipts."""

from concurrent.futures import ProcessPoolExecutor
from copy import deepcopy
from multiprocessing import get_context

import pytest

from penstock.client import Client, DetachedMessage

from .servers import until

FIELDS = ("value", "key", "headers", "offset", "attempts", "topic", "partition", "receipt")


@pytest.fixture(scope="module")
def client(url):
    with Client(url) as one:
        yield one


def shown(message) -> list[object]:
    return [getattr(message, name) for name in FIELDS]


def published(client, topic, *values):
    client.create_topic(topic, partitions=1, backoff_base_ms=1)
    for value in values:
        client.publish(topic, value, key=b"k", headers=[("trace", b"a"), ("empty", None)])


def test_a_message_of_a_consumer_is_read_in_another_process_and_acked_by_its_receipt(client):
    published(client, "pickled", b'{"n": 1}', b'{"n": 2}')
    with client.consumer("pickled", "pickle-workers") as consumer:
        messages = consumer.poll(10, wait=10)
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            told = [*pool.map(shown, messages)]
            assert pool.submit(len, messages).result() == 2
        assert told == [shown(one) for one in messages]
        client.ack([receipt for *_, receipt in told])
        assert client.lag("pickle-workers").total == 0


def test_a_detached_message_is_what_was_received(client):
    published(client, "detached", b'{"n": 1}')
    (message,) = client.poll("detached", "pickle-readers")
    client.nack(message, reason="no stock")
    (message,) = client.poll("detached", "pickle-readers", timeout=10)
    detached = deepcopy(message)  # As pickle makes one.
    assert isinstance(detached, DetachedMessage)
    assert shown(detached) == shown(message)
    assert detached.json() == {"n": 1}
    assert detached.last_error == "no stock"
    assert detached.dead_letter is None
    client.ack(detached)
    assert client.lag("pickle-readers").total == 0


def test_a_detached_dead_letter_says_why_it_died(client):
    published(client, "dying", b"x")
    client.reject(client.poll("dying", "pickle-readers"), reason="no such customer")
    until(lambda: "dying.dlq" in client.topics())
    (dead,) = client.poll("dying.dlq", "undertakers", timeout=10)
    detached = deepcopy(dead)
    assert detached.dead_letter == dead.dead_letter
    assert detached.dead_letter.last_error == "no such customer"


def test_a_transaction_acks_a_detached_message(client):
    published(client, "staged", b"x")
    (message,) = client.poll("staged", "pickle-readers")
    with client.transactional_producer("detached").transaction() as work:
        work.ack(deepcopy(message))
    assert [
        one.lag for one in client.lag("pickle-readers").partitions if one.topic == "staged"
    ] == [0]

"""A Ctrl-C in the middle of a producer: the end of its block does not wait for ever, and stores what `send` took."""

import pytest

import penstock.client.producer as producers
from penstock.client import Client
from penstock.client.producer_batch import Batch


def once_interrupted(call):
    """The function, with a Ctrl-C instead of its first call."""
    calls = []

    def run(*given, **named):
        calls.append(given)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return call(*given, **named)

    return run


@pytest.mark.parametrize("is_idempotent", [True, False])
def test_a_batch_that_was_being_encoded_is_stored_by_the_end_of_the_block(
    url, monkeypatch, is_idempotent
):
    topic = f"encoded-{is_idempotent}"
    monkeypatch.setattr(producers, "encode", once_interrupted(producers.encode))
    with Client(url) as client:
        client.create_topic(topic, partitions=1)
        # It would be sent after an hour: the background does not get the Ctrl-C.
        producer = client.producer(topic, linger_ms=3_600_000, is_idempotent=is_idempotent)
        first = producer.send(b"first")
        with pytest.raises(KeyboardInterrupt):
            producer.flush()
        second = producer.send(b"second")
        producer.close()
        assert [first.result(60).offset, second.result(60).offset] == [0, 1]
        assert (producer.stored, producer.failed) == (2, 0)
        assert [message.value for _, message in client.read(topic)] == [b"first", b"second"]


def test_a_batch_that_got_no_message_is_no_error(url, monkeypatch):
    monkeypatch.setattr(Batch, "add", once_interrupted(Batch.add))
    with Client(url) as client:
        client.create_topic("none", partitions=1)
        with client.producer("none") as producer, pytest.raises(KeyboardInterrupt):
            producer.send(b"never taken")
        assert (producer.stored, producer.failed) == (0, 0)
        assert client.topic("none").total_messages == 0

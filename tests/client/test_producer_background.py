"""What a producer's background does not survive is raised, and what a program's callback raises is no reason to end."""

import logging
import threading

import pytest

from penstock.client import Client
from penstock.client.producer import BatchQueues
from penstock.errors import Refused

from .servers import until


def test_an_on_delivery_that_raises_is_logged_and_the_next_messages_are_stored(url, caplog):
    told = []

    def on_delivery(count, error):
        told.append((count, error))
        raise ValueError("a mistake of the program")

    with Client(url) as client, caplog.at_level(logging.ERROR, "penstock.client"):
        client.create_topic("raised", partitions=1)
        with client.producer("raised", on_delivery=on_delivery) as producer:
            # Stored by the background: nothing else is sent.
            assert producer.send(b"first").result(60).offset == 0
            assert producer.send(b"second").result(60).offset == 1
            producer.flush()
        assert told == [(1, None), (1, None)]
        assert "a mistake of the program" in caplog.text


def test_what_ended_the_background_is_raised(url, monkeypatch):
    def fail(_self):
        raise RuntimeError("a bug of the producer")

    monkeypatch.setattr(BatchQueues, "seal_late", fail)
    with Client(url) as client:
        client.create_topic("background-ended", partitions=2)
        producer = client.producer("background-ended")
        producer.send(b"first", partition=0)
        until(lambda: "penstock-producer" not in {one.name for one in threading.enumerate()})
        for call in (producer.flush, lambda: producer.send(b"x", partition=1), producer.close):
            with pytest.raises(RuntimeError, match="a bug"):
                call()


@pytest.mark.parametrize("linger_ms", [float("inf"), 1e300])
def test_a_linger_without_an_end_is_refused(url, linger_ms):
    with Client(url) as client, pytest.raises(Refused, match="linger_ms"):
        client.producer("any", linger_ms=linger_ms)

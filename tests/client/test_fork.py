"""Clients before and after a fork: the child is told, and the parent goes on."""

import os
import signal
import threading
import traceback

import pytest

from penstock.client import AsyncClient, Client
from penstock.errors import Refused

from .proxies import BatchProxy

DEADLINE_S = 60


def in_child(work):
    """Run a function in a forked process; its exit code."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    code = 1
    try:
        signal.alarm(DEADLINE_S)  # A child that hangs is ended, and the test fails.
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        os._exit(code)


def test_child_is_refused_and_the_parent_goes_on(url):
    with Client(url) as client:
        client.create_topic("forked", partitions=1)
        client.publish("forked", b"one")
        with client.producer("forked") as producer, client.consumer("forked", "forks") as consumer:
            producer.send(b"two")
            producer.flush()
            first = consumer.poll(1, wait="10s")

            def use():
                for call in (
                    client.topics,
                    lambda: consumer.poll(1, wait="1s"),
                    lambda: (producer.send(b"child"), producer.flush()),
                    lambda: list(client.read("forked")),
                ):
                    with pytest.raises(Refused, match=f"made by process {os.getppid()}"):
                        call()
                consumer.close()
                producer.close()
                client.close()
                with Client(url) as own:
                    assert own.topic("forked").total_messages == 2

            assert in_child(use) == 0
            assert client.topic("forked").total_messages == 2
            producer.send(b"three")
            producer.flush()
            assert [one.value for one in first] == [b"one"]
            consumer.ack(first)
            assert [one.value for one in consumer.poll(2, wait="10s")][:1] == [b"two"]


def test_what_the_parent_was_sending_is_refused_in_the_child_and_stored_by_the_parent(url):
    """A thread of the parent holds the lock of the partition at the fork, and another batch is open."""
    asked, answer = threading.Event(), threading.Event()

    def hold(_request):
        asked.set()
        answer.wait(DEADLINE_S)

    with (
        BatchProxy(url, before=hold) as proxy,
        Client(proxy.url) as client,
    ):
        client.create_topic("half-sent", partitions=1)
        with client.producer("half-sent", linger_ms=3_600_000) as producer:
            sent = producer.send(b"one")
            flush = threading.Thread(target=producer.flush)
            flush.start()
            assert asked.wait(DEADLINE_S)
            waiting = producer.send(b"two")

            def use():
                calls = (
                    sent.result,
                    waiting.result,
                    lambda: producer.send(b"child"),
                    lambda: producer.send(b"child", b"key"),
                    producer.flush,
                )
                for call in calls:
                    with pytest.raises(Refused, match="before a fork"):
                        call()
                producer.close()

            assert in_child(use) == 0
            answer.set()
            flush.join()
        assert [message.value for _, message in client.read("half-sent")] == [b"one", b"two"]


def test_child_ends_a_consumer_whose_parent_was_sending_answers(url):
    """`on_error` is called while the answers are sent: here the process is forked, and the child goes on."""
    codes = []

    def use():
        consumer.flush()
        with pytest.raises(Refused, match="before a fork"):
            consumer.poll()
        consumer.close()

    with Client(url) as client:
        client.create_topic("half-answered", partitions=1)
        client.publish("half-answered", b"one")
        consumer = client.consumer(
            "half-answered", "forks", on_error=lambda _error: codes.append(in_child(use))
        )
        with consumer:
            messages = consumer.poll(1, wait="60s")
            client.delete_topic("half-answered")
            consumer.ack(messages)
            consumer.flush()
        assert codes == [0]


async def test_child_of_a_loop_is_refused_and_the_parent_goes_on(url):
    async with AsyncClient(url) as client:
        await client.topics()

        def use():
            with pytest.raises(Refused, match="before a fork"):
                client.topics().send(None)

        assert in_child(use) == 0
        assert await client.server()

"""Clients before and after a fork: the child is told, and the parent goes on."""

import os
import signal
import traceback

import pytest

from penstock.client import AsyncClient, Client
from penstock.errors import Refused

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


async def test_child_of_a_loop_is_refused_and_the_parent_goes_on(url):
    async with AsyncClient(url) as client:
        await client.topics()

        def use():
            with pytest.raises(Refused, match="before a fork"):
                client.topics().send(None)

        assert in_child(use) == 0
        assert await client.server()

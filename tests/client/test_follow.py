"""Readers that follow a topic while its broker is started again."""

import subprocess
import sys
from threading import Thread

import pytest

from penstock.client import AsyncClient, Client, ClientSettings, RetryPolicy
from penstock.errors import Unreachable

from .servers import Server

IMPATIENT = ClientSettings(retry=RetryPolicy(retries=1, backoff_ms=1))


@pytest.fixture
def server(tmp_path):
    server = Server(tmp_path / "data")
    server.start()
    yield server
    server.end()


def restart_and_publish(server):
    server.restart()
    with Client(server.url) as client:
        client.publish("orders", b"after", partition=0)


def test_a_reader_that_follows_waits_for_its_broker(server):
    with Client(server.url, settings=IMPATIENT) as client:
        client.create_topic("orders", partitions=2)
        client.publish("orders", b"before", partition=0)
        found = client.read("orders", follow=True)
        assert next(found)[1].value == b"before"
        meanwhile = Thread(target=restart_and_publish, args=[server])
        meanwhile.start()
        assert next(found)[1].value == b"after"
        meanwhile.join()


async def test_with_asyncio_and_a_reader_with_an_end_does_not_wait(server):
    async with AsyncClient(server.url, settings=IMPATIENT) as client:
        await client.create_topic("orders", partitions=1)
        await client.publish("orders", b"before")
        following = client.read("orders", follow=True)
        assert (await anext(following))[1].value == b"before"
        meanwhile = Thread(target=restart_and_publish, args=[server])
        meanwhile.start()
        assert (await anext(following))[1].value == b"after"
        meanwhile.join()
        server.kill()
        with pytest.raises(Unreachable):
            [one async for one in client.read("orders")]
        server.start()


@pytest.mark.tier("test")
@pytest.mark.parametrize("words", [(), ("--group", "billing")])
def test_consume_follow_goes_on_behind_a_restart(server, words):
    with Client(server.url) as client:
        client.create_topic("orders", partitions=1)
        client.publish("orders", "before")
        command = [sys.executable, "-m", "penstock", "consume", "orders", "--follow", "--values"]
        command += ["--count", "2", "--server", server.url, *words]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as consume:
            assert consume.stdout.readline() == "before\n"
            server.restart()
            client.publish("orders", "after", acks="all")
            assert consume.stdout.readline() == "after\n"
            assert consume.wait(60) == 0

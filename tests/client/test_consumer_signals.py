"""SIGTERM and Ctrl-C end the loop of a plain consumer, and it leaves its group."""

import asyncio
import signal
import subprocess
import sys

import pytest

from penstock.client import AsyncClient, Client

pytestmark = pytest.mark.tier("test")

PROGRAM = """
import asyncio, signal, sys
from penstock.client import AsyncClient, Client

url, topic, kind = sys.argv[1:]

async def main():
    async with AsyncClient(url) as client, client.consumer(topic, topic, mode="assigned") as consumer:
        async for message in consumer:
            print("got", flush=True)
            message.ack()

if kind == "async":
    asyncio.run(main())
else:
    with Client(url) as client, client.consumer(topic, topic, mode="assigned") as consumer:
        for message in consumer:
            print("got", flush=True)
            message.ack()
print("left", flush=True)
"""


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_loop_and_the_consumer_leaves(url, kind, number):
    topic = f"signals-{kind}-{number}"
    command = [sys.executable, "-c", PROGRAM, url, topic, kind]
    with Client(url) as client:
        client.create_topic(topic, partitions=1)
        client.publish(topic, b"x")
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as program:
            try:
                assert program.stdout.readline() == "got\n"
                program.send_signal(number)
                out, errors = program.communicate(timeout=60)
                # asyncio handles Ctrl-C itself: it cancels the task, and the consumer leaves, too.
                if (kind, number) != ("async", signal.SIGINT):
                    assert (out, errors, program.returncode) == ("left\n", "", 0)
            finally:
                program.kill()
        assert client.group(topic).members == []
        assert client.lag(topic).total == 0


def test_a_program_keeps_the_signals_that_it_handles_itself(url):
    told = []
    before = signal.signal(signal.SIGTERM, lambda *_: told.append("own"))
    try:
        with Client(url) as client:
            client.create_topic("own-signals", partitions=1)
            client.publish_many("own-signals", [b"1", b"2"])
            with client.consumer("own-signals", "own") as consumer:
                seen = []
                for message in consumer.stream(idle=60):
                    signal.raise_signal(signal.SIGTERM)
                    seen.append(message.value)
                    message.ack()
                    if len(seen) == 2:
                        break
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (seen, told) == ([b"1", b"2"], ["own", "own"])


SEVERAL = """
import asyncio, sys
from penstock.client import AsyncClient, Client

url, topic, kind = sys.argv[1:]

async def handle(message):
    print("got", flush=True)

async def work(client, group):
    if kind == "workers":
        await client.worker(topic, group, handle).run()
        return
    async with client.consumer(topic, group) as consumer:
        async for message in consumer:
            print("got", flush=True)

async def main():
    async with AsyncClient(url) as client:
        await asyncio.gather(work(client, topic + "-1"), work(client, topic + "-2"))

def streams():
    with (
        Client(url) as client,
        client.consumer(topic, topic + "-1") as one,
        client.consumer(topic, topic + "-2") as other,
    ):
        for _ in zip(one, other):
            print("got", flush=True)
            print("got", flush=True)

streams() if kind == "sync" else asyncio.run(main())
print("left", flush=True)
"""


@pytest.mark.parametrize("kind", ["workers", "streams", "sync"])
def test_one_signal_ends_all_workers_and_streams_of_a_program(url, kind):
    topic = f"several-{kind}"
    command = [sys.executable, "-c", SEVERAL, url, topic, kind]
    with Client(url) as client:
        client.create_topic(topic, partitions=1)
        client.publish(topic, b"x")
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as program:
            try:
                assert [program.stdout.readline() for _ in range(2)] == ["got\n"] * 2
                program.send_signal(signal.SIGTERM)
                out, errors = program.communicate(timeout=60)
                assert (out, errors, program.returncode) == ("left\n", "", 0)
            finally:
                program.kill()


def test_an_asyncio_program_has_its_signal_handlers_back_after_a_worker(url):
    async def handle(_message):
        """None comes."""

    async def main():
        loop = asyncio.get_running_loop()
        own = asyncio.Event()
        loop.add_signal_handler(signal.SIGTERM, own.set)
        before = signal.getsignal(signal.SIGINT)
        async with AsyncClient(url) as client:
            await client.create_topic("signals-back", partitions=1)
            worker = client.worker("signals-back", "own", handle)
            loop.call_soon(worker.stop)
            await worker.run()
        assert signal.getsignal(signal.SIGINT) is before
        signal.raise_signal(signal.SIGTERM)
        await own.wait()

    asyncio.run(main())

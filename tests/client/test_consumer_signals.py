"""SIGTERM and Ctrl-C end the loop of a plain consumer, and it leaves its group."""

import signal
import subprocess
import sys

import pytest

from penstock.client import Client

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

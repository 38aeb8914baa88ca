"""A server that takes nothing: what a producer keeps meanwhile is bounded, however its batches came about."""

import asyncio
import threading

import pytest

from penstock.client import AsyncClient, Client, ClientSettings, RetryPolicy

from .meddler import Meddler, busy
from .servers import until

LIMIT = 20_000
VALUES = [b"%01000d" % number for number in range(60)]
# None is ever full; whoever waited for a millisecond goes into a batch of its own.
OPTIONS = {"buffer_bytes_max": LIMIT, "linger_ms": 1}
PATIENT = ClientSettings(retry=RetryPolicy(backoff_ms=1))
# However little is in a message: a few hundred are too much.
EMPTY = [b""] * 1000
SMALL = {"buffer_bytes_max": LIMIT, "batch_messages_max": 100}
KEYS = pytest.mark.parametrize("key", [None, "key"])


@pytest.fixture
def gate():
    return threading.Event()


@pytest.fixture
def wire(url, gate):
    """Says come back later, until the gate is open."""
    with Meddler(url, before=lambda asked: None if gate.is_set() else busy(asked)) as wire:
        yield wire


@KEYS
def test_batches_that_were_sealed_by_time_make_send_wait(wire, gate, key):
    topic, sent, is_waiting = f"sealed-by-time-{key}", [], threading.Event()
    with Client(wire.url, settings=PATIENT) as client:
        client.create_topic(topic, partitions=1)
        with client.producer(topic, **OPTIONS) as producer:
            wait = producer._room.wait
            producer._room.wait = lambda timeout_s: is_waiting.set() or wait(timeout_s)

            def fill() -> None:
                for value in VALUES:
                    producer.send(value, key)
                    sent.append(value)
                    until(lambda: gate.is_set() or producer.buffered_bytes >= 1000 * len(sent))

            filling = threading.Thread(target=fill, daemon=True)
            filling.start()
            until(lambda: is_waiting.is_set() or not filling.is_alive())
            before = len(sent), producer.buffered_bytes
            gate.set()
            filling.join(30)
        assert before[0] * 1000 <= LIMIT + 1000
        assert LIMIT < before[1] < LIMIT + 1100
        assert [message.value for _, message in client.read(topic)] == VALUES


@KEYS
async def test_batches_that_were_sealed_by_time_make_an_asynchronous_send_wait(wire, gate, key):
    topic, sent, is_waiting = f"sealed-by-time-async-{key}", [], asyncio.Event()
    async with AsyncClient(wire.url, settings=PATIENT) as client:
        await client.create_topic(topic, partitions=1)
        async with client.producer(topic, **OPTIONS) as producer:
            wait = producer._room.wait
            producer._room.wait = lambda timeout_s: is_waiting.set() or wait(timeout_s)

            async def fill() -> None:
                for value in VALUES:
                    await producer.send(value, key)
                    sent.append(value)
                    while not gate.is_set() and producer.buffered_bytes < 1000 * len(sent):  # noqa: ASYNC110 - no event
                        await asyncio.sleep(0.001)

            filling = asyncio.create_task(fill())
            done = asyncio.create_task(is_waiting.wait())
            await asyncio.wait([filling, done], return_when=asyncio.FIRST_COMPLETED, timeout=30)
            before = len(sent), producer.buffered_bytes
            gate.set()
            await filling
            done.cancel()
        assert before[0] * 1000 <= LIMIT + 1000
        assert LIMIT < before[1] < LIMIT + 1100
        assert [message.value async for _, message in client.read(topic)] == VALUES


@KEYS
def test_messages_without_content_make_send_wait(wire, gate, key):
    topic, sent, is_waiting = f"empty-{key}", [], threading.Event()
    with Client(wire.url, settings=PATIENT) as client:
        client.create_topic(topic, partitions=1)
        with client.producer(topic, **SMALL) as producer:
            wait = producer._room.wait
            producer._room.wait = lambda timeout_s: is_waiting.set() or wait(timeout_s)

            def fill() -> None:
                for value in EMPTY:
                    producer.send(value, key)
                    sent.append(value)

            filling = threading.Thread(target=fill, daemon=True)
            filling.start()
            until(lambda: is_waiting.is_set() or not filling.is_alive())
            before = len(sent)
            gate.set()
            filling.join(30)
        assert 100 <= before < 600
        assert [message.value for _, message in client.read(topic)] == EMPTY


@KEYS
async def test_messages_without_content_make_an_asynchronous_send_wait(wire, gate, key):
    topic, sent, is_waiting = f"empty-async-{key}", [], asyncio.Event()
    async with AsyncClient(wire.url, settings=PATIENT) as client:
        await client.create_topic(topic, partitions=1)
        async with client.producer(topic, **SMALL) as producer:
            wait = producer._room.wait
            producer._room.wait = lambda timeout_s: is_waiting.set() or wait(timeout_s)

            async def fill() -> None:
                for value in EMPTY:
                    await producer.send(value, key)
                    sent.append(value)

            filling = asyncio.create_task(fill())
            done = asyncio.create_task(is_waiting.wait())
            await asyncio.wait([filling, done], return_when=asyncio.FIRST_COMPLETED, timeout=30)
            before = len(sent)
            gate.set()
            await filling
            done.cancel()
        assert 100 <= before < 600
        assert [message.value async for _, message in client.read(topic)] == EMPTY

"""A server that takes nothing: what a producer keeps meanwhile is bounded, however its batches came about."""

import asyncio
import threading

import pytest

from penstock.client import AsyncClient, Client, ClientSettings, RetryPolicy

from .proxies import BatchProxy, busy
from .servers import until

LIMIT = 20_000
VALUES = [b"%01000d" % number for number in range(60)]
# No batch is ever full; a message that waited for a millisecond goes into one of its own.
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
def proxy(url, gate):
    """Says come back later, until the gate is open."""
    with BatchProxy(url, before=lambda request: None if gate.is_set() else busy(request)) as proxy:
        yield proxy


def filled(producer, gate, send, values):
    """How many were sent, and what the producer kept, when it waited for room; then the rest goes out, too."""
    sent, is_waiting, wait = [], threading.Event(), producer._queues.has_space.wait
    producer._queues.has_space.wait = lambda timeout_s: is_waiting.set() or wait(timeout_s)

    def fill() -> None:
        for value in values:
            send(value)
            sent.append(value)
            if values is VALUES:  # Each is to be sealed by itself.
                until(lambda: gate.is_set() or producer.buffered_bytes >= 1000 * len(sent))

    filling = threading.Thread(target=fill, daemon=True)
    filling.start()
    until(lambda: is_waiting.is_set() or not filling.is_alive())
    before = len(sent), producer.buffered_bytes
    gate.set()
    filling.join(120)
    return before


async def filled_in_asyncio(producer, gate, send, values):
    sent, is_waiting, wait = [], asyncio.Event(), producer._queues.has_space.wait
    producer._queues.has_space.wait = lambda timeout_s: is_waiting.set() or wait(timeout_s)

    def is_sealed() -> bool:
        return gate.is_set() or producer.buffered_bytes >= 1000 * len(sent)

    async def fill() -> None:
        for value in values:
            await send(value)
            sent.append(value)
            while values is VALUES and not is_sealed():  # noqa: ASYNC110 - there is no event for a sealed batch
                await asyncio.sleep(0.001)

    filling, done = asyncio.create_task(fill()), asyncio.create_task(is_waiting.wait())
    await asyncio.wait([filling, done], return_when=asyncio.FIRST_COMPLETED, timeout=120)
    before = len(sent), producer.buffered_bytes
    gate.set()
    await filling
    done.cancel()
    return before


def is_bounded_by_bytes(count, kept) -> bool:
    return count * 1000 <= LIMIT + 1000 and LIMIT < kept < LIMIT + 1100


def is_bounded_by_count(count, _kept) -> bool:
    return 100 <= count < 600


CASES = pytest.mark.parametrize(
    ("name", "values", "options", "is_bounded"),
    [
        ("sealed-by-time", VALUES, OPTIONS, is_bounded_by_bytes),
        ("without-content", EMPTY, SMALL, is_bounded_by_count),
    ],
    ids=["sealed by time", "without content"],
)


@KEYS
@CASES
def test_a_full_buffer_makes_send_wait(proxy, gate, key, name, values, options, is_bounded):
    topic = f"{name}-{key}"
    with Client(proxy.url, settings=PATIENT) as client:
        client.create_topic(topic, partitions=1)
        with client.producer(topic, **options) as producer:
            before = filled(producer, gate, lambda value: producer.send(value, key), values)
        assert is_bounded(*before), before
        assert [message.value for _, message in client.read(topic)] == values


@KEYS
@CASES
async def test_a_full_buffer_makes_an_asynchronous_send_wait(
    proxy, gate, key, name, values, options, is_bounded
):
    topic = f"{name}-async-{key}"
    async with AsyncClient(proxy.url, settings=PATIENT) as client:
        await client.create_topic(topic, partitions=1)
        async with client.producer(topic, **options) as producer:
            before = await filled_in_asyncio(
                producer, gate, lambda value: producer.send(value, key), values
            )
        assert is_bounded(*before), before
        assert [message.value async for _, message in client.read(topic)] == values

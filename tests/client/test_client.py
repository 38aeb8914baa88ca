"""Both clients against a server process."""

import asyncio
import time

import pytest

from penstock.client import AsyncClient, Client, ClientSettings, Outgoing, RetryPolicy
from penstock.errors import (
    AlreadyExists,
    AnswerTimeout,
    BadAnswer,
    NotFound,
    StaleReceipt,
    TooManyRequests,
    Unreachable,
)

from .proxies import busy, fake, reply_frame, reply_to
from .servers import NOWHERE

ONE_TRY = ClientSettings(retry=RetryPolicy(retries=0))
QUICK = ClientSettings(retry=RetryPolicy(retries=3, backoff_ms=1))


def test_publish_poll_answer_and_read(url):
    with Client(url) as client:
        client.create_topic("plain", partitions=1, max_retries=0)
        with pytest.raises(AlreadyExists):
            client.create_topic("plain")
        assert client.create_topic("plain", partitions=9, exist_ok=True).partitions == 1
        first = client.publish("plain", b"\xff", key="k", headers={"a": b"\xfe", "": None})
        assert (first.partition, first.offset) == (0, 0)
        client.publish_many("plain", [Outgoing("two", priority="high"), b"three"])
        held = {one.value: one for one in client.poll("plain", "plain-readers", timeout="5s")}
        assert (held[b"\xff"].key, held[b"\xff"].headers) == (
            b"k",
            (("a", b"\xfe"), ("", None)),
        )
        client.extend(held[b"\xff"], 60)
        client.ack([held[b"\xff"], held[b"two"]])
        with pytest.raises(StaleReceipt):
            client.nack(held[b"two"])
        client.reject(held[b"three"], "broken")
        # A redrive waits for letters that are on their way.
        assert client.redrive("plain", dry_run=True).matched == 1
        (letter,) = client.dead_letters("plain")
        assert (letter.value, letter.last_error) == (b"three", "broken")
        assert client.count_dead_letters("plain")[0]["count"] == 1
        assert client.redrive("plain").redriven == 1
        assert client.lag("plain-readers").total == 1
        assert [
            move["partition"] for move in client.reset("plain-readers", "earliest", dry_run=True)
        ] == [0]
        assert [one.value for _, one in client.read("plain")] == [
            b"\xff",
            b"two",
            b"three",
            b"three",
        ]
        table = client.fetch("plain", 0, offset=1).arrow(["offset", "value"])
        assert table.column("offset").to_pylist() == [1, 2, 3]
        assert "plain" in client.topics()
        client.delete_topic("plain")
        with pytest.raises(NotFound):
            client.topic("plain")


async def test_the_same_for_asyncio(url):
    async with AsyncClient(url) as client:
        await client.create_topic("async", partitions=2)
        placed = await client.publish("async", "lamp", idempotency_key="once")
        again = await client.publish("async", "lamp", idempotency_key="once")
        assert (again.offset, again.duplicate) == (placed.offset, True)
        (message,) = await client.poll("async", "async-readers", timeout=60)
        await client.ack(message)
        assert (await client.lag("async-readers")).total == 0
        async with client.producer("async") as producer:
            delivery = await producer.send(b"desk", b"ann")
            assert (await delivery.result(30)).guarantee == "buffered"
        assert [one.value async for _, one in client.read("async")].count(b"desk") == 1


def test_a_consumer_and_a_worker_finish_everything(url):
    with Client(url) as client:
        client.create_topic("finished")
        client.publish_many("finished", [b"%d" % one for one in range(100)])
        with client.consumer("finished", "reader") as consumer:
            polled = consumer.poll(wait=60)
            while len(polled) < 100:
                polled = [*polled, *consumer.poll(wait=60)]
            consumer.ack(polled)
        seen = []
        worker = client.worker("finished", "worker", lambda one: seen.append(one.value))
        with worker:
            while len(seen) < 100:
                time.sleep(0.001)
        assert sorted(seen) == sorted(one.value for one in polled)
        assert client.lag("reader").total == client.lag("worker").total == 0


def test_producer_stores_every_message_once_and_in_order(url):
    values = [b"%d" % one for one in range(5000)]
    with Client(url) as client:
        client.create_topic("many", partitions=3)
        with client.producer("many", batch_bytes_max=4000) as producer:
            deliveries = [producer.send(one, b"k%d" % (int(one) % 7)) for one in values]
            plain = producer.send(b"plain", headers={"a": "b"}, priority=0, ttl="1h")
        assert producer.stored == 5001
        assert plain.result().offset >= 0
        found = {}
        for partition, one in client.read("many"):
            found.setdefault(one.key, []).append(one.value)
            assert partition in range(3)
        assert sorted(one for some in found.values() for one in some) == sorted([*values, b"plain"])
        assert found[b"k3"] == [one for one in values if int(one) % 7 == 3]
        assert len({(one.result().partition, one.result().offset) for one in deliveries}) == 5000
        with pytest.raises(NotFound):
            client.producer("nowhere").send(b"x")


def names(request):
    return reply_to(request, ["a"])


def cut(request):
    return names(request)[:-1]


def nothing(_request):
    return b""


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        (lambda _request: b"\xffgarbage", BadAnswer),
        (lambda _request: b"HTTP/1.1 400 Bad Request\r\n\r\n", BadAnswer),
        (lambda request: reply_frame(request.correlation, [b"not a reply"]), BadAnswer),
        (lambda request: reply_frame(request.correlation, []), BadAnswer),
        (lambda request: reply_to(request, ["a"]).replace(b"a", b"\xc1"), BadAnswer),
        (cut, Unreachable),
        (nothing, Unreachable),
        (busy, TooManyRequests),
    ],
)
async def test_servers_that_misbehave_are_named(script, kind):
    with fake(script) as (url, _):
        with Client(url, settings=ONE_TRY) as client, pytest.raises(kind):
            client.topics()
        async with AsyncClient(url, settings=ONE_TRY) as other:
            with pytest.raises(kind):
                await other.topics()


def test_what_can_be_repeated_is_and_a_publish_is_not():
    with fake(busy, cut, nothing, names) as (url, asked):
        with Client(url, settings=QUICK) as client:
            assert client.topics() == ["a"]
        assert len(asked) == 4
    with fake(nothing) as (url, asked):
        with Client(url, settings=QUICK) as client, pytest.raises(Unreachable) as lost:
            client.publish("orders", b"x")
        assert lost.value.is_sent
        assert len(asked) == 1


def test_a_publish_with_an_empty_idempotency_key_is_not_repeated():
    for empty in ("", b""):
        with fake(nothing) as (url, asked):
            with Client(url, settings=QUICK) as client, pytest.raises(Unreachable):
                client.publish("orders", b"x", idempotency_key=empty)
            assert len(asked) == 1


async def test_silence_and_absence():
    short = ClientSettings(timeout_s=0.05, retry=RetryPolicy(retries=0))
    with fake(None) as (url, _):
        with Client(url, settings=short) as client, pytest.raises(AnswerTimeout):
            client.topics()
        async with AsyncClient(url, settings=short) as other:
            with pytest.raises(AnswerTimeout):
                await other.topics()
    with Client(url, settings=ONE_TRY) as client, pytest.raises(Unreachable, match="refused"):
        client.topics()


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.topics(),
        lambda client: client.publish("orders", b"x"),
        lambda client: client.poll("orders", "billing"),
        lambda client: client.fetch("orders", 0),
    ],
)
def test_a_call_waits_for_an_open_breaker_no_longer_than_for_an_answer(ask):
    """It tells when the next try is; one that waited would have tried, and say that it was refused."""
    settings = ClientSettings(timeout_s=0.2, retry=RetryPolicy(retries=1, backoff_ms=1))
    with Client(NOWHERE, settings=settings) as client:
        for _ in range(3):
            with pytest.raises(Unreachable):
                client.topics()
        for _ in range(2):
            with pytest.raises(Unreachable, match="5 requests in a row failed; next try in"):
                ask(client)


def test_a_flush_that_is_cancelled_leaves_a_producer_that_goes_on(url):
    async def story() -> None:
        async with AsyncClient(url) as client:
            await client.create_topic("cancelled", partitions=1)
            async with client.producer("cancelled", linger_ms=10_000) as producer:
                for number in range(50):
                    await producer.send(b"%d" % number)
                    flush = asyncio.create_task(producer.flush())
                    for _ in range(number % 7):
                        await asyncio.sleep(0)
                    flush.cancel()
                    await asyncio.gather(flush, return_exceptions=True)
            assert producer.stored == 50
            found = [message.value async for _, message in client.read("cancelled")]
            assert found == [b"%d" % number for number in range(50)]

    asyncio.run(asyncio.wait_for(story(), 60))

"""A broker whose limits of messages are lower than those that the client knows."""

import pytest

from penstock.api.delays import DescribeDelays
from penstock.client import AsyncClient, Client, Outgoing
from penstock.errors import TooLarge

from .servers import Server

KIB = 1 << 10


def limits(value, batch):
    """Words for a broker; a key is limited to half as much as a value."""
    named = {"value": value, "key": value // 2, "headers": value // 2, "batch": batch}
    return [
        word
        for name, limit in named.items()
        for word in ("--set", f"limits.{name}_bytes_max={limit}")
    ]


@pytest.fixture
def server(tmp_path):
    made = Server(tmp_path / "data", *limits(10 * KIB, 64 * KIB))
    made.start()
    yield made
    made.end()


def values_in(client, topic):
    return [message.value for _, message in client.read(topic)]


def refused(producer, *sent, match, **named):
    with pytest.raises(TooLarge, match=match):
        producer.send(*sent, **named)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_message_over_a_limit_of_the_broker_is_refused_alone(server, is_first):
    with Client(server.url) as client:
        client.create_topic("orders", partitions=1)
        with client.producer("orders") as producer:
            sent = [] if is_first else [b"a", b"of another size"]
            for one in sent:
                producer.send(one)
            refused(producer, bytes(10 * KIB + 1), match=r"value in bytes.*10240")
            refused(producer, b"x", bytes(5 * KIB + 1), match=r"key in bytes.*5120")
            for size, count in ((5 * KIB + 1, 1), (3 * KIB, 2)):
                headers = [("h", bytes(size))] * count
                refused(producer, b"x", headers=headers, match=r"header.* in bytes.*5120")
            producer.send(bytes(10 * KIB))
            producer.send(b"keyed", bytes(5 * KIB))
        assert producer.failed == 0
        assert values_in(client, "orders") == [*sent, bytes(10 * KIB), b"keyed"]


def test_full_batches_are_within_the_limit_of_the_broker(server):
    """Of values of one size and of many, and of what has more beside its bytes than bytes."""
    headers = [("", b"")] * 20
    with Client(server.url) as client:
        client.create_topic("orders", partitions=1)
        with client.producer("orders", linger_ms=10_000) as producer:
            for number in range(3000):
                producer.send(bytes(100))
                producer.send(bytes(number % 100))
            for _ in range(10_000):
                producer.send(b"", b"", priority=1, ttl="1h")
            for number in range(1000):
                producer.send(b"%d" % number, headers=headers)
        assert (producer.stored, producer.failed) == (17_000, 0)


def test_large_values_are_a_batch_each(url):
    """Whatever the producer was told: two of them would be over the limit of a batch."""
    with Client(url) as client:
        client.create_topic("large-values", partitions=1)
        with client.producer(
            "large-values", batch_bytes_max=64 << 20, linger_ms=10_000
        ) as producer:
            large = [producer.send(bytes(9 << 20)) for _ in range(2)]
            producer.send(b"small")
        assert (producer.stored, producer.failed) == (3, 0)
        assert [one.result().offset for one in large] == [0, 1]


def test_a_message_that_only_the_broker_finds_too_large_fails_alone(tmp_path):
    """Its batch is larger than its value, for which there is just room."""
    small = Server(tmp_path / "data", *limits(64 * KIB, 64 * KIB))
    small.start()
    try:
        with Client(small.url) as client:
            client.create_topic("orders", partitions=1)
            producer = client.producer("orders", linger_ms=10_000)
            producer.send(b"before")
            large = producer.send(bytes(64 * KIB))
            producer.send(b"after")
            with pytest.raises(TooLarge, match="batch in bytes"):
                producer.close()
            with pytest.raises(TooLarge):
                large.result(30)
            assert (producer.stored, producer.failed) == (2, 1)
            assert values_in(client, "orders") == [b"before", b"after"]
    finally:
        small.end()


def test_after_a_restart_with_other_limits_those_count(server):
    with Client(server.url) as client:
        client.create_topic("orders", partitions=1)
        with client.producer("orders") as producer:
            producer.send(b"before")
            producer.flush()
            server.words = limits(20 * KIB, 64 * KIB)
            server.restart()
            producer.send(b"between")
            producer.flush()
            producer.send(bytes(20 * KIB))
            refused(producer, bytes(20 * KIB + 1), match="20480")
            producer.send(b"after")
        assert values_in(client, "orders") == [b"before", b"between", bytes(20 * KIB), b"after"]


async def test_with_asyncio(server):
    async with AsyncClient(server.url) as client:
        await client.create_topic("orders", partitions=1)
        async with client.producer("orders") as producer:
            await producer.send(b"small")
            with pytest.raises(TooLarge, match="10240"):
                await producer.send(bytes(10 * KIB + 1))
        assert (producer.stored, producer.failed) == (1, 0)


def many(count):
    """Messages with little in their values, more in their headers, and some that come later."""
    return [
        Outgoing(
            b"%04d" % number,
            key="k",
            headers=[("h", bytes(900))] if number % 2 else [],
            delay="1h" if number >= count - 100 else None,
        )
        for number in range(count)
    ]


def test_a_staging_is_cut_into_batches_that_the_server_takes(server):
    with Client(server.url) as client:
        client.create_topic("orders", partitions=1)
        with client.staging("load", 1, "w") as staging:
            staging.publish_many("orders", [*many(600), bytes(9 * KIB), *[bytes(10 * KIB)] * 20])
        client.commit_stagings("load", 1, "w", [staging.handle])
        found = values_in(client, "orders")
        assert found[:500] == [b"%04d" % number for number in range(500)]
        assert [*map(len, found[500:])] == [9 * KIB, *[10 * KIB] * 20]
        assert client.execute(DescribeDelays("orders"))["orders"][0].pending == 100


def test_a_transaction_is_cut_into_batches_that_the_server_takes(server):
    with Client(server.url) as client:
        client.create_topic("orders", partitions=1)
        with client.transactional_producer("p").transaction() as transaction:
            transaction.publish_many("orders", [*many(600), *[bytes(10 * KIB)] * 20])
        found = values_in(client, "orders")
        assert found[:500] == [b"%04d" % number for number in range(500)]
        assert len(found) == 520

"""Transactions of both clients against a server process."""

import pytest

from penstock.api.bounds import PUBLISH_MESSAGES_MAX
from penstock.api.groups import DescribeLag
from penstock.api.topics import DescribeTopic
from penstock.client import AsyncClient, Client, Outgoing
from penstock.errors import NotFound, ProducerFenced, Refused, StaleReceipt

from .proxies import Relay


def fail(transaction):
    transaction.publish("t-audit", b"never")
    raise ZeroDivisionError


async def fail_async(transaction):
    await transaction.publish("t-audit", b"never")
    raise ZeroDivisionError


def values(client, topic):
    return sorted(one.value for _, one in client.read(topic))


@pytest.fixture(scope="module")
def client(url):
    with Client(url) as client:
        client.create_topic("t-orders", partitions=3)
        client.create_topic("t-audit", partitions=1)
        yield client


def test_all_of_it_is_seen_at_the_end_and_nothing_of_what_raised(client):
    client.create_topic("t-all-orders", partitions=3)
    client.create_topic("t-all-audit", partitions=1)
    producer = client.transactional_producer("t-all")
    with producer.transaction() as first:
        first.publish("t-all-orders", b"a1", key="ann")
        first.publish("t-all-orders", b"a2", partition=2)
        first.publish("t-all-audit", json={"order": 1})
        first.publish_many("t-all-orders", [Outgoing(b"a3", partition=1), b"a4", b"a5"])
        assert values(client, "t-all-orders") == values(client, "t-all-audit") == []
    assert values(client, "t-all-orders") == [b"a1", b"a2", b"a3", b"a4", b"a5"]
    assert values(client, "t-all-audit") == [b'{"order":1}']
    assert sum(one.message_count for one in first.places) == 6
    second = producer.transaction()
    with pytest.raises(ZeroDivisionError), second:
        fail(second)
    with producer.transaction() as third:
        third.publish("t-all-audit", b"after")
    assert values(client, "t-all-audit") == [b"after", b'{"order":1}']
    assert b"never" not in values(client, "t-audit")
    assert len({first.transaction_id, second.transaction_id, third.transaction_id}) == 3


def test_more_messages_than_a_request_may_have_go_in_several(client):
    client.create_topic("t-many", partitions=2)
    many = [Outgoing(b"%d" % number, partition=0) for number in range(PUBLISH_MESSAGES_MAX + 2)]
    assert [stored.offset for stored in client.publish_many("t-many", many)] == [*range(len(many))]
    with client.transactional_producer("t-many").transaction() as transaction:
        transaction.publish_many("t-many", many)
        transaction.publish_many("t-many", [Outgoing(b"later", delay="2h", partition=1)] * 10_001)
    assert sum(placed.message_count for placed in transaction.places) == len(many)
    assert client.topic("t-many").total_messages == 2 * len(many)


def test_a_later_producer_of_the_name_ends_the_session_of_the_former(client):
    former, later = (client.transactional_producer("t-fenced") for _ in range(2))
    zombie = former.transaction()
    zombie.__enter__()
    zombie.publish("t-audit", b"zombie")
    with later.transaction() as current:
        current.publish("t-audit", b"current")
    with pytest.raises(ProducerFenced):
        zombie.publish("t-audit", b"zombie")
    with pytest.raises(ProducerFenced):
        zombie.__exit__(None, None, None)
    assert b"zombie" not in values(client, "t-audit")
    assert b"current" in values(client, "t-audit")
    # A session of its own, by which the other one is fenced.
    with former.transaction() as back:
        back.publish("t-audit", b"back")
    assert b"back" in values(client, "t-audit")


def test_wrong_use_is_refused_and_the_producer_goes_on(client):
    producer = client.transactional_producer("t-wrong")
    one = producer.transaction()
    with pytest.raises(Refused):
        one.publish("t-audit", b"x")
    with one, pytest.raises(Refused):
        producer.transaction().__enter__()
    with pytest.raises(Refused):
        one.__enter__()
    for wrong in (
        {"value": b"x", "delay_key": "k"},
        {"value": b"x", "idempotency_key": "k"},
        {"value": b"x", "json": 1},
        {},
    ):
        with pytest.raises(Refused), producer.transaction() as two:
            two.publish("t-audit", **wrong)
    with pytest.raises(NotFound), producer.transaction() as three:
        three.publish("t-nowhere", b"x")
    for name, timeout in (("", "60s"), ("n" * 300, "60s"), ("t-long", "16m")):
        with (
            pytest.raises(Refused),
            client.transactional_producer(name, timeout=timeout).transaction(),
        ):
            pass
    before = values(client, "t-audit")
    with producer.transaction() as good:
        good.publish("t-audit", b"good")
    assert values(client, "t-audit") == sorted([*before, b"good"])


def test_a_commit_whose_answer_is_lost_is_asked_for_again_and_counts_once(client, url):
    def swallows(request, answer, count):
        return answer is not None and request.kind == "EndTransaction" and count < 2

    with Relay(url, swallows) as relay, Client(relay.url) as cut:
        with cut.transactional_producer("t-lost").transaction() as t:
            t.publish("t-audit", b"lost once")
        assert len(relay.swallowed) == 2
    assert t.places
    assert values(client, "t-audit").count(b"lost once") == 1


def test_a_staging_whose_answer_is_lost_aborts_the_transaction(client, url):
    def swallows(request, answer, count):
        return answer is not None and request.kind == "Stage" and not count

    with Relay(url, swallows) as relay, Client(relay.url) as cut:
        producer = cut.transactional_producer("t-staged")
        with pytest.raises(Exception, match="closed"), producer.transaction() as t:
            t.publish("t-audit", b"doubtful")
        assert b"doubtful" not in values(client, "t-audit")
        with producer.transaction() as again:
            again.publish("t-audit", b"doubtful")
    assert values(client, "t-audit").count(b"doubtful") == 1


async def test_the_same_for_asyncio(client, url):
    async with AsyncClient(url) as other:
        producer = other.transactional_producer("t-async")
        async with producer.transaction() as t:
            await t.publish("t-orders", b"async", key="k")
            await t.publish_many("t-audit", [b"async"])
        assert {one.topic for one in t.places} == {"t-orders", "t-audit"}
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction() as aborted:
                await fail_async(aborted)
        assert (await other.execute(DescribeTopic("t-audit"))).name == "t-audit"
    assert b"async" in values(client, "t-audit")
    assert b"never" not in values(client, "t-audit")


def consumed(client, name, count):
    """A topic of its own with so many messages, and one for the output."""
    for topic in (name, f"{name}-out"):
        client.create_topic(topic, partitions=1)
    client.publish_many(name, [b"%d" % one for one in range(count)])


def lag_of(client, topic, group):
    found = client.execute(DescribeLag(group)).partitions
    return sum(one.lag for one in found if one.topic == topic)


def test_consume_transform_produce(client):
    consumed(client, "t-in", 6)
    producer = client.transactional_producer("t-transform")
    with client.consumer("t-in", "g", visibility_timeout="60s") as consumer:
        got = consumer.poll(6, wait=60)
        assert len(got) == 6

        def acks_and_fails():
            with producer.transaction() as failed:
                failed.ack(got[0])
                assert got[0].is_answered
                assert not got[0].ack()
                fail(failed)

        with pytest.raises(ZeroDivisionError):
            acks_and_fails()
        assert not got[0].is_answered
        with producer.transaction() as t:
            t.publish_many("t-in-out", [one.value * 2 for one in got[:4]])
            t.ack(got[:4])
            with pytest.raises(StaleReceipt):
                client.ack(got[0].receipt)
            with pytest.raises(Refused):
                t.ack(got[0])
            t.nack(got[4], "later", delay="1h")
            t.reject(got[5].receipt, "bad")
        assert values(client, "t-in-out") == [b"00", b"11", b"22", b"33"]
    assert lag_of(client, "t-in", "g") == 1


def test_offsets_of_an_assigned_consumer(client):
    consumed(client, "t-offsets", 4)
    producer = client.transactional_producer("t-offsets")
    with client.consumer("t-offsets", "g2", mode="assigned") as consumer:
        got = consumer.poll(2, wait=60)

        def commits_and_fails():
            with producer.transaction() as failed:
                failed.commit(consumer, got)
                fail(failed)

        with pytest.raises(ZeroDivisionError):
            commits_and_fails()
        with producer.transaction() as t:
            t.publish("t-offsets-out", b"x")
            t.commit(consumer, got)
            assert lag_of(client, "t-offsets", "g2") == 4
        assert lag_of(client, "t-offsets", "g2") == 2
        with producer.transaction() as t:
            t.commit(consumer, {"t-offsets/0": 4})
        assert lag_of(client, "t-offsets", "g2") == 0
    with (
        client.consumer("t-offsets", "shared") as shared,
        producer.transaction() as t,
        pytest.raises(Refused),
    ):
        t.commit(shared, {"t-offsets/0": 1})


async def test_acks_inside_of_the_other_client(url, client):
    consumed(client, "t-async", 2)
    async with AsyncClient(url) as other, other.consumer("t-async", "g3") as consumer:
        got = await consumer.poll(2, wait=60)
        producer = other.transactional_producer("t-async")
        async with producer.transaction() as t:
            await t.ack(got)
            await t.publish("t-async-out", b"x")
    assert lag_of(client, "t-async", "g3") == 0
    assert values(client, "t-async-out") == [b"x"]

"""Prefetch: nothing is lost, repeated or kept, whatever becomes of the early request."""

from contextlib import aclosing, closing

import pytest

from penstock.api.fetch import FetchReply
from penstock.client import AsyncClient, Client, ClientSettings, RetryPolicy
from penstock.client.fetch import Fetched
from penstock.codec import HEAD_BYTES, Columns, encode, read_head, stamp
from penstock.errors import BadAnswer, MalformedBatch, NotFound

from .proxies import FetchProxy, busy, whole

BATCHES, PER_BATCH, VALUE_BYTES = 6, 40, 8000
VALUES = [b"%0*d" % (VALUE_BYTES, one) for one in range(BATCHES * PER_BATCH)]
# One stored batch a fetch: larger than what comes with the head of an answer.
ONE_BATCH = 1
QUICK = ClientSettings(retry=RetryPolicy(retries=3, backoff_ms=1))


def filled(client, topic):
    client.create_topic(topic, partitions=1)
    for start in range(0, len(VALUES), PER_BATCH):
        client.append_batch(
            topic, 0, encode(Columns(values=VALUES[start : start + PER_BATCH])).to_bytes()
        )


@pytest.fixture(scope="module")
def topic(url):
    with Client(url) as client:
        filled(client, "ahead")
    return "ahead"


def values_of(fetches):
    return [one.value for fetched in fetches for one in fetched]


@pytest.mark.parametrize("max_bytes", [ONE_BATCH, 700_000, 16 << 20])
def test_everything_comes_once_and_in_order(url, topic, max_bytes):
    with Client(url) as client:
        assert values_of(client.fetches(topic, 0, max_bytes=max_bytes)) == VALUES
        middle = client.fetches(topic, 0, offset=50, max_bytes=max_bytes)
        tables = [one.arrow(["offset"]).column(0).to_pylist() for one in middle]
        assert [one for table in tables for one in table] == [*range(50, len(VALUES))]


async def test_the_same_for_asyncio(url, topic):
    async with AsyncClient(url) as client:
        found = [one async for one in client.fetches(topic, 0, max_bytes=ONE_BATCH)]
        assert values_of(found) == VALUES
        async with aclosing(client.fetches(topic, 0, max_bytes=ONE_BATCH)) as fetches:
            async for _ in fetches:
                # The request that is ahead may not be in the way of others.
                assert topic in await client.topics()
                break


def test_the_next_is_asked_for_while_the_caller_uses_one(url, topic):
    with FetchProxy(url, whole) as proxy, Client(proxy.url, settings=QUICK) as client:
        found = []
        for number, fetched in enumerate(
            client.fetches(topic, 0, offset=0, max_bytes=ONE_BATCH), 2
        ):
            assert number > BATCHES or proxy.await_fetches(number)
            found.append(fetched)
        assert values_of(found) == VALUES
        assert proxy.offsets == [*range(0, len(VALUES), PER_BATCH)]


async def test_the_next_is_asked_for_while_the_caller_uses_one_for_asyncio(url, topic):
    with FetchProxy(url, whole) as proxy:
        async with AsyncClient(proxy.url, settings=QUICK) as client:
            fetches = client.fetches(topic, 0, offset=0, max_bytes=ONE_BATCH)
            assert values_of([one async for one in fetches]) == VALUES
        assert proxy.offsets == [*range(0, len(VALUES), PER_BATCH)]


def test_only_one_is_ahead_and_it_is_dropped_with_the_iterator(url, topic):
    with FetchProxy(url, whole) as proxy, Client(proxy.url) as client:
        for turn in range(1, 4):
            with closing(client.fetches(topic, 0, offset=0, max_bytes=ONE_BATCH)) as fetches:
                next(fetches)
                client.topics()
                assert proxy.await_fetches(2 * turn)
        assert proxy.offsets == [0, PER_BATCH] * 3


def test_those_who_read_ahead_do_not_hold_up_each_other(url, topic):
    with Client(url) as client:
        readers = [client.fetches(topic, 0, max_bytes=ONE_BATCH) for _ in range(2)]
        found = [values_of([next(one)]) for one in readers]
        found = [had + values_of(one) for had, one in zip(found, readers, strict=True)]
        assert found == [VALUES, VALUES]


def cut(_number, answer, link):
    link.sendall(answer[: len(answer) // 2])
    return False


def damaged(_number, answer, link):
    link.sendall(answer[:-100] + bytes([answer[-100] ^ 1]) + answer[-99:])


def refused(_number, answer, link):
    link.sendall(busy(answer))


@pytest.mark.parametrize("trick", [cut, damaged, refused])
@pytest.mark.parametrize("at", [0, 1, 3])
def test_what_fails_once_is_asked_for_again(url, topic, trick, at):
    def pass_on(number, answer, link):
        return trick(number, answer, link) if number == at else whole(number, answer, link)

    with FetchProxy(url, pass_on) as proxy, Client(proxy.url, settings=QUICK) as client:
        assert values_of(client.fetches(topic, 0, offset=0, max_bytes=ONE_BATCH)) == VALUES


def test_what_stays_damaged_is_an_error_in_its_turn(url, topic):
    def pass_on(number, answer, link):
        is_second = proxy.offsets[number] == PER_BATCH
        (damaged if is_second else whole)(number, answer, link)

    with FetchProxy(url, pass_on) as proxy, Client(proxy.url, settings=QUICK) as client:
        fetches = client.fetches(topic, 0, offset=0, max_bytes=ONE_BATCH)
        assert values_of([next(fetches)]) == VALUES[:PER_BATCH]
        with pytest.raises(BadAnswer):
            next(fetches)


def test_a_topic_that_goes_away_is_an_error_in_its_turn(url):
    with Client(url) as client:
        filled(client, "going")
        fetches = client.fetches("going", 0, max_bytes=ONE_BATCH)
        next(fetches)
        client.delete_topic("going")
        with pytest.raises(NotFound):
            values_of(fetches)


def test_with_a_timeout_it_goes_on_behind_the_end(url):
    with Client(url) as client:
        client.create_topic("grows", partitions=1)
        client.publish("grows", b"one")
        fetches = client.fetches("grows", 0, timeout=30)
        assert values_of([next(fetches)]) == [b"one"]
        client.publish("grows", b"two")
        assert values_of([next(fetches)]) == [b"two"]
        assert values_of(client.fetches("grows", 0, offset=2, timeout=0.1)) == []


SEED = 7


def stored(base_offset, count=3):
    """A batch as it lies in a log."""
    batch = encode(Columns(values=[b"v"] * count)).to_bytes()
    head = stamp(read_head(batch), base_offset=base_offset, epoch=0, append_time=1, seed=SEED)
    return head + bytes(batch)[HEAD_BYTES:]


def reply_of(next_offset, *batches):
    return FetchReply(memoryview(b"".join(batches)), 0, next_offset, 0, 99, SEED)


def test_batches_follow_each_other_up_to_where_the_answer_ends():
    found = Fetched(reply_of(6, stored(0), stored(3)))
    assert [one.offset for one in found] == [*range(6)]
    assert not Fetched(reply_of(6))
    for reply in (reply_of(7, stored(0), stored(4)), reply_of(6, stored(0), stored(0))):
        with pytest.raises(MalformedBatch, match="after 2"):
            Fetched(reply)
    with pytest.raises(MalformedBatch, match="the last offset is 2, not 5"):
        Fetched(reply_of(6, stored(0)))


def test_only_what_is_asked_for_early_is_left_to_us_to_check(url, topic):
    def pass_on(number, answer, link):
        (damaged if number == 2 else whole)(number, answer, link)

    with FetchProxy(url, pass_on) as proxy, Client(proxy.url, settings=QUICK) as client:
        assert values_of(client.fetches(topic, 0, offset=0, max_bytes=ONE_BATCH)) == VALUES
    # The third was damaged, and asked for again.
    again = proxy.offsets.index(2 * PER_BATCH, 3)
    checked = [one.command.is_checked for one in proxy.requests]
    assert [number for number, is_so in enumerate(checked) if is_so] == [0, again]

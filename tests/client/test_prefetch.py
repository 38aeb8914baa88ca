"""Prefetch: nothing is lost, repeated or kept, whatever becomes of the early request."""

from contextlib import aclosing, closing

import pytest

from penstock.client import AsyncClient, Client, ClientSettings, RetryPolicy
from penstock.client.fetch import Fetched
from penstock.client.wire import Answer, Headers
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


def free_slots(client):
    """How many calls could begin now."""
    slots, count = client.pool._slots, 0
    while slots.acquire_now():
        count += 1
    for _ in range(count):
        slots.release()
    return count


@pytest.mark.parametrize("max_bytes", [ONE_BATCH, 700_000, 16 << 20])
@pytest.mark.parametrize("connections_max", [1, 2, 100])
def test_everything_comes_once_and_in_order(url, topic, max_bytes, connections_max):
    settings = ClientSettings(connections_max=connections_max)
    with Client(url, settings=settings) as client:
        assert values_of(client.fetches(topic, 0, max_bytes=max_bytes)) == VALUES
        middle = client.fetches(topic, 0, offset=50, max_bytes=max_bytes)
        tables = [one.arrow(["offset"]).column(0).to_pylist() for one in middle]
        assert [one for table in tables for one in table] == [*range(50, len(VALUES))]
        assert free_slots(client) == connections_max


async def test_the_same_for_asyncio(url, topic):
    async with AsyncClient(url, settings=ClientSettings(connections_max=2)) as client:
        found = [one async for one in client.fetches(topic, 0, max_bytes=ONE_BATCH)]
        assert values_of(found) == VALUES
        async with aclosing(client.fetches(topic, 0, max_bytes=ONE_BATCH)) as fetches:
            async for _ in fetches:
                # The request that is ahead may not be in the way of others.
                assert topic in await client.topics()
                break
        assert not client.pool._slots.locked()
        assert client.pool._slots._value == 2


def held_back(proxy_of):
    """Passes on the head and half of the body, and the rest when the next fetch was asked for."""

    def pass_on(number, answer, near):
        half = len(answer) // 2
        near.sendall(answer[:half])
        if number < BATCHES - 1:
            assert proxy_of().await_fetches(number + 2), "nothing was asked for meanwhile"
        near.sendall(answer[half:])

    return pass_on


def test_the_next_is_asked_for_while_one_comes_in(url, topic):
    with (
        FetchProxy(url, held_back(lambda: proxy)) as proxy,
        Client(proxy.url, settings=QUICK) as client,
    ):
        assert values_of(client.fetches(topic, 0, offset=0, max_bytes=ONE_BATCH)) == VALUES
        assert proxy.offsets == [*range(0, len(VALUES), PER_BATCH)]


async def test_the_next_is_asked_for_while_one_comes_in_for_asyncio(url, topic):
    with FetchProxy(url, held_back(lambda: proxy)) as proxy:
        async with AsyncClient(proxy.url, settings=QUICK) as client:
            fetches = client.fetches(topic, 0, offset=0, max_bytes=ONE_BATCH)
            assert values_of([one async for one in fetches]) == VALUES
        assert proxy.offsets == [*range(0, len(VALUES), PER_BATCH)]


def test_only_one_is_ahead_and_it_is_dropped_with_the_iterator(url, topic):
    with (
        FetchProxy(url, whole) as proxy,
        Client(proxy.url, settings=ClientSettings(connections_max=2)) as client,
    ):
        for turn in range(1, 4):
            with closing(client.fetches(topic, 0, offset=0, max_bytes=ONE_BATCH)) as fetches:
                next(fetches)
                # Whatever else is called has room.
                client.topics()
                assert proxy.await_fetches(2 * turn)
            assert free_slots(client) == 2
        assert proxy.offsets == [0, PER_BATCH] * 3


def test_those_who_read_ahead_leave_room_for_others(url, topic):
    with Client(url, settings=ClientSettings(connections_max=2)) as client:
        readers = [client.fetches(topic, 0, max_bytes=ONE_BATCH) for _ in range(2)]
        found = [values_of([next(one)]) for one in readers]
        assert free_slots(client) >= 1
        found = [had + values_of(one) for had, one in zip(found, readers, strict=True)]
        assert found == [VALUES, VALUES]


def cut(_number, answer, near):
    near.sendall(answer[: len(answer) // 2])
    return False


def damaged(_number, answer, near):
    near.sendall(answer[:-100] + bytes([answer[-100] ^ 1]) + answer[-99:])


def refused(_number, _answer, near):
    near.sendall(busy(b""))


@pytest.mark.parametrize("trick", [cut, damaged, refused])
@pytest.mark.parametrize("at", [0, 1, 3])
def test_what_fails_once_is_asked_for_again(url, topic, trick, at):
    def pass_on(number, answer, near):
        return trick(number, answer, near) if number == at else whole(number, answer, near)

    with FetchProxy(url, pass_on) as proxy, Client(proxy.url, settings=QUICK) as client:
        assert values_of(client.fetches(topic, 0, offset=0, max_bytes=ONE_BATCH)) == VALUES
        assert free_slots(client) == QUICK.connections_max


def test_what_stays_damaged_is_an_error_in_its_turn(url, topic):
    def pass_on(number, answer, near):
        is_second = b"penstock-offset: %d\r" % PER_BATCH in answer[:1000]
        (damaged if is_second else whole)(number, answer, near)

    with FetchProxy(url, pass_on) as proxy, Client(proxy.url, settings=QUICK) as client:
        fetches = client.fetches(topic, 0, offset=0, max_bytes=ONE_BATCH)
        assert values_of([next(fetches)]) == VALUES[:PER_BATCH]
        with pytest.raises(BadAnswer):
            next(fetches)
        assert free_slots(client) == QUICK.connections_max


def test_a_topic_that_goes_away_is_an_error_in_its_turn(url):
    with Client(url) as client:
        filled(client, "going")
        fetches = client.fetches("going", 0, max_bytes=ONE_BATCH)
        next(fetches)
        client.delete_topic("going")
        with pytest.raises(NotFound):
            values_of(fetches)
        assert free_slots(client) == ClientSettings().connections_max


def test_with_a_timeout_it_goes_on_behind_the_end(url):
    with Client(url) as client:
        client.create_topic("grows", partitions=1)
        client.publish("grows", b"one")
        fetches = client.fetches("grows", 0, timeout=0.2)
        assert values_of([next(fetches)]) == [b"one"]
        client.publish("grows", b"two")
        assert values_of(fetches) == [b"two"]


SEED = 7


def stored(base_offset, count=3):
    """A batch as it lies in a log."""
    batch = encode(Columns(values=[b"v"] * count)).to_bytes()
    head = stamp(read_head(batch), base_offset=base_offset, epoch=0, append_time=1, seed=SEED)
    return head + bytes(batch)[HEAD_BYTES:]


def answer_of(next_offset, *batches):
    places = {"offset": 0, "next-offset": next_offset, "earliest": 0, "latest": 99, "seed": SEED}
    lines = [b"penstock-%b: %d\r\n" % (name.encode(), one) for name, one in places.items()]
    return Answer(200, Headers(b"\r\n" + b"".join(lines)), b"".join(batches), False)


def test_batches_follow_each_other_up_to_where_the_answer_ends():
    found = Fetched(answer_of(6, stored(0), stored(3)))
    assert [one.offset for one in found] == [*range(6)]
    assert not Fetched(answer_of(6))
    for answer in (answer_of(7, stored(0), stored(4)), answer_of(6, stored(0), stored(0))):
        with pytest.raises(MalformedBatch, match="after 2"):
            Fetched(answer)
    with pytest.raises(MalformedBatch, match="the last offset is 2, not 5"):
        Fetched(answer_of(6, stored(0)))


def test_only_what_is_asked_for_early_is_left_to_us_to_check(url, topic):
    def pass_on(number, answer, near):
        (damaged if number == 2 else whole)(number, answer, near)

    with FetchProxy(url, pass_on) as proxy, Client(proxy.url, settings=QUICK) as client:
        assert values_of(client.fetches(topic, 0, offset=0, max_bytes=ONE_BATCH)) == VALUES
    # The third was damaged, and asked for again.
    again = proxy.offsets.index(2 * PER_BATCH, 3)
    checked = [b"penstock-checked-by: client" not in one.lower() for one in proxy.requests]
    assert [number for number, is_so in enumerate(checked) if is_so] == [0, again]

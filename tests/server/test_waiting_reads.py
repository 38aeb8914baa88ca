"""Reads that wait at the end of a partition: answered when it grows, when time is up, and in between."""

import asyncio
import re

import pytest

from penstock.codec import decode_messages, verify

from .rigs import in_process, until
from .wires import answer_to, asks, connected


def values_of(answer: bytes) -> list[bytes | None]:
    head, _, rest = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), answer
    seed, found = int(re.search(rb"penstock-seed: (\d+)", head)[1]), []
    while rest:
        one = verify(rest, seed=seed)
        found += [message.value for message in decode_messages(rest[: one.length], one)]
        rest = rest[one.length :]
    return found


class Following:
    """A connection whose client reads at the end of the partition `orders/0`."""

    def __init__(self, broker) -> None:
        self.broker = broker
        self.connection, self.wire = connected(broker)

    async def begin(self) -> None:
        await self.broker.topic()
        await self.broker.publish("first")
        await self.ask(1)

    async def ask(self, offset: int) -> None:
        self.connection.data_received(asks(offset))
        async with asyncio.timeout(10):
            await until(lambda: self.broker.app.driver.waiting == 1)
        assert self.wire.written == b""

    async def answer(self) -> bytes:
        async with asyncio.timeout(10):
            await until(lambda: not self.broker.app.driver.waiting)
        return await answer_to(self.connection, self.wire)


@pytest.fixture
async def following(tmp_path):
    async with in_process(tmp_path) as broker:
        one = Following(broker)
        await one.begin()
        yield one
        one.connection.connection_lost(None)
        async with asyncio.timeout(10):
            await until(lambda: not broker.app.driver.waiting)


async def test_it_is_answered_when_the_partition_grows(following):
    for number in range(1, 4):
        await following.broker.publish(f"number {number}")
        assert values_of(await following.answer()) == [b"number %d" % number]
        await following.ask(number + 1)


async def test_several_wait_at_the_same_partition(following):
    others = [connected(following.broker) for _ in range(3)]
    for connection, _ in others:
        connection.data_received(asks(1))
    await until(lambda: following.broker.app.driver.waiting == 4)
    await following.broker.publish("for all")
    assert values_of(await following.answer()) == [b"for all"]
    for line in others:
        assert values_of(await answer_to(*line)) == [b"for all"]


async def test_messages_that_another_thread_writes_wake_it(following):
    driver = following.broker.app.driver
    message = {"value": "later", "delay": "5s"}
    sent = {"messages": [message]}
    await following.broker.call("POST", "/topics/orders/messages", sent)
    assert driver.waiting
    await driver.in_thread(lambda: following.broker.clock.advance("6s"))
    assert values_of(await following.answer()) == [b"later"]


async def test_its_time_is_up(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        answer = await answer_to(*connected(broker), asks(0, query=b"limit=10&timeout=50ms"))
        assert values_of(answer) == []
        assert b"penstock-next-offset: 0\r\n" in answer


async def test_a_drain_ends_the_wait_and_lets_nobody_wait_again(following):
    following.broker.app.drain()
    assert values_of(await following.answer()) == []
    assert values_of(await answer_to(following.connection, following.wire, asks(1))) == []


async def test_where_too_many_answers_are_unread_it_gets_429_asked_or_woken(following):
    following.broker.app.send_budget.bytes_max = 0
    await following.broker.publish("second")
    assert (await following.answer()).startswith(b"HTTP/1.1 429 ")
    told = await answer_to(following.connection, following.wire, asks(1))
    assert told.startswith(b"HTTP/1.1 429 ")
    following.broker.app.send_budget.bytes_max = 1
    told = await answer_to(following.connection, following.wire, asks(1))
    assert values_of(told) == [b"second"]


async def test_a_client_that_leaves_waits_no_longer(following):
    following.connection.connection_lost(None)
    await until(lambda: not following.broker.app.driver.waiting)
    await following.broker.publish("to no reader")
    assert following.wire.written == b""


async def test_a_topic_that_goes_is_told(following):
    assert (await following.broker.call("DELETE", "/topics/orders")).status == 204
    assert (await following.answer()).startswith(b"HTTP/1.1 404 ")


async def test_a_topic_that_comes_again_with_fewer_partitions_harms_nobody(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic(partitions=4)
        lines = [connected(broker) for _ in range(2)]
        asked = asks(0).replace(b"partitions/0/", b"partitions/3/")
        for connection, _ in lines:
            connection.data_received(asked)
        await until(lambda: broker.app.driver.waiting == 2)
        assert (await broker.call("DELETE", "/topics/orders")).status == 204
        await broker.topic()
        await broker.publish("lamp")
        for connection, wire in lines:
            assert (await answer_to(connection, wire)).startswith(b"HTTP/1.1 404 ")


@pytest.mark.parametrize("more", [b"&from_time=2026-01-01T00:00:00Z", b"&encoding=none"])
async def test_what_is_wrong_beside_an_offset_is_told_every_time(tmp_path, more):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        line = connected(broker)
        for _ in range(3):
            answer = await answer_to(*line, asks(0, query=b"limit=1" + more))
            assert answer.startswith(b"HTTP/1.1 400 ")


async def test_what_is_large_goes_in_pieces_and_the_rest_counts(tmp_path, monkeypatch):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        await broker.publish("x" * 200_000)
        connection, wire = connected(broker)
        owed = []

        def write(data: bytes) -> None:
            owed.append(connection.unsent_bytes())
            wire.written += data

        monkeypatch.setattr(wire, "write", write)
        answer = await answer_to(connection, wire, asks(0, query=b"limit=1"))
        assert values_of(answer) == [b"x" * 200_000]
        assert max(owed) > 100_000
        assert len(owed) == 5
        assert connection.owed_bytes == 0


async def test_an_offset_beyond_the_end_is_told(following):
    await following.broker.publish("second")
    await following.answer()
    answer = await answer_to(following.connection, following.wire, asks(7))
    assert answer.startswith(b"HTTP/1.1 416 ") or b"OFFSET_OUT_OF_RANGE" in answer


async def test_a_client_that_sends_more_meanwhile_is_answered_in_order(following):
    following.connection.data_received(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await following.broker.publish("second")
    async with asyncio.timeout(10):
        await until(lambda: following.wire.written.count(b"HTTP/1.1 200") == 2)
    first, second = following.wire.take().split(b"HTTP/1.1 ")[1:]
    assert b"second" in first
    assert b"process" in second

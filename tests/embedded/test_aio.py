"""The queue from asyncio: waiting blocks neither the loop nor a thread, and cancelling loses nothing."""

import asyncio

import pytest

import penstock
from penstock.errors import Refused

from .waiting import waiting_calls


@pytest.fixture
async def queue(tmp_path):
    async with penstock.open(tmp_path / "queue").aio as queue:
        yield queue


async def until(condition):
    for _ in range(6000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it never happened")


async def test_put_and_get(queue):
    assert [await queue.put(b"a"), await queue.put(b"b", key=b"k")] == [1, 2]
    assert await queue.put_many([b"c", b"d"]) == range(3, 5)
    assert (await queue.peek()).value == b"a"
    assert (await queue.get()).value == b"a"
    assert [one.value for one in await queue.get_many(10)] == [b"b", b"c", b"d"]
    assert await queue.get() is None
    await queue.sync()
    assert (await queue.stats()).done == 4
    assert await queue.seek(2) == 2
    assert [one.id async for one in queue.stream(timeout=0)] == [2, 3, 4]


async def test_thousand_waiting_gets_need_no_threads_and_each_gets_one(queue):
    gets = [asyncio.create_task(queue.get(timeout=60)) for _ in range(1000)]
    async with asyncio.timeout(120):
        await until(lambda: waiting_calls(queue._queue) == 1000)
        for number in range(1000):
            await queue.put(b"%d" % number)
        got = [message.id for message in await asyncio.gather(*gets)]
    assert sorted(got) == list(range(1, 1001))


async def test_time_is_up(queue):
    assert await queue.get(timeout=0.02) is None
    assert await queue.get_many(timeout="20ms") == []


async def test_cancelled_get_leaves_the_message_for_the_next(queue):
    for number in range(20):
        waiting = asyncio.create_task(queue.get(timeout=60))
        await asyncio.sleep(0.001 * (number % 4))
        await queue.put(b"%d" % number)
        await asyncio.sleep(0.001 * (number % 3))
        waiting.cancel()
        try:
            message = await waiting
        except asyncio.CancelledError:
            message = await queue.get(timeout=60)
        assert message.value == b"%d" % number
        assert message.attempts == 1


async def test_work_queue_answers(tmp_path):
    async with penstock.open(tmp_path, auto_ack=False).aio as queue:
        await queue.put_many([b"a", b"b", b"c", b"d"])
        first, second, third, fourth = await queue.get_many()
        await queue.ack(first)
        await queue.nack(second, "later", delay=0)
        await queue.reject(third, "never")
        await queue.extend(fourth, "1m")
        again = await queue.get(timeout=60)
        assert (again.id, again.attempts) == (2, 2)


async def test_closing_ends_the_waiting(tmp_path):
    queue = penstock.open(tmp_path).aio
    waiting = asyncio.create_task(queue.get(timeout=None))
    await until(lambda: waiting_calls(queue._queue))
    await queue.close()
    with pytest.raises(Refused, match="closed"):
        await waiting

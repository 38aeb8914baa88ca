"""The queue from asyncio: waiting blocks neither the loop nor a thread, and cancelling loses nothing."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

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


async def test_what_waits_and_what_died(tmp_path):
    async with penstock.open(tmp_path / "work", auto_ack=False, max_retries=0).aio as queue:
        later = await queue.put(b"later", delay="1h")
        assert (await queue.delayed_get(later)).value == b"later"
        moved = await queue.reschedule(later, delay="2h")
        assert [one.deliver_at for one in await queue.delayed()] == [moved.deliver_at]
        await queue.cancel(later)
        assert await queue.delayed() == []
        await queue.put_many([b"a", b"b"])
        await queue.flush()
        assert [one.value for one in await queue.peek_many()] == [b"a", b"b"]
        await queue.reject(await queue.get_many())
        assert [one.value for one in await queue.dead_letters()] == [b"a", b"b"]
        assert await queue.requeue() == (2, 0)
        assert [one.value async for one in queue] == [b"a", b"b"]
        assert (await queue.compact()).segments_removed == 0


async def test_thousand_waiting_gets_need_no_threads_and_each_gets_one(queue):
    gets = [asyncio.create_task(queue.get(timeout=60)) for _ in range(1000)]
    async with asyncio.timeout(10):
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


@pytest.mark.parametrize("auto_ack", [True, False])
def test_a_get_that_its_closed_event_loop_has_left_behind_takes_nothing(tmp_path, auto_ack):
    with penstock.open(tmp_path, auto_ack=auto_ack) as queue:
        loop = asyncio.new_event_loop()
        gets = [loop.create_task(queue.aio.get(timeout=None)) for _ in range(3)]
        loop.run_until_complete(until(lambda: waiting_calls(queue) == len(gets)))
        loop.close()
        with ThreadPoolExecutor(1) as thread:
            other = thread.submit(queue.get, timeout=60)
            assert queue.put_many([b"a", b"b"]) == range(1, 3)
            messages = [other.result(), queue.get(timeout=60)]
        assert {(one.value, one.attempts) for one in messages} == {(b"a", 1), (b"b", 1)}
    for get in gets:
        get._log_destroy_pending = False
    penstock.open(tmp_path).close()


def test_closing_a_queue_ends_all_waiting_also_with_a_closed_event_loop(tmp_path):
    queue = penstock.open(tmp_path)
    loop = asyncio.new_event_loop()
    left_behind = loop.create_task(queue.aio.get(timeout=None))
    loop.run_until_complete(until(lambda: waiting_calls(queue) == 1))
    loop.close()
    with ThreadPoolExecutor(1) as thread:
        other = thread.submit(queue.get, timeout=None)
        asyncio.run(until(lambda: waiting_calls(queue) == 2))
        queue.close()
        with pytest.raises(Refused, match="closed"):
            other.result()
    left_behind._log_destroy_pending = False
    penstock.open(tmp_path).close()


@pytest.mark.parametrize("auto_ack", [True, False])
def test_no_get_is_left_waiting_by_an_event_loop_that_ends_as_it_begins(
    tmp_path, monkeypatch, auto_ack
):
    with penstock.open(tmp_path, auto_ack=auto_ack) as queue:
        begin_get, is_cancelled = queue.begin_get, threading.Event()

        async def main():
            loop, begun = asyncio.get_running_loop(), asyncio.Event()

            def begin_late(*asked):
                loop.call_soon_threadsafe(begun.set)
                is_cancelled.wait()
                return begin_get(*asked)

            monkeypatch.setattr(queue, "begin_get", begin_late)
            get = asyncio.create_task(queue.aio.get(timeout=None))
            get.add_done_callback(lambda _: is_cancelled.set())
            await begun.wait()

        asyncio.run(main())
        assert waiting_calls(queue) == 0
        queue.put(b"x")
        assert queue.get().value == b"x"

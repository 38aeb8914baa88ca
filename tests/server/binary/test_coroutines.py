"""Coroutines that run without a task."""

import asyncio
import gc
import weakref

import pytest

from penstock.errors import Unavailable
from penstock.server.binary.coroutines import RunningCoroutine


async def turns():
    """Some turns of the loop, however long they take."""
    for _ in range(20):
        await asyncio.sleep(0)


def run(scenario):
    """Carry out a scenario in a loop; what `on_done` was called with, and how many tasks there were besides its own."""

    async def main():
        loop, told = asyncio.get_running_loop(), []
        tasks = await scenario(loop, lambda result, error: told.append((result, error)))
        return told, tasks

    return asyncio.run(main())


def test_a_coroutine_that_waits_for_nothing_is_done_at_once():
    async def scenario(loop, on_done):
        async def answer():
            return 7

        running = RunningCoroutine(loop, answer(), on_done)
        running.begin()
        assert running.is_done
        return len(asyncio.all_tasks())

    assert run(scenario) == ([(7, None)], 1)


def test_it_goes_on_when_its_future_is_done_and_takes_no_task():
    async def scenario(loop, on_done):
        first, second = loop.create_future(), loop.create_future()

        async def answer():
            await asyncio.sleep(0)
            return await first + await second

        running = RunningCoroutine(loop, answer(), on_done)
        running.begin()
        await turns()
        assert not running.is_done
        tasks = len(asyncio.all_tasks())
        second.set_result(2)
        first.set_result(1)
        await turns()
        return tasks

    assert run(scenario) == ([(3, None)], 1)


@pytest.mark.parametrize("is_in_future", [True, False])
def test_what_goes_wrong_is_told(is_in_future):
    async def scenario(loop, on_done):
        waited = loop.create_future()

        async def answer():
            if not is_in_future:
                raise ValueError("at once")
            await waited

        RunningCoroutine(loop, answer(), on_done).begin()
        if is_in_future:
            waited.set_exception(ValueError("later"))
        await turns()

    ((result, error),), _ = run(scenario)
    assert result is None
    assert isinstance(error, ValueError)


def test_one_that_is_cancelled_cleans_up_and_tells_nothing():
    left = []

    async def scenario(loop, on_done):
        waited = loop.create_future()

        async def answer():
            try:
                await waited
            finally:
                left.append(True)

        running = RunningCoroutine(loop, answer(), on_done)
        running.begin()
        running.cancel()
        running.cancel()
        assert waited.cancelled()
        await turns()

    assert run(scenario) == ([], None)
    assert left == [True]


def test_nothing_stays_of_a_coroutine_whose_future_failed():
    class Body:
        """What a request has beside it."""

    async def main():
        loop, bodies = asyncio.get_running_loop(), []

        async def answer(futures):
            body = Body()
            bodies.append(weakref.ref(body))
            await futures.pop()

        future, codes = loop.create_future(), []
        running = RunningCoroutine(
            loop, answer([future]), lambda _result, error: codes.append(error.code)
        )
        running.begin()
        future.set_exception(Unavailable("later"))
        del future, running
        gc.disable()
        try:
            await turns()
            return codes, [one() for one in bodies]
        finally:
            gc.enable()

    assert asyncio.run(main()) == (["UNAVAILABLE"], [None])

"""What handlers and callbacks may raise, in both colours: no slot of a worker ends without a word."""

import asyncio
import sys

import pytest

from penstock.client import AsyncClient, Client, Reject, Retry
from penstock.client.worker import HandlerFailed
from penstock.errors import Refused

from .servers import until


class BadText(Exception):
    def __str__(self):
        raise LookupError("no text")


class NoException(BaseException):
    """What libraries for timeouts raise."""


def leave():
    sys.exit(3)


def retry_without_unit():
    raise Retry("busy", delay="5")


def raising(error):
    def fail():
        raise error

    return fail


ENDS = {
    "exit": (leave, "SystemExit: 3"),
    "base": (raising(NoException("too late")), "NoException: too late"),
    "interrupt": (raising(KeyboardInterrupt()), "KeyboardInterrupt: "),
    "cancelled": (raising(asyncio.CancelledError()), "CancelledError: "),
    "text": (raising(BadText()), "BadText: <exception str() failed>"),
    "retry": (retry_without_unit, "Refused: delay must look like"),
}
IN_A_LOOP = ("base", "cancelled", "text", "retry")


@pytest.mark.parametrize("name", ENDS)
def test_whatever_a_handler_raises_is_the_failure_of_its_message(url, name):
    end, told = ENDS[name]
    topic, heard = f"we-{name}", []

    def handle(message):
        if message.value == b"bad":
            end()

    with Client(url) as client:
        client.create_topic(topic, partitions=1, max_retries=0)
        client.publish_many(topic, [b"bad", b"good", b"bad", b"good"])
        with client.worker(
            topic, topic, handle, on_failure=lambda _, error: heard.append(error)
        ) as worker:
            until(lambda: client.lag(topic).total == 0 and len(client.dead_letters(topic)) == 2)
        assert (worker.done, worker.failed) == (2, 2)
        letters = client.dead_letters(topic)
        assert [one.last_error.startswith(told) for one in letters] == [True, True]
    assert all(isinstance(error, Exception) for error in heard)
    if name == "base":
        assert [type(error) for error in heard] == [HandlerFailed] * 2
        assert isinstance(heard[0].__cause__, NoException)


@pytest.mark.parametrize("name", IN_A_LOOP)
async def test_whatever_a_coroutine_raises_is_the_failure_of_its_message(url, name):
    end, told = ENDS[name]
    topic = f"wea-{name}"

    async def handle(message):
        if message.value == b"bad":
            end()
        else:
            worker.stop()

    async with AsyncClient(url) as client:
        await client.create_topic(topic, partitions=1, max_retries=0)
        await client.publish_many(topic, [b"bad", b"good"])
        worker = client.worker(topic, topic, handle, deadline="60s", on_failure=lambda *_: None)
        await asyncio.wait_for(worker.run(), 120)
        assert (worker.done, worker.failed) == (1, 1)
        with Client(url) as reader:
            await asyncio.to_thread(until, lambda: len(reader.dead_letters(topic)) == 1)
            (letter,) = reader.dead_letters(topic)
        assert letter.last_error.startswith(told)


async def process(_message):
    """What a handler that is no coroutine function may call, and forget to await."""


def steps(_message):
    yield


async def steps_in_a_loop(_message):
    yield


@pytest.mark.parametrize("handler", [steps, steps_in_a_loop, lambda message: process(message)])
@pytest.mark.filterwarnings("error")
def test_what_a_handler_returned_and_did_not_run_is_not_acked(url, handler):
    with Client(url) as client:
        topic = f"we-unrun-{id(handler)}"
        client.create_topic(topic, partitions=1, max_retries=0)
        client.publish(topic, b"one")
        with client.worker(topic, "unrun", handler, on_failure=lambda *_: None) as worker:
            until(lambda: len(client.dead_letters(topic)) == 1)
        assert worker.done == 0
        assert "which does not run" in client.dead_letters(topic)[0].last_error


@pytest.mark.parametrize("handler", [steps, steps_in_a_loop])
async def test_generator_that_a_loop_does_not_run_is_not_acked(url, handler):
    topic = f"wea-unrun-{handler.__name__}"
    async with AsyncClient(url) as client:
        await client.create_topic(topic, partitions=1, max_retries=0)
        await client.publish(topic, b"one")
        worker = client.worker(topic, "unrun", handler, on_failure=lambda *_: worker.stop())
        await asyncio.wait_for(worker.run(), 120)
        assert (worker.done, worker.failed) == (0, 1)


def test_what_on_failure_raises_ends_the_worker_with_it(url):
    def handle(_message):
        raise ValueError

    def tell(_message, _error):
        raise LookupError("no pager")

    with Client(url) as client:
        client.create_topic("we-callback", partitions=1)
        client.publish_many("we-callback", [b"one", b"two"])
        with pytest.raises(LookupError, match="no pager"):
            client.worker("we-callback", "we", handle, on_failure=tell).run()
        # The other message is free for other workers.
        assert [one.in_flight for one in client.lag("we").partitions] == [0]


async def test_what_on_failure_raises_ends_an_asynchronous_worker_with_it(url):
    async def handle(_message):
        raise ValueError

    async def tell(_message, _error):
        raise LookupError("no pager")

    async with AsyncClient(url) as client:
        await client.create_topic("wea-callback", partitions=1)
        await client.publish("wea-callback", b"one")
        worker = client.worker("wea-callback", "wea", handle, on_failure=tell)
        with pytest.raises(LookupError, match="no pager"):
            await asyncio.wait_for(worker.run(), 120)


def test_a_retry_that_no_server_takes_is_refused_where_it_is_made():
    for delay in ("5", -1, float("nan"), True, "367d"):
        with pytest.raises(Refused, match="delay"):
            Retry("busy", delay=delay)
    assert Retry("busy", delay="5s").delay == "5s"
    assert Retry("busy", delay="366d").delay == "366d"
    assert str(Reject("no")) == "no"

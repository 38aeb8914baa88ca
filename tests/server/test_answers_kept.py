"""An answer keeps nothing: with the collector off, no message of it and no request is alive once it has left.

What refers to itself waits for the collector, which looks seldom in a broker: after hundreds of megabytes of answers.
"""

import asyncio
import gc
from collections import Counter

import pytest

from penstock.api.command import Command
from penstock.api.consume import Poll
from penstock.api.fetch import Fetch, FetchReply, Read, ReadReply
from penstock.api.leased import LeasedMessages, LeasedPart
from penstock.api.members import JoinGroup, PollMember
from penstock.api.publish import PublishValues
from penstock.api.start import Start
from penstock.runtime.asynchronous import ParkedPoll
from penstock.runtime.waiting_polls import Waiter
from penstock.server.http.requests import Request

from .rigs import until
from .test_refusals import Desk, desk_of

KEPT = (
    Command,
    FetchReply,
    LeasedMessages,
    LeasedPart,
    ParkedPoll,
    ReadReply,
    Request,
    Waiter,
)
ROUNDS = 8
WAIT_MS = 600_000


def instances() -> Counter[str]:
    return Counter(type(one).__name__ for one in gc.get_objects() if issubclass(type(one), KEPT))


def publish(desk: Desk) -> None:
    desk.driver.execute(PublishValues("orders", [b"lamp"]))


async def sent(desk: Desk, command: Command, *, wait_ms: int = 0) -> None:
    """By a thread, so that the loop answers."""

    def ask() -> None:
        desk.connected("writer").call(command, wait_ms=wait_ms)

    await asyncio.get_running_loop().run_in_executor(desk.sender, ask)


async def polls(desk: Desk, _round: int) -> None:
    publish(desk)
    await sent(desk, Poll("orders", "g", "m", 10))


async def polls_and_would_wait(desk: Desk, _round: int) -> None:
    publish(desk)
    await sent(desk, Poll("orders", "g", "m", 10), wait_ms=WAIT_MS)


async def polls_and_waits(desk: Desk, _round: int) -> None:
    poll = asyncio.ensure_future(sent(desk, Poll("orders", "g", "m", 10), wait_ms=WAIT_MS))
    await until(lambda: desk.app.driver.parked)
    publish(desk)
    await poll


async def polls_in_vain(desk: Desk, _round: int) -> None:
    await sent(desk, Poll("orders", "g", "m", 10), wait_ms=1)


async def polls_as_a_member(desk: Desk, _round: int) -> None:
    publish(desk)
    await sent(desk, PollMember("members", "m", 10), wait_ms=WAIT_MS)


async def reads(desk: Desk, _round: int) -> None:
    publish(desk)
    await sent(desk, Read("orders", 0))


async def fetches(desk: Desk, _round: int) -> None:
    publish(desk)
    await sent(desk, Fetch("orders", 0))


async def reads_and_waits(desk: Desk, number: int) -> None:
    read = Read("orders", 0, Start.at_offset(number))
    waiting = asyncio.ensure_future(sent(desk, read, wait_ms=WAIT_MS))
    await until(lambda: desk.app.driver.waiting)
    publish(desk)
    await waiting


async def polls_over_http(desk: Desk, _round: int) -> None:
    publish(desk)
    await got(desk, "/topics/orders/messages?group=g")


async def reads_over_http(desk: Desk, _round: int) -> None:
    publish(desk)
    await got(desk, "/topics/orders/partitions/0/messages")


async def got(desk: Desk, target: str) -> None:
    headers = {"authorization": f"Bearer {desk.keys['writer'].text}"}
    assert (await desk.broker.call("GET", target, headers=headers)).status == 200


WAYS = (
    polls,
    polls_and_would_wait,
    polls_and_waits,
    polls_in_vain,
    polls_as_a_member,
    reads,
    reads_and_waits,
    fetches,
    polls_over_http,
    reads_over_http,
)


@pytest.mark.parametrize("ask", WAYS, ids=lambda ask: ask.__name__)
async def test_nothing_is_kept_of_an_answer(tmp_path, ask):
    async with desk_of(tmp_path) as desk:
        await sent(desk, JoinGroup("members", "m", ("orders",)))
        await ask(desk, 0)
        await desk.rest()
        gc.collect()
        gc.disable()
        try:
            await ask(desk, 1)
            await desk.rest()
            known = instances()
            for number in range(2, ROUNDS):
                await ask(desk, number)
            await desk.rest()
            assert instances() == known
        finally:
            gc.enable()

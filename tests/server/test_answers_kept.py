"""An answer keeps nothing: with the collector off, no message of it and no request is alive once it has left.

What refers to itself waits for the collector, which looks seldom in a broker: after hundreds of megabytes of answers.
"""

import asyncio
import gc
from collections import Counter
from typing import Any

import pytest

from penstock.api.command import Command
from penstock.api.consume import Poll
from penstock.api.fetch import Fetch, FetchReply, Read, ReadReply
from penstock.api.groups import Mode
from penstock.api.leased import LeasedMessages, LeasedPart
from penstock.api.members import JoinGroup, PollMember
from penstock.api.publish import Acks, PublishValues
from penstock.api.start import Start
from penstock.runtime.asynchronous import ParkedPoll
from penstock.runtime.waiting_polls import Waiter
from penstock.server.http.requests import Request
from tests.kafka.test_waiting import fetch

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


async def sent(desk: Desk, command: Command, **more: Any) -> None:
    """By a thread, so that the loop answers."""

    def ask() -> None:
        desk.connected("writer").call(command, **more)

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


async def polls_as_a_shared_member(desk: Desk, _round: int) -> None:
    publish(desk)
    await sent(desk, PollMember("shared", "m", 10), wait_ms=WAIT_MS)


async def publishes(desk: Desk, _round: int) -> None:
    await sent(desk, PublishValues("orders", [b"lamp"]), acks=Acks.ALL)


async def publishes_over_http(desk: Desk, _round: int) -> None:
    body = {"messages": [{"value": "lamp"}], "acks": "all"}
    await asked(desk, "POST", "/topics/orders/messages", body)


async def polls_and_acks_over_http(desk: Desk, _round: int) -> None:
    publish(desk)
    (message, *_) = (await asked(desk, "GET", "/topics/orders/messages?group=g"))["messages"]
    await asked(desk, "POST", "/messages/ack", {"receipt_handle": message["receipt_handle"]})


async def makes_a_topic_over_http(desk: Desk, number: int) -> None:
    body = {"name": f"more-{number}", "num_partitions": 1}
    await asked(desk, "POST", "/topics", body, status=201)


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


async def fetches_over_kafka(desk: Desk, number: int) -> None:
    publish(desk)
    await desk.kafka.client(desk.principals["writer"]).ask(1, 11, **fetch("orders", number))


async def fetches_over_kafka_and_waits(desk: Desk, number: int) -> None:
    client = desk.kafka.client(desk.principals["writer"])
    waiting = asyncio.ensure_future(client.ask(1, 11, **fetch("orders", number)))
    await until(lambda: desk.app.driver.waiting)
    publish(desk)
    await waiting


async def polls_over_http(desk: Desk, _round: int) -> None:
    publish(desk)
    await asked(desk, "GET", "/topics/orders/messages?group=g")


async def reads_over_http(desk: Desk, _round: int) -> None:
    publish(desk)
    await asked(desk, "GET", "/topics/orders/partitions/0/messages")


async def asked(
    desk: Desk, method: str, target: str, body: object = None, *, status: int = 200
) -> Any:
    """What HTTP answers, as JSON."""
    headers = {"authorization": f"Bearer {desk.keys['writer'].text}"}
    reply = await desk.broker.call(method, target, body, headers=headers)
    assert reply.status == status, reply.body
    return reply.json


WAYS = (
    polls,
    polls_and_would_wait,
    polls_and_waits,
    polls_in_vain,
    polls_as_a_member,
    polls_as_a_shared_member,
    publishes,
    reads,
    reads_and_waits,
    fetches,
    fetches_over_kafka,
    fetches_over_kafka_and_waits,
    polls_over_http,
    polls_and_acks_over_http,
    publishes_over_http,
    makes_a_topic_over_http,
    reads_over_http,
)


@pytest.mark.parametrize("ask", WAYS, ids=lambda ask: ask.__name__)
async def test_nothing_is_kept_of_an_answer(tmp_path, ask):
    async with desk_of(tmp_path) as desk:
        await sent(desk, JoinGroup("members", "m", ("orders",)))
        await sent(desk, JoinGroup("shared", "m", ("orders",), mode=Mode.SHARED))
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

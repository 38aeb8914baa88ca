"""A refusal keeps nothing: with the collector off, no command, error or body is alive once its answer has left."""

import asyncio
import gc
import json
import socket
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress

import pytest

import penstock
from penstock.api.command import Command
from penstock.api.principals import Principal, Role
from penstock.api.publish import PublishBatch, PublishValues
from penstock.api.schemas import DecodeContent
from penstock.api.topics import CreateTopic, DescribeTopic
from penstock.api.transactions import ForceAbort
from penstock.broker.partition.changes import Done
from penstock.codec import Columns, encode
from penstock.errors import PenstockError
from penstock.runtime.steps import Steps
from penstock.runtime.waiting_polls import Waiter
from penstock.server.binary.serving import BinaryServer
from penstock.server.http.requests import Request
from tests.kafka.in_process import KafkaRig

from .binary.raw_client import RawClient
from .binary.services import service_of
from .rigs import in_process

BODY_BYTES, REFUSALS = 1 << 20, 4
KEPT = (Command, PenstockError, Done, Steps, Waiter, Request)


def body() -> bytes:
    """Bytes that are no batch, and not the same object twice."""
    return b"x" * BODY_BYTES


def name() -> str:
    return "x" * BODY_BYTES


def batch() -> bytes:
    return encode(Columns(values=[body()])).to_bytes()


# A command of each way in which drivers carry some out, and who asks.
COMMANDS = {
    "no batch": (lambda: PublishBatch("orders", 0, body()), "writer"),
    "a batch of a reader": (lambda: PublishBatch("orders", 0, batch()), "reader"),
    "a value for no topic": (lambda: PublishValues("lost", [body()]), "writer"),
    "a query": (lambda: DescribeTopic(name()), "writer"),
    "a query in a thread": (lambda: DecodeContent(content=body()), "writer"),
    "structural": (lambda: CreateTopic(name(), 1), "writer"),
    "in steps": (lambda: ForceAbort(name()), "writer"),
}


class Desk:
    """A broker with two keys, and all ways into it."""

    def __init__(self, broker, port: int) -> None:
        self.broker, self.driver, self.app = broker, broker.driver, broker.app
        self.keys = {
            name: broker.key(name, role)
            for name, role in (("writer", Role.ADMIN), ("reader", Role.READONLY))
        }
        self.principals = {
            "writer": Principal("writer", Role.ADMIN),
            "reader": Principal("reader", Role.READONLY),
        }
        self.clients = {}
        self.port = port
        self.kafka = KafkaRig(broker)
        # Of one thread each: that one has let go of its work when it begins with the next.
        self._worker, self.sender = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
        asyncio.get_running_loop().set_default_executor(self._worker)

    async def executes(self, command, by: str) -> None:
        self.driver.execute(command, self.principals[by])

    async def begins(self, command, by: str) -> None:
        self.driver.begin(command, self.principals[by])

    async def starts(self, command, by: str) -> None:
        self.driver.start(command, self.principals[by], writers=1)

    async def awaits(self, command, by: str) -> None:
        await self.app.driver.execute(command, self.principals[by])

    async def runs_in_thread(self, command, by: str) -> None:
        await self.app.driver.in_thread(lambda: self.driver.execute(command, self.principals[by]))

    async def sends(self, command, by: str) -> None:
        await asyncio.get_running_loop().run_in_executor(self.sender, self._send, command, by)

    def connected(self, by: str) -> RawClient:
        """A client of the binary port that has shown its key; for `sender`, since the loop answers it."""
        client = self.clients.get(by)
        if client is None:
            client = self.clients[by] = RawClient(self.port)
            client.hello(self.keys[by].text)
        return client

    def _send(self, command, by: str) -> None:
        self.connected(by).call(command)

    async def rest(self) -> None:
        """Return when no thread has anything to do any more."""
        for executor in (self.sender, self._worker):
            await asyncio.get_running_loop().run_in_executor(executor, int)

    async def posts(self, target: str, content: bytes, kind: str, by: str = "writer") -> int:
        headers = {"content-type": kind, "authorization": f"Bearer {self.keys[by].text}"}
        return (await self.broker.call("POST", target, content, headers=headers)).status

    async def produces(self, records: bytes, by: str = "writer") -> int:
        client = self.kafka.client(self.principals[by])
        part = {"index": 0, "records": records}
        topics = [{"name": "orders", "partition_data": [part]}]
        more = {"transactional_id": None, "acks": -1, "timeout_ms": 1000, "topic_data": topics}
        answer = await client.ask(0, 9, **more)
        return answer["responses"][0]["partition_responses"][0]["error_code"]


@asynccontextmanager
async def desk_of(tmp_path) -> "Iterator[Desk]":
    async with in_process(tmp_path, {("auth", "enabled"): True}) as broker:
        broker.driver.execute(CreateTopic("orders", 1))
        listener = socket.create_server(("127.0.0.1", 0))
        server = BinaryServer(service_of(broker), listener)
        await server.start()
        desk = Desk(broker, listener.getsockname()[1])
        try:
            yield desk
        finally:
            for client in desk.clients.values():
                client.socket.close()
            await server.stop()
            desk.sender.shutdown()


@contextmanager
def collector_off() -> Iterator[None]:
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()
        gc.enable()


def instances() -> int:
    return sum(issubclass(type(one), KEPT) for one in gc.get_objects())


async def no_rest() -> None:
    """No thread works for it."""


async def assert_nothing_is_kept(refuse, rest=no_rest) -> None:
    """`refuse` asks for something that is refused. What the first time leaves for good is not counted."""
    await refuse()
    await rest()
    with collector_off():
        known, traced = instances(), tracemalloc.get_traced_memory()[0]
        for _ in range(REFUSALS):
            await refuse()
        await rest()
        assert instances() == known
        assert tracemalloc.get_traced_memory()[0] - traced < BODY_BYTES // 2


WAYS = (Desk.executes, Desk.begins, Desk.starts, Desk.awaits, Desk.runs_in_thread, Desk.sends)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize(("make", "by"), COMMANDS.values(), ids=COMMANDS)
async def test_nothing_is_kept_of_a_command_that_was_refused(tmp_path, way, make, by):
    async with desk_of(tmp_path) as desk:

        async def refuse() -> None:
            with suppress(PenstockError):
                await way(desk, make(), by)
                raise AssertionError("it was not refused")

        await assert_nothing_is_kept(refuse, desk.rest)


BATCHES = "application/vnd.penstock.batch"
REQUESTS = {
    "a batch": ("/topics/orders/partitions/0/batches", body, BATCHES, "writer", 400),
    "a batch of a reader": ("/topics/orders/partitions/0/batches", batch, BATCHES, "reader", 403),
    "no JSON": ("/topics/orders/messages", body, "application/json", "writer", 400),
    "no topic": (
        "/topics/lost/messages",
        lambda: json.dumps({"messages": [{"value": name()}]}).encode(),
        "application/json",
        "writer",
        404,
    ),
    "one of two partitions": (
        "/topics/orders/messages",
        lambda: json.dumps(
            {"messages": [{"value": name(), "partition": one} for one in (7, 8)]}
        ).encode(),
        "application/json",
        "writer",
        404,
    ),
}


@pytest.mark.parametrize(
    ("target", "content", "kind", "by", "status"), REQUESTS.values(), ids=REQUESTS
)
async def test_nothing_is_kept_of_a_request_over_http(tmp_path, target, content, kind, by, status):
    async with desk_of(tmp_path) as desk:

        async def refuse() -> None:
            assert await desk.posts(target, content(), kind, by) == status

        await assert_nothing_is_kept(refuse)


@pytest.mark.parametrize(("content", "by", "code"), [(body, "writer", 43), (batch, "reader", 29)])
async def test_nothing_is_kept_of_what_a_kafka_client_produces(tmp_path, content, by, code):
    async with desk_of(tmp_path) as desk:

        async def refuse() -> None:
            assert await desk.produces(content(), by) == code

        await assert_nothing_is_kept(refuse)


async def test_nothing_is_kept_of_what_the_library_refuses():
    with penstock.Broker() as broker:
        broker.create_topic("orders", partitions=1)

        async def refuse() -> None:
            with suppress(PenstockError):
                broker.publish("lost", body())
                raise AssertionError("it was not refused")

        await assert_nothing_is_kept(refuse)

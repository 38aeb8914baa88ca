"""Who waits for a message hears of it before who sent it does."""

import asyncio
import socket

import pytest
import uvloop

from .rigs import in_process, until
from .test_following import Following, asks, values_of
from .test_straight import publish
from .wires import Wire, answer_to, connected


class Order:
    """Who was written to, in that order."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def watch(self, name: str, wire: Wire) -> None:
        write = wire.write

        def noted(data: bytes) -> None:
            self.names.append(name)
            write(data)

        wire.write = noted  # type: ignore[method-assign]  # Of this one only.


@pytest.fixture
async def scene(tmp_path):
    """A follower that waits, a publisher that is known, and the order in which they are answered."""
    async with in_process(tmp_path) as broker:
        one = Following(broker)
        await one.begin()
        publisher = connected(broker)
        for offset in (1, 2):
            await answer_to(*publisher, publish())
            assert len(values_of(await one.answer())) == 1
            one.ask(offset + 1)
        order = Order()
        order.watch("publisher", publisher[1])
        order.watch("follower", one.wire)
        yield one, publisher, order
        one.connection.connection_lost(None)


async def test_the_follower_hears_first_and_both_within_the_call(scene):
    one, (connection, wire), order = scene
    connection.data_received(publish())
    assert order.names == ["follower", "publisher"]
    assert len(values_of(one.wire.take())) == 1
    assert wire.take().startswith(b"HTTP/1.1 200 OK")
    assert not one.broker.door.driver.waiting


async def test_of_many_followers_one_hears_first_and_the_others_soon(scene):
    one, (connection, _), order = scene
    others = [connected(one.broker) for _ in range(3)]
    for line in others:
        await answer_to(*line, asks(0))
        line[0].data_received(asks(3))
        order.watch("follower", line[1])
    connection.data_received(publish())
    assert order.names == ["follower", "publisher"]
    async with asyncio.timeout(5):
        await until(lambda: not one.broker.door.driver.waiting)
    assert order.names == ["follower", "publisher", *["follower"] * 3]
    for line in others:
        assert len(values_of(line[1].take())) == 1
        line[0].connection_lost(None)


async def test_a_bug_about_the_follower_is_nothing_to_the_publisher(scene):
    one, (connection, wire), _ = scene
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, about: told.append(about))
    one.connection._follower._send = None
    connection.data_received(publish())
    assert wire.take().startswith(b"HTTP/1.1 200 OK")
    async with asyncio.timeout(5):
        await until(lambda: told)
    assert isinstance(told[0]["exception"], TypeError)
    assert not one.broker.door.driver.waiting


async def test_a_publish_that_fails_wakes_nobody(scene):
    one, (connection, wire), order = scene
    one.broker.driver.node.guard.is_refusing = True
    one.broker.driver.node.guard._min_free_bytes = 1 << 62
    connection.data_received(publish())
    async with asyncio.timeout(5):
        await until(lambda: wire.written)
    assert wire.take().split()[1] == b"507"
    assert order.names == ["publisher"]
    assert one.connection._follower.is_waiting


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_transport_sends_within_the_call(new_loop):
    """The order above is only worth something if that is so. uvloop does it since 0.23."""
    here, there = socket.socketpair()
    there.setblocking(False)

    async def heard() -> bytes:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(asyncio.Protocol, sock=here)
        transport.write(b"at once")
        found = there.recv(100)
        transport.close()
        return found

    with there, asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(heard()) == b"at once"

"""Who waits for a message hears of it before who sent it does, and what is sent at once is sent whole."""

import asyncio
import os
import socket

import pytest

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


class Socketed(Wire):
    """A transport with a socket, and what it was left to send."""

    def __init__(self, end: socket.socket) -> None:
        super().__init__()
        self.end, self.waiting, self.is_tls = end, 0, False

    def get_extra_info(self, name: str) -> object:
        return {"socket": self.end, "sslcontext": self.is_tls}.get(name)

    def get_write_buffer_size(self) -> int:
        return self.waiting


@pytest.fixture
async def ends(tmp_path):
    """A connection with a socket, its transport, and the other end."""
    here, there = socket.socketpair()
    with here, there:
        here.setblocking(False)
        async with in_process(tmp_path) as broker:
            connection, _ = connected(broker)
            wire = Socketed(here)
            connection.connection_made(wire)
            yield connection, wire, there


async def test_what_is_sent_at_once_passes_the_transport_by(ends):
    connection, wire, there = ends
    connection.write_now(b"at once")
    assert (wire.written, there.recv(100)) == (b"", b"at once")


async def test_what_a_socket_does_not_take_is_left_to_the_transport(ends):
    connection, wire, there = ends
    data = os.urandom(4 << 20)
    connection.write_now(data)
    assert 0 < len(wire.written) < len(data)
    connection.write_now(b"full")
    got = b""
    while len(got) < len(data) - len(wire.written) + 4:
        got += there.recv(1 << 20)
    assert got + wire.written == data + b"full"


@pytest.mark.parametrize("why", ["closing", "waiting", "lost", "tls"])
async def test_nothing_is_sent_past_a_transport_that_has_a_say(ends, why):
    connection, wire, there = ends
    if why == "closing":
        wire.close()
    elif why == "waiting":
        wire.waiting = 1
    elif why == "tls":
        wire.is_tls, connection._descriptor = True, -1
        connection.connection_made(wire)
    else:
        connection.connection_lost(None)
    connection.write_now(b"later")
    assert wire.written == b"later"
    there.setblocking(False)
    with pytest.raises(BlockingIOError):
        there.recv(1)


async def test_who_is_gone_is_left_to_the_transport(ends):
    connection, wire, there = ends
    there.close()
    connection.write_now(b"nobody")
    assert wire.written == b"nobody"

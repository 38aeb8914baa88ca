"""Bodies that come slowly: they hold no place, and have to come within their time or at the least rate."""

import asyncio

from penstock.server.body_memory import BodyMemory

from .rigs import in_process, until
from .test_framing import CHUNKED, GOOD, HEAD, READ, TYPE, USUAL, with_length
from .wires import connected


async def test_each_span_has_to_bring_the_end_of_a_body_or_enough_of_it(tmp_path):
    rate = {("http", "body_timeout_ms"): 30_000, ("http", "body_bytes_per_s_min"): 1000}
    async with in_process(tmp_path, rate) as broker:
        await broker.topic()
        now = 100.0
        broker.app.now = lambda: now
        steady, dripping = connected(broker), connected(broker)
        for connection, _ in (steady, dripping):
            connection.data_received(HEAD + TYPE + b"Content-Length: 8000000\r\n\r\n")
        for _ in range(600):
            now += 1.0
            steady[0].data_received(b" " * 1001)
            if not dripping[1].is_closing():
                dripping[0].data_received(b" ")
            broker.app.sweep()
            await asyncio.sleep(0)
        assert steady[1].written == b""
        assert b"within 30 s" in dripping[1].written
        # What came before counts only in its own span.
        bursting = connected(broker)
        bursting[0].data_received(HEAD + TYPE + b"Content-Length: 8000000\r\n\r\n")
        bursting[0].data_received(b" " * 1_000_000)
        for _ in range(2):
            assert bursting[1].written == b""
            now += 31.0
            broker.app.sweep()
        await until(lambda: bursting[1].written)
        assert bursting[1].written.startswith(b"HTTP/1.1 408 ")


def test_one_client_leaves_room_for_the_others():
    memory = BodyMemory(100, 60)
    with (
        memory.reserved("a") as first,
        memory.reserved("a") as second,
        memory.reserved("b") as other,
    ):
        assert (first.grow(50), second.grow(10)) == (None, None)
        assert second.grow(11) == 60
        assert other.grow(41) == 100
        assert other.grow(40) is None
        assert memory.used == 100
    assert (memory.used, memory.of_clients) == (0, {})


async def test_what_comes_with_the_headers_counts_as_well(tmp_path):
    """Of a plain body, of one in chunks, and of a large batch; it is given back when its client leaves."""
    batch = HEAD.replace(b"/messages", b"/partitions/0/batches") + TYPE.replace(
        b"json", b"vnd.penstock.batch"
    )
    begun = b" " * 50_000
    requests = [
        HEAD + TYPE + b"Content-Length: 60000\r\n\r\n" + begun,
        CHUNKED + b"%x\r\n" % 60_000 + begun,
        batch + b"Content-Length: 1000000\r\n\r\n" + begun,
    ]
    limits = {("http", "bodies_bytes_max"): 120_000}
    for raw in requests:
        async with in_process(tmp_path, limits) as broker:
            waiting = [connected(broker) for _ in range(3)]
            for connection, _ in waiting:
                connection.data_received(raw)
            async with asyncio.timeout(10):
                await until(lambda: waiting[-1][1].written)  # noqa: B023 - awaited here
            assert broker.app.memory.used == 100_000
            assert waiting[-1][1].written.startswith(b"HTTP/1.1 429 ")
            assert [wire.written for _, wire in waiting[:2]] == [b"", b""]
            for connection, _ in waiting:
                connection.connection_lost(None)
            async with asyncio.timeout(10):
                await until(lambda: broker.app.memory.used == 0)


async def test_bodies_that_have_not_come_hold_no_place(tmp_path):
    """There are three times as many as places, and a publish goes through; each has its turn when it is complete."""
    async with in_process(tmp_path, {("http", "requests_max"): 8}) as broker:
        await broker.topic()
        waiting = [connected(broker) for _ in range(24)]
        for number, (connection, _) in enumerate(waiting):
            connection.data_received(
                USUAL[:-1] if number % 2 else CHUNKED + b"%x\r\n" % len(GOOD) + GOOD[:9]
            )
        await asyncio.sleep(0)
        assert broker.app.room.under_way == 0
        connection, wire = connected(broker)
        connection.data_received(USUAL)
        async with asyncio.timeout(10):
            await until(lambda: wire.written)
        assert wire.written.startswith(b"HTTP/1.1 200 ")
        for number, (connection, wire) in enumerate(waiting):
            connection.data_received(USUAL[-1:] if number % 2 else GOOD[9:] + b"\r\n0\r\n\r\n")
            async with asyncio.timeout(10):
                await until(lambda wire=wire: wire.written)
            assert wire.written.startswith(b"HTTP/1.1 200 ")
            connection.connection_lost(None)
        reply = await broker.call("GET", "/topics/orders")
        assert reply.json["total_messages"] == 25
        assert broker.app.memory.used == 0


async def test_a_body_that_drips_is_told_that_it_is_too_slow(tmp_path):
    """Also one that nothing waits for; then the connection just ends, if its request was answered."""
    cases = {
        USUAL[:-1]: b"HTTP/1.1 408 ",
        CHUNKED + b"5\r\n{": b"HTTP/1.1 408 ",
        with_length(GOOD, TYPE, HEAD.replace(b"orders", b"none"))[:-1]: b"HTTP/1.1 408 ",
        # Refused before its body was looked at.
        with_length(GOOD, b"Content-Type: text/plain\r\n")[:-1]: b"HTTP/1.1 415 ",
        READ[:-2] + b"Content-Length: 100\r\n\r\na": b"HTTP/1.1 200 ",
        READ.replace(b"limit=1&offset=0", b"offset=1&timeout=20s")[:-2]
        + b"Content-Length: 100\r\n\r\na": b"HTTP/1.1 408 ",
    }
    async with in_process(tmp_path, {("http", "body_timeout_ms"): 1000}) as broker:
        now = 100.0
        broker.app.now = lambda: now
        await broker.topic()
        await broker.publish("first")
        for raw, status in cases.items():
            connection, wire = connected(broker)
            connection.data_received(raw)
            await asyncio.sleep(0)
            broker.app.sweep()
            assert not wire.is_closing()
            now += 1.1
            broker.app.sweep()
            async with asyncio.timeout(10):
                await until(wire.is_closing)
            assert wire.written.startswith(status), raw
            assert wire.written.count(b"HTTP/1.1 ") == 1
            connection.connection_lost(None)

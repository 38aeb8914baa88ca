"""Clients that leave, or are left, while requests of theirs are here: nobody is answered, and the log says nothing."""

import asyncio
import socket

import pytest

from penstock.api.consume import Poll
from penstock.api.principals import LOCAL
from penstock.api.publish import Publish
from penstock.api.topics import CreateTopic
from penstock.broker.partition import Now
from penstock.errors import DamagedFile, PartitionFaulty
from penstock.model import Message

from .rigs import in_process, until
from .wires import Wire, asks, connected, is_answered, publish, read


class Closed(Wire):
    """As uvloop's transports are: whoever writes to one that is closed is told off."""

    def write(self, data: bytes) -> None:
        if self.is_closing():
            raise RuntimeError("the handler is closed")
        super().write(data)


S_NS = 1_000_000_000
POLL = b"GET /topics/orders/messages?group=g&timeout=20s HTTP/1.1\r\nHost: localhost\r\n\r\n"
STREAM = b"GET /consume?topic=orders&group=g HTTP/1.1\r\nHost: localhost\r\n\r\n"
FIRST = {"waits": asks(0), "polls": POLL, "publishes": publish(), "reads": read()}


@pytest.mark.parametrize("behind", [1, 3])
@pytest.mark.parametrize("first", FIRST)
async def test_who_leaves_with_requests_in_line_is_no_error(tmp_path, caplog, first, behind):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        connection, wire = connected(broker, Closed())
        connection.data_received(FIRST[first] + read() * behind)
        # Either has begun to wait by then, or has not begun at all.
        if first in {"waits", "polls"}:
            async with asyncio.timeout(10):
                await until(lambda: broker.app.driver.waiting)
        wire.close()
        connection.connection_lost(None)
        async with asyncio.timeout(10):
            await until(lambda: is_answered(connection))
        assert not broker.app.driver.waiting
        assert (wire.written, broker.app.room.under_way) == (b"", 0)
    assert caplog.messages == []


async def test_a_publish_counts_although_its_client_left_at_once(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        connection, wire = connected(broker)
        connection.data_received(publish())
        wire.close()
        connection.connection_lost(None)
        async with asyncio.timeout(10):
            await until(lambda: is_answered(connection))
        assert [one["value"] for one in await broker.poll()] == ["lamp"]


@pytest.mark.parametrize("first", [POLL, STREAM])
async def test_who_leaves_with_more_sent_behind_what_waits_is_missed(tmp_path, first):
    """What is behind is not read, so the end behind that is not heard; it is looked for."""
    ours, theirs = socket.socketpair()
    async with in_process(tmp_path) as broker:
        await broker.topic()
        connection, wire = connected(broker)
        wire.get_extra_info = lambda _name: ours
        wire.abort = lambda: (wire.close(), connection.connection_lost(None))
        connection.data_received(first + b"GET")
        async with asyncio.timeout(10):
            await until(lambda: broker.app.driver.waiting)
        broker.app.sweep()
        assert not wire.is_closing()
        theirs.close()
        broker.app.sweep()
        assert wire.is_closing()
        async with asyncio.timeout(10):
            await until(lambda: is_answered(connection))
        assert (broker.app.driver.waiting, broker.app.read_pauses.behind) == (0, set())
        assert not broker.app.streams
    ours.close()


async def test_messages_that_come_to_a_poll_as_it_is_cancelled_go_back_at_once(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        command = Poll("orders", "g", "leaver", 10, 30_000)
        poll = asyncio.create_task(broker.app.driver.poll([command], LOCAL, 20 * S_NS))
        async with asyncio.timeout(10):
            await until(lambda: broker.app.driver.waiting)
        broker.driver.run(
            lambda now: broker.driver.execute_locked(Publish("orders", [Message(b"late")]), now)
        )
        # It has the message by now and does not know yet.
        poll.cancel()
        with pytest.raises(asyncio.CancelledError):
            await poll
        (found,) = await broker.poll()
        assert (found["value"], found["delivery_count"]) == ("late", 1)


async def test_a_poll_of_several_topics_gives_what_it_leased_before_it_met_a_faulty_one(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()

        def fail_another(now: Now) -> None:
            node = broker.driver.node
            broker.driver.execute_locked(Publish("orders", [Message(b"leased")]), now)
            node.execute(CreateTopic("another", 1), LOCAL, now).outcome()
            node.fail(node.partition("another", 0), DamagedFile("another", "gone"))

        broker.driver.rearrange(fail_another)
        polls = [Poll(topic, "g", "reader", 10, 30_000) for topic in ("orders", "another")]
        found = await broker.app.driver.poll(polls, LOCAL, 0)
        assert [one.value for one in found.messages()] == [b"leased"]
        with pytest.raises(PartitionFaulty):
            await broker.app.driver.poll(polls, LOCAL, 0)


HALF = publish()[:-5]
HALF_BATCH = (
    b"POST /topics/orders/partitions/0/batches HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: application/vnd.penstock.batch\r\nContent-Length: 1000000\r\n\r\nhalf"
)


@pytest.mark.parametrize("said", [HALF, HALF_BATCH], ids=["half a body", "half a batch"])
async def test_who_is_too_slow_for_a_server_that_stops_is_no_error(tmp_path, caplog, said):
    """And gets no answer, from which it would learn that nothing was done."""
    async with in_process(tmp_path, {("http", "drain_timeout_ms"): 100}) as broker:
        await broker.topic()
        connection, wire = connected(broker, Closed())
        connection.data_received(said)
        await asyncio.sleep(0)
        broker.app.drain()
        await broker.app.stop()
        async with asyncio.timeout(10):
            await until(lambda: is_answered(connection))
        assert (wire.written, wire.is_closing()) == (b"", True)
        connection.connection_lost(None)
    assert caplog.messages == []


class Secure(Closed):
    """As one with TLS: it says nothing of a client that has ended its side, and takes all that it is given."""

    def __init__(self, end: socket.socket) -> None:
        super().__init__()
        self.end, self.writes = end, 0

    def get_extra_info(self, name: str) -> object:
        return {"socket": self.end, "sslcontext": True}.get(name)

    def write(self, data: bytes) -> None:
        super().write(data)
        self.writes += 1
        if self.writes == 2:
            self.on_second()

    def on_second(self) -> None:
        """For the test to say."""


LARGE = (
    b"GET /topics/orders/partitions/0/messages?limit=9&max_bytes=9000000&offset=0 HTTP/1.1\r\n"
    b"Host: localhost\r\n\r\n"
)
STREAM = b"GET /consume?topic=orders&group=g HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize("asked", [LARGE, STREAM, read() * 9], ids=["large", "stream", "in line"])
async def test_who_ends_tls_is_written_to_no_more(tmp_path, caplog, asked):
    here, there = socket.socketpair()
    with here, there:
        async with in_process(tmp_path) as broker:
            await broker.topic()
            await broker.publish(*["x" * 100_000] * 9)
            connection, wire = connected(broker, Secure(here))
            wire.on_second = there.close
            connection.data_received(asked)
            async with asyncio.timeout(10):
                await until(lambda: wire.writes >= 2)
                await broker.publish("one more")
                await wire.is_closed.wait()
                await until(lambda: is_answered(connection))
            connection.connection_lost(None)
            # The transport says something from the fifth in vain on.
            assert wire.writes <= 4
    assert caplog.messages == []


async def test_a_stream_whose_topic_goes_ends_without_an_error(tmp_path, caplog):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        connection, wire = connected(broker)
        await broker.publish("first")
        connection.data_received(STREAM)
        async with asyncio.timeout(10):
            await until(lambda: b"first" in wire.written)
            await broker.call("DELETE", "/topics/orders")
            await until(lambda: is_answered(connection))
        assert wire.is_closing()
        connection.connection_lost(None)
    assert caplog.messages == []


async def test_a_poll_whose_topic_goes_is_told_at_once(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        asked = "/topics/orders/messages?group=g&timeout=20s"
        poll = asyncio.create_task(broker.call("GET", asked))
        async with asyncio.timeout(10):
            await until(lambda: broker.app.driver.waiting)
            await broker.call("DELETE", "/topics/orders")
            assert (await poll).status == 404

"""Connections: answers in order, however requests are cut; limits of time and of number; publishes of one turn."""

import asyncio
import json
import re
import socket
from itertools import count

import pytest

from penstock.server.http.connection import Connection
from penstock.server.http.publish_coalescer import Run

from .rigs import in_process, until
from .wires import Wire, answer_to, connected, is_answered, publish

_topics = count()
GOOD = b'{"messages":[{"value":"lamp"}],"acks":"leader"}'
BODIES = {
    "plain": GOOD,
    "synced": GOOD.replace(b"leader", b"all"),
    "unacknowledged": GOOD.replace(b"leader", b"none"),
    "several": b'{"messages":[{"value":"a"},{"value":"b","key":"k"},{"value":null}]}',
    "one too many fields": b'{"messages":[{"value":"a","colour":"red"}]}',
    "bad acks": GOOD.replace(b"leader", b"some"),
    "bad JSON": b'{"messages":[',
    "no messages": b'{"messages":[]}',
    "nothing": b"",
    "no such partition": b'{"messages":[{"value":"a","partition":7}]}',
}
TYPE = b"Content-Type: application/json\r\n"


def request(topic: str, body: bytes, more: bytes = TYPE) -> bytes:
    head = b"POST /topics/%b/messages HTTP/1.1\r\nHost: localhost\r\n%b" % (topic.encode(), more)
    return b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body)


class Line:
    """One connection over a socket."""

    def __init__(self, broker) -> None:
        self.stream = socket.create_connection(("127.0.0.1", broker.port), 30)
        self.stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.answers = self.stream.makefile("rb")

    def __enter__(self) -> "Line":
        return self

    def __exit__(self, *_error: object) -> None:
        self.answers.close()
        self.stream.close()

    def answer(self) -> tuple[int, list[str], str]:
        """Status, names of headers and body of the next answer, offsets and the like left out."""
        status, names, length = int(self.answers.readline().split()[1]), [], 0
        while (line := self.answers.readline()) != b"\r\n":
            name, _, value = line.partition(b":")
            names.append(name.decode())
            length = int(value) if name == b"content-length" else length
        body = re.sub(r"p-\d+|\"offset\":\d+", "", self.answers.read(length).decode())
        return status, sorted(names), body

    def ask(self, *pieces: bytes) -> tuple[int, list[str], str]:
        for piece in pieces:
            self.stream.sendall(piece)
        return self.answer()


def new_topic(broker) -> str:
    topic = f"p-{next(_topics)}"
    broker.call("POST", "/topics", {"name": topic, "num_partitions": 1})
    return topic


@pytest.mark.parametrize("name", BODIES)
def test_an_answer_is_the_same_however_the_request_came(shared_broker, name):
    topic, body = new_topic(shared_broker), BODIES[name]
    whole = request(topic, body)
    with Line(shared_broker) as line:
        expected = line.ask(whole)
        assert line.ask(whole) == expected
        end = whole.index(b"\r\n\r\n")
        for cut in (3, end, end + 4, len(whole) - 1):
            assert line.ask(whole[:cut], whole[cut:]) == expected
        # Three at once are answered in their order.
        line.stream.sendall(whole * 3)
        assert [line.answer() for _ in range(3)] == [expected] * 3


def test_who_asks_for_the_head_gets_no_body(shared_broker):
    with Line(shared_broker) as line:
        line.stream.sendall(b"HEAD /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert line.answers.readline().startswith(b"HTTP/1.1 404 ")
        while line.answers.readline() != b"\r\n":
            pass
        # What follows is the next answer.
        assert line.ask(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")[0] == 200


def test_a_request_that_is_refused_before_it_is_told_to_send_its_body_ends_the_connection(
    shared_broker,
):
    """The client may send the body or not, so what comes next cannot be told from it."""
    head = b"POST /topics/none/messages HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
    with Line(shared_broker) as line:
        line.stream.sendall(head + b"Content-Type: text/plain\r\nContent-Length: 5\r\n\r\n")
        status, names, _ = line.answer()
        assert (status, "connection" in names) == (415, True)
        assert line.answers.read() == b""


def test_http_1_0_gets_a_stream_without_chunks(shared_broker):
    topic = new_topic(shared_broker)
    shared_broker.call("POST", f"/topics/{topic}/messages", {"messages": [{"value": "lamp"}]})
    with Line(shared_broker) as line:
        line.stream.sendall(f"GET /consume?topic={topic}&group=g HTTP/1.0\r\n\r\n".encode())
        assert line.answers.readline().startswith(b"HTTP/1.1 403 "), "it names no host"
    with Line(shared_broker) as line:
        head = f"GET /consume?topic={topic}&group=g HTTP/1.0\r\nHost: localhost\r\n\r\n"
        line.stream.sendall(head.encode())
        lines = []
        while (text := line.answers.readline()) != b"\r\n":
            lines.append(text)
        assert b"connection: close\r\n" in lines
        assert b"transfer-encoding: chunked\r\n" not in lines
        assert json.loads(line.answers.readline())["value"] == "lamp"


def test_every_request_is_counted_and_gets_its_own_id(shared_broker):
    topic = new_topic(shared_broker)

    def counted() -> int:
        text = shared_broker.call("GET", "/metrics").body.decode()
        series = r'^penstock_http_requests_total\{.*"/topics/\{topic\}/messages".*\} (\d+)'
        return sum(map(int, re.findall(series, text, re.MULTILINE)))

    before, ids = counted(), set()
    with Line(shared_broker) as line:
        for _ in range(5):
            line.stream.sendall(request(topic, GOOD))
            while (text := line.answers.readline()) != b"\r\n":
                name, _, value = text.partition(b": ")
                ids |= {value} if name == b"x-request-id" else set()
                length = int(value) if name == b"content-length" else 0
            line.answers.read(length)
        own = TYPE + b"X-Request-Id: mine\r\n"
        line.stream.sendall(request(topic, GOOD, own))
        assert b"x-request-id: mine\r\n" in [line.answers.readline() for _ in range(4)]
    assert len(ids) == 5
    assert counted() == before + 6
    messages = shared_broker.call("GET", f"/topics/{topic}/partitions/0/messages").json
    assert [one["offset"] for one in messages["messages"]] == [*range(6)]


async def test_publishes_of_one_turn_are_stored_together(tmp_path, monkeypatch):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        changes, begin = [], broker.driver.begin_change

        def counted(*given, **more):
            changes.append(1)
            return begin(*given, **more)

        monkeypatch.setattr(broker.driver, "begin_change", counted)
        coalescer = broker.app.coalescer
        found = [
            coalescer.publish("orders", None, [b"%d" % one], is_synced=False) for one in range(3)
        ]
        assert [await one for one in found] == [Run(0, 0, 1), Run(0, 1, 1), Run(0, 2, 1)]
        assert len(changes) == 1


async def test_a_publish_that_waits_for_the_disk_is_not_answered_before(tmp_path):
    async with in_process(tmp_path, fsync="always") as broker:
        await broker.topic()
        coalescer = broker.app.coalescer
        waiting = coalescer.publish("orders", None, [b"a"], is_synced=False)
        hasty = coalescer.publish("orders", None, [b"b"], is_synced=False, is_awaited=False)
        assert await hasty == Run(0, 1, 1)
        assert await waiting == Run(0, 0, 1)


def statuses(lines: list[tuple[Connection, Wire]]) -> list[bytes]:
    """What each was answered; empty: nothing yet."""
    return [wire.written[9:12] for _, wire in lines]


async def settled(lines: list[tuple[Connection, Wire]]) -> list[bytes]:
    async with asyncio.timeout(10):
        await until(lambda: all(wire.written and is_answered(one) for one, wire in lines))
    return statuses(lines)


async def test_no_more_are_let_in_than_there_is_room_for(tmp_path):
    async with in_process(tmp_path, {("http", "requests_max"): 100}) as broker:
        await broker.topic()
        lines = [connected(broker) for _ in range(130)]
        for connection, _ in lines:
            connection.data_received(publish())
        assert statuses(lines) == [b""] * 100 + [b"429"] * 30
        assert broker.app.room.under_way == 100
        assert await settled(lines) == [b"200"] * 100 + [b"429"] * 30
        offsets = [int(re.search(rb'"offset":(\d+)', wire.written)[1]) for _, wire in lines[:100]]
        assert offsets == list(range(100))
        assert broker.app.room.under_way == 0
        assert len(broker.app.read_pauses) == 30, "nothing is read until their wait is over"
        assert [wire.is_paused for _, wire in lines] == [False] * 100 + [True] * 30


async def test_what_is_refused_early_reads_the_rest_of_its_body_and_only_reads_are_served(tmp_path):
    async with in_process(tmp_path) as broker:
        broker.app.room.under_way = broker.app.room.limit
        refused, wire = connected(broker)
        refused.data_received(publish(b"X-Request-Id: mine")[:-1])
        assert wire.written.startswith(b"HTTP/1.1 429")
        assert b"x-request-id: mine\r\n" in wire.written
        reader = connected(broker)
        reader[0].data_received(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert await settled([reader]) == [b"200"]


async def test_a_publish_that_fails_among_others_is_told_so(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        lines = [connected(broker) for _ in range(3)]
        for (connection, _), topic in zip(lines, [b"orders", b"none", b"orders"], strict=True):
            connection.data_received(publish(topic=topic))
        assert await settled(lines) == [b"200", b"404", b"200"]
        assert broker.app.room.under_way == 0


async def test_a_connection_that_is_idle_for_long_enough_is_closed(tmp_path):
    async with in_process(tmp_path, {("http", "keep_alive_ms"): 5000}) as broker:
        await broker.topic()
        now = 100.0
        broker.app.now = lambda: now
        connection, wire = connected(broker)
        await answer_to(connection, wire, publish())
        now = 103.0
        await answer_to(connection, wire, publish())
        now = 107.0
        broker.app.sweep()
        assert not wire.is_closing()
        now = 108.0
        broker.app.sweep()
        assert wire.is_closing()


async def test_headers_that_do_not_come_are_told_so(tmp_path):
    async with in_process(tmp_path, {("http", "header_timeout_ms"): 5000}) as broker:
        await broker.topic()
        now = 100.0
        broker.app.now = lambda: now
        silent, dripping, second = (connected(broker) for _ in range(3))
        await answer_to(*second, publish())
        dripping[0].data_received(b"GET")
        now = 103.0
        second[0].data_received(b"GET")
        dripping[0].data_received(b" ")
        now = 106.0
        broker.app.sweep()
        for _, wire in (silent, dripping):
            assert wire.written.startswith(b"HTTP/1.1 408 ")
            assert wire.is_closing()
        assert not second[1].is_closing()
        now = 109.0
        broker.app.sweep()
        assert second[1].written.startswith(b"HTTP/1.1 408 ")

"""Requests that are answered at once: however one comes, the parser's way or the short one, the answer is the same."""

import asyncio
import json
import re
import socket
from itertools import count
from types import SimpleNamespace

import pytest
import uvicorn
from uvicorn.server import ServerState

from penstock.server.http.connection import Connection
from penstock.server.http.inlet import Run
from penstock.server.http.known_head import KnownHead
from penstock.server.http.prompt import begun

from .rigs import in_process
from .wires import Wire, answer_to, connected

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
    """One connection."""

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
def test_an_answer_is_the_same_whatever_way_the_request_came(shared_broker, name):
    topic, body = new_topic(shared_broker), BODIES[name]
    whole = request(topic, body)
    # A length that does not stand last is for the parser, each time.
    twisted = whole.replace(TYPE, b"").replace(b"\r\n\r\n", b"\r\n" + TYPE + b"\r\n", 1)
    with Line(shared_broker) as line:
        expected = line.ask(twisted)
        assert line.ask(twisted) == expected
        # The first is parsed, and the next are known by their head; and so is one of another length.
        assert [line.ask(whole) for _ in range(3)] == [expected] * 3
        assert line.ask(request(topic, body + b" " * 100 if body else body)) == expected
        end = whole.index(b"\r\n\r\n")
        for cut in (3, end, end + 4, len(whole) - 1):
            assert line.ask(whole[:cut], whole[cut:]) == expected
        # Three at once are answered in their order.
        line.stream.sendall(whole * 3)
        assert [line.answer() for _ in range(3)] == [expected] * 3


@pytest.mark.parametrize(
    "more",
    [TYPE + b"Host: evil.example\r\n", b"Content-Type: text/plain\r\n", TYPE + b"X-Api-Key: a\r\n"],
)
def test_a_head_that_differs_is_looked_at_by_everybody(shared_broker, more):
    topic = new_topic(shared_broker)
    with Line(shared_broker) as fresh:
        expected = fresh.ask(request(topic, GOOD, more))
    with Line(shared_broker) as line:
        for _ in range(2):
            assert line.ask(request(topic, GOOD))[0] == 200
        assert line.ask(request(topic, GOOD, more)) == expected


def test_who_asks_for_the_head_gets_no_body(shared_broker):
    with Line(shared_broker) as line:
        line.stream.sendall(b"HEAD /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert line.answers.readline().startswith(b"HTTP/1.1 404 ")
        while line.answers.readline() != b"\r\n":
            pass
        # What follows is the next answer, and not what belongs to nobody.
        assert line.ask(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")[0] == 200


def test_every_way_is_counted_and_gets_its_own_request_id(shared_broker):
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


def scope_of(raw: bytes, **more: object) -> dict[str, object]:
    lines = raw.partition(b"\r\n\r\n")[0].split(b"\r\n")[1:]
    pairs = [line.partition(b":") for line in lines]
    headers = [(name.lower(), value.strip()) for name, _, value in pairs]
    return {"http_version": "1.1", "headers": headers, **more}


def known() -> KnownHead:
    raw = request("t", GOOD)
    found = KnownHead.of(raw, scope_of(raw))
    assert found is not None
    return found


def test_a_known_head_reads_its_own_requests_and_no_others():
    one = known()
    found = one.read(request("t", b"abc"))
    assert found is not None
    assert (found[1], one.headers_of(found)[-1]) == (b"abc", (b"content-length", b"3"))
    start = one.start
    for rest in (
        b"3\r\n\r\nab",
        b"3\r\n\r\nabcd",
        b"+3\r\n\r\nabc",
        b"-3\r\n\r\nabc",
        b" 3\r\n\r\nabc",
        b"3 \r\n\r\nabc",
        b"0x3\r\n\r\nabc",
        b"\r\n\r\nabc",
        b"3\r\nX: y\r\n\r\nabc",
        b"3\r\nTransfer-Encoding: chunked\r\n\r\nabc",
        b"3\r\nContent-Length: 4\r\n\r\nabc",
        b"3\n\nabc",
        b"00000000003\r\n\r\nabc",
        b"3",
        b"",
    ):
        assert one.read(start + rest) is None, rest
    assert one.read(request("u", b"abc")) is None


@pytest.mark.parametrize(
    "raw",
    [
        request("t", GOOD, TYPE + b"Connection: close\r\n"),
        request("t", GOOD, TYPE + b"Expect: 100-continue\r\n"),
        request("t", GOOD, TYPE + b"Transfer-Encoding: chunked\r\n"),
        request("t", GOOD, TYPE + b"Upgrade: h2c\r\n"),
        request("t", GOOD, TYPE + b"Content-Length: %d\r\n" % len(GOOD)),
        request("t", GOOD).replace(b"\r\n\r\n", b" \r\n\r\n"),
        request("t", GOOD) * 2,
        request("t", GOOD)[:-1],
        request("t", GOOD, TYPE + b"X: %b\r\n" % (b"a" * 5000)),
        b"GET /topics HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /topics HTTP/1.1\r\n\r\n",
    ],
)
def test_heads_that_mean_more_than_they_say_are_not_remembered(raw):
    assert KnownHead.of(raw, scope_of(raw)) is None
    usual = request("t", GOOD)
    assert KnownHead.of(usual, scope_of(usual, http_version="1.0")) is None


async def test_work_that_never_waits_is_done_at_once():
    done = []

    async def work() -> None:
        done.append(1)

    assert begun(work()) is None
    assert done == [1]


async def test_work_that_waits_goes_on_as_a_task():
    loop, heard = asyncio.get_running_loop(), []
    waits = [loop.create_future() for _ in range(3)]

    async def work() -> None:
        for one in waits:
            try:
                heard.append(await one)
            except ValueError as error:
                heard.append(str(error))
        await asyncio.sleep(0)
        heard.append("end")

    left = begun(work())
    waits[0].set_result("before the task")
    task = asyncio.create_task(left)
    await asyncio.sleep(0)
    waits[1].set_exception(ValueError("bad"))
    waits[2].set_result("last")
    await task
    assert heard == ["before the task", "bad", "last", "end"]


async def test_work_hears_of_a_failure_that_came_before_its_task():
    failing = asyncio.get_running_loop().create_future()

    async def work() -> None:
        await failing

    left = begun(work())
    failing.set_exception(ValueError("bad"))
    with pytest.raises(ValueError, match="bad"):
        await asyncio.create_task(left)


@pytest.mark.parametrize("turns", [0, 2])
async def test_work_is_cancelled_where_it_waits(turns):
    heard = []

    async def work() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            heard.append("cancelled")
            await asyncio.sleep(0)
            heard.append("tidied up")
            raise

    task = asyncio.create_task(begun(work()))
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert heard == ["cancelled", "tidied up"]


async def test_the_first_of_a_turn_is_stored_at_once_and_the_others_together(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        await asyncio.sleep(0)
        inlet = broker.door.inlet
        found = [inlet.publish("orders", None, [b"%d" % one], is_synced=False) for one in range(3)]
        assert [one.done() for one in found] == [True, False, False]
        assert [await one for one in found] == [Run(0, 0, 1), Run(0, 1, 1), Run(0, 2, 1)]
        await asyncio.sleep(0)
        assert inlet.publish("orders", None, [b"next turn"], is_synced=False).done()


async def test_nobody_is_answered_before_the_disk_who_wants_to_wait_for_it(tmp_path):
    async with in_process(tmp_path, fsync="always") as broker:
        await broker.topic()
        inlet = broker.door.inlet
        waiting = inlet.publish("orders", None, [b"a"], is_synced=False)
        hasty = inlet.publish("orders", None, [b"b"], is_synced=False, is_awaited=False)
        assert not waiting.done()
        assert await hasty == Run(0, 1, 1)
        assert await waiting == Run(0, 0, 1)


async def test_a_head_that_is_known_counts_and_is_turned_away_as_any_other(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        room, (connection, wire) = broker.door.room, connected(broker)
        for _ in range(3):
            connection.data_received(request("orders", GOOD))
            async with asyncio.timeout(20):
                while not connection.cycle.response_complete:  # noqa: ASYNC110 - nobody tells when it is
                    await asyncio.sleep(0)
            assert wire.written.startswith(b"HTTP/1.1 200")
            assert (room.coming, room.under_way) == (0, 0)
            wire.written = b""
        room.under_way = room.limit
        connection.data_received(request("orders", GOOD))
        assert wire.written.startswith(b"HTTP/1.1 429")
        assert len(broker.door.unread) == 1, "nothing is read until its wait is over"
        assert (wire.is_paused, room.coming) == (True, 0)
        connection.connection_lost(None)


async def test_who_was_served_straight_and_is_here_again_shows_that_others_came_later(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        connection, wire = connected(broker)
        for _ in range(2):
            await answer_to(connection, wire, request("orders", GOOD))
        await asyncio.sleep(0)
        connection.data_received(request("orders", GOOD))
        assert wire.take().startswith(b"HTTP/1.1 200"), "straight, in the same turn"
        # As if so many others had come with it that there is no room any more.
        broker.door.inlet.served_early = broker.door.room.limit
        told = await answer_to(connection, wire, request("orders", GOOD))
        assert told.startswith(b"HTTP/1.1 200")
        connection.connection_lost(None)


def statuses(lines: list[tuple[Connection, Wire]]) -> list[bytes]:
    """What each was answered; empty: nothing yet."""
    return [wire.written[9:12] for _, wire in lines]


async def test_many_that_come_in_one_turn_are_answered_before_its_end_without_tasks(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        await asyncio.sleep(0)
        lines = [connected(broker) for _ in range(130)]
        for connection, _ in lines:
            connection.data_received(request("orders", GOOD))
        assert statuses(lines) == [b"200"] * 129 + [b""]
        await asyncio.sleep(0)
        assert statuses(lines) == [b"200"] * 130
        offsets = [int(re.search(rb'"offset":(\d+)', wire.written)[1]) for _, wire in lines]
        assert offsets == list(range(130))
        assert {connection._task for connection, _ in lines} == {None}
        room = broker.door.room
        assert (room.coming, room.under_way, broker.door.inlet.served_early) == (0, 0, 0)


async def test_of_those_that_come_in_one_turn_no_more_are_let_in_than_there_is_room_for(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        await asyncio.sleep(0)
        broker.door.room.limit = 100
        lines = [connected(broker) for _ in range(130)]
        for connection, _ in lines:
            connection.data_received(request("orders", GOOD))
        # The first was stored at once and is not counted, 64 are answered, and 36 wait for the end of the turn.
        assert statuses(lines) == [b"200"] * 65 + [b""] * 36 + [b"429"] * 29
        # The loop asked the system again, so it is as good as a new turn.
        connection, wire = lines[1]
        wire.written = b""
        connection.data_received(request("orders", GOOD))
        await asyncio.sleep(0)
        assert statuses(lines) == [b"200"] * 101 + [b"429"] * 29
        assert broker.door.room.under_way == 0


async def test_a_publish_that_fails_in_its_share_is_told_so(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        await asyncio.sleep(0)
        lines = [connected(broker) for _ in range(3)]
        for (connection, _), topic in zip(lines, ["orders", "none", "orders"], strict=True):
            connection.data_received(request(topic, GOOD))
        await asyncio.sleep(0)
        assert statuses(lines) == [b"200", b"404", b"200"]
        assert broker.door.room.under_way == 0


async def test_a_head_that_others_have_sent_is_turned_away_without_a_parser(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        await asyncio.sleep(0)
        usual = request("orders", GOOD, TYPE + b"X-Request-Id: mine\r\n")
        first, _ = connected(broker)
        first.data_received(usual)
        broker.door.room.under_way = broker.door.room.limit
        known, unknown, reader = (connected(broker) for _ in range(3))
        known[0].parser = None
        known[0].data_received(usual)
        assert known[0]._header_timer is None
        unknown[0].data_received(request("orders", GOOD, b"X-Request-Id: mine\r\n" + TYPE))
        answers = [re.sub(rb"date: .*?\r\n", b"", one.written) for _, one in (known, unknown)]
        assert answers[0].startswith(b"HTTP/1.1 429")
        assert b"x-request-id: mine\r\n" in answers[0]
        assert re.sub(rb"\d{4,}", b"", answers[0]) == re.sub(rb"\d{4,}", b"", answers[1])
        assert known[1].is_paused
        # What comes in pieces, or only reads, goes the usual way.
        reader[0].data_received(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert reader[1].written.startswith(b"HTTP/1.1 200")
        pieces, wire = connected(broker)
        pieces.data_received(usual[:-1])
        assert wire.written.startswith(b"HTTP/1.1 429")
        broker.door.room.under_way = 0
        pieces.connection_lost(None)
        assert broker.door.known is first._known
        first.connection_lost(None)
        assert broker.door.known is None, "a key goes with whoever sent it"


async def test_a_connection_that_is_idle_for_long_enough_is_closed(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        config = uvicorn.Config(broker.door, http=Connection, lifespan="off", log_config=None)
        config.load()
        connection, wire = Connection(config, ServerState(), {}), Wire()
        connection.door = broker.door
        time_s, timers = 100.0, []

        def call_later(seconds, call, *_given):
            timers.append((time_s + seconds, call))
            return SimpleNamespace(cancel=lambda: None)

        loop = connection.loop
        connection.loop = SimpleNamespace(
            time=lambda: time_s, call_later=call_later, create_task=loop.create_task
        )
        connection.timeout_keep_alive = 5
        connection.connection_made(wire)
        timers.clear()
        connection.data_received(request("orders", GOOD))
        (due_s, look) = timers.pop()
        assert due_s == 105
        await asyncio.sleep(0)
        time_s = 103.0
        connection.data_received(request("orders", GOOD))
        # The one timer goes on, and finds that the last answer is two seconds old.
        assert not timers
        time_s = 105.0
        look()
        assert not wire.is_closing()
        (due_s, look) = timers.pop()
        assert due_s == 108
        time_s = 108.0
        look()
        assert wire.is_closing()
        bodies = re.findall(rb"\{.*?\}\]\}", wire.written)
        assert [json.loads(one)["results"][0]["offset"] for one in bodies] == [0, 1]

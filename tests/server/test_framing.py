"""Requests end where they say, whatever the network cuts and whatever a client writes behind, between or into them."""

import asyncio
import json
import socket
from itertools import pairwise

import pytest

from penstock.codec import Columns, encode
from penstock.server.http.framing import Framing, RequestHead

from .rigs import in_process, until
from .segments import LAST, seen, segmentations
from .wires import connected

TYPE = b"Content-Type: application/json\r\n"
LINE = b"POST /topics/orders/messages HTTP/1.1\r\n"
HEAD = LINE + b"Host: localhost\r\n"
GOOD = b'{"messages":[{"value":"lamp"}]}'
CHUNKED = HEAD + TYPE + b"Transfer-Encoding: chunked\r\n\r\n"
CHUNKS = b"10\r\n" + GOOD[:16] + b'\r\n%x;a="b"\r\n' % len(GOOD[16:]) + GOOD[16:] + b"\r\n0\r\n"
READ = (
    b"GET /topics/orders/partitions/0/messages?limit=1&offset=0 HTTP/1.1\r\nHost: localhost\r\n\r\n"
)
BATCH = encode(Columns(values=[b"lamp"], timestamps=5)).to_bytes()


def with_length(body: bytes, more: bytes = TYPE, head: bytes = HEAD) -> bytes:
    return head + more + b"Content-Length: %d\r\n\r\n" % len(body) + body


USUAL = with_length(GOOD)
INNER = with_length(GOOD.replace(b"lamp", b"smuggled"))

# What is answered, and what is stored; the connection goes on.
SERVED = {
    "publish": (USUAL, 200, ("lamp",)),
    "an empty line before it": (b"\r\n" + USUAL, 200, ("lamp",)),
    "chunked": (CHUNKED + CHUNKS + b"\r\n", 200, ("lamp",)),
    "trailers": (CHUNKED + CHUNKS + b"X-Sum: 1\r\nX-More:\r\n\r\n", 200, ("lamp",)),
    "read": (READ, 200, ()),
    "head": (READ.replace(b"GET", b"HEAD", 1), 405, ()),
    "read with a body": (READ[:-2] + b"Content-Length: 5\r\n\r\nGET /", 200, ()),
    "batch": (
        with_length(
            BATCH,
            b"Content-Type: application/vnd.penstock.batch\r\n",
            HEAD.replace(b"/messages", b"/partitions/0/batches"),
        ),
        200,
        ("lamp",),
    ),
    "batch in chunks": (
        CHUNKED.replace(b"application/json", b"application/vnd.penstock.batch").replace(
            b"/messages", b"/partitions/0/batches"
        )
        + b"%x\r\n%b\r\n0\r\n\r\n" % (len(BATCH), BATCH),
        200,
        ("lamp",),
    ),
    "bad JSON": (with_length(b'{"messages":['), 400, ()),
    "no such topic": (with_length(GOOD, TYPE, HEAD.replace(b"orders", b"none")), 404, ()),
    "waits to be told to go on": (
        with_length(GOOD, TYPE + b"Expect: 100-continue\r\n"),
        200,
        ("lamp",),
    ),
    "a target that names our host": (
        USUAL.replace(b"/topics", b"http://localhost/topics", 1),
        200,
        ("lamp",),
    ),
    # The connection speaks HTTP/1.1 and stays with it.
    "upgrade": (
        with_length(GOOD, TYPE + b"Connection: Upgrade\r\nUpgrade: websocket\r\n"),
        200,
        ("lamp",),
    ),
    "upgrade with a request as its body": (
        with_length(INNER, TYPE + b"Connection: Upgrade\r\nUpgrade: h2c\r\n"),
        400,
        (),
    ),
    "upgrade in chunks": (
        CHUNKED[:-2] + b"Connection: upgrade\r\nUpgrade: x\r\n\r\n" + CHUNKS + b"\r\n",
        200,
        ("lamp",),
    ),
    # Headers end with the headers.
    "content type in a trailer": (
        CHUNKED.replace(TYPE, b"") + CHUNKS + TYPE + b"\r\n",
        415,
        (),
    ),
    "content type changed by a trailer": (
        CHUNKED + CHUNKS + b"Content-Type: text/plain\r\n\r\n",
        200,
        ("lamp",),
    ),
    "foreign host changed by a trailer": (
        CHUNKED.replace(b"localhost", b"evil.example") + CHUNKS + b"Host: localhost\r\n\r\n",
        403,
        (),
    ),
    "host changed by a trailer": (
        CHUNKED + CHUNKS + b"Host: evil.example\r\n\r\n",
        200,
        ("lamp",),
    ),
    "foreign origin changed by a trailer": (
        CHUNKED[:-2]
        + b"Origin: http://evil.example\r\n\r\n"
        + CHUNKS
        + b"Origin: http://localhost\r\n\r\n",
        403,
        (),
    ),
    "length in a trailer": (CHUNKED + CHUNKS + b"Content-Length: 500\r\n\r\n", 200, ("lamp",)),
    "host with a user": (USUAL.replace(b"localhost", b"evil@127.0.0.1"), 400, ()),
    "host with a path": (USUAL.replace(b"localhost", b"localhost/.evil.example"), 400, ()),
    "host with a query": (USUAL.replace(b"localhost", b"localhost?.evil.example"), 400, ()),
    "host with a backslash": (USUAL.replace(b"localhost", b"localhost\\.evil.example"), 400, ()),
    "host with a space": (USUAL.replace(b"localhost", b"localhost evil.example"), 400, ()),
    "host with a port of letters": (USUAL.replace(b"localhost", b"localhost:http"), 400, ()),
    "two hosts in one": (USUAL.replace(b"localhost", b"localhost, evil.example"), 400, ()),
    "host in brackets": (USUAL.replace(b"localhost", b"[::1]:8080"), 200, ("lamp",)),
    "no host's name": (USUAL.replace(b"localhost", b""), 403, ()),
}
# Nothing is stored, and nothing that follows is looked at.
REFUSED = {
    "length and chunks": (
        CHUNKED.replace(TYPE, TYPE + b"Content-Length: 5\r\n") + CHUNKS + b"\r\n",
        400,
    ),
    "chunks and length": (CHUNKED[:-2] + b"Content-Length: 5\r\n\r\n" + CHUNKS + b"\r\n", 400),
    "two lengths": (with_length(GOOD, TYPE + b"Content-Length: 5\r\n"), 400),
    "the same length twice": (
        with_length(GOOD, TYPE + b"Content-Length: %d\r\n" % len(GOOD)),
        400,
    ),
    "two lengths in one": (USUAL.replace(b"-Length: ", b"-Length: 5, "), 400),
    "a length with a sign": (USUAL.replace(b"-Length: ", b"-Length: +"), 400),
    **{
        f"coding {name}": (
            CHUNKED.replace(b": chunked", b": " + name.encode()) + CHUNKS + b"\r\n",
            400,
        )
        for name in (
            "gzip, chunked",
            "xchunked",
            "identity",
            "chunked, chunked",
            "chunked, identity",
            "chunked;q=1",
            '"chunked"',
            ", chunked",
            "",
        )
    },
    "two codings": (CHUNKED[:-2] + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKS + b"\r\n", 400),
    "chunks in HTTP/1.0": (
        CHUNKED.replace(b"HTTP/1.1", b"HTTP/1.0") + CHUNKS + b"\r\n",
        400,
    ),
    "no version": (b"GET /topics\r\n\r\n", 400),
    "two hosts": (with_length(GOOD, TYPE + b"Host: localhost\r\n"), 400),
    "two hosts, the first one foreign": (
        with_length(GOOD, TYPE, LINE + b"Host: evil.example\r\nHost: localhost\r\n"),
        400,
    ),
    "no host": (with_length(GOOD, TYPE, LINE), 400),
    "two keys": (with_length(GOOD, TYPE + b"Authorization: a\r\nAuthorization: b\r\n"), 400),
    "a target that names another host": (
        USUAL.replace(b"/topics", b"http://evil.example/topics", 1),
        400,
    ),
    "a target that is no path": (USUAL.replace(b"/topics/orders/messages", b"*"), 400),
    "connect": (b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost:80\r\n\r\n", 400),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "lines without a carriage return": (USUAL.replace(b"\r\n", b"\n"), 400),
    "a folded header": (with_length(GOOD, TYPE + b"X: a\r\n b\r\n"), 400),
    "a space before the colon": (USUAL.replace(b"-Length:", b"-Length :"), 400),
    "a chunk that is longer than it says": (CHUNKED + b"1\r\nab\r\n0\r\n\r\n", 400),
    "a chunk without a line end": (CHUNKED + b"1\r\na0\r\n\r\n", 400),
    "a chunk size with a sign": (CHUNKED + b"+1\r\na\r\n0\r\n\r\n", 400),
    "a chunk size with 0x": (CHUNKED + b"0x1\r\na\r\n0\r\n\r\n", 400),
    "a chunk size that is too long": (CHUNKED + b"0" * 16 + b"1\r\na\r\n0\r\n\r\n", 400),
    "a chunk line without a carriage return": (CHUNKED + b"1\na\r\n0\r\n\r\n", 400),
    "a carriage return in a chunk line": (CHUNKED + b"1;\rx\r\na\r\n0\r\n\r\n", 400),
    "a chunk line that does not end": (CHUNKED + b"1;" + b"x" * 5000, 400),
    "a trailer without a colon": (CHUNKED + CHUNKS + b"abc\r\n\r\n", 400),
    "a folded trailer": (CHUNKED + CHUNKS + b"X: a\r\n b\r\n\r\n", 400),
    "a trailer without a carriage return": (CHUNKED + CHUNKS + b"X: a\n\r\n", 400),
    "a trailer that is too long": (CHUNKED + CHUNKS + b"X: " + b"a" * 9000 + b"\r\n\r\n", 431),
    "a trailer that does not end": (CHUNKED + CHUNKS + b"X: " + b"a" * 9000, 431),
    "too many trailers": (CHUNKED + CHUNKS + b"a:b\r\n" * 65 + b"\r\n", 431),
    "too many headers": (with_length(GOOD, TYPE + b"a:b\r\n" * 256), 431),
    "headers that are too large": (with_length(GOOD, TYPE + b"a:" + b"b" * 65_536 + b"\r\n"), 431),
    "nothing but empty lines": (b"\r\n" * 33_000, 431),
}


@pytest.fixture
def step(effort) -> int:
    """Requests are cut at every so manyth place."""
    return effort(check=101, test=1, torture=1)


@pytest.mark.parametrize("name", SERVED)
async def test_a_request_is_the_same_however_it_is_cut(tmp_path, step, name):
    raw, status, stored = SERVED[name]
    async with in_process(tmp_path) as broker:
        await broker.topic()
        await broker.publish("first")
        expected = await seen(broker, (raw,))
        assert (expected.statuses, expected.stored) == ((status, 404), stored)
        assert not expected.is_closed
        for before in (b"", USUAL, raw):
            assert await seen(broker, (raw,), before) == expected
            # What comes behind it waits for its answer.
            two = await seen(broker, (raw, LAST), before)
            assert await seen(broker, (raw + LAST[:10], LAST[10:]), before) == two
            for pieces in segmentations(raw, step) if before != raw else ():
                assert await seen(broker, pieces, before) == expected, pieces


@pytest.mark.parametrize("name", REFUSED)
async def test_what_has_no_certain_end_is_refused_with_all_that_follows(tmp_path, step, name):
    raw, status = REFUSED[name]
    async with in_process(tmp_path) as broker:
        await broker.topic()
        for before in (b"", USUAL):
            for pieces in (*segmentations(raw, step), (raw + USUAL,)):
                found = await seen(broker, pieces, before)
                assert (found.statuses, found.stored) == ((status,), ()), pieces
                assert found.is_closed
                assert b'"message":"' in found.answers


async def test_a_key_in_a_trailer_opens_nothing(tmp_path, step):
    async with in_process(tmp_path, {("auth", "enabled"): True}) as broker:
        admin = (tmp_path / "admin.key").read_text().split()[-1]
        key = b"Authorization: Bearer %b\r\n" % admin.encode()
        good = CHUNKED[:-2] + key + b"\r\n" + CHUNKS
        bearer = {"authorization": f"Bearer {admin}"}
        config = {"name": "orders", "num_partitions": 1}
        assert (await broker.call("POST", "/topics", config, headers=bearer)).status == 201
        for raw, status in (
            (CHUNKED + CHUNKS + key + b"\r\n", 401),
            (good + b"Authorization: Bearer none.none\r\n\r\n", 200),
        ):
            for pieces in segmentations(raw, step):
                connection, wire = connected(broker)
                for piece in pieces:
                    connection.data_received(piece)
                    await asyncio.sleep(0)
                async with asyncio.timeout(10):
                    await until(lambda wire=wire: wire.written)
                assert wire.written.startswith(b"HTTP/1.1 %d " % status), pieces
                connection.connection_lost(None)
        reply = await broker.call("GET", "/topics/orders", headers=bearer)
        assert reply.json["total_messages"] == len([*segmentations(raw, step)])


def test_a_thousand_pipelined_publishes_are_all_carried_out_in_order(shared_broker):
    shared_broker.call("POST", "/topics", {"name": "in-line", "num_partitions": 1})
    head = HEAD.replace(b"orders", b"in-line")
    bodies = [b'{"messages":[{"value":"%d"}],"acks":"leader"}' % number for number in range(1000)]
    with (
        socket.create_connection(("127.0.0.1", shared_broker.port), timeout=30) as stream,
        stream.makefile("rb") as answers,
    ):
        # Larger than what is received at once, so that some are cut in their headers.
        padding = TYPE + b"X-Padding: %b\r\n" % (b"a" * 400)
        stream.sendall(b"".join(with_length(body, padding, head) for body in bodies))
        offsets = []
        for _ in bodies:
            assert answers.readline().startswith(b"HTTP/1.1 200 ")
            length = 0
            while (line := answers.readline()) != b"\r\n":
                name, _, value = line.partition(b":")
                length = int(value) if name == b"content-length" else length
            offsets.append(json.loads(answers.read(length))["results"][0]["offset"])
    assert offsets == [*range(1000)]
    target = "/topics/in-line/partitions/0/messages?limit=1000"
    stored = [int(one["value"]) for one in shared_broker.call("GET", target).json["messages"]]
    assert stored == [*range(1000)]


@pytest.mark.parametrize("cut", [0, 1, 40])
def test_the_body_of_an_upgrade_is_never_a_request(shared_broker, cut):
    """On a socket, where each segment is received by itself."""
    shared_broker.call("POST", "/topics", {"name": "upgraded", "num_partitions": 1})
    inner = INNER.replace(b"orders", b"upgraded")
    outer = with_length(
        inner,
        TYPE + b"Connection: Upgrade\r\nUpgrade: websocket\r\n",
        HEAD.replace(b"orders", b"upgraded"),
    )
    end = outer.index(b"\r\n\r\n") + 4 + cut
    with socket.create_connection(("127.0.0.1", shared_broker.port), timeout=30) as stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for first, last in pairwise((0, end, len(outer))):
            stream.sendall(outer[first:last])
        stream.sendall(LAST)
        answered = b""
        while b"/last-word" not in answered:
            piece = stream.recv(65536)
            assert piece, answered
            answered += piece
    assert answered.count(b"HTTP/1.1 ") == 2
    assert answered.startswith(b"HTTP/1.1 400 ")
    assert shared_broker.call("GET", "/topics/upgraded").json["total_messages"] == 0


def test_a_body_is_skipped_as_far_as_it_is_here_and_the_rest_is_taken():
    start = len(USUAL) - len(GOOD)
    for cut in range(start, len(USUAL) + 1):
        framing = Framing(8192)
        framing.receive(USUAL[:cut])
        assert framing.take().method == "POST"
        assert framing.skip_body() == cut - start
        assert framing.is_in_body == (cut < len(USUAL))
        framing.receive(USUAL[cut:] + READ)
        heads, pieces = [], []
        while (taken := framing.take()) is not None and len(heads) < 1:
            (heads if isinstance(taken, RequestHead) else pieces).append(taken)
        assert b"".join(pieces) == GOOD[cut - start :]
        assert [one.method for one in heads] == ["GET"]
    framing = Framing(8192)
    framing.receive(CHUNKED + CHUNKS)
    framing.take()
    assert framing.skip_body() == 0, "chunks have to be read to find their end"
    assert framing.take() == GOOD

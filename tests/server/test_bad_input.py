"""Bad input: a documented answer, nothing changed, and the next good request works."""

import json
import socket
from contextlib import suppress
from resource import RLIMIT_NOFILE, getrlimit, setrlimit

import pytest

from .rigs import in_process

PUBLISH = "/topics/orders/messages"
NESTED = b'{"messages":' + b"[" * 100_000 + b"]" * 100_000 + b"}"

BODIES = {
    "truncated": b'{"messages": [{"value": "1"}',
    "nested": NESTED,
    "nested unknown": b'{"x":' + b'{"x":' * 50_000 + b"1" + b"}" * 50_001,
    "NaN": b'{"messages": [{"value": "1", "ttl": NaN}]}',
    "infinity": b'{"messages": [{"value": "1", "ttl": Infinity}]}',
    "1e400": b'{"messages": [{"value": "1", "ttl": 1e400}]}',
    "2^64 partition": b'{"messages": [{"value": "1", "partition": 18446744073709551616}]}',
    "a number of a megabyte": b'{"messages": [{"value": "1", "ttl": ' + b"9" * 1_000_000 + b"}]}",
    "bool for int": b'{"messages": [{"value": "1", "partition": true}]}',
    "negative partition": b'{"messages": [{"value": "1", "partition": -1}]}',
    "number for text": b'{"messages": [{"value": 1}]}',
    "lone surrogate": b'{"messages": [{"value": "\\ud800"}]}',
    "invalid UTF-8": b'{"messages": [{"value": "\xff"}]}',
    "BOM": b'\xef\xbb\xbf{"messages": []}',
    "not an object": b'["messages"]',
    "null": b"null",
    "unknown field": b'{"messages": [{"value": "1", "colour": "red"}]}',
    "bad base64": b'{"messages": [{"value": {"base64": "a"}}]}',
    "base64 with rubbish": b'{"messages": [{"value": {"base64": "YQ==!!"}}]}',
    "negative ttl": b'{"messages": [{"value": "1", "ttl": -5}]}',
    "ttl overflow": b'{"messages": [{"value": "1", "ttl": 99999999999999999}]}',
    "ttl words": b'{"messages": [{"value": "1", "ttl": "soon"}]}',
    "priority 5": b'{"messages": [{"value": "1", "priority": 5}]}',
    "priority -1": b'{"messages": [{"value": "1", "priority": -1}]}',
    "acks": b'{"messages": [{"value": "1"}], "acks": "some"}',
    "acks list": b'{"messages": [{"value": "1"}], "acks": [1]}',
    "header number": b'{"messages": [{"value": "1", "headers": {"a": 5}}]}',
    "header pair of three": b'{"messages": [{"value": "1", "headers": [["a", "b", "c"]]}]}',
    "missing": b"",
}


@pytest.mark.parametrize("name", BODIES)
async def test_bad_json_is_a_400_or_404_that_stores_nothing(tmp_path, name):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        reply = await broker.call(
            "POST", PUBLISH, BODIES[name], headers={"content-type": "application/json"}
        )
        assert reply.status in {400, 404}, reply.body[:200]
        assert reply.json["error"]
        assert len(reply.body) < 4096
        assert (await broker.call("GET", "/topics/orders")).json["total_messages"] == 0
        await broker.publish("good")


async def test_odd_json_that_is_legal_is_taken(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        for body in (
            b'{"messages": [{"value": "1", "value": "2"}]}',
            b'{"messages": [{"value": "\\u0000"}], "acks": 1}',
            b'{"messages": [{"value": "1", "ttl": -0}]}',
            b'{"messages": [{"value": "1", "ttl": 1e3}]}',
            b'{"messages": [{"value": null, "colour": null}], "shape": null}',
        ):
            reply = await broker.call(
                "POST", PUBLISH, body, headers={"content-type": "application/json"}
            )
            assert reply.status == 200, reply.body


async def test_of_a_name_that_stands_twice_in_json_the_last_counts(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        body = b'{"messages": [], "messages": [{"value": "1", "value": "2"}]}'
        assert (await broker.call("POST", PUBLISH, body, headers=JSON_HEADERS)).status == 200
        assert [one["value"] for one in await broker.poll()] == ["2"]


async def test_names_differ_by_case_and_share_no_files(tmp_path):
    async with in_process(tmp_path) as broker:
        for name in ("orders", "Orders", "ORDERS"):
            await broker.topic(name)
            await broker.publish(name, topic=name)
        # As on a file system that does not tell them apart.
        directories = [one.lower() for one in broker.disk.list("topics/default")]
        assert len(set(directories)) == len(directories)
        assert (await broker.call("DELETE", "/topics/Orders")).status in {200, 204}
        for name in ("orders", "ORDERS"):
            assert [one["value"] for one in await broker.poll(topic=name)] == [name]


@pytest.mark.parametrize("name", ["CON", "nul", "aux.txt", "COM1", "LPT9.log", "PRN"])
def test_device_names_of_other_systems_are_names_like_any_other(shared_broker, name):
    assert shared_broker.call("POST", "/topics", {"name": name}).status == 201
    sent = {"messages": [{"value": "1"}], "acks": "all"}
    assert shared_broker.call("POST", f"/topics/{name}/messages", sent).status == 200
    found = shared_broker.call("GET", f"/topics/{name}/messages?group=g").json["messages"]
    assert [one["value"] for one in found] == ["1"]
    assert shared_broker.call("DELETE", f"/topics/{name}").status in {200, 204}


QUERIES = [
    "/topics/orders/messages",
    "/topics/orders/messages?group=",
    "/topics/orders/messages?group=__ours",
    "/topics/orders/messages?group=a%2Fb",
    "/topics/orders/messages?group=g&max=0",
    "/topics/orders/messages?group=g&max=-1",
    "/topics/orders/messages?group=g&max=1.5",
    "/topics/orders/messages?group=g&max=99999999999999999999999",
    "/topics/orders/messages?group=g&timeout=-1",
    "/topics/orders/messages?group=g&timeout=soon",
    "/topics/orders/messages?group=g&visibility_timeout=0",
    "/topics/orders/messages?group=g&visibility_timeout=13h",
    "/topics/orders/messages?group=g&group=h",
    "/topics/orders/messages?group=g&colour=red",
    "/topics/orders/messages?group=%ff",
    "/topics/orders/messages?group=g&encoding=rot13",
    "/topics/orders/messages?group=g&owner=a%20b",
    "/topics/orders/messages?" + "&".join(f"a{one}=1" for one in range(200)),
    "/topics/orders/partitions/0/messages?limit=0",
    "/topics/orders/partitions/0/messages?limit=2147483648",
    "/topics/orders/partitions/0/messages?offset=1.5",
    "/topics/orders/partitions/0/messages?offset=0&from_time=2026-01-01T00:00:00Z",
    "/topics/orders/partitions/0/messages?from_time=yesterday",
    "/topics/orders/partitions/0/messages?from_time=2026-13-01T00:00:00Z",
    "/topics/orders/partitions/0/messages?max_bytes=0",
    "/topics/orders/partitions/x/messages",
    "/topics/orders/partitions/-1/messages",
    "/topics/orders/partitions/99999999999999999999/messages",
    "/topics/%00",
    "/topics/..",
    "/topics/ord\u00e9rs",
    "/topics/" + "a" * 246,
    "/topics?limit=0",
    "/topics?limit=-1",
    "/topics?details=perhaps",
    "/topics?cursor=" + "a" * 2000,
    "/topics/orders/dlq?cursor=1-x",
    "/topics/orders/dlq?group_by=colour",
    "/topics/orders/dlq?before=never",
    "/consume?topic=orders&group=g&max=0",
    "/consume?topic=orders&group=g&lease_ms=0",
    "/consume?topic=orders&group=g&lease_ms=99999999999",
    "/consume?topic=orders",
]
UNKNOWN = [
    "/topics/nowhere",
    "/topics/orders/partitions/7/messages",
    "/topics/orders/partitions/0/messages?offset=5",
    "/topics/nowhere/messages?group=g",
    "/consume?topic=nowhere&group=g",
    "/consume?topic=..&group=g",
    "/topics/nowhere/dlq",
    "/groups/nobody",
    "/groups/nobody/lag",
    "/topics/a/b/c",
    "/topics//messages",
    "//topics",
    "/topics/",
]


@pytest.mark.parametrize("target", QUERIES)
async def test_a_bad_query_or_path_is_a_400(tmp_path, target):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        reply = await broker.call("GET", target)
        assert reply.status == 400, reply.body
        assert len(reply.body) < 4096


async def test_an_unknown_field_of_a_query_is_named_with_those_that_there_are(tmp_path):
    async with in_process(tmp_path) as broker:
        reply = await broker.call("GET", "/groups?limt=3")
        assert (reply.status, reply.json["message"]) == (
            400,
            "unknown field `limt`: there are limit, cursor, details, topics",
        )


@pytest.mark.parametrize("target", UNKNOWN)
async def test_what_is_not_there_is_a_404(tmp_path, target):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        reply = await broker.call("GET", target)
        # An empty name is not a name.
        assert reply.status in ({400, 404} if "//" in target or target.endswith("/") else {404})


async def test_over_a_limit_is_a_413_with_the_limit(tmp_path):
    limits = {
        ("limits", "value_bytes_max"): 100,
        ("limits", "key_bytes_max"): 10,
        ("limits", "headers_bytes_max"): 10,
        ("limits", "batch_bytes_max"): 10_000,
        ("http", "body_bytes_max"): 5000,
    }
    async with in_process(tmp_path, limits) as broker:
        await broker.topic()
        for message, limit in (
            ({"value": "a" * 101}, 100),
            ({"key": "a" * 11}, 10),
            ({"headers": {"a" * 11: ""}}, 10),
        ):
            reply = await broker.call("POST", PUBLISH, {"messages": [message]})
            assert (reply.status, reply.json["limit"]) == (413, limit)
        declared = await broker.call(
            "POST", PUBLISH, b"{}", headers={"content-length": "5001", **JSON_HEADERS}
        )
        assert (declared.status, declared.headers["connection"]) == (413, "close")
        pieces = [b'{"messages": []' + b" " * 1000] * 6
        chunked = await broker.call(
            "POST", PUBLISH, pieces=pieces, headers={"transfer-encoding": "chunked", **JSON_HEADERS}
        )
        assert (chunked.status, chunked.json["limit"]) == (413, 5000)
        assert broker.app.memory.used == 0
        zipped = await broker.call(
            "POST", PUBLISH, b"x", headers={"content-encoding": "gzip", **JSON_HEADERS}
        )
        assert zipped.status == 415


JSON_HEADERS = {"content-type": "application/json"}

HEAD = b"POST /topics/empty/messages HTTP/1.1\r\nHost: localhost\r\n"
TYPE = b"Content-Type: application/json\r\n"
RAW = {
    "content-length and transfer-encoding": HEAD
    + TYPE
    + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": HEAD + TYPE + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcde",
    "xchunked": HEAD + TYPE + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "chunk size": HEAD + TYPE + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\nx",
    "chunk rubbish": HEAD + TYPE + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nx\r\n0\r\n\r\n",
    "NUL in a header": b"GET /topics HTTP/1.1\r\nHost: localhost\r\nX: a\x00b\r\n\r\n",
    "space before colon": b"GET /topics HTTP/1.1\r\nHost : localhost\r\n\r\n",
    "folded header": b"GET /topics HTTP/1.1\r\nHost: localhost\r\nX: a\r\n b\r\n\r\n",
    "bad method": b"BREW /topics HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "bad version": b"GET /topics HTTP/9.9\r\nHost: localhost\r\n\r\n",
    "no HTTP": b"\x16\x03\x01\x00\xff\x01\x00\x00\xfb\x03\x03",
    "no host": b"GET /topics HTTP/1.1\r\n\r\n",
    "other host in the line": b"GET http://evil.example/topics HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    "encoded slash": b"GET /topics/a%2Fb HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "dots": b"GET /topics/..%2f..%2fetc HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "overlong": b"GET /topics/%c0%af HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "header of 100 KiB": b"GET /topics HTTP/1.1\r\nHost: localhost\r\nX: "
    + b"a" * 102_400
    + b"\r\n\r\n",
    "10,000 headers": b"GET /topics HTTP/1.1\r\nHost: localhost\r\n"
    + b"X: abc\r\n" * 10_000
    + b"\r\n",
    "line of 100 KiB": b"GET /" + b"a" * 102_400 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


def spoken(port: int, raw: bytes) -> bytes:
    """Everything that comes back before the server closes, or answers once."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        try:
            connection.sendall(raw)
            answer = connection.recv(65536)
            while answer and b"\r\n\r\n" in answer and not answer.partition(b"\r\n\r\n")[2]:
                answer += connection.recv(65536)
        except ConnectionError:
            return b""
        return answer


@pytest.mark.parametrize("name", RAW)
def test_bad_http_is_a_4xx_or_a_closed_connection(hasty_broker, name):
    answer = spoken(hasty_broker.port, RAW[name])
    if answer:
        line, _, rest = answer.partition(b"\r\n")
        assert line.split()[1].startswith(b"4"), line
        assert json.loads(rest.partition(b"\r\n\r\n")[2])["error"]
    assert hasty_broker.call("GET", "/health").status == 200
    assert hasty_broker.call("GET", "/topics/empty").json["total_messages"] == 0


def test_chunk_extensions_are_read_over(shared_broker):
    shared_broker.call("POST", "/topics", {"name": "chunked", "num_partitions": 1})
    body = b'{"messages": [{"value": "1"}]}'
    raw = (
        HEAD.replace(b"empty", b"chunked")
        + TYPE
        + b"Transfer-Encoding: chunked\r\n\r\n"
        + b'%x;a=b;c="d"\r\n%s\r\n0;last\r\n\r\n' % (len(body), body)
    )
    assert spoken(shared_broker.port, raw).startswith(b"HTTP/1.1 200 ")
    found = shared_broker.call("GET", "/topics/chunked/messages?group=g").json["messages"]
    assert [one["value"] for one in found] == ["1"]


@pytest.mark.tier("test")
def test_slow_headers_and_slow_bodies_are_ended(hasty_broker):
    for raw in (
        b"GET /topics HTTP/1.1\r\nHost: loc",
        HEAD + TYPE + b"Transfer-Encoding: chunked\r\n\r\n5;" + b"a" * 1000,
        HEAD + TYPE + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: a",
        HEAD + TYPE + b"Content-Length: 100\r\n\r\n{",
    ):
        answer = b""
        for _ in range(10):
            answer = answer or late_answer(hasty_broker.port, raw)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"REQUEST_TIMEOUT" in answer


def late_answer(port: int, raw: bytes) -> bytes:
    """What a server says at the end of its patience; nothing if that ended before it heard of the request."""
    answer = b""
    with (
        socket.create_connection(("127.0.0.1", port), timeout=60) as connection,
        suppress(ConnectionError),
    ):
        connection.sendall(raw)
        while piece := connection.recv(65536):
            answer += piece
    return answer


def test_a_client_that_does_not_read_is_cut_off(hasty_broker):
    hasty_broker.call("POST", "/topics", {"name": "large", "num_partitions": 1})
    for _ in range(8):
        message = {"messages": [{"value": "x" * 2_000_000}]}
        assert hasty_broker.call("POST", "/topics/large/messages", message).status == 200
    raw = b"GET /topics/large/partitions/0/messages?max_bytes=16000000 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with socket.socket() as connection:
        # Small enough that the answer cannot hide in buffers of the system.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(30)
        connection.connect(("127.0.0.1", hasty_broker.port))
        connection.sendall(raw)
        # Only the connection that asks is left.
        while "penstock_http_connections 1\n" not in metrics_of(hasty_broker):
            pass
        assert received_until_cut(connection) < 16_000_000


def metrics_of(broker) -> str:
    return broker.call("GET", "/metrics").body.decode()


def received_until_cut(connection: socket.socket) -> int:
    """How many bytes come before the end."""
    size = 0
    try:
        while piece := connection.recv(1 << 20):
            size += len(piece)
    except ConnectionError:
        pass
    return size


def test_a_thousand_slow_connections_do_not_hinder_a_normal_one(shared_broker, effort):
    slow = []
    soft, hard = getrlimit(RLIMIT_NOFILE)
    setrlimit(RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    try:
        for _ in range(effort(check=100, test=300, torture=1000)):
            connection = socket.create_connection(("127.0.0.1", shared_broker.port))
            connection.sendall(b"GET /topics HTTP/1.1\r\n")
            slow.append(connection)
        assert shared_broker.call("GET", "/topics").status == 200
    finally:
        for connection in slow:
            connection.close()


def test_a_thousand_pipelined_requests_are_all_answered(shared_broker):
    one = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with socket.create_connection(("127.0.0.1", shared_broker.port), timeout=30) as connection:
        connection.sendall(one * 1000)
        answered = b""
        while answered.count(b"HTTP/1.1 200 OK") < 1000:
            piece = connection.recv(1 << 20)
            assert piece, "closed too early"
            answered += piece


def test_an_upgrade_is_answered_as_a_plain_request(shared_broker):
    raw = (
        b"GET /topics HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    assert spoken(shared_broker.port, raw).startswith(b"HTTP/1.1 200 ")

"""A server that is full says so at little cost, and then leaves whoever it said it to alone for a while."""

import asyncio
import json
import socket
import time

import pytest

from penstock.server.http.read_pause import ReadPauses

from .rigs import served

POST = b"POST /topics/orders/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
BODY = json.dumps({"messages": [{"value": "1"}]}).encode()
WHOLE = POST + b"Content-Length: %d\r\n\r\n%b" % (len(BODY), BODY)


class Left:
    """A connection that is held; the pair of its socket is the client."""

    def __init__(self) -> None:
        self.client, self.ours = socket.socketpair()
        self.was_gone: list[bool] = []

    def stop_reading(self) -> None:
        """Nothing reads it."""

    def descriptor(self) -> int:
        return self.ours.fileno()

    def read_on(self, *, is_gone: bool) -> None:
        self.was_gone.append(is_gone)

    def close(self) -> None:
        self.client.close()
        self.ours.close()


async def test_who_was_refused_is_read_when_its_wait_is_over():
    now = 100.0
    stays, leaves, later = Left(), Left(), Left()
    read_pauses = ReadPauses(asyncio.get_running_loop(), lambda: now)
    read_pauses.hold(stays, 1.0)
    read_pauses.hold(leaves, 1.5)
    read_pauses.hold(later, 9.0)
    leaves.client.sendall(b"a request")
    leaves.client.close()
    await asyncio.sleep(0.03)
    assert len(read_pauses) == 3
    now += 2
    while len(read_pauses) > 1:  # noqa: ASYNC110 - it looks every few milliseconds, without an event to wait for
        await asyncio.sleep(0.005)
    assert (stays.was_gone, leaves.was_gone, later.was_gone) == ([False], [True], [])
    now += 9
    while len(read_pauses):  # noqa: ASYNC110 - the same
        await asyncio.sleep(0.005)
    assert later.was_gone == [False]
    for one in (stays, leaves, later):
        one.close()


def connect(broker) -> socket.socket:
    return socket.create_connection(("127.0.0.1", broker.port), timeout=120)


def answer_of(client: socket.socket) -> tuple[bytes, bytes]:
    """Head and body of one answer."""
    found = b""
    while b"\r\n\r\n" not in found:
        found += client.recv(65536)
    head, _, body = found.partition(b"\r\n\r\n")
    size = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    while len(body) < size:
        body += client.recv(65536)
    assert len(body) == size, "nothing came behind it"
    return head.lower(), body


@pytest.mark.tier("test")
def test_a_full_server_refuses_early_and_stops_reading(tmp_path):
    environment = {"PENSTOCK_HTTP__REQUESTS_MAX": "1"}
    with served(tmp_path / "data", environment=environment) as broker:
        inside = connect(broker)
        inside.sendall(redrive_of_letters(broker))
        refused, eager = connect(broker), connect(broker)
        started = until_full(refused)
        # Its second request comes too early: it stays unread until the wait is over, and is served then.
        refused.sendall(WHOLE)
        eager.sendall(WHOLE * 3)
        head, body = answer_of(eager)
        assert head.startswith(b"http/1.1 429")
        assert b"connection: close" in head
        assert json.loads(body)["limit"] == 1
        assert eager.recv(100) == b""
        for path in ("/topics/orders", "/health", "/readyz", "/metrics"):
            assert broker.call("GET", path).status == 200
        # Who leaves gives its place back.
        inside.close()
        head, _ = answer_of(refused)
        assert head.startswith(b"http/1.1 200")
        assert time.monotonic() - started > 0.9
        for one in (refused, eager):
            one.close()
        assert broker.stop() == 0


def redrive_of_letters(broker) -> bytes:
    """A request that takes half a minute: so many dead letters, one a second."""
    broker.call("POST", "/topics", {"name": "orders", "num_partitions": 1})
    values = {"messages": [{"value": str(number)} for number in range(30)]}
    assert broker.call("POST", "/topics/orders/messages", values).status == 200
    polled = broker.call("GET", "/topics/orders/messages?group=g").json["messages"]
    receipts = {"receipt_handles": [one["receipt_handle"] for one in polled]}
    assert broker.call("POST", "/messages/reject", receipts).status == 200
    head = POST.replace(b"/topics/orders/messages", b"/topics/orders/dlq/redrive")
    while len(broker.call("GET", "/topics/orders/dlq").json["dead_letters"]) < len(polled):
        pass  # They travel by themselves.
    body = b'{"all":true,"rate":1}'
    return head + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def until_full(client: socket.socket) -> float:
    """Send until one is refused: the one inside may not be there yet. Returns when that one was sent."""
    for _ in range(1000):
        sent_s = time.monotonic()
        client.sendall(WHOLE.replace(b"Host", b"X-Request-Id: mine\r\nHost"))
        head, body = answer_of(client)
        if head.startswith(b"http/1.1 429"):
            break
    assert b"x-request-id: mine" in head
    assert 1 <= int(head.partition(b"retry-after: ")[2].split(b"\r\n")[0]) <= 10
    assert json.loads(body)["error"] == "RESOURCE_EXHAUSTED"
    assert json.loads(body)["retry_after_ms"] >= 1000
    return sent_s

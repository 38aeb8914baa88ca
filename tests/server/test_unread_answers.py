"""Clients that ask for large answers and do not read them: what waits for them in memory is bounded."""

import re
import socket
from pathlib import Path

import pytest

from penstock.errors import TooManyRequests
from penstock.server.send_budget import SendBudget

from .binary.services import service_of
from .binary.transports import on_wire
from .rigs import in_process, served

MB = 1_000_000
ANSWER_BYTES = 10 * MB
LIMIT = 32 * MB
CLIENTS = 40
GET = b"GET /topics/large/partitions/0/messages?max_bytes=%d HTTP/1.1\r\nHost: localhost\r\n" % (
    ANSWER_BYTES
)
FETCH = GET + b"Accept: application/vnd.penstock.batch\r\n\r\n"


class Stuck:
    """A connection for which so many bytes wait."""

    def __init__(self, size: int) -> None:
        self.size = size

    def unsent_bytes(self) -> int:
        return self.size


def test_whoever_has_read_on_makes_room():
    send_budget, slow, stuck = SendBudget(100), Stuck(60), Stuck(39)
    send_budget.begin(slow)
    send_budget.begin(stuck)
    send_budget.require_room()
    send_budget.begin(last := Stuck(1))
    with pytest.raises(TooManyRequests, match="the limit is 100"):
        send_budget.require_room()
    slow.size = 20
    send_budget.require_room()
    assert send_budget.used == 60
    for one in (slow, stuck, last, last):
        send_budget.end(one)
    assert send_budget.used == 0


def resident_bytes(process: int) -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    return int(found[1]) * 1024


def asking(port: int) -> socket.socket:
    """Somebody who asks for much, and reads no more than the first line of the answer."""
    client = socket.socket()
    # Small enough that the answer cannot hide in buffers of the system.
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(120)
    client.connect(("127.0.0.1", port))
    client.sendall(FETCH)
    return client


async def test_a_client_that_reads_slowly_is_cut_off_when_it_reads_no_more(tmp_path):
    async with in_process(tmp_path) as broker:
        connection, wire = on_wire(service_of(broker))
        wire.abort, unsent = wire.close, 5
        wire.get_write_buffer_size = lambda: unsent
        connection.pause_writing()
        connection.park(1, None)
        now, step_s = 0.0, broker.settings.http.write_timeout_ms / 1000 + 1
        while unsent:
            connection.sweep(now)
            assert not wire.is_over
            now, unsent = now + step_s, unsent - 1
        for _ in range(2):
            connection.sweep(now)
            now += step_s
        assert wire.is_over


@pytest.mark.tier("test")
def test_clients_that_never_read_do_not_fill_the_memory(tmp_path):
    environment = {"PENSTOCK_HTTP__ANSWERS_BYTES_MAX": str(LIMIT)}
    with served(tmp_path / "data", environment=environment) as broker:
        broker.call("POST", "/topics", {"name": "large", "num_partitions": 1})
        for _ in range(ANSWER_BYTES // MB):
            message = {"messages": [{"value": "x" * MB}]}
            assert broker.call("POST", "/topics/large/messages", message).status == 200
        before = resident_bytes(broker.process.pid)
        clients = [asking(broker.port) for _ in range(CLIENTS)]
        answers = [client.recv(12) for client in clients]
        assert set(answers) == {b"HTTP/1.1 200", b"HTTP/1.1 429"}
        # One answer more than fits, and what the system's buffers took of each.
        assert answers.count(b"HTTP/1.1 200") <= LIMIT // ANSWER_BYTES + 8
        assert resident_bytes(broker.process.pid) - before < LIMIT + 3 * ANSWER_BYTES
        # Everything small goes on, members can come and stay, and those who left make room.
        assert broker.call("GET", "/health").status == 200
        assert broker.call("GET", "/metrics").status == 200
        message = {"messages": [{"value": "still here"}]}
        assert broker.call("POST", "/topics/large/messages", message).status == 200
        joined = broker.call("POST", "/groups/g/join", {"topics": ["large"], "mode": "shared"})
        assert joined.status != 429
        for client in clients:
            client.close()
        while broker.call("GET", "/topics/large/partitions/0/messages").status == 429:
            pass
        assert broker.stop() == 0

"""Clients that mean harm, in numbers: the memory stays where it was, and honest clients are served meanwhile."""

import re
import socket
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from resource import RLIMIT_NOFILE, getrlimit, setrlimit

import pytest

from .rigs import Served, served
from .test_framing import CHUNKED, CHUNKS, GOOD, HEAD, TYPE, USUAL

pytestmark = pytest.mark.tier("test")
MIB = 1 << 20
SPARE_BYTES = 64 * MIB


def rss_of(broker: Served, name: str = "VmRSS") -> int:
    status = Path(f"/proc/{broker.process.pid}/status").read_text()
    return int(re.search(rf"{name}:\s+(\d+) kB", status)[1]) * 1024


@pytest.fixture
def broker(tmp_path):
    with served(tmp_path / "data") as broker:
        broker.call("POST", "/topics", {"name": "orders", "num_partitions": 1})
        yield broker


def connect(broker: Served) -> socket.socket:
    return socket.create_connection(("127.0.0.1", broker.port), timeout=60)


@pytest.mark.parametrize(
    "lines",
    [b"a:b\r\n" * 13_000, b"X-Long: " + b"a" * 65_528, b"X: " + b"a" * 200 + b"\r\n"],
    ids=["many", "endless", "small"],
)
def test_trailers_take_no_memory(broker, effort, capsys, lines):
    idle, total = rss_of(broker), effort(check=0, test=20, torture=200) * MIB
    sent = connections = 0
    answers = set()
    while sent < total:
        connections += 1
        with connect(broker) as stream:
            try:
                stream.sendall(CHUNKED + CHUNKS)
                while sent < total + SPARE_BYTES:
                    stream.sendall(lines)
                    sent += len(lines)
            except ConnectionError:
                pass  # Over the limit, and the connection ends.
            with suppress(ConnectionError):
                answers.add(stream.recv(65536)[:13])
    peak = rss_of(broker, "VmHWM")
    with capsys.disabled():
        sys.stdout.write(
            f"\n{sent / MIB:.0f} MiB of trailers on {connections} connections: RSS idle {idle / MIB:.0f} MiB, "
            f"peak {peak / MIB:.0f} MiB, answers {answers}"
        )
    # A client that the machine keeps from sending is late as well.
    assert answers <= {b"HTTP/1.1 431 ", b"HTTP/1.1 408 ", b""}
    assert peak - idle < SPARE_BYTES
    assert broker.call("GET", "/topics/orders").json["total_messages"] == 0


DRIPPED = {
    "length": HEAD + TYPE + b"Content-Length: 1000\r\n\r\n",
    "chunks": CHUNKED + b"fff\r\n",
    "batch": HEAD.replace(b"/messages", b"/partitions/0/batches")
    + b"Content-Type: application/vnd.penstock.batch\r\nContent-Length: 16000000\r\n\r\n",
}


@pytest.mark.parametrize("kind", DRIPPED)
def test_a_thousand_dripping_bodies_shut_nobody_out(broker, effort, capsys, kind):
    soft, hard = getrlimit(RLIMIT_NOFILE)
    setrlimit(RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    idle = rss_of(broker)
    dripping = [connect(broker) for _ in range(1000)]
    honest = [Publisher(broker) for _ in range(4)]
    try:
        for one in dripping:
            one.sendall(DRIPPED[kind])
        for publisher in honest:
            publisher.start()
        rounds = effort(check=0, test=1, torture=3)
        for number in range(rounds):
            for one in dripping:
                one.sendall(b"a")
            time.sleep(9 if number < rounds - 1 else 1)
    finally:
        for publisher in honest:
            publisher.stop()
    peak = rss_of(broker, "VmHWM")
    statuses = [status for one in honest for status in one.statuses]
    for one in dripping:
        one.close()
    with capsys.disabled():
        sys.stdout.write(
            f"\n1000 connections drip ({kind}) for {rounds} rounds: {len(statuses)} publishes, "
            f"{statuses.count(200)} with 200, slowest {max(one.slowest_s for one in honest) * 1000:.0f} ms; "
            f"RSS idle {idle / MIB:.0f} MiB, peak {peak / MIB:.0f} MiB"
        )
    assert set(statuses) == {200}
    assert peak - idle < 2 * SPARE_BYTES
    stored = broker.call("GET", "/topics/orders").json["total_messages"]
    assert stored == len(statuses)


class Publisher(threading.Thread):
    """Publishes one message after the other, each on a new connection, until it is stopped."""

    def __init__(self, broker: Served) -> None:
        super().__init__()
        self._broker, self._ends = broker, threading.Event()
        self.statuses: list[int] = []
        self.slowest_s = 0.0

    def run(self) -> None:
        while not self._ends.is_set():
            began = time.monotonic()
            with connect(self._broker) as stream:
                # In two pieces, as from a client that sends head and body by themselves.
                end = len(USUAL) - len(GOOD)
                stream.sendall(USUAL[:end])
                stream.sendall(USUAL[end:])
                self.statuses.append(int(stream.recv(65536).split()[1]))
            self.slowest_s = max(self.slowest_s, time.monotonic() - began)
            self._ends.wait(0.01)

    def stop(self) -> None:
        self._ends.set()
        self.join()

"""Large batches for clients that check them: sent from the file, and the same as if they had been read."""

import asyncio
import errno
import os
import re
import resource
import socket
import time
from contextlib import ExitStack, closing, suppress
from itertools import count
from math import inf
from pathlib import Path
from types import SimpleNamespace

import pytest

from penstock.api.fetch import FileRange
from penstock.client import Client
from penstock.codec import Columns, encode
from penstock.errors import PenstockError
from penstock.server.http.fetch import is_checked_here
from penstock.server.http.framing import RequestHead
from penstock.server.http.requests import Request
from penstock.server.http.sendfile import FileTransfer

from .rigs import in_process, request, until
from .wires import connected

MB = 1_000_000
BATCHES, PER_BATCH, VALUE_BYTES = 8, 50, 10_000
ACCEPT = {"accept": "application/vnd.penstock.batch"}
UNCHECKED = {**ACCEPT, "penstock-checked-by": "client"}
ALL = "limit=100000&max_bytes=16000000"


def make_topic(broker, name: str) -> str:
    """A topic with four megabytes, in its one partition; returns where to read them."""
    with Client(broker.binary_address) as client:
        client.create_topic(name, partitions=1)
        for number in range(BATCHES):
            values = [b"%0*d" % (VALUE_BYTES, number * PER_BATCH + one) for one in range(PER_BATCH)]
            client.append_batch(name, 0, encode(Columns(values=values)).to_bytes())
    return f"/topics/{name}/partitions/0/messages?"


@pytest.fixture(scope="module")
def target(shared_broker):
    return make_topic(shared_broker, "from-file")


def segment_of(broker, topic: str):
    (found,) = broker.data.glob(f"topics/default/{topic}.*/partition-0/messages/*.log")
    return found


def asks(target: str, query: str = ALL, version: str = "1.1", more: str = "") -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in UNCHECKED.items())
    return f"GET {target}{query} HTTP/{version}\r\nhost: localhost\r\n{lines}{more}\r\n".encode()


def slow(broker) -> socket.socket:
    """A connection that takes in little at a time."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(60)
    client.connect(("127.0.0.1", broker.port))
    return client


def read_answer(stream) -> bytes:
    """The body of the next answer."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += stream.readline()
    assert head.startswith(b"HTTP/1.1 200"), head
    return stream.read(int(re.search(rb"content-length: (\d+)", head)[1]))


def whole(broker, target: str) -> bytes:
    return broker.call("GET", target + ALL, **ACCEPT).body


@pytest.mark.parametrize(
    "query",
    [
        ALL,
        "offset=0",
        "offset=70&limit=1",
        "offset=70&limit=200",
        "offset=399",
        "offset=400",
        "offset=401",
        "max_bytes=1",
        "offset=51&max_bytes=1100000&limit=100000",
        "from_time=2020-01-01T00:00:00Z",
    ],
)
def test_the_answer_is_the_same(shared_broker, target, query):
    with closing(shared_broker.connect()) as connection:
        found = request(connection, "GET", target + query, **UNCHECKED)
        again = request(connection, "GET", target + query, **UNCHECKED)
        expected = request(connection, "GET", target + query, **ACCEPT)
    for one in (found, again):
        assert (one.status, one.body) == (expected.status, expected.body)
        assert {**one.headers, "date": "", "x-request-id": ""} == {
            **expected.headers,
            "date": "",
            "x-request-id": "",
        }


def test_who_reads_slowly_gets_all_of_it_and_may_ask_again(shared_broker, target):
    expected = whole(shared_broker, target)
    assert len(expected) > BATCHES * PER_BATCH * VALUE_BYTES
    with slow(shared_broker) as client, client.makefile("rb", 8192) as stream:
        # The second waits behind the first, and the third is of a kind that was seen before.
        client.sendall(asks(target) * 2)
        assert read_answer(stream) == expected
        assert read_answer(stream) == expected
        client.sendall(asks(target))
        assert read_answer(stream) == expected


@pytest.mark.parametrize(
    "said", [{"version": "1.0"}, {"more": "connection: close\r\n"}, {"version": "1.1"}]
)
def test_a_connection_that_ends_with_the_answer_ends_behind_it(shared_broker, target, said):
    with slow(shared_broker) as client, client.makefile("rb") as stream:
        client.sendall(asks(target, **said))
        client.shutdown(socket.SHUT_WR)
        head, _, body = stream.read().partition(b"\r\n\r\n")
        assert body == whole(shared_broker, target)
        assert (b"connection: close" in head) == (said != {"version": "1.1"})


def read_to_the_end(client: socket.socket) -> bytes:
    pieces = []
    with suppress(ConnectionError):
        while piece := client.recv(1 << 16):
            pieces.append(piece)
    return b"".join(pieces)


def open_files(broker) -> int:
    return len([*Path(f"/proc/{broker.process.pid}/fd").iterdir()])


def begun(broker, target: str) -> socket.socket:
    """A slow connection whose answer has begun; another one if its request did not come in time."""
    for _ in range(20):
        client = slow(broker)
        with suppress(ConnectionError):
            client.sendall(asks(target))
            if client.recv(12) == b"HTTP/1.1 200":
                return client
        client.close()
    raise AssertionError("no request came in time")


@pytest.mark.tier("test")
def test_who_leaves_or_never_reads_is_let_go(hasty_broker):
    target = make_topic(hasty_broker, "let-go")
    whole(hasty_broker, target)
    before = open_files(hasty_broker)
    with ExitStack() as closes:
        leaving, stuck = (closes.enter_context(begun(hasty_broker, target)) for _ in range(2))
        leaving.close()
        end_s = time.monotonic() + 120
        while open_files(hasty_broker) > before and time.monotonic() < end_s:
            time.sleep(0.01)
        assert open_files(hasty_broker) <= before
        assert len(read_to_the_end(stuck)) < len(whole(hasty_broker, target))


def test_who_gets_no_descriptor_gets_the_answer_all_the_same(shared_broker, target):
    process = shared_broker.process.pid
    with closing(shared_broker.connect()) as connection:
        expected = request(connection, "GET", target + ALL, **ACCEPT)
        used = {int(one.name) for one in Path(f"/proc/{process}/fd").iterdir()}
        first_free = next(one for one in count() if one not in used)
        soft, hard = resource.prlimit(process, resource.RLIMIT_NOFILE)
        resource.prlimit(process, resource.RLIMIT_NOFILE, (first_free, hard))
        try:
            found = request(connection, "GET", target + ALL, **UNCHECKED)
        finally:
            resource.prlimit(process, resource.RLIMIT_NOFILE, (soft, hard))
    assert (found.status, found.body) == (200, expected.body)


def test_a_file_that_became_shorter_ends_the_connection(shared_broker):
    target = make_topic(shared_broker, "shorter")
    size = len(whole(shared_broker, target))
    with segment_of(shared_broker, "shorter").open("r+b") as file:
        # All heads are still there.
        file.truncate(size - 1000)
    with slow(shared_broker) as client:
        client.sendall(asks(target))
        body = read_to_the_end(client).partition(b"\r\n\r\n")[2]
    assert 0 < len(body) < size


def test_damage_is_told_to_whoever_finds_it(shared_broker):
    target = make_topic(shared_broker, "damaged")
    good = whole(shared_broker, target)
    place = 2 * len(good) // BATCHES - 2000
    with segment_of(shared_broker, "damaged").open("r+b") as file:
        file.seek(place)
        file.write(b"?")
    bad = good[:place] + b"?" + good[place + 1 :]
    assert shared_broker.call("GET", target + ALL, **UNCHECKED).body == bad
    assert whole(shared_broker, target) == good[: len(good) // BATCHES]
    with Client(shared_broker.binary_address) as client:
        fetches = client.fetches("damaged", 0, max_bytes=1)
        assert [one.offset for one in next(fetches)] == [*range(PER_BATCH)]
        with pytest.raises(PenstockError) as raised:
            next(fetches)
    assert raised.value.code == "DAMAGED_BATCH"
    assert raised.value.fields["next_offset"] == 2 * PER_BATCH


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        far = socket.create_connection(listener.getsockname())
        near, _ = listener.accept()
    return near, far


@pytest.fixture
async def flowing(tmp_path):
    """An answer from a file that has begun, the end where it is read, and what there is to read."""
    # More than the systems of both ends hold.
    content = os.urandom(997) * 12_000
    (tmp_path / "file").write_bytes(content)
    near, far = tcp_pair()
    with near, far, (tmp_path / "file").open("rb") as file:
        near.setblocking(False)
        far.setblocking(False)
        body = FileRange(SimpleNamespace(number=file.fileno()), 5, len(content) - 5)
        transfer = FileTransfer(asyncio.get_running_loop(), near.fileno(), b"head", body)
        assert not transfer.begin()
        yield transfer, far, b"head" + content[5:]
        transfer.end()


async def read_all(transfer: FileTransfer, far: socket.socket, size: int) -> bytes:
    rest, found = asyncio.ensure_future(transfer.rest()), b""
    while len(found) < size:
        found += await asyncio.get_running_loop().sock_recv(far, MB)
    assert await rest
    return found


@pytest.fixture
def nothing_is_sent(monkeypatch):
    def sendfile(*_given):
        raise OSError(errno.EINVAL, "no")

    monkeypatch.setattr(os, "sendfile", sendfile)


@pytest.mark.usefixtures("nothing_is_sent")
async def test_a_file_that_cannot_be_sent_is_read_in_pieces(flowing):
    transfer, far, expected = flowing
    assert await read_all(transfer, far, len(expected)) == expected


async def test_whether_a_client_reads_is_seen_before_there_is_room_for_more(flowing):
    transfer, far, _ = flowing
    for _ in range(3):
        # Nothing is added here, so that there is an end to it.
        while transfer.has_moved():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.001)
        far.recv(MB // 4)
        async with asyncio.timeout(10):
            await until(transfer.has_moved)


async def test_who_reads_on_is_not_cut_off_and_who_stops_is(tmp_path):
    async with in_process(tmp_path) as broker:
        connection, wire = connected(broker)
        looks, now = [True, True, False], 100.0
        broker.app.now = lambda: now
        connection.file_transfer = SimpleNamespace(has_moved=lambda: looks.pop(0), end=lambda: None)
        connection.pause_writing()
        connection.read_due_s = inf
        while looks:
            assert not wire.is_closing()
            now += 31.0
            broker.app.sweep()
        assert wire.is_closing()
        connection.connection_lost(None)


@pytest.mark.parametrize(
    ("headers", "is_tls", "is_checked"),
    [
        (UNCHECKED, False, False),
        (UNCHECKED, True, True),
        (ACCEPT, False, True),
        ({**UNCHECKED, "accept": "*/*"}, False, True),
    ],
)
async def test_who_cannot_be_sent_a_file_gets_what_was_checked(
    tmp_path, headers, is_tls, is_checked
):
    async with in_process(tmp_path) as broker:
        connection, _ = connected(broker)
        connection.is_tls = is_tls
        head = RequestHead(1000)
        head.headers = {name.encode(): value.encode() for name, value in headers.items()}
        assert is_checked_here(Request(head, connection)) == is_checked

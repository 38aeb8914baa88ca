"""A connection of the server's without a socket: what is received is said, what is written is kept."""

import asyncio
import re

from penstock.server.http.connection import Connection


class Wire:
    """A transport that keeps what was written."""

    def __init__(self) -> None:
        self.written, self.is_closed = b"", asyncio.Event()
        self.is_paused = False

    def get_extra_info(self, name: str) -> object:
        return ("127.0.0.1", 1) if name == "peername" else None

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.is_closed.is_set()

    def close(self) -> None:
        self.is_closed.set()

    def abort(self) -> None:
        self.close()

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def take(self) -> bytes:
        """What was written since the last time, but for what differs with every answer."""
        written, self.written = self.written, b""
        return re.sub(rb"(x-request-id|date): [^\r]*|\"offset\":\d+", rb"\1", written)


def connected(broker, wire: Wire | None = None) -> tuple[Connection, Wire]:
    connection, wire = Connection(broker.app), wire or Wire()
    connection.connection_made(wire)
    return connection, wire


def is_answered(connection: Connection) -> bool:
    """Whether no request of the connection is under way."""
    return all(one.connection is not connection for one in connection.app.running)


async def until(is_so) -> None:
    """Let other tasks run until something is so."""
    while not is_so():  # noqa: ASYNC110 - what is waited for is state, and sets no event
        await asyncio.sleep(0)


async def answer_to(connection: Connection, wire: Wire, *pieces: bytes) -> bytes:
    """The answer to a request that comes in pieces."""
    for piece in pieces:
        connection.data_received(piece)
    async with asyncio.timeout(10):
        await until(lambda: wire.written and is_answered(connection))
    return wire.take()


BODY = b'{"messages":[{"value":"lamp"}],"acks":"leader"}'
BATCH = b"Accept: application/vnd.penstock.batch\r\n"


def publish(*lines: bytes, topic: bytes = b"orders") -> bytes:
    """A request that publishes one message."""
    head = [b"POST /topics/%b/messages HTTP/1.1" % topic, b"Host: localhost", *lines]
    head += [b"Content-Type: application/json", b"Content-Length: %d" % len(BODY)]
    return b"\r\n".join([*head, b"", BODY])


def asks(offset: int, more: bytes = BATCH, query: bytes = b"limit=10&timeout=20s") -> bytes:
    """A request that reads from an offset on, and waits for messages there."""
    target = b"/topics/orders/partitions/0/messages?%b&offset=%d" % (query, offset)
    return b"GET %b HTTP/1.1\r\nHost: localhost\r\n%b\r\n" % (target, more)


def read(*lines: bytes) -> bytes:
    """A request that reads one message, without waiting for it."""
    return asks(0, b"".join(one + b"\r\n" for one in (*lines, BATCH[:-2])), b"limit=1")

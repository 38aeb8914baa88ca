"""A connection of the server's without a socket: what is received is said, what is written is kept."""

import asyncio
import re

import uvicorn
from uvicorn.server import ServerState

from penstock.server.http.connection import Connection

from .rigs import until


class Wire:
    """A transport that keeps what was written."""

    def __init__(self) -> None:
        self.written, self.is_closed = b"", asyncio.Event()
        self.is_paused = False

    def get_extra_info(self, _name: str) -> None:
        return None

    def write(self, data: bytes) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.is_closed.is_set()

    def close(self) -> None:
        self.is_closed.set()

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def take(self) -> bytes:
        """What was written since the last time, but for what differs with every answer."""
        written, self.written = self.written, b""
        return re.sub(rb"(x-request-id|date): [^\r]*|\"offset\":\d+", rb"\1", written)


def connected(broker) -> tuple[Connection, Wire]:
    config = uvicorn.Config(broker.door, http=Connection, lifespan="off", log_config=None)
    config.load()
    connection, wire = Connection(config, ServerState(), {}), Wire()
    connection.door = broker.door
    connection.connection_made(wire)
    return connection, wire


async def answer_to(connection: Connection, wire: Wire, *pieces: bytes) -> bytes:
    """The answer to a request that comes in pieces."""
    for piece in pieces:
        connection.data_received(piece)
    async with asyncio.timeout(20):
        await until(lambda: wire.written and connection.cycle.response_complete)
    # The turn has to end before the next one comes alone.
    await asyncio.sleep(0)
    return wire.take()

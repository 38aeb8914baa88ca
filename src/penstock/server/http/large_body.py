"""A body of known length, received straight into its place in memory.

On the usual way each piece is copied four times before it is part of the body; for batches of a mebibyte that is half
of what storing them costs. So while one comes in, this takes the place of the protocol that parses.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .connection import Connection

# Below this there is mostly nothing left to receive when the headers have been read.
LARGE_BYTES = 128 * 1024


class LargeBody(asyncio.BufferedProtocol):
    """Made by the connection. `whole` is resolved when all of it is here; cancelled if the client leaves before."""

    def __init__(self, connection: "Connection", length: int, first: bytearray) -> None:
        self._connection = connection
        self._place = memoryview(bytearray(length))
        self._place[: len(first)] = first
        self._filled = len(first)
        self.whole: asyncio.Future[memoryview] = connection.loop.create_future()
        # Called for every piece: somebody is still sending.
        self.on_piece: Callable[[], object] | None = None

    def get_buffer(self, _size_hint: int) -> memoryview:
        return self._place[self._filled :]

    def buffer_updated(self, size: int) -> None:
        self._filled += size
        if self._filled < len(self._place):
            if self.on_piece is not None:
                self.on_piece()
            return
        self._connection.large_body_done(self)
        if not self.whole.done():
            self.whole.set_result(self._place)

    def connection_lost(self, exc: Exception | None) -> None:
        self.whole.cancel()
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

"""A body of known length, received straight into its place in memory.

On the usual way each piece is copied four times before it is part of the body; for batches of a mebibyte that is half
of what storing them costs. So while one comes in, this takes the place of the protocol that parses.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...errors import PenstockError

if TYPE_CHECKING:
    from .receiving_connection import ReceivingConnection

# Below this there is mostly nothing left to receive when the headers have been read.
LARGE_BYTES = 128 * 1024
# The place grows with what comes: a length that a client only announces takes no memory.
_FIRST_BYTES = 16 * 1024
_GROWTH = 4
Reserve = Callable[[int], None]
"""Takes so many bytes, in all, of what bodies may take together; raises if there is no room."""


class LargeBody(asyncio.BufferedProtocol):
    """Made by the connection. Raises what `reserve` does.

    `whole` is resolved when all of it is here, fails if it is not waited for, and is cancelled if the client leaves.
    """

    def __init__(
        self, connection: "ReceivingConnection", length: int, first: bytearray, reserve: Reserve
    ) -> None:
        self._connection, self._length, self._reserve = connection, length, reserve
        reserve(len(first))
        self._place = memoryview(b"")
        self._grow(first, max(_FIRST_BYTES, _GROWTH * len(first)))
        self._filled = len(first)
        self.whole: asyncio.Future[memoryview] = connection.loop.create_future()

    def _grow(self, content: bytearray | memoryview, size: int) -> None:
        place = memoryview(bytearray(min(size, self._length)))
        place[: len(content)] = content
        self._place = place

    def get_buffer(self, _size_hint: int) -> memoryview:
        return self._place[self._filled :]

    def buffer_updated(self, size: int) -> None:
        self._filled += size
        self._connection.body_arrived(size)
        if self._filled == self._length:
            self._connection.large_body_done(self)
            if not self.whole.done():
                self.whole.set_result(self._place)
            return
        try:
            self._reserve(self._filled)
        except PenstockError as error:
            self.fail(error)
            return
        if self._filled == len(self._place):
            self._grow(self._place, _GROWTH * self._filled)

    def fail(self, error: PenstockError) -> None:
        """Wait for no more of it."""
        self._connection.large_body_failed()
        if not self.whole.done():
            self.whole.set_exception(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self.whole.cancel()
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

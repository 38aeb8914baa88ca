"""What goes back to a client."""

import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from ...api.fetch import FileRange

if TYPE_CHECKING:
    from .connection import Connection
    from .requests import Request

HeaderPairs = Sequence[tuple[bytes, bytes]]

JSON = b"application/json"
NDJSON = b"application/x-ndjson"
SSE = b"text/event-stream"
BATCH = b"application/vnd.penstock.batch"
# What clients of Confluent's schema registry send and accept.
REGISTRY = b"application/vnd.schemaregistry.v1+json"
TEXT = b"text/plain; charset=utf-8"

# Answers that end with their headers.
_WITHOUT_BODY = frozenset({204, 304})
# Larger bodies are written in pieces of this size.
PIECE_BYTES = 64 * 1024
# What is answered may be messages of users: no cache keeps it, and no browser takes it for another type.
_GUARDS = b"x-content-type-options: nosniff\r\ncache-control: %b\r\n"
_FIELDS = b"x-request-id: %b\r\ncontent-type: %b\r\ncontent-length: %d\r\n" + _GUARDS
_NO_STORE = b"no-store"

encode_json = msgspec.json.Encoder().encode


@dataclass(slots=True)
class Response:
    """A whole answer. `is_last`: the connection ends behind it."""

    body: bytes | memoryview
    status: int = 200
    content_type: bytes = JSON
    headers: HeaderPairs = ()
    is_last: bool = False
    caching: bytes = _NO_STORE

    def fields(self, request_id: bytes) -> bytes:
        """The headers of this answer as they are sent, without those that every answer has."""
        lines = b"".join([b"%b: %b\r\n" % one for one in self.headers])
        if self.status in _WITHOUT_BODY:
            return (b"x-request-id: %b\r\n" + _GUARDS + b"%b") % (request_id, self.caching, lines)
        size = len(self.body)
        return _FIELDS % (request_id, self.content_type, size, self.caching) + lines

    async def send(self, request: "Request") -> None:
        """ClientGone if the client leaves meanwhile. So for all kinds of answers."""
        connection = request.connection
        fields = self.fields(request.id)
        head = connection.begin_answer(request, self.status, fields, is_last=self.is_last)
        await _send_whole(connection, head, b"" if request.method == "HEAD" else self.body)


async def _send_whole(connection: "Connection", head: bytes, body: bytes | memoryview) -> None:
    """A large body goes in pieces: what the transport does not take yet waits here, where it is counted."""
    if len(body) <= PIECE_BYTES:
        await connection.write(b"".join((head, body)))
        return
    await connection.write(head)
    rest = memoryview(body)
    try:
        while rest:
            piece, rest = rest[:PIECE_BYTES], rest[PIECE_BYTES:]
            connection.owed_bytes = len(piece) + len(rest)
            await connection.write(piece)
    finally:
        connection.owed_bytes = 0


@dataclass(slots=True)
class Stream:
    """An answer that goes on; each piece is sent as it comes."""

    pieces: AsyncGenerator[bytes, None]
    content_type: bytes
    status: int = 200

    async def send(self, request: "Request") -> None:
        connection = request.connection
        fields = b"x-request-id: %b\r\ncontent-type: %b\r\n" % (request.id, self.content_type)
        fields += _GUARDS % _NO_STORE
        # HTTP/1.0 has no chunks: there the end of the connection is the end of the answer.
        is_chunked = request.version != "1.0"
        if is_chunked:
            fields += b"transfer-encoding: chunked\r\n"
        await connection.write(connection.begin_answer(request, self.status, fields))
        # Closed by us and at once: what the pieces hold must not wait for the garbage collector.
        async with aclosing(self.pieces) as pieces:
            async for piece in pieces:
                await connection.write(
                    b"%x\r\n%b\r\n" % (len(piece), piece) if is_chunked else piece
                )
        if is_chunked:
            await connection.write(b"0\r\n\r\n")


@dataclass(slots=True)
class SendfileResponse:
    """A whole answer whose body lies in a file. Sent from there, or read if the connection cannot do that now."""

    body: FileRange
    content_type: bytes
    headers: HeaderPairs
    status: int = 200

    async def send(self, request: "Request") -> None:
        connection = request.connection
        fields = _FIELDS % (request.id, self.content_type, self.body.size, _NO_STORE)
        fields += b"".join([b"%b: %b\r\n" % one for one in self.headers])
        head = connection.begin_answer(request, self.status, fields)
        transfer = connection.begin_file(head, self.body)
        if transfer is not None:
            await connection.send_file(transfer)
            return
        file, position, size = self.body
        await _send_whole(connection, head, os.pread(file.number, size, position))


Answer = Response | Stream | SendfileResponse


def json_response(
    content: object, *, status: int = 200, headers: HeaderPairs = (), is_last: bool = False
) -> Response:
    return Response(encode_json(content), status, JSON, headers, is_last)


def nothing() -> Response:
    return Response(b"", 204)

"""What goes back to a client."""

import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import msgspec

from ...api.fetch import FileRange

Send = Callable[[Any], Awaitable[None]]
Receive = Callable[[], Awaitable[Any]]
HeaderPairs = Sequence[tuple[bytes, bytes]]

JSON = b"application/json"
NDJSON = b"application/x-ndjson"
SSE = b"text/event-stream"
BATCH = b"application/vnd.penstock.batch"
TEXT = b"text/plain; charset=utf-8"

_OK = 200
_NO_CONTENT = 204
COPIED_BYTES_MAX = 64 * 1024
_HEAD = b"x-request-id: %b\r\ncontent-type: %b\r\ncontent-length: %d\r\n"

encode_json = msgspec.json.Encoder().encode


def is_for_pieces(scope: Mapping[str, Any], size: int) -> bool:
    """A transport with TLS takes all that it is given at once, and says nothing of clients that do not read it."""
    return size > COPIED_BYTES_MAX and scope.get("scheme") == "https"


@dataclass(slots=True)
class Response:
    """A whole answer."""

    body: bytes | memoryview
    status: int = 200
    content_type: bytes = JSON
    headers: HeaderPairs = ()

    def head(self, request_id: bytes) -> bytes:
        """Its headers as they are sent, without those that every answer has."""
        own = _HEAD % (request_id, self.content_type, len(self.body))
        return own + b"".join(b"%b: %b\r\n" % one for one in self.headers)

    async def send(self, send: Send, request_id: bytes, scope: Mapping[str, Any]) -> None:
        connection = scope.get("penstock.connection")
        is_in_pieces = connection is not None and is_for_pieces(scope, len(self.body))
        if connection is not None and self._is_simple() and not is_in_pieces:
            head = _HEAD % (request_id, self.content_type, len(self.body))
            if self.headers:
                head += b"".join([b"%b: %b\r\n" % one for one in self.headers])
            if connection.answer_at_once(scope, self.status, head, self.body):
                return
        headers = [(b"x-request-id", request_id), *self.headers]
        if self.status != _NO_CONTENT:
            headers += [
                (b"content-type", self.content_type),
                (b"content-length", b"%d" % len(self.body)),
            ]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        if is_in_pieces:
            await self._send_pieces(send, connection)
        else:
            await send({"type": "http.response.body", "body": self.body})

    async def _send_pieces(self, send: Send, connection: Any) -> None:
        """The rest waits here, where it is counted."""
        rest = memoryview(self.body)
        try:
            while rest and connection.is_heard():
                piece, rest = rest[:COPIED_BYTES_MAX], rest[COPIED_BYTES_MAX:]
                connection.owed_bytes = len(rest)
                await send({"type": "http.response.body", "body": piece, "more_body": bool(rest)})
        finally:
            connection.owed_bytes = 0

    def _is_simple(self) -> bool:
        """With headers of errors there may be more to do than to send them; what is large is not worth a copy."""
        if self.headers:
            return self.status == _OK and len(self.body) <= COPIED_BYTES_MAX
        return self.status != _NO_CONTENT


@dataclass(slots=True)
class Stream:
    """An answer that goes on; each piece is sent as it comes."""

    pieces: AsyncGenerator[bytes, None]
    content_type: bytes
    status: int = 200

    async def send(self, send: Send, request_id: bytes, scope: Mapping[str, Any]) -> None:
        connection = scope.get("penstock.connection")
        headers = [
            (b"x-request-id", request_id),
            (b"content-type", self.content_type),
            (b"cache-control", b"no-store"),
        ]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        # Closed by us and at once: what the pieces hold must not wait for the garbage collector.
        async with aclosing(self.pieces) as pieces:
            async for piece in pieces:
                if connection is not None and not connection.is_heard():
                    return
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


@dataclass(slots=True)
class FromFile:
    """A whole answer whose body lies in a file. Sent from there, or read if this connection cannot do that now."""

    body: FileRange
    content_type: bytes
    headers: HeaderPairs
    status: int = 200

    async def send(self, send: Send, request_id: bytes, scope: Mapping[str, Any]) -> None:
        head = _HEAD % (request_id, self.content_type, self.body.size)
        head += b"".join([b"%b: %b\r\n" % one for one in self.headers])
        if not await scope["penstock.connection"].answer_from_file(scope, head, self.body):
            await self._read().send(send, request_id, scope)

    def _read(self) -> Response:
        lent, position, size = self.body
        data = os.pread(lent.number, size, position)
        return Response(data, self.status, self.content_type, self.headers)


Answer = Response | Stream | FromFile


def json_response(content: object, *, status: int = 200, headers: HeaderPairs = ()) -> Response:
    return Response(encode_json(content), status, JSON, headers)


def nothing() -> Response:
    return Response(b"", 204)

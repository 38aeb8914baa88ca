"""One client's connection: what it sends is cut into requests, and each is answered before the next is looked at.

Every request is a task. The connection bounds what its client may do: how large headers and trailers are, how long
headers, a body, the next request and the reading of an answer may take.
"""

import asyncio
from email.utils import formatdate
from enum import Enum
from functools import lru_cache
from http import HTTPStatus
from math import inf
from time import time
from typing import TYPE_CHECKING

from ...api.fetch import FileRange
from ...errors import TooSlow
from .framing import BadFraming, Framing, RequestHead
from .read_pause import gone_of
from .requests import SAFE, ClientGone, Request
from .responses import encode_json
from .sendfile import FileTransfer

if TYPE_CHECKING:
    from .app import App, Refusal

_STATUS_LINES = {one.value: f"HTTP/1.1 {one.value} {one.phrase}\r\n".encode() for one in HTTPStatus}
_REFUSAL = (
    b"%bcontent-type: application/json\r\ncontent-length: %d\r\n"
    b"connection: close\r\nretry-after: 1\r\n\r\n%b"
)


class Awaited(Enum):
    """What the client has to send within a limit of time."""

    NOTHING = "nothing"
    HEAD = "the rest of a request's headers"
    BODY = "the rest of a request's body"
    REQUEST = "the next request"


class Connection(asyncio.Protocol):
    """Made by the server for each client. The application calls `look` when one of the two times is over."""

    transport: asyncio.Transport

    def __init__(self, app: "App") -> None:
        self.app, self.client, self.is_tls = app, "unknown", False
        # The client left, or nothing more is said to it.
        self.is_over = False
        # When the client is late with what it has to send, and with reading what was sent.
        self.read_due_s = self.write_due_s = inf
        # What an answer still has for the transport.
        self.owed_bytes = 0
        # An answer that is being sent from a file.
        self.file_transfer: FileTransfer | None = None
        self._framing = Framing(app.settings.http.header_bytes_max)
        self._awaited = Awaited.NOTHING
        # The request that is not answered yet, and whether a part of its answer was sent.
        self._request: Request | None = None
        self.is_answering = False
        # The answer to a request that finds no room, until what came with it was read.
        self._refusal: Refusal | None = None
        # Of the body that is being received: all that came, and what came in this span of time.
        self._body_bytes = self._span_bytes = 0
        self._is_read_paused = self._is_stopping = False
        self._writable = asyncio.Event()
        self._writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # Streams have both directions.
        peer = transport.get_extra_info("peername")
        self.client = str(peer[0]) if peer else "unknown"
        self.is_tls = transport.get_extra_info("sslcontext") is not None
        self.app.connections.add(self)
        self._expect(Awaited.HEAD)
        limit = self.app.settings.http.connections_max
        if len(self.app.connections) > limit:
            self._refuse(503, "UNAVAILABLE", f"there are {limit} connections already")

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_over = True
        self.read_due_s = inf
        self.app.connections.discard(self)
        self.app.has_lost.set()
        self.app.read_pauses.behind.discard(self)
        self.resume_writing()
        if self.file_transfer is not None:
            self.file_transfer.end()
        self._framing.close()
        if self._request is not None:
            self._request.lose_client()

    def data_received(self, data: bytes) -> None:
        self._framing.receive(data)
        self._read()

    def _read(self) -> None:
        """Take requests out of what was received, up to one that has to be answered before the next is looked at."""
        try:
            while self._reads_on() and (taken := self._framing.take()) is not None:
                if isinstance(taken, RequestHead):
                    self._begin(taken)
                elif taken:
                    self._take_piece(taken)
                else:
                    self._end_body()
        except BadFraming as error:
            self._refuse_framing(error)
            return
        if self._refusal is not None:
            self._turn_away(self._refusal)
        elif not self.transport.is_closing():
            self._await_rest()

    def _reads_on(self) -> bool:
        is_next = self._framing.is_in_body or (self._request is None and self._refusal is None)
        return is_next and not self.transport.is_closing()

    def _begin(self, head: RequestHead) -> None:
        self._expect(Awaited.NOTHING)
        self._body_bytes = 0
        # Other requests are refused by a task: where the connection ends, or the client waits for 100 (Continue).
        is_plain = head.is_kept_alive and not head.expects_continue
        if head.method not in SAFE and is_plain and self.app.room.is_full:
            self._refusal = self.app.refuse(head.headers)
            self._body_bytes = self._framing.skip_body()
            return
        self.is_answering = False
        self._request = Request(head, self)
        self.app.begin(self._request)

    def _take_piece(self, piece: bytes) -> None:
        self._body_bytes += len(piece)
        self._span_bytes += len(piece)
        if self._request is not None and self._request.is_body_wanted:
            self._request.feed(piece)
        elif self._body_bytes > self.app.settings.http.body_bytes_max:
            self.transport.close()

    def _end_body(self) -> None:
        self._expect(Awaited.NOTHING)
        if self._request is not None:
            self._request.end_body()

    def _await_rest(self) -> None:
        """Bound the time of what has begun to come, and leave in the socket what comes behind a request."""
        if self._framing.is_in_body:
            self._expect(Awaited.BODY)
        elif self._request is not None:
            self._expect(Awaited.NOTHING)
        else:
            self._expect(Awaited.HEAD if self._framing.is_in_head else Awaited.REQUEST)
        if not self._framing.is_empty:
            self.pause_reading()
            self.app.read_pauses.behind.add(self)

    def _expect(self, awaited: Awaited) -> None:
        """Begin to count the time for something. What is awaited already goes on."""
        if awaited is self._awaited:
            return
        self._awaited, self._span_bytes = awaited, 0
        http = self.app.settings.http
        if awaited is Awaited.NOTHING:
            self.read_due_s = inf
        elif awaited is Awaited.REQUEST:
            self.read_due_s = self.app.now() + http.keep_alive_ms / 1000
        elif awaited is Awaited.HEAD:
            self.read_due_s = self.app.now() + http.header_timeout_ms / 1000
        else:
            self.read_due_s = self.app.now() + http.body_timeout_ms / 1000

    def look(self, now: float) -> None:
        """End what is late by `now`: the connection, or the request that waits for its body."""
        http = self.app.settings.http
        if self.write_due_s <= now:
            if self.file_transfer is not None and self.file_transfer.has_moved():
                self.write_due_s = now + http.write_timeout_ms / 1000
            else:
                self.transport.abort()
        if self.read_due_s > now or self.transport.is_closing():
            return
        if self._awaited is Awaited.REQUEST:
            self.transport.close()
        elif self._awaited is Awaited.HEAD:
            text = f"the headers did not come within {http.header_timeout_ms / 1000:g} s"
            self._refuse(408, "REQUEST_TIMEOUT", text)
        elif self._span_bytes >= http.body_timeout_ms / 1000 * http.body_bytes_per_s_min:
            self._expect(Awaited.NOTHING)
            self._expect(Awaited.BODY)
        else:
            self._end_slow_body()

    def _end_slow_body(self) -> None:
        """Have the request that waits for the body say that it is too slow; without one the connection ends."""
        http = self.app.settings.http
        error = TooSlow(
            f"the body did not come within {http.body_timeout_ms / 1000:g} s, "
            f"nor {http.body_bytes_per_s_min} bytes of it a second"
        )
        self._expect(Awaited.NOTHING)
        if self._request is None:
            self.transport.close()
        elif self._request.is_body_wanted:
            self._request.fail(error)
        else:
            self._refuse(408, error.code, str(error))

    def _refuse_framing(self, error: BadFraming) -> None:
        if self._framing.is_in_body and self._request is None and self._refusal is None:
            # The request whose body this is has an answer already.
            self.transport.close()
        else:
            self._refuse(error.status, error.code, str(error))

    def _refuse(self, status: int, code: str, text: str) -> None:
        """Say why the connection ends, unless that would stand in the middle of an answer."""
        if self.transport.is_closing():
            return
        if self._request is not None and self.is_answering:
            self.cut_off()
            return
        body = encode_json({"error": code, "message": text, "status": status})
        self.transport.write(_REFUSAL % (_STATUS_LINES[status], len(body), body))
        self.is_over = True
        self.transport.close()

    def _turn_away(self, refusal: "Refusal") -> None:
        """Send 429 and read nothing until the client's wait is over.

        A client that sends many at once would be refused as often, so it is sent away with all of them.
        """
        self._refusal = None
        is_sent_away = not self._framing.is_empty
        end = b"connection: close\r\n\r\n" if is_sent_away else b"\r\n"
        lines = (_STATUS_LINES[429], _date_line(int(time())), refusal.fields, end, refusal.body)
        self.transport.write(b"".join(lines))
        if is_sent_away:
            self.transport.close()
        else:
            self.app.read_pauses.hold(self, refusal.wait_s)

    def stop_reading(self) -> None:
        """Part of `Held`: what comes stays in the socket. Meanwhile the client cannot be late."""
        self.pause_reading()
        self._expect(Awaited.NOTHING)

    def read_on(self, *, is_gone: bool) -> None:
        """Part of `Held`."""
        if self.transport.is_closing():
            return
        if is_gone:
            self.transport.abort()
            return
        self._resume_reading()
        self._await_rest()

    def pause_reading(self) -> None:
        if not self._is_read_paused:
            self._is_read_paused = True
            self.transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._is_read_paused:
            self._is_read_paused = False
            self.transport.resume_reading()

    def descriptor(self) -> int:
        """Part of `Held`."""
        socket = self.transport.get_extra_info("socket")
        return -1 if socket is None else int(socket.fileno())

    def descriptor_if_waiting(self) -> int:
        """Part of `Behind`."""
        is_waiting = self._request is not None and self._request.is_ended_with_client
        return self.descriptor() if is_waiting else -1

    def is_heard(self) -> bool:
        """Whether the client may get what is written next. If not, the connection ends.

        TLS knows no end of one side only: what is written after it goes nowhere, and the transport logs every try. It
        does not say so itself, and calls us only when everything before is sent.
        """
        if self.is_over or self.transport.is_closing():
            return False
        if self.is_tls and gone_of([self.descriptor()]):
            self.cut_off()
            return False
        return True

    def begin_answer(
        self, request: Request, status: int, fields: bytes, *, is_last: bool = False
    ) -> bytes:
        """Status line and headers of an answer with these `fields`. `is_last`: the connection ends behind it."""
        self.is_answering = True
        if is_last or self._is_stopping or request.expects_continue:
            # A client that was not told to send its body may send it or not, so what follows cannot be read.
            request.is_kept_alive = False
        close = b"" if request.is_kept_alive else b"connection: close\r\n"
        date = _date_line(int(time()))
        return b"".join((_STATUS_LINES[status], date, fields, close, b"\r\n"))

    async def write(self, data: bytes | memoryview) -> None:
        """Hand bytes to the transport, as soon as it takes more. ClientGone if nothing is to be said any more."""
        if not self._writable.is_set():
            await self._writable.wait()
        if not self.is_heard():
            raise ClientGone
        self.transport.write(data)

    def write_continue(self) -> None:
        """Have the client send its body."""
        if self.is_heard():
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def begin_file(self, head: bytes, body: FileRange) -> FileTransfer | None:
        """None: this connection cannot send from a file now."""
        if self.is_tls or not self._writable.is_set() or self.transport.get_write_buffer_size():
            return None
        try:
            return FileTransfer(self.app.driver.loop, self.descriptor(), head, body)
        except OSError:
            return None  # No descriptor is left.

    async def send_file(self, transfer: FileTransfer) -> None:
        """Have the system send a whole answer. Whatever else comes waits, and there is a limit of time."""
        self.file_transfer, is_whole = transfer, False
        try:
            is_whole = transfer.begin()
            if not is_whole:
                self.pause_reading()
                self.pause_writing()
                is_whole = await transfer.rest()
        except OSError:
            pass  # The client left, or the file is not what it was.
        finally:
            self.file_transfer = None
            transfer.end()
            self.resume_writing()
            if not is_whole:
                self.cut_off()

    def end_answer(self, request: Request) -> None:
        """The task of the request is over: go on with what came behind it."""
        self._request = None
        if self.is_over or self.transport.is_closing():
            return
        if not request.is_kept_alive:
            self.transport.close()
            return
        self._resume_reading()
        self.app.read_pauses.behind.discard(self)
        if self._framing.is_empty or self.is_heard():
            self._read()

    def pause_writing(self) -> None:
        """The client does not read. What waits for it fills our memory, so it may not take long."""
        self._writable.clear()
        self.app.send_budget.begin(self)
        if self.write_due_s == inf:
            self.write_due_s = self.app.now() + self.app.settings.http.write_timeout_ms / 1000

    def resume_writing(self) -> None:
        self._writable.set()
        self.app.send_budget.end(self)
        self.write_due_s = inf

    def unsent_bytes(self) -> int:
        """Part of `Slow`."""
        return self.transport.get_write_buffer_size() + self.owed_bytes

    def cut_off(self) -> None:
        """End the connection in the middle of an answer, or without one."""
        self.is_over = True
        self.transport.abort()

    def stop(self) -> None:
        """The server stops: the connection ends, after the answer if a request is under way."""
        self._is_stopping = True
        if self._request is None:
            self.transport.close()


@lru_cache(maxsize=1)
def _date_line(second: int) -> bytes:
    return f"date: {formatdate(second, usegmt=True)}\r\n".encode()

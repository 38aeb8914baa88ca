"""A connection of uvicorn with what it leaves out: limits on headers, and on how long clients may take."""

import asyncio
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from .responses import encode_json

if TYPE_CHECKING:
    from .door import Door

_REFUSAL = (
    b"%scontent-type: application/json\r\ncontent-length: %d\r\n"
    b"connection: close\r\nretry-after: 1\r\n\r\n%s"
)


class TimedConnection(HttpToolsProtocol):
    """What is too large or too slow is refused here, whatever is asked for."""

    header_bytes_max = 64 * 1024
    header_timeout_s = 10.0
    write_timeout_s = 30.0
    connections_max = 20_000
    door: "Door"

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.is_lost = False
        # What an answer still has for the transport.
        self.owed_bytes = 0
        # When the last answer was complete; None while a request is under way.
        self._idle_since_s: float | None = None
        self._header_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # As uvicorn has it.
        super().connection_made(transport)
        self._expect_headers()
        if len(self.connections) > self.connections_max:
            self._refuse(
                503, "UNAVAILABLE", f"there are {self.connections_max} connections already"
            )

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self._headers_done()
        self._writing_goes_on()
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client does not read. What waits for it fills our memory, so it may not take long."""
        super().pause_writing()
        self.door.unsent.begin(self)
        if self._write_timer is None:
            self._watch_writing()

    def _watch_writing(self) -> None:
        self._write_timer = self.loop.call_later(self.write_timeout_s, self._writing_stuck)

    def _writing_stuck(self) -> None:
        self._write_timer = None
        self.transport.abort()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._writing_goes_on()

    def unsent_bytes(self) -> int:
        """Part of `Slow`."""
        return self.transport.get_write_buffer_size() + self.owed_bytes

    def _writing_goes_on(self) -> None:
        self.door.unsent.end(self)
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def stop_reading(self) -> int:
        """Part of `Held`: what comes stays in the socket. Meanwhile nobody can say that the client says nothing."""
        self.transport.pause_reading()
        self._unset_keepalive_if_required()
        socket = self.transport.get_extra_info("socket")
        return -1 if socket is None else int(socket.fileno())

    def read_on(self, *, is_gone: bool) -> None:
        """Part of `Held`."""
        if self.is_lost or self.transport.is_closing():
            return
        if is_gone:
            self.transport.abort()
            return
        self.transport.resume_reading()
        self._rest()

    def _rest(self) -> None:
        """Nothing is under way, and for how long that may stay so is counted from now."""
        self._idle_since_s = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._watch_idle(self.timeout_keep_alive)

    def _watch_idle(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(
            seconds, self.timeout_keep_alive_handler
        )

    def _unset_keepalive_if_required(self) -> None:
        self._idle_since_s = None

    def timeout_keep_alive_handler(self) -> None:
        self.timeout_keep_alive_task = None
        if self._idle_since_s is None:
            return
        left_s = self._idle_since_s + self.timeout_keep_alive - self.loop.time()
        if left_s > 0:
            self._watch_idle(left_s)
        else:
            super().timeout_keep_alive_handler()

    def _expect_headers(self) -> None:
        self._header_timer = self.loop.call_later(self.header_timeout_s, self._headers_late)

    def _headers_done(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _headers_late(self) -> None:
        self._header_timer = None
        text = f"the headers did not come within {self.header_timeout_s:g} s"
        self._refuse(408, "REQUEST_TIMEOUT", text)

    def _refuse(self, status: int, code: str, text: str) -> None:
        if self.transport.is_closing():
            return
        body = encode_json({"error": code, "message": text, "status": status})
        self.transport.write(_REFUSAL % (STATUS_LINE[status], len(body), body))
        self.transport.close()

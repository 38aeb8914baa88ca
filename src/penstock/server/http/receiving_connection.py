"""A connection that receives bodies: into the request that waits for them, straight into their place, or nowhere."""

import asyncio
from typing import Any

from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from ...errors import TooSlow
from .ending_connection import EndingConnection
from .framing import Framing
from .large_body import LargeBody, Reserve


class ReceivingConnection(EndingConnection):
    """A body that its request does not want is read over, up to the size that any body may have."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._framing = Framing(self.header_bytes_max)
        # The parser of uvicorn reads nothing here.
        self.parser = None  # type: ignore[assignment]  # As after the end.
        # The request that the body belongs to does not want it.
        self._is_body_dropped = False
        self._body_bytes = 0
        self._large_body: LargeBody | None = None
        # Why the body that is being received is not waited for any more.
        self.body_error: TooSlow | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        self.door.arrivals.end(self)
        super().connection_lost(exc)

    @property
    def _is_answered(self) -> bool:
        """Whether no request waits for its answer."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is None or cycle.response_complete

    def _expect_body(self, *, is_dropped: bool) -> None:
        self._is_body_dropped, self._body_bytes, self.body_error = is_dropped, 0, None

    def _take_piece(self, piece: bytes) -> None:
        self.body_arrived(len(piece))
        if self._is_body_dropped or self._is_answered:
            if self._body_bytes > self.door.settings.http.body_bytes_max:
                self.transport.close()
            return
        cycle = self.cycle
        cycle.body += piece
        if len(cycle.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        cycle.message_event.set()

    def _take_end(self) -> None:
        self.door.arrivals.end(self)
        if self._is_answered:
            self._rest()
        else:
            self.cycle.more_body = False
            self.cycle.message_event.set()

    def body_arrived(self, size: int) -> None:
        """Some more of a body is here."""
        self._body_bytes += size
        self.door.arrivals.add(self, size)

    def body_late(self, error: TooSlow) -> None:
        """Part of `Arriving`: the body comes too slowly. The request that waits for it says so."""
        if self._large_body is not None:
            self._large_body.fail(error)
        elif self._is_answered:
            self.transport.close()
        elif self._is_body_dropped:
            self._refuse(408, error.code, str(error))
        else:
            self.body_error = error
            self.cycle.message_event.set()

    def take_body(self, scope: object) -> bytes | None:
        """The whole body, if it is here already, as most are; None: it has to be waited for."""
        cycle = self.cycle
        if cycle.scope is not scope or cycle.more_body or cycle.disconnected:
            return None
        body, cycle.body = bytes(cycle.body), bytearray()
        return body

    def is_whole(self, scope: object) -> bool:
        """Whether the body of a request is here, or there is none."""
        cycle = self.cycle
        return cycle.scope is scope and not cycle.more_body

    def receive_large(self, scope: object, length: int, reserve: Reserve) -> LargeBody | None:
        """Begin to receive the body by a shorter way. None: it has to go the usual one, or is here already."""
        cycle = self.cycle
        is_waiting = cycle.scope is scope and cycle.more_body and not cycle.disconnected
        if not is_waiting or self.scheme != "http" or len(cycle.body) >= length:
            return None
        if cycle.waiting_for_100_continue:
            return None
        self._large_body = body = LargeBody(self, length, cycle.body, reserve)
        cycle.body = bytearray()
        self.flow.resume_reading()
        self._hand_over(body)
        return body

    def large_body_done(self, body: LargeBody) -> None:
        """All of it came."""
        self._large_body = None
        self._framing.body_done()
        self._take_end()
        if not body.whole.done():
            self._hand_over(self)

    def large_body_failed(self) -> None:
        """The rest of it is not read, so the connection ends with the answer."""
        self.cycle.keep_alive = False
        self.transport.pause_reading()

    def _hand_over(self, protocol: asyncio.BaseProtocol) -> None:
        # A protocol of another kind is noticed when reading begins.
        self.transport.pause_reading()
        self.transport.set_protocol(protocol)
        self.transport.resume_reading()

"""A connection that may end while requests are under way: each of them hears of it, and nothing more is written."""

from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from .timed_connection import TimedConnection
from .unread import gone_of


class EndingConnection(TimedConnection):
    """uvicorn tells only the newest request. One with others in line behind it would write to a closed transport."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.on_lost: Callable[[], object] | None = None
        # The request that is under way, which is not the newest if others wait behind it.
        self._under_way: RequestResponseCycle | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._disconnect()
        super().connection_lost(exc)
        if self.on_lost is not None:
            self.on_lost()

    def _disconnect(self) -> None:
        cycle = self._under_way
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()

    @property
    def is_answering(self) -> bool:
        """Whether a client has heard a part of an answer, and can be told nothing else."""
        cycle = self._under_way
        return cycle is not None and cycle.response_started and not cycle.response_complete

    def cut_off(self) -> None:
        """End a request that gets no answer, or no more of one, and the connection with it."""
        self._disconnect()
        self.transport.abort()

    def descriptor_if_waiting(self) -> int:
        """Part of `Behind`."""
        socket = None if self.on_lost is None else self.transport.get_extra_info("socket")
        return -1 if socket is None else int(socket.fileno())

    def is_heard(self) -> bool:
        """Whether the client may get what is written next. If not, the connection ends.

        TLS knows no end of one side only: what is written after it goes nowhere, and the transport logs every try. It
        does not say so itself, and calls us only when everything before is sent.
        """
        if self.scheme == "http":
            return True
        socket = self.transport.get_extra_info("socket")
        is_gone = socket is not None and gone_of([socket.fileno()])
        if not is_gone and not self.transport.is_closing():
            return True
        self.cut_off()
        return False

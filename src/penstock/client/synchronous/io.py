"""Connections and waiting, for threads. `asynchronous/io.py` has these names for asyncio."""

import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from threading import Event as Event
from threading import Lock as Lock
from time import sleep as sleep
from typing import TYPE_CHECKING, Any

from ...api.arguments import plain_function as check_callback
from ...errors import AnswerTimeout, Unreachable
from ...model import Buffer
from ..address import Address
from ..failures import reason_of
from ..settings import ClientSettings
from ..wire import Answer, AnswerReader, Body, Headers, joined, size_of

if TYPE_CHECKING:
    import ssl

__all__ = [
    "Background",
    "Connection",
    "Event",
    "Lock",
    "OnHead",
    "Semaphore",
    "acquire_within",
    "call_back",
    "check_callback",
    "sleep",
]

OnHead = Callable[[Headers], None]
"""Called with the headers of an answer when they come before the end of its body."""

# Up to here one copy costs less than one more packet.
_JOINED_BYTES_MAX = 64 * 1024
# The part of a large body that comes with its head is copied once more.
_PIECE_BYTES = 64 * 1024
_TIMEVAL = struct.Struct("@ll")
# The system counts time in these, and may be one too early.
_TICK_S = 0.01


class Connection:
    """One connection; one request at a time, `post` and then `collect`."""

    def __init__(self, address: Address, stream: socket.socket, timeout_s: float) -> None:
        """`timeout_s` is how long a request may take to be sent."""
        self._address = str(address)
        self._stream = stream
        self._is_tls, self._timeout_s = address.is_tls, timeout_s
        if not self._is_tls:
            # With Python's own timeouts every receive and every send is two system calls.
            stream.setblocking(True)
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(timeout_s))
        self._wait_at_most(timeout_s)
        self._reader = AnswerReader(self._address)
        self._poll = select.poll()
        self._poll.register(stream, select.POLLIN)
        self._is_open = True
        # How long the last request took to be sent: its answer has so much less time.
        self._sending_s = 0.0

    @classmethod
    def open(
        cls, address: Address, tls: "ssl.SSLContext | None", settings: ClientSettings
    ) -> "Connection":
        """A connection. Unreachable if no server listens there, or if it takes too long."""
        timeout_s = settings.connect_timeout_s
        try:
            stream = socket.create_connection((address.host, address.port), timeout_s)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                stream = tls.wrap_socket(stream, server_hostname=address.host)
        except TimeoutError:
            raise Unreachable(str(address), f"no connection within {timeout_s:g} s") from None
        except OSError as error:
            raise Unreachable(str(address), reason_of(error)) from None
        return cls(address, stream, settings.timeout_s)

    @property
    def is_usable(self) -> bool:
        """Whether it is open and silent: bytes before a request are the end, or the answer to no request."""
        return self._is_open and not self._poll.poll(0)

    def post(self, head: bytes, body: Body) -> None:
        """Send a request. AnswerTimeout if the server does not take all of it in time."""
        began_s = time.monotonic()
        try:
            if self._is_tls and self._waits_s != self._timeout_s:
                self._wait_at_most(self._timeout_s)
            if size_of(body) < _JOINED_BYTES_MAX:
                self._send(joined(head, body), began_s + self._timeout_s)
            else:
                # Not copied: fresh memory for a large body each time costs more than another call.
                for piece in [head, *([body] if isinstance(body, bytes) else body)]:
                    self._send(piece, began_s + self._timeout_s)
            self._sending_s = time.monotonic() - began_s
        except (TimeoutError, BlockingIOError):
            self.close()
            reason = f"the request was not taken within {self._timeout_s:g} s"
            raise AnswerTimeout(self._address, reason, is_sent=True) from None
        except OSError as error:
            if self._is_answered_early():
                self._sending_s = 0.0
                return
            self.close()
            raise Unreachable(self._address, reason_of(error), is_sent=True) from None

    def _send(self, data: Buffer, until_s: float) -> None:
        sent = self._stream.send(data)
        while sent < len(data):
            if time.monotonic() > until_s - _TICK_S:
                raise TimeoutError
            sent += self._stream.send(memoryview(data)[sent:])

    def _is_answered_early(self) -> bool:
        """Whether the server answered before it took the whole request, as it does when it refuses its size."""
        try:
            return not self._is_tls and bool(
                self._stream.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            )
        except OSError:
            return False

    def is_answered(self, within_s: float) -> bool:
        """Whether an answer, or the end of the connection, comes within so long."""
        return not self._is_open or bool(self._poll.poll(within_s * 1000))

    def collect(
        self, timeout_s: float, on_head: OnHead | None = None, waited_s: float = 0.0
    ) -> Answer:
        """The answer to the request; AnswerTimeout if it takes too long, of which `waited_s` are over.

        The time that it took to send the request counts, too. `on_head` gets the headers, unless the whole answer
        comes in one piece.
        """
        if self._sending_s > _TICK_S:
            waited_s += self._sending_s
        try:
            answer = self._collect(max(_TICK_S, timeout_s - waited_s), on_head)
        except (TimeoutError, BlockingIOError):
            self.close()
            reason = f"nothing within {timeout_s:g} s"
            raise AnswerTimeout(self._address, reason, is_sent=True) from None
        except OSError as error:
            self.close()
            raise Unreachable(self._address, reason_of(error), is_sent=True) from None
        except BaseException:
            self.close()
            raise
        if answer.is_last or not self._reader.is_idle:
            self.close()
        return answer

    def _wait_at_most(self, seconds: float) -> None:
        """Let a receive take at most so long from now on; with TLS, a send, too."""
        self._waits_s = seconds
        if self._is_tls:
            self._stream.settimeout(seconds)
        else:
            self._stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _timeval(seconds))

    def _collect(self, timeout_s: float, on_head: OnHead | None) -> Answer:
        deadline_s = time.monotonic() + timeout_s
        # Only when it changes, because it is a system call.
        if timeout_s != self._waits_s:
            self._wait_at_most(timeout_s)
        while True:
            answer = self._received()
            if answer is not None:
                return answer
            if on_head is not None and (headers := self._reader.headers) is not None:
                on_head(headers)
                on_head = None
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise TimeoutError
            self._wait_at_most(left_s)

    def _received(self) -> Answer | None:
        space = self._reader.space()
        if space is not None:
            size = self._stream.recv_into(space)
            if size:
                return self._reader.filled(size)
        elif piece := self._stream.recv(_PIECE_BYTES):
            return self._reader.feed(piece)
        raise Unreachable(self._address, "the server closed the connection", is_sent=True)

    def abort(self) -> None:
        """End a wait for an answer with Unreachable, from any thread."""
        with suppress(OSError):
            self._stream.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._is_open = False
        self._stream.close()


def _timeval(seconds: float) -> bytes:
    """A time in the form of `setsockopt`, where 0 would mean for ever."""
    whole = int(seconds)
    return _TIMEVAL.pack(whole, max(1, int((seconds - whole) * 1_000_000)))


class Semaphore:
    """So many places. Taking one out of a queue costs a seventh of what a condition does."""

    def __init__(self, places: int) -> None:
        self._free: SimpleQueue[None] = SimpleQueue()
        for _ in range(places):
            self._free.put(None)
        self.acquire = self._free.get
        self.release = partial(self._free.put, None)

    def acquire_now(self) -> bool:
        """Take a place without waiting; False if there is none."""
        try:
            self._free.get_nowait()
        except Empty:
            return False
        return True


def acquire_within(lock: Lock, timeout_s: float) -> bool:
    """Take a lock, waiting at most so long; returns whether it was free."""
    return lock.acquire(timeout=timeout_s)


def call_back(call: Callable[..., Any], *given: object) -> None:
    """Call a function of the program."""
    call(*given)


class Background:
    """A thread that runs until its function returns. `failure` has the error that ended it."""

    def __init__(self, run: Callable[[], None], name: str) -> None:
        self._future: Future[None] = Future()
        self._run = run
        # A daemon: a program that does not close its client must still be able to end.
        threading.Thread(target=self._body, name=name, daemon=True).start()

    def _body(self) -> None:
        try:
            self._run()
        except BaseException as error:
            self._future.set_exception(error)
            if isinstance(error, Exception):
                return
            raise
        self._future.set_result(None)

    @property
    def is_over(self) -> bool:
        return self._future.done()

    def failure(self) -> BaseException | None:
        """The error that ended it; None if it returned."""
        return self._future.exception()

    def interrupt(self) -> None:
        """Do nothing: a thread cannot be ended from outside."""

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for its end, at most so long; returns whether it is over."""
        wait([self._future], timeout_s)
        return self._future.done()

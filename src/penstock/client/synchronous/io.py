"""What waits, for threads. `asynchronous/io.py` has the same names for asyncio."""

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
from threading import Lock as Guard
from time import sleep as sleep
from typing import TYPE_CHECKING, Any

from ...api.arguments import plain_function
from ...errors import AnswerTimeout, Unreachable
from ...model import Buffer
from ..address import Address
from ..reasons import reason_of
from ..settings import ClientSettings
from ..wire import Answer, AnswerReader, Body, Headers, joined, size_of

if TYPE_CHECKING:
    import ssl

__all__ = [
    "Background",
    "Connection",
    "Guard",
    "Lock",
    "OnHead",
    "Semaphore",
    "Signal",
    "check_callback",
    "sleep",
    "take_now",
]

OnHead = Callable[[Headers], None]
"""Called with the headers of an answer before all of a longer body is here."""

# Up to here one copy costs less than one more packet.
_JOINED_BYTES_MAX = 64 * 1024
# What of a large body comes with its head is copied once more.
_PIECE_BYTES = 64 * 1024
_TIMEVAL = struct.Struct("@ll")
# The system counts in these, and may be one too early.
_TICK_S = 0.01
_CLOSED = "the server closed the connection"


class Connection:
    """One connection; one request at a time, `post` and then `collect`."""

    def __init__(self, address: Address, stream: socket.socket, timeout_s: float) -> None:
        """`timeout_s`: so long a request may take to be sent."""
        self._address = str(address)
        self._stream = stream
        self._is_tls, self._timeout_s = address.is_tls, timeout_s
        if not self._is_tls:
            # Python's own timeouts ask the system twice each time: whether it may be done, and then to do it.
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
        """Unreachable if nobody is there, or if it takes too long."""
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
        """Open, and silent: what comes before a request is the end, or no answer of ours."""
        return self._is_open and not self._poll.poll(0)

    def post(self, head: bytes, body: Body) -> None:
        """Send a request. AnswerTimeout if the server does not take it in time, however slowly it takes some of it."""
        began_s = time.monotonic()
        until_s = began_s + self._timeout_s
        try:
            if type(body) is bytes and len(body) < _JOINED_BYTES_MAX:
                data = head + body
            elif size_of(body) < _JOINED_BYTES_MAX:
                data = joined(head, body)
            else:
                self._send_pieces([head, *([body] if isinstance(body, bytes) else body)], until_s)
                self._sending_s = time.monotonic() - began_s
                return
            # Mostly the system takes all of it at once.
            sent = 0 if self._is_tls else self._stream.send(data)
            if sent < len(data):
                self._send_rest(data, sent, until_s)
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

    def _is_answered_early(self) -> bool:
        """A server that refuses a body for its size says so and takes no more of it: that answer is worth more."""
        try:
            return not self._is_tls and bool(
                self._stream.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            )
        except OSError:
            return False

    def _send_pieces(self, pieces: list[Buffer], until_s: float) -> None:
        """What is large is not copied together first: memory that is new each time costs more than to send it."""
        sent = 0 if self._is_tls else self._stream.sendmsg(pieces)
        for piece in pieces:
            size = len(piece)
            if sent < size:
                self._send_rest(piece, sent, until_s)
            sent = max(0, sent - size)

    def _send_rest(self, data: Buffer, sent: int, until_s: float) -> None:
        """TLS never takes more than a record at once; the system takes less only when time is up, or a signal came."""
        if self._is_tls and self._waits_s != self._timeout_s:
            self._wait_at_most(self._timeout_s)
        while sent < len(data):
            if time.monotonic() > until_s - _TICK_S:
                raise TimeoutError
            sent += self._stream.send(memoryview(data)[sent:])

    def is_answered(self, within_s: float) -> bool:
        """Whether an answer, or the end, is here or comes so soon that it is worth waiting for."""
        return not self._is_open or bool(self._poll.poll(within_s * 1000))

    def collect(
        self, timeout_s: float, on_head: OnHead | None = None, waited_s: float = 0.0
    ) -> Answer:
        """The answer to what was posted. `on_head` gets its headers before all of a longer body is here.

        `waited_s`: so much of the time is over, beside what it took to send.
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
        """From here on what is received may take so long; with TLS, what is sent too."""
        self._waits_s = seconds
        if self._is_tls:
            self._stream.settimeout(seconds)
        else:
            self._stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _timeval(seconds))

    def _collect(self, timeout_s: float, on_head: OnHead | None) -> Answer:
        deadline_s = time.monotonic() + timeout_s
        # PendingAnswer only when it changes: it is a system call, and mostly an answer comes in one piece.
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
        raise Unreachable(self._address, _CLOSED, is_sent=True)

    def abort(self) -> None:
        """End a wait for an answer, from any thread: it is Unreachable then."""
        with suppress(OSError):
            self._stream.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._is_open = False
        self._stream.close()


def _timeval(seconds: float) -> bytes:
    """As `setsockopt` takes a time."""
    whole = int(seconds)
    # 0 would be for ever.
    return _TIMEVAL.pack(whole, max(1, int((seconds - whole) * 1_000_000)))


def call_back(call: Callable[..., Any], *given: object) -> None:
    """Call something of the program's."""
    call(*given)


def check_callback(what: str, call: Callable[..., Any] | None) -> None:
    """Refused if it is nothing that `call_back` can call."""
    plain_function(what, call)


class Lock:
    """MessageOrReceipt by one thread at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def acquire(self) -> None:
        self._lock.acquire()

    def try_acquire(self) -> bool:
        """Whether we have it now; never waits."""
        return self._lock.acquire(blocking=False)

    def acquire_within(self, timeout_s: float) -> bool:
        """Whether we have it, after so long at most."""
        return self._lock.acquire(timeout=timeout_s)

    def release(self) -> None:
        self._lock.release()


class Semaphore:
    """So many may be inside at once. To take a place out of a queue costs a seventh of what a condition does."""

    def __init__(self, places: int) -> None:
        self._free: SimpleQueue[None] = SimpleQueue()
        for _ in range(places):
            self._free.put(None)
        # No methods of our own around them: every call comes by here twice.
        self.acquire = self._free.get
        self.release = partial(self._free.put, None)

    def acquire_now(self) -> bool:
        """Whether there was a place; never waits for one."""
        try:
            self._free.get_nowait()
        except Empty:
            return False
        return True


def take_now(room: Semaphore) -> bool:
    """Whether there was room; never waits for it."""
    return room.acquire_now()


class Signal:
    """Something that happened, or did not yet."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()

    def clear(self) -> None:
        self._event.clear()

    @property
    def is_set(self) -> bool:
        return self._event.is_set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for it, at most so long; whether it happened."""
        return self._event.wait(timeout_s)


class Background:
    """Something that goes on beside us until it returns. What it raises comes out of `join` and `failure`."""

    def __init__(self, run: Callable[[], None], name: str) -> None:
        self._future: Future[None] = Future()
        self._run = run
        # A daemon: a program that forgets to close us must still be able to end.
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
        """What it ended with; None if it ended well."""
        return self._future.exception()

    def interrupt(self) -> None:
        """Nothing: a thread cannot be ended from outside."""

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for its end; whether it came."""
        wait([self._future], timeout_s)
        return self._future.done()

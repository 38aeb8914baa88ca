"""A connection to the binary port, for threads. `asynchronous/connection.py` has these names for asyncio.

No thread of its own reads: a caller that waits for its reply and finds that no other caller reads is the reader. It
settles the replies of the others, too, and when its own has come, it wakes one of those that still wait to read on.
"""

import select
import socket
import struct
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from threading import Lock
from typing import TYPE_CHECKING

from ...api.frames import CANCEL, HELLO, Hello, HelloReply, request_frame
from ...api.wire import decode_value, encode_hello
from ...errors import AnswerTimeout, BadAnswer, BadRequest, Cancelled, Unreachable
from ...model import Buffer
from ..address import Address
from ..failures import reason_of
from ..replies import ReplyReader
from ..settings import CLIENT_NAME, ClientSettings
from .tls_stream import TlsStream

if TYPE_CHECKING:
    import ssl

_TIMEVAL = struct.Struct("@ll")
# The system counts time in these, and may be one too early.
_TICK_S = 0.01
# How much later a receive may end than it has to.
_SLACK_S = 0.05


class Pending:
    """A request that was sent. Its reply is taken by `body`, or given up by `cancel`."""

    __slots__ = ("_connection", "correlation", "error", "is_settled", "reply", "sent_at_s", "wake")

    def __init__(self, connection: "Connection", correlation: int) -> None:
        self._connection, self.correlation = connection, correlation
        # Either comes once, and then `is_settled`.
        self.reply: memoryview | None = None
        self.error: Exception | None = None
        self.is_settled = False
        # Held while a thread waits for this reply and another one reads; released when there is something to do.
        self.wake: Lock | None = None
        self.sent_at_s = time.monotonic()

    def fail(self, error: Exception) -> None:
        self.error, self.is_settled = error, True

    def is_answered(self, within_s: float) -> bool:
        """Whether the reply, or the end of the connection, comes within so long."""
        return self.is_settled or self._connection.wait(self, time.monotonic() + within_s)

    def body(self, until_s: float) -> memoryview:
        """The body of the reply. AnswerTimeout if there is none at that time (of `time.monotonic`), Unreachable if the
        connection ends before."""
        if not self.is_settled and not self._connection.wait(self, until_s):
            self._connection.give_up(self)
        if self.error is not None:
            raise self.error
        assert self.reply is not None, "it is settled"
        return self.reply

    def cancel(self) -> None:
        """Wait no longer: `body` raises Cancelled, and a server that waits for messages gives those back.

        From any thread, and from a signal handler. A thread that reads notices it by the server's answer.
        """
        if not self.is_settled:
            self.fail(Cancelled())
            self._connection.cancel(self.correlation)
            _release(self.wake)


class Connection:
    """One connection with any number of requests under way. `server` is what the server said of itself."""

    server: HelloReply

    def __init__(
        self, address: Address, stream: "socket.socket | TlsStream", timeout_s: float
    ) -> None:
        """`timeout_s` is how long a request may take to be sent."""
        self._address, self._stream, self._timeout_s = str(address), stream, timeout_s
        # With Python's own timeouts every receive and every send is two system calls.
        stream.setblocking(True)
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(timeout_s))
        self._receive_at_most(timeout_s)
        self._correlations = count(1)
        # Shared by all threads without a lock.
        self._pending: dict[int, Pending] = {}
        self._sending = Lock()
        # Requests that are not waited for any more, as long as the server was not told.
        self._cancelled: deque[int] = deque()
        # Why it is open no more.
        self._end: tuple[type[Unreachable], str] | None = None
        # Held by the thread that reads, which alone uses what follows.
        self._reading = Lock()
        self._poll = select.poll()
        self._poll.register(stream, select.POLLIN)
        self._reader = ReplyReader(self._address)
        self._heard_at_s = 0.0

    @classmethod
    def open(
        cls, address: Address, tls: "ssl.SSLContext | None", key: str, settings: ClientSettings
    ) -> "Connection":
        """A connection that has said hello. Unreachable if no broker listens there, or if it takes too long.

        Unauthenticated if the server asks for a key, and this one is not good.
        """
        timeout_s = settings.connect_timeout_s
        until_s = time.monotonic() + timeout_s
        try:
            plain = socket.create_connection((address.host, address.port), timeout_s)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            stream = plain if tls is None else TlsStream(plain, tls, address.host)
            connection = cls(address, stream, settings.timeout_s)
        except TimeoutError:
            raise Unreachable(str(address), f"no connection within {timeout_s:g} s") from None
        except OSError as error:
            raise Unreachable(str(address), reason_of(error)) from None
        try:
            connection._hello(key, until_s, timeout_s)
        except BaseException:
            connection.close()
            raise
        return connection

    def _hello(self, key: str, until_s: float, timeout_s: float) -> None:
        pending = self.post(HELLO, encode_hello(Hello(CLIENT_NAME, key)))
        try:
            if not self.wait(pending, until_s):
                raise Unreachable(self._address, f"no connection within {timeout_s:g} s")
            self.server = decode_value(HelloReply, pending.body(until_s))
        except BadRequest as error:
            raise BadAnswer(self._address, str(error)) from None
        except BadAnswer:
            raise
        except Unreachable as error:
            # Nothing but hello was sent.
            raise Unreachable(self._address, str(error.fields["reason"])) from None

    @property
    def is_usable(self) -> bool:
        """Whether it is open. If no reply is waited for, the end of the connection is looked for."""
        try:
            if not self._pending and self._reading.acquire(blocking=False):
                # Beside the end there may be replies to requests that were given up.
                try:
                    if self._end is None and self._poll.poll(0):
                        self._read()
                finally:
                    self._stop_reading()
        except BaseException:
            self._fail("it was interrupted")
            raise
        return self._end is None

    @property
    def is_orphan(self) -> bool:
        """Never: a connection for threads has no loop that could be closed."""
        return False

    # Requests.

    def post(self, api_key: int, body: Sequence[Buffer]) -> Pending:
        """Send a request. AnswerTimeout if the server does not take all of it in time."""
        correlation = next(self._correlations) & 0x7FFFFFFF
        pending = self._pending[correlation] = Pending(self, correlation)
        # Asked after that: the thread that ends the connection fails the requests that it finds.
        if self._end is not None:
            raise Unreachable(self._address, self._end[1])
        try:
            with self._sending:
                self._send(request_frame(api_key, correlation, body))
        finally:
            if self._end is not None:
                self._close_unused()
        if self._cancelled:
            self._send_cancels()
        if pending.error is not None:
            raise pending.error
        return pending

    def _send(self, pieces: Sequence[Buffer]) -> None:
        """Send a frame; `_sending` is held. If that fails, the connection ends, and all requests fail."""
        try:
            sent = self._stream.sendmsg(pieces)
            if len(pieces) > 1 or sent < len(pieces[0]):
                self._send_rest(pieces, sent)
        except (TimeoutError, BlockingIOError):
            reason = f"the request was not taken within {self._timeout_s:g} s"
            self._fail(reason, AnswerTimeout)
        except OSError as error:
            self._fail(reason_of(error))
        except BaseException:
            self._fail("it was interrupted")
            raise

    def _send_rest(self, pieces: Sequence[Buffer], sent: int) -> None:
        """Send what follows the first `sent` bytes."""
        until_s = time.monotonic() + self._timeout_s
        left = deque([memoryview(one) for one in pieces])
        while True:
            while left and sent >= len(left[0]):
                sent -= len(left.popleft())
            if not left:
                return
            left[0] = left[0][sent:]
            if time.monotonic() > until_s - _TICK_S:
                raise TimeoutError
            sent = self._stream.sendmsg(left)

    def cancel(self, correlation: int) -> None:
        """Tell the server that a request is not waited for any more. What it still replies is not looked at."""
        self._cancelled.append(correlation)
        self._send_cancels()

    def _send_cancels(self) -> None:
        """A thread that sends now does this when it is done: a signal handler must not wait for it."""
        while self._cancelled and self._end is None and self._sending.acquire(blocking=False):
            try:
                while self._cancelled:
                    body = self._cancelled.popleft().to_bytes(4, "big")
                    own = next(self._correlations) & 0x7FFFFFFF
                    self._send(request_frame(CANCEL, own, [body]))
            finally:
                self._sending.release()
        if self._end is not None:
            self._close_unused()

    # Replies.

    def wait(self, pending: Pending, until_s: float) -> bool:
        """Whether a request is settled until then. The caller reads for all, if no other caller does."""
        if not self._read_until(pending, until_s):
            return self._wait_for_reader(pending, until_s)
        return pending.is_settled

    def _wait_for_reader(self, pending: Pending, until_s: float) -> bool:
        """Wait while another thread reads, and then in its place."""
        wake = Lock()
        wake.acquire()
        # Before it looks whether a thread reads: one that stops after that finds and wakes it.
        pending.wake = wake
        try:
            while not pending.is_settled:
                if self._read_until(pending, until_s):
                    break
                left_s = until_s - time.monotonic()
                if left_s <= 0 or not wake.acquire(timeout=left_s):
                    break
        finally:
            pending.wake = None
            # It may have been this thread that was to read next.
            self._wake_reader()
        return pending.is_settled

    def _read_until(self, pending: Pending, until_s: float) -> bool:
        """Read for all until a request is settled, or until then; False at once if another thread reads."""
        try:
            if not self._reading.acquire(blocking=False):
                return False
            try:
                while not pending.is_settled and self._end is None:
                    left_s = until_s - time.monotonic()
                    if left_s < _TICK_S:
                        # Less than the system counts in: only what is here already.
                        if not self._poll.poll(max(0.0, left_s) * 1000):
                            break
                    elif not left_s <= self._receives_s <= left_s + _SLACK_S:
                        # Not each time, because it is a system call.
                        self._receive_at_most(left_s + _SLACK_S / 2)
                    self._read()
            finally:
                self._stop_reading()
        except BaseException:
            # A Ctrl-C may have come just before or after the lock was taken, or before it was released: then no thread
            # would read any more.
            self._fail("it was interrupted")
            raise
        return True

    def _read(self) -> None:
        """Receive once, and settle the replies that came."""
        try:
            size = self._stream.recv_into(self._reader.buffer())
            if not size:
                self._fail("the server closed the connection")
                return
            replies = self._reader.received(size)
        except (TimeoutError, BlockingIOError):
            return
        except OSError as error:
            self._fail(reason_of(error))
            return
        except BadAnswer as error:
            self._fail(str(error.fields["reason"]), BadAnswer)
            return
        except BaseException:
            # Bytes may have been received and not taken: nothing that follows could be read.
            self._fail("it was interrupted")
            raise
        self._heard_at_s = time.monotonic()
        for correlation, body in replies:
            pending = self._pending.pop(correlation, None)
            # Without one it is the reply to a request that was given up.
            if pending is not None:
                pending.reply, pending.is_settled = body, True
                _release(pending.wake)

    def _stop_reading(self) -> None:
        """This thread reads no more; one of those that still wait does."""
        self._reading.release()
        if self._pending or self._end is not None:
            self._wake_reader()

    def _wake_reader(self) -> None:
        """Wake one of the threads that wait, if none reads."""
        if not self._reading.locked():
            # A copy, because others add theirs meanwhile.
            for one in [*self._pending.values()]:
                if one.wake is not None:
                    _release(one.wake)
                    break
        if self._end is not None:
            self._close_unused()

    def give_up(self, pending: Pending) -> None:
        """A reply takes too long. If nothing at all came since the request was sent, the connection is given up."""
        waited_s = time.monotonic() - pending.sent_at_s
        reason = f"nothing within {self._timeout_s:g} s"
        self._pending.pop(pending.correlation, None)
        if pending.is_settled:
            return
        if self._end is not None:
            # The thread that ended the connection has not come to this request yet.
            pending.fail(self._failure())
            return
        pending.fail(AnswerTimeout(self._address, reason, is_sent=True))
        if self._heard_at_s < pending.sent_at_s and waited_s >= self._timeout_s - _TICK_S:
            self._fail(reason)
        else:
            self.cancel(pending.correlation)

    def _receive_at_most(self, seconds: float) -> None:
        self._receives_s = seconds
        self._stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _timeval(seconds))

    # The end.

    def _fail(self, reason: str, kind: type[Unreachable] = Unreachable) -> None:
        """End the connection; all requests fail. The stream is closed when no thread uses it."""
        # The first reason is the true one: others are what came of it.
        self._end = self._end or (kind, reason)
        for one in [*self._pending.values()]:
            if not one.is_settled:
                one.fail(self._failure())
            _release(one.wake)
        self._pending.clear()
        with suppress(OSError):
            self._stream.shutdown(socket.SHUT_RDWR)
        self._close_unused()

    def _failure(self) -> Unreachable:
        """Of a request that was under way."""
        assert self._end is not None, "it is open no more"
        kind, reason = self._end
        return kind(self._address, reason, is_sent=True)

    def _close_unused(self) -> None:
        """Close the stream, unless a thread still reads or sends; that one does it then."""
        if not self._reading.locked() and self._sending.acquire(blocking=False):
            try:
                self._stream.close()
            finally:
                self._sending.release()

    def close(self) -> None:
        """End the connection, and with it what is under way."""
        self._fail("the client was closed")

    def leave_to_parent(self) -> None:
        """After a fork: let go of the stream. It is not shut down, which would end it for the parent, too."""
        self._end = (Unreachable, "it belongs to the process that was forked")
        self._sending, self._reading = Lock(), Lock()
        self._pending.clear()
        self._stream.close()


def _release(wake: "Lock | None") -> None:
    # It is not held if the thread was woken before.
    if wake is not None and wake.locked():
        with suppress(RuntimeError):
            wake.release()


def _timeval(seconds: float) -> bytes:
    """A time in the form of `setsockopt`, where 0 would mean for ever."""
    whole = int(seconds)
    return _TIMEVAL.pack(whole, max(1, int((seconds - whole) * 1_000_000)))

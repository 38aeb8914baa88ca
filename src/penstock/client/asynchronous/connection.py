"""A connection to the binary port, for asyncio. `synchronous/connection.py` has these names for threads."""

import asyncio
import time
from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING

from ...api.frames import CANCEL, HELLO, Hello, HelloReply, request_frame
from ...api.wire import decode_value, encode_hello
from ...errors import AnswerTimeout, BadAnswer, BadRequest, Cancelled, Refused, Unreachable
from ...model import Buffer
from ..address import Address
from ..failures import reason_of
from ..replies import ReplyReader
from ..settings import CLIENT_NAME, ClientSettings

if TYPE_CHECKING:
    import ssl

# A timer may be so much too early.
_TICK_S = 0.01


class Pending:
    """A request that was sent. Its reply is taken by `body`, or given up by `cancel`."""

    __slots__ = ("_connection", "_future", "correlation", "sent_at_s")

    def __init__(self, connection: "Connection", correlation: int) -> None:
        self._connection, self.correlation = connection, correlation
        self._future: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        self.sent_at_s = time.monotonic()

    @property
    def is_settled(self) -> bool:
        return self._future.done()

    async def is_answered(self, within_s: float) -> bool:
        """Whether the reply, or the end of the connection, comes within so long."""
        if not self.is_settled:
            await asyncio.wait({self._future}, timeout=within_s)
        return self.is_settled

    async def body(self, until_s: float) -> memoryview:
        """The body of the reply. AnswerTimeout if there is none at that time (of `time.monotonic`), Unreachable if the
        connection ends before."""
        if not self._future.done():
            within_s = max(0.0, until_s - time.monotonic())
            timer = asyncio.get_running_loop().call_later(within_s, self._give_up)
            try:
                return await self._future
            except asyncio.CancelledError:
                # With the task its future was cancelled.
                self._connection.cancel(self.correlation)
                raise
            finally:
                timer.cancel()
        return self._future.result()

    def _give_up(self) -> None:
        self._connection.give_up(self)

    def cancel(self) -> None:
        """Wait no longer: `body` raises Cancelled, and a server that waits for messages gives those back."""
        if not self._future.done():
            self._connection.cancel(self.correlation)
            self.fail(Cancelled())

    def settle(self, body: memoryview) -> None:
        if not self._future.done():
            self._future.set_result(body)

    def fail(self, error: Exception) -> None:
        if not self._future.done():
            self._future.set_exception(error)
            # Retrieved at once: asyncio would log the error of a request that was given up.
            self._future.exception()


class Connection(asyncio.BufferedProtocol):
    """One connection with any number of requests under way. `server` is what the server said of itself."""

    server: HelloReply

    def __init__(self, address: Address, timeout_s: float) -> None:
        self._address, self._timeout_s = str(address), timeout_s
        self._reader = ReplyReader(self._address)
        self._transport: asyncio.Transport | None = None
        self._correlations = count(1)
        self._pending: dict[int, Pending] = {}
        self._heard_at_s = 0.0
        self._is_open = True
        self._loop = asyncio.get_running_loop()

    @classmethod
    async def open(
        cls, address: Address, tls: "ssl.SSLContext | None", key: str, settings: ClientSettings
    ) -> "Connection":
        """A connection that has said hello. Unreachable if no broker listens there, or if it takes too long.

        Unauthenticated if the server asks for a key, and this one is not good.
        """
        loop, timeout_s = asyncio.get_running_loop(), settings.connect_timeout_s
        connection = cls(address, settings.timeout_s)
        try:
            async with asyncio.timeout(timeout_s):
                await loop.create_connection(
                    lambda: connection, address.host, address.port, ssl=tls
                )
                # One second more: the block above is to end first.
                await connection._hello(key, time.monotonic() + timeout_s + 1)
        except TimeoutError:
            connection.close()
            raise Unreachable(str(address), f"no connection within {timeout_s:g} s") from None
        except OSError as error:
            raise Unreachable(str(address), reason_of(error)) from None
        except BaseException:
            connection.close()
            raise
        return connection

    async def _hello(self, key: str, until_s: float) -> None:
        pending = await self.post(HELLO, encode_hello(Hello(CLIENT_NAME, key)))
        try:
            self.server = decode_value(HelloReply, await pending.body(until_s))
        except BadRequest as error:
            raise BadAnswer(self._address, str(error)) from None
        except BadAnswer:
            raise
        except Unreachable as error:
            # Nothing but hello was sent.
            raise Unreachable(self._address, str(error.fields["reason"])) from None

    @property
    def is_usable(self) -> bool:
        return self._is_open

    @property
    def is_orphan(self) -> bool:
        """Whether its loop is closed, so that nothing reads it: a program may call `asyncio.run` more than once."""
        return self._loop.is_closed()

    async def post(self, api_key: int, body: Sequence[Buffer]) -> Pending:
        """Send a request. A part of it may still be in memory when this returns.

        Refused: another loop reads the replies, and would not wake this one.
        """
        if self._loop is not asyncio.get_running_loop():
            raise Refused("the client is in use in another event loop: make one for each")
        if self._transport is None or not self._is_open:
            raise Unreachable(self._address, "the server closed the connection")
        correlation = next(self._correlations) & 0x7FFFFFFF
        pending = self._pending[correlation] = Pending(self, correlation)
        self._write(request_frame(api_key, correlation, body))
        return pending

    def _write(self, pieces: Sequence[Buffer]) -> None:
        assert self._transport is not None, "it was connected"
        for piece in pieces:
            self._transport.write(piece)

    def cancel(self, correlation: int) -> None:
        """Tell the server that a request is not waited for any more. What it still replies is not looked at."""
        self._pending.pop(correlation, None)
        if self._is_open:
            body = correlation.to_bytes(4, "big")
            self._write(request_frame(CANCEL, next(self._correlations) & 0x7FFFFFFF, [body]))

    def give_up(self, pending: Pending) -> None:
        """A reply takes too long. If nothing at all came since the request was sent, the connection is given up."""
        waited_s = time.monotonic() - pending.sent_at_s
        reason = f"nothing within {self._timeout_s:g} s"
        pending.fail(AnswerTimeout(self._address, reason, is_sent=True))
        if self._heard_at_s < pending.sent_at_s and waited_s >= self._timeout_s - _TICK_S:
            self._fail(reason)
        else:
            self.cancel(pending.correlation)

    def _fail(self, reason: str, kind: type[Unreachable] = Unreachable) -> None:
        self.close()
        pending, self._pending = self._pending, {}
        for one in pending.values():
            one.fail(kind(self._address, reason, is_sent=True))

    def close(self) -> None:
        self._is_open = False
        if self._transport is not None and not self.is_orphan:
            self._transport.abort()

    def leave_to_parent(self) -> None:
        """After a fork: send nothing more, and do not abort, which would change what the parent's loop watches."""
        self._is_open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport), "TCP and TLS are both"
        self._transport = transport
        if not self._is_open:
            transport.abort()

    def get_buffer(self, _sizehint: int) -> memoryview:
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._heard_at_s = time.monotonic()
        try:
            replies = self._reader.received(nbytes)
        except BadAnswer as error:
            self._fail(str(error.fields["reason"]), BadAnswer)
            return
        for correlation, body in replies:
            # Without one it is the reply to a request that was given up.
            pending = self._pending.pop(correlation, None)
            if pending is not None:
                pending.settle(body)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail("the server closed the connection" if exc is None else reason_of(exc))

"""What waits, in asyncio's way. `synchronous/io.py` has the same names for threads."""

import asyncio
import contextlib
from asyncio import Semaphore as Semaphore
from asyncio import sleep as sleep
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from threading import Lock as Guard
from typing import TYPE_CHECKING, Any

from ...api.arguments import function
from ...errors import AnswerTimeout, BadAnswer, Unreachable
from ..address import Address
from ..reasons import reason_of
from ..settings import ClientSettings
from ..wire import Answer, AnswerReader, Body, Headers, joined, size_of

if TYPE_CHECKING:
    import ssl

# Guard: between two awaits no other task runs, so nobody ever waits for it; but it costs less than one made to do
# nothing, and the synchronous client needs it.
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

OnHead = Callable[[Headers], Awaitable[None]]
"""Called with the headers of an answer before all of a longer body is here."""

# Up to here one copy costs less than one more packet.
_JOINED_BYTES_MAX = 64 * 1024


class Connection(asyncio.Protocol):
    """One connection; one request at a time, `post` and then `collect`."""

    def __init__(self, address: Address) -> None:
        self._address = str(address)
        self._reader = AnswerReader(self._address)
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[Answer] | None = None
        # Set when the head of an answer is here, and at the end of everything. None: nobody asks.
        self._begun: asyncio.Event | None = None
        self.is_usable = True

    @classmethod
    async def open(
        cls, address: Address, tls: "ssl.SSLContext | None", settings: ClientSettings
    ) -> "Connection":
        """Unreachable if nobody is there, or if it takes too long."""
        loop, timeout_s = asyncio.get_running_loop(), settings.connect_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                _, connection = await loop.create_connection(
                    lambda: cls(address), address.host, address.port, ssl=tls
                )
        except TimeoutError:
            raise Unreachable(str(address), f"no connection within {timeout_s:g} s") from None
        except OSError as error:
            raise Unreachable(str(address), reason_of(error)) from None
        return connection

    async def post(self, head: bytes, body: Body) -> None:
        """Send a request. A part of it may be in memory still when this returns."""
        transport = self._transport
        if transport is None or not self.is_usable:
            raise Unreachable(self._address, "the server closed the connection")
        self._waiting = asyncio.get_running_loop().create_future()
        if size_of(body) < _JOINED_BYTES_MAX:
            transport.write(joined(head, body))
            return
        for piece in [head, body] if isinstance(body, bytes) else [head, *body]:
            transport.write(piece)

    async def is_answered(self, within_s: float) -> bool:
        """Whether an answer, or the end, is here or comes so soon that it is worth waiting for."""
        waiting = self._waiting
        if waiting is not None and not waiting.done():
            await asyncio.wait({waiting}, timeout=within_s)
        return waiting is None or waiting.done()

    async def collect(
        self, timeout_s: float, on_head: OnHead | None = None, waited_s: float = 0.0
    ) -> Answer:
        """The answer to what was posted. `on_head` gets its headers before all of a longer body is here.

        `waited_s`: so much of the time is over.
        """
        waiting = self._waiting
        assert waiting is not None, "nothing was posted"
        left_s = max(0.0, timeout_s - waited_s)
        timer = asyncio.get_running_loop().call_later(left_s, self._give_up, timeout_s)
        try:
            if on_head is not None and (headers := await self._headers(waiting)) is not None:
                await on_head(headers)
            return await waiting
        except asyncio.CancelledError:
            self.close()
            raise
        finally:
            timer.cancel()
            self._waiting = self._begun = None

    async def _headers(self, waiting: "asyncio.Future[Answer]") -> Headers | None:
        """The headers once they are here; None if the whole answer is, or if none will come."""
        if not waiting.done() and self._reader.headers is None:
            self._begun = asyncio.Event()
            await self._begun.wait()
        return None if waiting.done() else self._reader.headers

    def _begin(self) -> None:
        if self._begun is not None:
            self._begun.set()

    def _give_up(self, timeout_s: float) -> None:
        self._fail(AnswerTimeout(self._address, f"nothing within {timeout_s:g} s", is_sent=True))

    def _fail(self, error: Unreachable) -> None:
        self.close()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error)
            # Looked at: asyncio would complain of one that nobody collects, as of a request that was dropped.
            self._waiting.exception()
            self._begin()

    def close(self) -> None:
        self.is_usable = False
        if self._transport is not None:
            self._transport.abort()

    def abort(self) -> None:
        """End a wait for an answer: it is Unreachable then."""
        self.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport), "TCP and TLS are both"
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            answer = self._reader.feed(data)
        except BadAnswer as error:
            self._fail(error)
            return
        if answer is None:
            if self._begun is not None and self._reader.headers is not None:
                self._begin()
            return
        if self._waiting is None or self._waiting.done() or not self._reader.is_idle:
            self._fail(BadAnswer(self._address, "more than was asked for", is_sent=True))
            return
        if answer.is_last:
            self.close()
        self._waiting.set_result(answer)
        self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        reason = "the server closed the connection" if exc is None else reason_of(exc)
        self._fail(Unreachable(self._address, reason, is_sent=True))


async def take_now(room: Semaphore) -> bool:
    """Whether there was room; never waits for it."""
    return not room.locked() and await room.acquire()


async def call_back(call: Callable[..., Any], *given: object) -> None:
    """Call something of the program's: a function, or a coroutine function."""
    made = call(*given)
    if isawaitable(made):
        await made


def check_callback(what: str, call: Callable[..., Any] | None) -> None:
    """Refused if it is nothing that `call_back` can call."""
    function(what, call)


class Lock:
    """MessageOrReceipt by one task at a time."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def acquire(self) -> None:
        await self._lock.acquire()

    async def try_acquire(self) -> bool:
        """Whether we have it now; never waits."""
        return not self._lock.locked() and await self._lock.acquire()

    async def acquire_within(self, timeout_s: float) -> bool:
        """Whether we have it, after so long at most."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._lock.acquire()
        except TimeoutError:
            return False

    def release(self) -> None:
        self._lock.release()


class Signal:
    """Something that happened, or did not yet."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        self._event.set()

    def clear(self) -> None:
        self._event.clear()

    @property
    def is_set(self) -> bool:
        return self._event.is_set()

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for it, at most so long; whether it happened."""
        if self._event.is_set():
            return True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._event.wait()
        return self._event.is_set()


class Background:
    """Something that goes on beside us until it returns. What it raises comes out of `join` and `failure`."""

    def __init__(self, run: Callable[[], Awaitable[None]], name: str) -> None:
        async def body() -> None:
            await run()

        self._task = asyncio.get_running_loop().create_task(body(), name=name)

    @property
    def is_over(self) -> bool:
        return self._task.done()

    def failure(self) -> BaseException | None:
        """What it ended with; None if it ended well."""
        return None if self._task.cancelled() else self._task.exception()

    def interrupt(self) -> None:
        """End it where it waits. A thread cannot be ended so: there this does nothing."""
        self._task.cancel()

    async def join(self, timeout_s: float | None = None) -> bool:
        """Wait for its end; whether it came."""
        if not self._task.done():
            await asyncio.wait({self._task}, timeout=timeout_s)
        return self._task.done()

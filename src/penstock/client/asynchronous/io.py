"""Connections and waiting, for asyncio. `synchronous/io.py` has these names for threads."""

import asyncio
import contextlib
from asyncio import Lock as Lock
from asyncio import sleep as sleep
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from ...api.arguments import function as check_callback
from ...errors import AnswerTimeout, BadAnswer, Unreachable
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

OnHead = Callable[[Headers], Awaitable[None]]
"""Called with the headers of an answer when they come before the end of its body."""

# Up to here one copy costs less than one more packet.
_JOINED_BYTES_MAX = 64 * 1024


class Connection(asyncio.Protocol):
    """One connection; one request at a time, `post` and then `collect`."""

    def __init__(self, address: Address) -> None:
        self._address = str(address)
        self._reader = AnswerReader(self._address)
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[Answer] | None = None
        # Set when the head of an answer is here, or when none will come. None: no task waits for it.
        self._head_here: asyncio.Event | None = None
        self.is_usable = True

    @classmethod
    async def open(
        cls, address: Address, tls: "ssl.SSLContext | None", settings: ClientSettings
    ) -> "Connection":
        """A connection. Unreachable if no server listens there, or if it takes too long."""
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
        """Send a request. A part of it may still be in memory when this returns."""
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
        """Whether an answer, or the end of the connection, comes within so long."""
        waiting = self._waiting
        if waiting is not None and not waiting.done():
            await asyncio.wait({waiting}, timeout=within_s)
        return waiting is None or waiting.done()

    async def collect(
        self, timeout_s: float, on_head: OnHead | None = None, waited_s: float = 0.0
    ) -> Answer:
        """The answer to the request; AnswerTimeout if it takes too long, of which `waited_s` are over.

        `on_head` gets the headers, unless the whole answer comes in one piece.
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
            self._waiting = self._head_here = None

    async def _headers(self, waiting: "asyncio.Future[Answer]") -> Headers | None:
        """The headers, once they are here; None if the whole answer is, or if none will come."""
        if not waiting.done() and self._reader.headers is None:
            self._head_here = asyncio.Event()
            await self._head_here.wait()
        return None if waiting.done() else self._reader.headers

    def _wake_head(self) -> None:
        if self._head_here is not None:
            self._head_here.set()

    def _give_up(self, timeout_s: float) -> None:
        self._fail(AnswerTimeout(self._address, f"nothing within {timeout_s:g} s", is_sent=True))

    def _fail(self, error: Unreachable) -> None:
        self.close()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error)
            # Retrieved at once: asyncio would log the error of a request that was dropped.
            self._waiting.exception()
            self._wake_head()

    def close(self) -> None:
        self.is_usable = False
        if self._transport is not None:
            self._transport.abort()

    def abort(self) -> None:
        """End a wait for an answer with Unreachable."""
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
            if self._reader.headers is not None:
                self._wake_head()
            return
        if self._waiting is None or self._waiting.done() or not self._reader.is_idle:
            self._fail(BadAnswer(self._address, "more than was asked for", is_sent=True))
            return
        if answer.is_last:
            self.close()
        self._waiting.set_result(answer)
        self._wake_head()

    def connection_lost(self, exc: Exception | None) -> None:
        reason = "the server closed the connection" if exc is None else reason_of(exc)
        self._fail(Unreachable(self._address, reason, is_sent=True))


class Semaphore(asyncio.Semaphore):
    async def acquire_now(self) -> bool:
        """Take a place without waiting; False if there is none."""
        return not self.locked() and await self.acquire()


class Event(asyncio.Event):
    async def wait(self, timeout_s: float | None = None) -> bool:  # type: ignore[override]  # It may end without it.
        """Wait for it, at most so long; returns whether it is set."""
        if not self.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await super().wait()
        return self.is_set()


async def acquire_within(lock: Lock, timeout_s: float) -> bool:
    """Take a lock, waiting at most so long; returns whether it was free."""
    if not lock.locked():
        return await lock.acquire()
    try:
        async with asyncio.timeout(timeout_s):
            return await lock.acquire()
    except TimeoutError:
        return False


async def call_back(call: Callable[..., Any], *given: object) -> None:
    """Call a function of the program, or a coroutine function."""
    made = call(*given)
    if isawaitable(made):
        await made


class Background:
    """A task that runs until its coroutine returns. `failure` has the error that ended it."""

    def __init__(self, run: Callable[[], Awaitable[None]], name: str) -> None:
        async def body() -> None:
            await run()

        self._task = asyncio.get_running_loop().create_task(body(), name=name)

    @property
    def is_over(self) -> bool:
        return self._task.done()

    def failure(self) -> BaseException | None:
        """The error that ended it; None if it returned or was interrupted."""
        return None if self._task.cancelled() else self._task.exception()

    def interrupt(self) -> None:
        """Cancel it where it waits. Does nothing to a thread."""
        self._task.cancel()

    async def join(self, timeout_s: float | None = None) -> bool:
        """Wait for its end, at most so long; returns whether it is over."""
        if not self._task.done():
            await asyncio.wait({self._task}, timeout=timeout_s)
        return self._task.done()

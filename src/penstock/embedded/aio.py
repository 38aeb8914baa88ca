"""A queue for asyncio: no call blocks the event loop, and waiting takes no thread."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from datetime import datetime
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from msgspec import UNSET, UnsetType

from ..api.arguments import whole_count
from ..api.received import Received
from ..api.units import Duration
from ..errors import Internal, PenstockError, Refused
from ..runtime.waiting_polls import PollWaiter
from .answers import Held
from .dead_letters import DeadMessage, Requeued
from .delay import DelayedPut, DelayKey
from .messages import MessageOptions, Value
from .stats import QueueStats

if TYPE_CHECKING:
    from .queue import Compacted, Queue


class AsyncQueue:
    """`queue.aio`: the methods of `Queue`, to be awaited; but for `transaction`, whose block belongs to a thread.

    Both may be used on one queue at the same time.

        async with penstock.open("./jobs").aio as queue:
            await queue.put(b"resize cat.jpg")
            message = await queue.get(timeout=5)

    A get that is cancelled gives back what it had been about to return.
    """

    def __init__(self, queue: "Queue") -> None:
        self._queue = queue

    async def put(self, value: Value | UnsetType = UNSET, **options: Unpack[MessageOptions]) -> int:
        """Add a message; return its id."""
        number = self._queue.put_if_quick(value, options)
        if number is not None:
            return number
        return await asyncio.to_thread(self._queue.put, value, **options)

    async def put_many(self, values: Iterable[Value], **options: Unpack[MessageOptions]) -> range:
        """Add several messages; return their ids."""
        return await asyncio.to_thread(self._queue.put_many, values, **options)

    async def get(self, timeout: Duration | None = 0) -> Received | None:  # noqa: ASYNC109 - as in Queue.get
        """The next message, or None if there is none before the time is up (None: as long as it takes)."""
        messages = await self.get_many(1, timeout)
        return messages[0] if messages else None

    async def get_many(self, limit: int = 500, timeout: Duration | None = 0) -> list[Received]:  # noqa: ASYNC109 - as in Queue.get_many
        """Up to `limit` messages at once; an empty list if there is none before the time is up."""
        limit = whole_count("limit", limit)
        while limit:
            # In one go, so that a cancellation cannot come between taking a message and returning it.
            ready = iter(self._queue.get_if_ready, None)
            if messages := list(islice(ready, limit)):
                return messages
            waited_for = await self._wait(limit, timeout)
            if waited_for is not None:
                return waited_for
        return []

    async def _wait(self, limit: int, timeout: Duration | None) -> list[Received] | None:  # noqa: ASYNC109 - handed on
        """The messages that this call waited for; None: there is something in memory now."""
        loop, settled = asyncio.get_running_loop(), asyncio.Event()
        # Not a task: the end of the loop would cancel it, and its thread begin a wait that no caller knows of.
        begun: Future[PollWaiter | None] = Future()

        def wake() -> None:
            # Once the loop is closed this raises: then the driver gives this caller up.
            loop.call_soon_threadsafe(settled.set)

        loop.run_in_executor(None, self._begin_get, begun, limit, timeout, wake)
        try:
            waiter = await asyncio.wrap_future(begun)
            if waiter is None:
                return None
            await settled.wait()
        except asyncio.CancelledError:
            # Not awaited: the caller has been cancelled. In a thread, because it may have to wait for the disk.
            loop.run_in_executor(None, begun.add_done_callback, self._give_up)
            raise
        return self._queue.end_get(waiter)

    def _begin_get(
        self,
        begun: "Future[PollWaiter | None]",
        limit: int,
        timeout: Duration | None,
        wake: Callable[[], None],
    ) -> None:
        if begun.set_running_or_notify_cancel():
            try:
                begun.set_result(self._queue.begin_get(limit, timeout, wake))
            except PenstockError as error:
                begun.set_exception(error.fresh())
            except BaseException:
                begun.set_exception(Internal())
                raise

    def _give_up(self, begun: "Future[PollWaiter | None]") -> None:
        if begun.cancelled() or begun.exception() is not None:
            return
        waiter = begun.result()
        if waiter is not None:
            # A queue that was closed meanwhile has let go of it.
            with suppress(Refused):
                self._queue.abandon_get(waiter)

    async def stream(self, timeout: Duration | None = None) -> AsyncIterator[Received]:  # noqa: ASYNC109 - as in Queue.stream
        """Messages as they come, for ever; or until none came for `timeout`."""
        while (message := await self.get(timeout)) is not None:
            yield message

    async def ack(self, held: Held | Iterable[Held]) -> None:
        await asyncio.to_thread(self._queue.ack, held)

    async def nack(
        self, held: Held | Iterable[Held], reason: str = "", *, delay: Duration | None = None
    ) -> None:
        await asyncio.to_thread(self._queue.nack, held, reason, delay=delay)

    async def reject(self, held: Held | Iterable[Held], reason: str = "") -> None:
        await asyncio.to_thread(self._queue.reject, held, reason)

    async def extend(self, held: Held | Iterable[Held], duration: Duration) -> None:
        await asyncio.to_thread(self._queue.extend, held, duration)

    async def dead_letters(self, limit: int = 100) -> list[DeadMessage]:
        return await asyncio.to_thread(self._queue.dead_letters, limit)

    async def requeue(self, dead: DeadMessage | Iterable[DeadMessage] | None = None) -> Requeued:
        return await asyncio.to_thread(self._queue.requeue, dead)

    async def delayed(self, limit: int = 100) -> list[DelayedPut]:
        return await asyncio.to_thread(self._queue.delayed, limit)

    async def delayed_get(self, which: int | DelayKey) -> DelayedPut:
        return await asyncio.to_thread(self._queue.delayed_get, which)

    async def cancel(self, which: int | DelayKey) -> None:
        await asyncio.to_thread(self._queue.cancel, which)

    async def reschedule(
        self,
        which: int | DelayKey,
        *,
        delay: Duration | None = None,
        deliver_at: datetime | str | None = None,
    ) -> DelayedPut:
        return await asyncio.to_thread(
            self._queue.reschedule, which, delay=delay, deliver_at=deliver_at
        )

    async def peek(self) -> Received | None:
        return await asyncio.to_thread(self._queue.peek)

    async def peek_many(self, limit: int = 10) -> list[Received]:
        return await asyncio.to_thread(self._queue.peek_many, limit)

    async def seek(self, to: int | datetime) -> int:
        return await asyncio.to_thread(self._queue.seek, to)

    async def compact(self, older_than: Duration | None = None) -> "Compacted":
        return await asyncio.to_thread(self._queue.compact, older_than)

    async def flush(self) -> None:
        await asyncio.to_thread(self._queue.flush)

    async def sync(self) -> None:
        await asyncio.to_thread(self._queue.sync)

    async def stats(self) -> QueueStats:
        return await asyncio.to_thread(self._queue.stats)

    async def close(self) -> None:
        await asyncio.to_thread(self._queue.close)

    def __aiter__(self) -> AsyncIterator[Received]:
        """Everything that is there now, one by one."""
        return self.stream(timeout=0)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

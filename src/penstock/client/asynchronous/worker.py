"""The worker: calls a handler for every message, several at once, and answers for it."""

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock as Guard
from typing import TYPE_CHECKING, Any, Self, Unpack

from ...api.units import duration_s
from ...errors import Refused
from ..leased_messages import Delivered
from ..tracing import process_span
from ..worker import (
    Overdue,
    Pace,
    Reject,
    Retry,
    WorkerOptions,
    error_text,
    failure_of,
    split_options,
)
from .io import Background, Event, call_back, check_callback
from .worker_pool import (
    Inbox,
    end_handlers,
    is_end_of_slot,
    slot_handlers,
    stopping_on_signals,
    within,
)

if TYPE_CHECKING:
    from .client import AsyncClient

_LOG = logging.getLogger("penstock.client")
_WAIT_S = 20.0
# How often the group is rebalanced, and deadlines are looked at, while all handlers are busy.
_CHECK_S = 0.25
# A part of what the server hands out at once, so that other workers get messages, too.
_INBOX_MAX = 2000
# The server leases only so many messages to a member at a time, so answers are sent after so many, or when no message
# is left.
_ANSWERS_A_REQUEST = 256


class AsyncWorker:
    """Handles a group's messages. Made by `client.worker`, or directly:

        async def handle(message: Delivered) -> None: ...

        await AsyncWorker(client, "orders", "billing", handle, concurrency=8).run()

    A handler that returns has finished its message; one that raises has failed, and the message is tried again after
    the backoff, until it is a dead letter. `Reject` makes it one at once, `Retry` says when to try again. While a
    handler runs, the lease of its message is extended. `run` goes on until `stop`, SIGTERM or Ctrl-C: handlers that run
    may finish within `grace`, other messages are given back. As a context manager it works beside the program.
    """

    def __init__(
        self,
        client: "AsyncClient",
        topics: str | Sequence[str],
        group: str,
        handler: Callable[[Delivered], Any],
        **options: Unpack[WorkerOptions],
    ) -> None:
        if handler is None:
            raise Refused("a worker needs a handler: a function that takes a message")
        check_callback("a handler", handler)
        self.settings, rest = split_options(options)
        check_callback("on_failure", self.settings.on_failure)
        self._handlers = slot_handlers(handler, self.settings)
        self.consumer = client.consumer(topics, group, **rest)
        self._name = f"worker of group {group} for {topics if isinstance(topics, str) else ', '.join(topics)}"
        self._pace = Pace(self.settings.concurrency, _INBOX_MAX)
        self._inbox = Inbox()
        self.consumer.on_drop = self._drop
        self._guard = Guard()
        # How many messages were polled, and how many of them are with no handler any more and with none to come.
        self._polled = self._ended = 0
        # How many handlers have ended well, and how many have raised or were late.
        self.done = self.failed = 0
        self._running: dict[int, tuple[Delivered, float]] = {}
        self._stop, self._has_room = Event(), Event()
        self._low = -1
        self._background: Background | None = None

    async def run(self) -> None:
        """Work until `stop`, SIGTERM or Ctrl-C.

        Raises if the server is away for longer than `patience`, and what `on_failure` raises.
        """
        with stopping_on_signals(self.stop):
            await self._work()

    def stop(self) -> None:
        """Take no more messages. Returns at once; `run` returns when handlers are done.

        From any thread; with asyncio from that of the loop (`loop.call_soon_threadsafe(worker.stop)`).
        """
        self._stop.set()
        self._has_room.set()
        self.consumer.stop()

    async def _work(self) -> None:
        async with self.consumer:
            _LOG.info("%s started, with %d handlers", self._name, self.settings.concurrency)
            slots = [
                Background(
                    partial(self._stop_on_error, partial(self._slot, handler)),
                    f"penstock-worker-{number}",
                )
                for number, handler in enumerate(self._handlers)
            ]
            # A process that is late is killed first, and its message fails then.
            if self.settings.deadline is not None and not self.settings.processes:
                watch = partial(self._stop_on_error, self._watch)
                slots.append(Background(watch, "penstock-worker-watch"))
            try:
                while not self._stop.is_set():
                    await self._fetch()
            finally:
                await self._finish(slots)
                _LOG.info("%s stopped: %d done, %d failed", self._name, self.done, self.failed)
        for slot in slots:
            if slot.is_over and (failure := slot.failure()) is not None:
                raise failure

    async def _stop_on_error(self, run: Callable[[], Any]) -> None:
        """Run a slot. One that has ended would leave its message leased for ever and take no other one."""
        try:
            await run()
        except BaseException:
            self.stop()
            raise

    async def _fetch(self) -> None:
        now_s = time.monotonic()
        wanted = self._pace.to_ask_for(self._polled - self._ended, self._ended, now_s)
        if wanted:
            polled = await self.consumer.poll_patiently(wanted, _WAIT_S)
            with self._guard:
                self._polled += len(polled)
            self._inbox.put(polled)
            return
        self._has_room.clear()
        self._low = self._pace.low
        if self._polled - self._ended > self._low:
            await self._has_room.wait(_CHECK_S)
        self._low = -1
        await self.consumer.rebalance()

    async def _slot(self, handler: Callable[[Delivered], Any]) -> None:
        """Handle one message after the other."""
        while (message := await self._inbox.take()) is not None:
            self._running[id(message)] = message, time.monotonic()
            try:
                await self._handle(handler, message)
            finally:
                del self._running[id(message)]
                self._note_ended(1)

    def _note_ended(self, count: int) -> None:
        with self._guard:
            self._ended += count
            left, is_due = self._polled - self._ended, self._ended % _ANSWERS_A_REQUEST == 0
        if left <= self._low:
            self._has_room.set()
        if is_due or not left:
            self.consumer.wake()

    async def _handle(self, handler: Callable[[Delivered], Any], message: Delivered) -> None:
        tracer = self.settings.tracer
        try:
            if tracer is None:
                await within(handler, message, self.settings.deadline_s)
            else:
                with process_span(tracer, message, self.consumer.group):
                    await within(handler, message, self.settings.deadline_s)
        except Reject as rejection:
            if message.reject(str(rejection)):
                _LOG.warning("%s is rejected: %s", _place_of(message), rejection)
        except Retry as again:
            message.nack(str(again), delay=again.delay)
        except BaseException as error:
            if is_end_of_slot(error):
                raise
            await self._fail(message, failure_of(error))
        else:
            if message.ack():
                with self._guard:
                    self.done += 1

    async def _fail(self, message: Delivered, error: Exception) -> None:
        reason = error_text(error)
        retries = self.settings.retries
        is_last = retries is not None and message.attempts > retries
        is_first_answer = message.reject(reason) if is_last else message.nack(reason)
        if not is_first_answer:
            return
        with self._guard:
            self.failed += 1
        if self.settings.on_failure is not None:
            await call_back(self.settings.on_failure, message, error)
            return
        what = "is given up" if is_last else "failed"
        where, attempt, summary = _place_of(message), message.attempts, reason.partition("\n")[0]
        _LOG.warning("%s %s at attempt %d: %s", where, what, attempt, summary, exc_info=error)

    async def _watch(self) -> None:
        """Fail messages whose handler is late, whatever the handler does in the end."""
        limit_s = self.settings.deadline_s or 0.0
        while not await self._stop.wait(min(_CHECK_S, limit_s / 4)):
            late_s = time.monotonic() - limit_s
            for message, since_s in [*self._running.values()]:
                if since_s < late_s and not message.is_answered:
                    text = "%s: its handler is past the deadline of %g s and runs on; processes=True would end it"
                    _LOG.warning(text, _place_of(message), limit_s)
                    await self._fail(message, Overdue(limit_s))

    def _drop(self, places: Sequence[str]) -> None:
        self._note_ended(self._inbox.drop(places))

    async def _finish(self, slots: list[Background]) -> None:
        """Wait for handlers that run, up to `grace`; messages that no handler has are given back at once."""
        self._stop.set()
        self._note_ended(self._inbox.close())
        until_s = time.monotonic() + duration_s(self.settings.grace)
        for slot in slots:
            if not await slot.join(max(0.0, until_s - time.monotonic())):
                slot.interrupt()
        end_handlers(self._handlers)

    async def close(self) -> None:
        """Stop, and return when the handlers have ended. Raises the error that ended the worker."""
        self.stop()
        if self._background is not None:
            await self._background.join()
            if (failure := self._background.failure()) is not None:
                raise failure

    async def __aenter__(self) -> Self:
        if self._background is not None:
            raise Refused("the worker runs already")
        await self.consumer.start()
        self._background = Background(self._work, "penstock-worker")
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()


def _place_of(message: Delivered) -> str:
    return f"{message.topic}/{message.partition}/{message.offset}"

"""The connections of a client, and the tries that a call has."""

import time
from collections.abc import Callable
from typing import TypeVar

from ...errors import PenstockError, Unreachable
from ..address import Address, common_headers
from ..calls import Call, outcome
from ..retry import Breaker, chance
from ..settings import ClientSettings
from ..wire import request_bytes
from .io import Connection, OnHead, Semaphore, sleep

T = TypeVar("T")


class AsyncPool:
    """All connections to one server."""

    def __init__(self, address: Address, key: str | None, settings: ClientSettings) -> None:
        self.address, self.settings = address, settings
        self.name = str(address)
        self.breaker = Breaker(self.name)
        self._common_headers = common_headers(address, key)
        self._slots = Semaphore(settings.connections_max)
        # Early calls never take all slots: the task that made one may make another call before it takes the answer.
        self._early_slots = Semaphore(settings.connections_max - 1)
        self._idle: list[Connection] = []
        self._is_closed = False
        self._tls = settings.tls_context() if address.is_tls else None

    async def run(
        self,
        call: Call[T],
        on_head: OnHead | None = None,
        on_failure: Callable[[PenstockError], None] | None = None,
    ) -> T:
        """The result of a call, after as many tries as the policy allows. `on_failure` gets the error of each try."""
        tries = 0
        while True:
            tries += 1
            try:
                return await self.run_once(call, on_head)
            except PenstockError as error:
                if on_failure is not None:
                    on_failure(error)
                wait_s = self.settings.retry.wait_s(
                    error, tries, chance(), is_repeatable=call.is_repeatable
                )
                if wait_s is None:
                    raise
            await sleep(wait_s)

    async def run_once(self, call: Call[T], on_head: OnHead | None = None) -> T:
        """The result of a call, with one try."""
        return await self.end(call, await self.begin(call), on_head)

    async def begin(self, call: Call[T]) -> Connection:
        """Send a call; `end` has to follow on the connection that this returns."""
        self._admit()
        await self._slots.acquire()
        return await self._send(call)

    async def begin_now(self, call: Call[T]) -> Connection | None:
        """Send a call if a connection is free, as `begin` does; None if there is none."""
        self._admit()
        return await self._send(call) if await self._slots.acquire_now() else None

    async def begin_early(self, call: Call[T]) -> Connection | None:
        """Send a call before it is needed; `end_early` or `drop_early` has to follow. None: not now."""
        # A server that did not answer before gets no early calls.
        if self._is_closed or self.breaker.failures or not await self._early_slots.acquire_now():
            return None
        connection = None
        try:
            connection = await self.begin_now(call)
        except Unreachable:
            return None
        finally:
            if connection is None:
                self._early_slots.release()
        return connection

    def _admit(self) -> None:
        if self._is_closed:
            raise Unreachable(self.name, "the client was closed")
        if self.breaker.failures:
            self.breaker.admit(time.monotonic())

    async def _send(self, call: Call[T]) -> Connection:
        """Send a call that has a slot; the slot is free again if this raises."""
        try:
            target = self.address.prefix + call.target
            head = request_bytes(call.method, target, self._common_headers, call.body, call.headers)
            connection = self._idle_connection()
            if connection is None:
                connection = await Connection.open(self.address, self._tls, self.settings)
            await connection.post(head, call.body)
        except BaseException as error:
            self._slots.release()
            self._note_failure(error)
            raise
        return connection

    def _idle_connection(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable:
                return connection
            connection.close()
        return None

    async def end(
        self,
        call: Call[T],
        connection: Connection,
        on_head: OnHead | None = None,
        waited_s: float = 0.0,
    ) -> T:
        """The result of a call that `begin` sent. `waited_s` counts towards its timeout."""
        try:
            timeout_s = self.settings.timeout_s + call.wait_s
            answer = await connection.collect(timeout_s, on_head, waited_s)
        except BaseException as error:
            connection.close()
            self._note_failure(error)
            raise
        finally:
            self._slots.release()
        if not self._is_closed and len(self._idle) < self.settings.idle_max:
            self._idle.append(connection)
        else:
            connection.close()
        if self.breaker.failures:
            self.breaker.succeeded()
        return outcome(call, answer, self.name)

    async def end_early(self, call: Call[T], connection: Connection, on_head: OnHead) -> T:
        """The result of a call that `begin_early` sent."""
        self._early_slots.release()
        return await self.end(call, connection, on_head)

    def drop_early(self, connection: Connection) -> None:
        """Give up a call that `begin_early` sent."""
        connection.close()
        self._slots.release()
        self._early_slots.release()

    def _note_failure(self, error: BaseException) -> None:
        if isinstance(error, Unreachable):
            self.breaker.failed(time.monotonic())

    async def close(self) -> None:
        """Close the idle connections. Calls that are under way end as they end."""
        self._is_closed = True
        while self._idle:
            self._idle.pop().close()

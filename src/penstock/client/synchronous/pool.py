# Made from ../asynchronous/pool.py by tools/unasync.py; change that one.
"""Connections that are kept for the next request, and the one request that uses them all."""

import time
from typing import TypeVar

from ...errors import PenstockError, Unreachable
from ..address import Address, common_headers
from ..calls import Call, outcome
from ..retry import Breaker
from ..settings import ClientSettings, chance
from ..wire import Answer, request_bytes
from .io import Connection, OnHead, Semaphore, sleep, take_now

T = TypeVar("T")


class Pool:
    """All connections to one server."""

    def __init__(self, address: Address, key: str | None, settings: ClientSettings) -> None:
        self.address, self.settings = address, settings
        self.name = str(address)
        self.breaker = Breaker(self.name)
        self._standing = common_headers(address, key)
        self._room = Semaphore(settings.connections_max)
        # Calls that nobody waits for yet never take all of the room: whoever made them may call something else first.
        self._spare = Semaphore(settings.connections_max - 1)
        self._idle: list[Connection] = []
        self._is_closed = False
        self._tls = None
        if address.is_tls:
            from ..tls import context

            self._tls = context(settings.ca_file)

    def run(self, call: Call[T], on_head: OnHead | None = None) -> T:
        """What the call returns, after as many tries as the policy allows."""
        tries = 0
        while True:
            tries += 1
            try:
                connection = self.begin(call)
                return self.end(call, connection, on_head)
            except PenstockError as error:
                wait_s = self.settings.retry.wait_s(
                    error, tries, chance(), is_repeatable=call.is_repeatable
                )
                if wait_s is None:
                    raise
            sleep(wait_s)

    def run_once(self, call: Call[T], on_head: OnHead | None = None) -> T:
        """The same with one try."""
        connection = self.begin(call)
        return self.end(call, connection, on_head)

    def begin(self, call: Call[T]) -> Connection:
        """Send a call; `end` has to follow on the connection that this returns."""
        self._admit()
        self._room.acquire()
        return self._begun(call)

    def begin_now(self, call: Call[T]) -> Connection | None:
        """The same for whoever must not wait for room. None: there is none now."""
        self._admit()
        return self._begun(call) if take_now(self._room) else None

    def _admit(self) -> None:
        if self._is_closed:
            raise Unreachable(self.name, "the client was closed")
        if self.breaker.failures:
            self.breaker.admit(time.monotonic())

    def _begun(self, call: Call[T]) -> Connection:
        """Send a call; room was taken for it."""
        try:
            return self._posted(call)
        except BaseException as error:
            self._room.release()
            self._note(error)
            raise

    def begin_early(self, call: Call[T]) -> Connection | None:
        """Send a call before it is needed; `end_early` or `drop_early` has to follow. None: not now."""
        # A server that has not answered before is asked by those who wait for it.
        if self._is_closed or self.breaker.failures or not take_now(self._spare):
            return None
        connection = None
        try:
            if take_now(self._room):
                connection = self._begun_early(call)
        finally:
            if connection is None:
                self._spare.release()
        return connection

    def _begun_early(self, call: Call[T]) -> Connection | None:
        connection = None
        try:
            connection = self._posted(call)
        except Unreachable as error:
            self._note(error)
        finally:
            if connection is None:
                self._room.release()
        return connection

    def end_early(self, call: Call[T], connection: Connection, on_head: OnHead) -> T:
        """Wait for the answer to a call that `begin_early` sent."""
        self._spare.release()
        return self.end(call, connection, on_head)

    def drop_early(self, connection: Connection) -> None:
        """Nobody needs the answer any more."""
        connection.close()
        self._room.release()
        self._spare.release()

    def _posted(self, call: Call[T]) -> Connection:
        target = self.address.prefix + call.target
        head = request_bytes(call.method, target, self._standing, call.body, call.headers)
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable:
                connection.post(head, call.body)
                return connection
            connection.close()
        connection = Connection.open(self.address, self._tls, self.settings)
        connection.post(head, call.body)
        return connection

    def end(
        self,
        call: Call[T],
        connection: Connection,
        on_head: OnHead | None = None,
        waited_s: float = 0.0,
    ) -> T:
        """Wait for the answer to a call that `begin` sent. `waited_s`: so much of its time is over."""
        try:
            answer: Answer = connection.collect(
                self.settings.timeout_s + call.wait_s, on_head, waited_s
            )
        except BaseException as error:
            connection.close()
            self._note(error)
            raise
        finally:
            self._room.release()
        self._keep(connection)
        if self.breaker.failures:
            self.breaker.succeeded()
        return outcome(call, answer, self.name)

    def _keep(self, connection: Connection) -> None:
        if not self._is_closed and len(self._idle) < self.settings.idle_max:
            self._idle.append(connection)
        else:
            connection.close()

    def _note(self, error: BaseException) -> None:
        if isinstance(error, Unreachable):
            self.breaker.failed(time.monotonic())

    def close(self) -> None:
        """Close what is idle. Calls that are under way end as they end."""
        self._is_closed = True
        while self._idle:
            self._idle.pop().close()

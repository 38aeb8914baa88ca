# Made from ../asynchronous/pool.py by tools/recolour.py; change that one.
"""Connections that are kept for the next request, and the one request that uses them all."""

import time
from typing import TypeVar

from ...errors import PenstockError, Unreachable
from ..address import Address, standing_headers
from ..calls import Call, outcome
from ..retrying import Breaker
from ..settings import ClientSettings, chance
from ..wire import Answer, request_bytes
from .io import Connection, Semaphore, sleep

T = TypeVar("T")


class Pool:
    """All connections to one server."""

    def __init__(self, address: Address, key: str | None, settings: ClientSettings) -> None:
        self.address, self.settings = address, settings
        self.name = str(address)
        self.breaker = Breaker(self.name)
        self._standing = standing_headers(address, key)
        self._room = Semaphore(settings.connections_max)
        self._idle: list[Connection] = []
        self._is_closed = False
        self._tls = None
        if address.is_tls:
            from ..tls import context

            self._tls = context(settings.ca_file)

    def run(self, call: Call[T]) -> T:
        """What the call returns, after as many tries as the policy allows."""
        tries = 0
        while True:
            tries += 1
            try:
                return self.run_once(call)
            except PenstockError as error:
                wait_s = self.settings.retry.wait_s(
                    error, tries, chance(), is_repeatable=call.is_repeatable
                )
                if wait_s is None:
                    raise
            sleep(wait_s)

    def run_once(self, call: Call[T]) -> T:
        """The same with one try."""
        connection = self.begin(call)
        return self.end(call, connection)

    def begin(self, call: Call[T]) -> Connection:
        """Send a call; `end` has to follow on the connection that this returns."""
        self._require_open()
        self.breaker.admit(time.monotonic())
        self._room.acquire()
        try:
            return self._posted(call)
        except BaseException as error:
            self._room.release()
            self._note(error)
            raise

    def _posted(self, call: Call[T]) -> Connection:
        target = self.address.prefix + call.target
        head = request_bytes(call.method, target, self._standing, call.body, call.headers)
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable:
                connection.post(head, call.body)
                return connection
            connection.close()
        connection = Connection.open(self.address, self._tls, self.settings.connect_timeout_s)
        connection.post(head, call.body)
        return connection

    def end(self, call: Call[T], connection: Connection) -> T:
        """Wait for the answer to a call that `begin` sent."""
        try:
            answer: Answer = connection.collect(self.settings.timeout_s + call.wait_s)
        except BaseException as error:
            connection.close()
            self._note(error)
            raise
        finally:
            self._room.release()
        self._keep(connection)
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

    def _require_open(self) -> None:
        if self._is_closed:
            raise Unreachable(self.name, "the client was closed")

    def close(self) -> None:
        """Close what is idle. Calls that are under way end as they end."""
        self._is_closed = True
        while self._idle:
            self._idle.pop().close()

"""One request: its headers, query and body, read within limits."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import parse_qsl

import msgspec

from ...api.json.messages import Strict
from ...api.json.reading import decode, read_fields
from ...api.principals import LOCAL, Action, Principal
from ...errors import (
    BadRequest,
    Forbidden,
    PenstockError,
    TooLarge,
    TooManyRequests,
    UnsupportedMediaType,
)
from ..admission import admitted
from .responses import BATCH, JSON, NDJSON, REGISTRY

if TYPE_CHECKING:
    from ...api.command import Command
    from ...api.keys import Credential
    from ..body_memory import Reservation
    from .connection import Connection
    from .framing import RequestHead
    from .routing import Route

R = TypeVar("R")
T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)
_KIND_BYTES_MAX = 200
_QUERY_FIELDS_MAX = 100
# Of receipts and the like, of which each takes some microseconds.
_ITEMS_A_PIECE = 200
# Requests with these methods change nothing that the limits count.
SAFE = frozenset({"GET", "HEAD"})
_READABLE = frozenset({JSON, NDJSON, BATCH, REGISTRY, b"application/vnd.schemaregistry+json"})


class NoQuery(Strict):
    """Routes without a query of their own."""


class ClientGone(Exception):
    """The client left, or is told nothing more: there is nothing left to do for its request."""


class Request:
    """Made by the connection. `params` are the words of the path; `body` is there when the route is called."""

    def __init__(self, head: "RequestHead", connection: "Connection") -> None:
        self.connection, self.app = connection, connection.app
        self.method, self.version = head.method, head.version
        self.path, self.query_string = head.path.decode("ascii"), head.query
        self._headers = head.headers
        self.is_kept_alive, self.expects_continue = head.is_kept_alive, head.expects_continue
        self.route: Route | None = None
        self.params: Mapping[str, str] = {}
        self.principal: Principal = LOCAL
        self.credential: Credential | None = None
        self.action = Action.SEE_HEALTH
        self.id = b""
        self.task: asyncio.Task[None] | None = None
        # Whether the task is to be cancelled when the client leaves.
        self.is_ended_with_client = self.has_key_ended = False
        # Whether it counts as one of the requests that change something.
        self.has_place = False
        self.body: bytes | bytearray = b""
        self.is_whole, self.is_body_wanted = False, head.method not in SAFE
        self._arrival: asyncio.Future[None] | None = None
        self._failure: PenstockError | None = None
        self._limit, self._advice = 0, ""
        self._reservation: Reservation | None = None

    def header(self, name: bytes) -> bytes | None:
        """The value of a header, by its name in small letters."""
        return self._headers.get(name)

    def accepts(self, content_type: bytes) -> bool:
        return content_type in (self.header(b"accept") or b"")

    @property
    def content_type(self) -> bytes:
        return _kind_of(self._headers.get(b"content-type", b""))

    @property
    def client(self) -> str:
        """The address of the client."""
        return self.connection.client

    def now_ns(self) -> int:
        """Wall time, by the broker's clock."""
        return self.app.driver.clock.now_ns()

    def feed(self, piece: bytes) -> None:
        """A piece of the body came. The wait for it ends with the error if it becomes too large."""
        if not self.body:
            self.body = piece
        else:
            if isinstance(self.body, bytes):
                self.body = bytearray(self.body)
            self.body += piece
        try:
            self._require_room()
        except PenstockError as error:
            self.fail(error)

    def end_body(self) -> None:
        """All of the body is here: from now on the request takes one of the places."""
        self.is_whole, self.expects_continue = True, False
        if self.is_body_wanted:
            self.has_place = self.app.room.enter()
            self._end_arrival()

    def fail(self, error: PenstockError) -> None:
        """Wait for no more of the body: the wait raises `error`, also if it has not begun. A whole body stays."""
        if not self.is_whole:
            self._failure = error.fresh()
            self.drop_body()
            self._end_arrival()

    def _end_arrival(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    def drop_body(self) -> None:
        """Have the connection read over what comes of the body."""
        self.body, self.is_body_wanted = b"", False

    def lose_client(self) -> None:
        """The client left: the wait for its body ends, and a wait that ends with the client is cancelled."""
        if not self.is_whole:
            self.drop_body()
            self._end_arrival()
        if self.is_ended_with_client and self.task is not None:
            self.task.cancel()

    async def receive_body(self, limit: int, advice: str = "") -> None:
        """Wait until the whole body is here. TooLarge over the limit, TooManyRequests while others fill the memory,
        TooSlow, ClientGone; UnsupportedMediaType if it is encoded.
        """
        length = self.header(b"content-length") or b"0"
        if int(length) > limit:
            raise TooLarge("body in bytes", found=int(length), limit=limit, advice=advice)
        if self.header(b"content-encoding") not in {None, b"identity"}:
            raise UnsupportedMediaType("bodies are sent without content-encoding")
        self._limit, self._advice = limit, advice
        if self.is_whole:
            self._require_room()
            return
        self._require_client()
        if self.expects_continue:
            self.expects_continue = False
            self.connection.write_continue()
        # What a body takes while it comes is counted by key, or by address if there are no keys.
        payer = self.principal.name if self.app.auth.is_on else self.client
        with self.app.memory.reserved(payer) as reservation:
            self._reservation = reservation
            self._require_room()
            self._arrival = self.app.driver.loop.create_future()
            try:
                await self._arrival
            finally:
                self._reservation = None
        self._require_client()
        # A body may take half an hour to come, and its key may have ended meanwhile.
        self.app.auth.ends.require(self.credential)

    def _require_client(self) -> None:
        """ClientGone, or what `fail` was told: the rest of the body is not to come."""
        if self._failure is not None:
            raise self._failure.fresh()
        if self.connection.is_over and not self.is_whole:
            raise ClientGone

    def _require_room(self) -> None:
        """TooLarge, TooManyRequests: what is here of the body is over a limit, once the limit is known."""
        size = len(self.body)
        if self._limit and size > self._limit:
            raise TooLarge("body in bytes", found=size, limit=self._limit, advice=self._advice)
        over = None if self._reservation is None else self._reservation.grow(size)
        if over is not None:
            raise TooManyRequests("bytes of requests at once", limit=over, retry_after_ms=1000)

    @contextmanager
    def ends_with_client(self) -> Iterator[None]:
        """Inside, the wait is cancelled when the client leaves or its key ends. Unauthenticated: it has ended.

        Every request that may wait for long does so in here.
        """
        if self.connection.is_over:
            raise ClientGone
        ends = self.app.auth.ends
        ends.watch(self.credential, self._end_key)
        self.is_ended_with_client = True
        try:
            yield
        finally:
            self.is_ended_with_client = False
            ends.unwatch(self.credential, self._end_key)

    def _end_key(self) -> None:
        self.has_key_ended = True
        if self.task is not None:
            self.task.cancel()

    async def pieces(self, items: Sequence[T]) -> AsyncIterator[Sequence[T]]:
        """Items, some at a time, for what takes microseconds with each; other requests have their turns in between."""
        for first in range(0, len(items), _ITEMS_A_PIECE):
            if first > 0:
                await self.app.driver.give_way()
            yield items[first : first + _ITEMS_A_PIECE]

    async def execute(self, command: "Command[R]", *, is_synced: bool = False) -> "R":
        """Carry out a command for the principal of this request; return when its effect is as durable as it has to be.

        Forbidden is told to the audit log, as all refusals are.
        """
        with self.noting_refusal():
            driver, admitted_command = self.app.driver, self._admitted(command)
            if not (command.is_walk and command.is_query):
                # What changes something and has begun goes to its end: its line in the audit log says how much it was.
                return await driver.execute(admitted_command, self.principal, is_synced=is_synced)
            walk = partial(
                driver.execute, admitted_command, self.principal, credential=self.credential
            )
            if self.is_ended_with_client:
                return await walk()
            with self.ends_with_client():
                return await walk()

    def _admitted(self, command: "Command[R]") -> "Command[R]":
        """The command within its bounds. Refused, TooLarge: it is out of them."""
        is_tls = self.connection.is_tls
        return admitted(command, self.principal, self.app.settings, is_tls)

    @contextmanager
    def noting_refusal(self) -> Iterator[None]:
        """A block whose Forbidden is told to the audit log."""
        try:
            yield
        except Forbidden as error:
            self.app.auth.note_refusal(self, error)
            raise

    async def execute_audited(self, command: "Command[R]") -> "R":
        """Carry out a command of an administrator, and say in the audit log what its class says."""
        if not command.audit_line:
            return await self.execute(command)
        command = self._admitted(command)
        if not command.is_audited():
            return await self.execute(command)
        self.admit_line()
        if command.is_audited_first:
            return await self.app.driver.in_thread(partial(self._execute_noted, command))
        reply = await self.execute(command)
        await self.audit(command.audit_text(reply))
        return reply

    def _execute_noted(self, command: "Command[R]") -> "R":
        """Carry out a command whose line is in the audit log before, and goes if it is refused."""
        audit, action, text = self.app.auth.audit, self.action.value, command.audit_text()
        with audit.noted(self.principal.name, action, text, client=self.client):
            return self.app.driver.driver.execute(command, self.principal)

    def allow(self, topic: str) -> str:
        """Forbidden, unless the principal may do this to the topic."""
        self.app.auth.check(self, topic)
        return topic

    def allow_prefixes(self, prefixes: Sequence[str]) -> None:
        """Forbidden, unless a key with these prefixes reaches nothing that the caller's does not."""
        self.app.auth.check_prefixes(self, prefixes)

    def admit_line(self) -> None:
        """TooManyRequests: a command that gets a line of the audit log is over the share of its key, or of all."""
        self.app.auth.admit_line(self.principal)

    async def audit(self, what: str) -> None:
        """Note that an administrator did something, and wait until the line is on the disk.

        The line is written also if the request is cancelled meanwhile.
        """
        line = self.app.auth.audit.submit(
            self.principal.name, self.action.value, what, client=self.client
        )
        await asyncio.shield(asyncio.wrap_future(line))

    def query(self, kind: type[S]) -> S:
        """The query as a struct. Names that it does not have, and values that do not fit: BadRequest."""
        written = self.query_string
        return read_fields(self._pairs(written) if written else {}, kind)

    def _pairs(self, written: bytes) -> dict[str, str]:
        try:
            text = written.decode("ascii")
            pairs = parse_qsl(
                text,
                keep_blank_values=True,
                errors="strict",
                max_num_fields=_QUERY_FIELDS_MAX,
            )
        except ValueError as error:
            raise BadRequest(f"the query cannot be read: {str(error)[:100]}") from None
        found = dict(pairs)
        if len(found) != len(pairs):
            raise BadRequest("a name stands in the query twice")
        return found

    def json(self, decoder: msgspec.json.Decoder[T]) -> T:
        """The body as a struct, from JSON. An empty one counts as an object without fields."""
        return decode(self.body or b"{}", decoder)

    def require_readable_body(self) -> None:
        """A web page can send forms and plain text to any address; JSON and batches it cannot without asking first."""
        length = self.header(b"content-length")
        has_body = length not in {None, b"0"} or self.header(b"transfer-encoding") is not None
        if self.content_type in _READABLE or not has_body:
            return
        shown = self.content_type[:60].decode(errors="replace") or "none"
        raise UnsupportedMediaType(
            f"content-type is {shown}; send application/json, application/x-ndjson or {BATCH.decode()}"
        )


def _kind_of(content_type: bytes) -> bytes:
    """Without its parameters. Only what may be one of ours is remembered: others may be very long."""
    known = _known_kind if len(content_type) <= _KIND_BYTES_MAX else _read_kind
    return known(content_type)


def _read_kind(content_type: bytes) -> bytes:
    return content_type.partition(b";")[0].strip().lower()


_known_kind = lru_cache(maxsize=256)(_read_kind)

"""One request: its headers, query and body, read within limits."""

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl

import msgspec

from ...api.principals import LOCAL, Action, Principal
from ...errors import BadRequest, Forbidden, TooLarge, TooManyRequests, UnsupportedMediaType
from ...model import Buffer
from .large_body import LARGE_BYTES, LargeBody
from .pressure import Reservation
from .responses import BATCH, JSON, NDJSON, Receive

if TYPE_CHECKING:
    from ...api.command import Command
    from ...broker.node import Node
    from ..keys import Credential
    from .door import Door

R = TypeVar("R")
T = TypeVar("T")
_KIND_BYTES_MAX = 200
_QUERY_FIELDS_MAX = 100
_UNKNOWN = re.compile("Object contains unknown field `(.*?)`")
_UNKNOWN_FIELDS_MAX = 20
_READ_AGAIN_BYTES_MAX = 1 << 20
_READABLE = frozenset({JSON, NDJSON, BATCH})


class ClientGone(Exception):
    """The client left before it had said everything. Nobody is there to be answered."""


class Request:
    """Made by the door. `params` are the words of the path; `command` is what the route does."""

    __slots__ = (
        "_content",
        "_headers",
        "action",
        "credential",
        "door",
        "has_key_ended",
        "id",
        "id_asked",
        "params",
        "principal",
        "receive",
        "scope",
    )

    def __init__(self, scope: Mapping[str, Any], receive: Receive, door: "Door") -> None:
        self.scope, self.receive, self.door = scope, receive, door
        self.params: Mapping[str, str] = {}
        self.principal: Principal = LOCAL
        self.credential: Credential | None = None
        self.has_key_ended = False
        self.action = Action.SEE_HEALTH
        self.id = b""
        self._headers: dict[bytes, bytes] = dict(scope["headers"])
        # The body, if it was waited for before the route was called.
        self._content: Any = None
        # What the client calls it, if it does.
        self.id_asked = self._headers.get(b"x-request-id")

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
        address = self.scope.get("client")
        return str(address[0]) if address else "unknown"

    @property
    def node(self) -> "Node":
        """Inside commands only: it may be another one afterwards."""
        return self.door.driver.driver.node

    @contextmanager
    def ends_with_client(self) -> Iterator[None]:
        """Inside, the wait is cancelled when the client leaves or its key ends. Unauthenticated: it has ended.

        Every request that may wait for long does so in here. A server that cannot tell of clients lets them wait.
        """
        connection = self.scope.get("penstock.connection")
        if connection is not None and connection.is_lost:
            raise ClientGone
        # The first part of a request may run without a task; the connection knows the one that goes on with it.
        cancel = _cancel_current() if connection is None else connection.cancel_request

        def end() -> None:
            self.has_key_ended = True
            cancel()

        ends = self.door.gate.ends
        ends.watch(self.credential, end)
        if connection is not None:
            connection.on_lost = connection.cancel_request
        try:
            yield
        finally:
            ends.unwatch(self.credential, end)
            if connection is not None:
                connection.on_lost = None

    async def execute(self, command: "Command[R]", *, is_synced: bool = False) -> "R":
        """Carry out a command for the principal of this request; return when its effect is as durable as it has to be.

        Forbidden is told to the audit log, as all refusals are.
        """
        try:
            return await self.door.driver.execute(command, self.principal, is_synced=is_synced)
        except Forbidden as error:
            self.door.gate.note_refusal(self, error)
            raise

    def allow(self, topic: str) -> str:
        """Forbidden, unless whoever asks may do this to the topic."""
        self.door.gate.check(self, topic)
        return topic

    def allow_prefixes(self, prefixes: Sequence[str]) -> None:
        """Forbidden, unless a key with these prefixes reaches nothing that the caller's does not."""
        self.door.gate.check_prefixes(self, prefixes)

    def audit(self, what: str) -> None:
        """Note that an administrator did something."""
        self.door.gate.audit.write(self.principal.name, self.action.value, what)

    def noting(self, what: str) -> AbstractContextManager[None]:
        """A block in which an administrator does something that is in the audit log already, unless it fails."""
        return self.door.gate.audit.noted(self.principal.name, self.action.value, what)

    def query(self, kind: type[T]) -> T:
        """The query as a struct. Names that it does not have, and values that do not fit: BadRequest."""
        written: bytes = self.scope["query_string"]
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

    @property
    def is_whole(self) -> bool:
        """Whether the body is here already, as most are."""
        connection = self.scope.get("penstock.connection")
        return connection is not None and connection.is_whole(self.scope)

    async def receive_body(self, *, is_batch: bool) -> None:
        """Wait until all of the body is here, which `body` or `batch` then return at once. They say what is raised."""
        if is_batch:
            self._content = await self.batch(size_max=self.door.limits.batch_bytes_max)
        else:
            self._content = await self.body()

    async def body(self, *, size_max: int = 0) -> bytes:
        """All of it. TooLarge over the limit, TooManyRequests while others fill the memory, TooSlow."""
        if self._content is not None:
            return self._content  # type: ignore[no-any-return]  # What this has returned before.
        limit = size_max or self.door.settings.http.body_bytes_max
        self._check_length(limit)
        self._check_encoding()
        connection = self.scope.get("penstock.connection")
        content: bytes | None = None if connection is None else connection.take_body(self.scope)
        if content is None:
            first = await self._next_piece()
            if first.get("more_body"):
                return await self._rest(first["body"], limit)
            content = first["body"]
        if len(content) > limit:
            raise TooLarge("body in bytes", found=len(content), limit=limit)
        return content

    async def batch(self, *, size_max: int) -> Buffer:
        """A body that may be large and is only looked at once. Raises what `body` does."""
        if self._content is not None:
            return self._content  # type: ignore[no-any-return]  # What this has returned before.
        connection = self.scope.get("penstock.connection")
        length = self._length()
        if connection is None or not LARGE_BYTES <= length <= size_max:
            return await self.body(size_max=size_max)
        self._check_encoding()
        with self.door.memory.reserved(self._payer) as reservation:
            coming: LargeBody | None = connection.receive_large(
                self.scope, length, partial(self._reserve, reservation)
            )
            if coming is not None:
                return await self._whole(coming, connection)
        return await self.body(size_max=size_max)

    async def _whole(self, coming: LargeBody, connection: Any) -> memoryview:
        try:
            return await coming.whole
        except asyncio.CancelledError:
            if connection.is_lost:
                raise ClientGone from None
            raise

    @property
    def _payer(self) -> str:
        """Who is asked for what a body takes while it comes: the key, or the address if there are none."""
        return self.principal.name if self.door.gate.is_on else self.client

    def _length(self) -> int:
        """What the header says; 0 if it is not there."""
        written = self.header(b"content-length") or b"0"
        return int(written[:20]) if written.isdigit() else 0

    def _check_encoding(self) -> None:
        if self.header(b"content-encoding") not in {None, b"identity"}:
            raise UnsupportedMediaType("bodies are sent without content-encoding")

    def _reserve(self, reservation: Reservation, size: int) -> None:
        over = reservation.grow(size)
        if over is not None:
            raise TooManyRequests("bytes of requests at once", limit=over, retry_after_ms=1000)

    def _check_length(self, limit: int) -> None:
        if self._length() > limit:
            raise TooLarge("body in bytes", found=self._length(), limit=limit)

    async def _rest(self, first: bytes, limit: int) -> bytes:
        content = bytearray(first)
        with self.door.memory.reserved(self._payer) as reservation:
            self._reserve(reservation, len(content))
            while True:
                piece = await self._next_piece()
                content += piece["body"]
                if len(content) > limit:
                    raise TooLarge("body in bytes", found=len(content), limit=limit)
                self._reserve(reservation, len(content))
                if not piece.get("more_body"):
                    return bytes(content)

    async def _next_piece(self) -> Any:
        piece = await self.receive()
        if piece["type"] == "http.disconnect":
            raise ClientGone
        connection = self.scope.get("penstock.connection")
        if connection is not None and connection.body_error is not None:
            raise connection.body_error
        return piece

    async def json(self, decoder: msgspec.json.Decoder[T]) -> T:
        """A JSON body as a struct. An empty one counts as an object without fields."""
        return decode(await self.body() or b"{}", decoder)

    def require_readable_body(self) -> None:
        """A web page can send forms and plain text to any address; JSON and batches it cannot without asking first."""
        if self.content_type in _READABLE or not self._has_body():
            return
        shown = self.content_type[:60].decode(errors="replace") or "none"
        raise UnsupportedMediaType(
            f"content-type is {shown}; send application/json, application/x-ndjson or {BATCH.decode()}"
        )

    def _has_body(self) -> bool:
        length = self.header(b"content-length")
        return length not in {None, b"0"} or self.header(b"transfer-encoding") is not None


def _cancel_current() -> Callable[[], object]:
    task = asyncio.current_task()
    assert task is not None, "without a connection of ours requests are tasks from the beginning"
    return task.cancel


def _kind_of(content_type: bytes) -> bytes:
    """Without its parameters. Only what may be one of ours is remembered: others may be very long."""
    known = _known_kind if len(content_type) <= _KIND_BYTES_MAX else _read_kind
    return known(content_type)


def _read_kind(content_type: bytes) -> bytes:
    return content_type.partition(b";")[0].strip().lower()


_known_kind = lru_cache(maxsize=256)(_read_kind)


def decode(content: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """A struct from JSON. BadRequest says what is wrong and where."""
    try:
        return _decoded(content, decoder)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(str(error)) from None
    except RecursionError:
        raise BadRequest("the JSON is nested too deeply") from None


def decode_lines(content: bytes, decoder: msgspec.json.Decoder[T]) -> list[T]:
    """A struct from each line that has something. BadRequest names the line, counted from 1."""
    found: list[T] = []
    for number, line in enumerate(content.split(b"\n"), 1):
        try:
            if line.strip():
                found.append(decode(line, decoder))
        except BadRequest as error:
            raise BadRequest(f"line {number}: {error}", line=number) from None
    return found


def _decoded(content: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """An unknown field that is null says nothing, and is left out: a client may not know either what it would mean."""
    for _ in range(_UNKNOWN_FIELDS_MAX):
        try:
            return decoder.decode(content)
        except msgspec.ValidationError as error:
            unknown = _UNKNOWN.match(str(error))
            # Reading it once more, with less speed, is for small requests only.
            if unknown is None or len(content) > _READ_AGAIN_BYTES_MAX:
                raise
            found = msgspec.json.decode(content)
            if not _drop_null(found, unknown[1]):
                raise
            content = msgspec.json.encode(found)
    return decoder.decode(content)


def _drop_null(found: Any, name: str) -> bool:
    """Remove a name wherever it stands for null; False if it does nowhere."""
    if isinstance(found, dict):
        is_here = name in found and found[name] is None
        if is_here:
            del found[name]
        return any([is_here, *(_drop_null(one, name) for one in found.values())])
    # Every item, not only up to the first that has it.
    return isinstance(found, list) and max([_drop_null(one, name) for one in found], default=False)


def read_fields(fields: Mapping[str, Any], kind: type[T]) -> T:
    try:
        return msgspec.convert(fields, kind, strict=False)
    except msgspec.ValidationError as error:
        raise BadRequest(str(error)) from None

"""HTTP/1.1 as far as a client needs it: a request as bytes, bytes as answers. No I/O.

A body has a length or comes in chunks. Every size has a limit. Bytes that are no answer are `BadAnswer`.
"""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from ..errors import BadAnswer
from ..model import Buffer
from .memory import MEMORY

HEADER_BYTES_MAX = 64 * 1024
# A fetch is at most 16 MiB and one batch more; JSON of it is larger.
BODY_BYTES_MAX = 64 * 1024 * 1024
_CHUNK_LINE_BYTES_MAX = 1024
# A body of this size is received into memory of its own; below it, a copy costs less than one more call.
_LARGE_BYTES = 256 * 1024
_BODYLESS = frozenset({204, 304})
_LINE_END = b"\r\n"
_END_OF_HEADERS = b"\r\n\r\n"

Headers = Mapping[bytes, bytes]

Body = bytes | tuple[Buffer, ...]
"""The body of a request: whole, or in pieces that are sent without a copy."""


class Answer(NamedTuple):
    """A whole answer. Names of headers are in small letters; of repeated ones the last counts."""

    status: int
    headers: Headers
    body: bytes | memoryview
    is_last: bool

    def number(self, name: bytes) -> int:
        """The number in a header; ValueError if there is none."""
        written = self.headers.get(name, b"")
        if not written.isdigit() or len(written) > 20:
            raise ValueError(f"header {name.decode()} is {written[:40]!r}")
        return int(written)


def size_of(body: Body) -> int:
    return len(body) if isinstance(body, bytes) else sum(map(len, body))


def joined(head: bytes, body: Body) -> bytes:
    """A request in one piece."""
    return head + body if isinstance(body, bytes) else b"".join((head, *body))


def request_bytes(method: str, target: str, common: bytes, body: Body, more: bytes = b"") -> bytes:
    """The head of a request. `target` is quoted; `common` and `more` are whole header lines."""
    line = f"{method} {target} HTTP/1.1\r\n".encode()
    if body or method != "GET":
        return b"%b%b%bContent-Length: %d\r\n\r\n" % (line, common, more, size_of(body))
    return b"%b%b%b\r\n" % (line, common, more)


class _Part(Enum):
    HEAD = 0
    BODY = 1
    CHUNK_SIZE = 2
    CHUNK = 3
    TRAILERS = 4


class _Head(NamedTuple):
    status: int
    headers: dict[bytes, bytes]
    is_last: bool


class AnswerReader:
    """Puts answers together from pieces of any size. After BadAnswer it must not be used again."""

    def __init__(self, address: str, *, body_bytes_max: int = BODY_BYTES_MAX) -> None:
        self._address, self._body_bytes_max = address, body_bytes_max
        self._buffer = bytearray()
        self._part = _Part.HEAD
        self._head: _Head | None = None
        self._needed = 0
        self._chunks: list[bytes] = []
        self._chunks_size = 0
        self._searched = 0
        self._large: memoryview | None = None
        self._large_size = 0

    @property
    def is_idle(self) -> bool:
        """Whether no part of an answer is here."""
        return self._part is _Part.HEAD and not self._buffer

    @property
    def headers(self) -> Headers | None:
        """The headers of an answer whose body is not all here yet."""
        return None if self._head is None else self._head.headers

    def space(self) -> memoryview | None:
        """Where to receive the rest of a large body; `filled` has to follow. None: use `feed`."""
        if self._part is not _Part.BODY or self._needed < _LARGE_BYTES:
            return None
        if self._large is None:
            # Not zeroed: all of it is going to be written.
            self._large = MEMORY.take(self._needed)
            self._large_size = len(self._buffer)
            self._large[: self._large_size] = self._buffer
            self._buffer.clear()
        return self._large[self._large_size :]

    def filled(self, size: int) -> Answer | None:
        """Note that `space` received so many bytes; returns the answer if they were the last."""
        assert self._large is not None, "space was called before"
        self._large_size += size
        if self._large_size < self._needed:
            return None
        body, self._large = self._large, None
        return self._finished(body)

    def feed(self, piece: bytes) -> Answer | None:
        """Take a piece; returns an answer when one is complete."""
        self._buffer += piece
        while self._part is _Part.HEAD:
            if not self._read_head():
                return None
        if self._part is _Part.BODY:
            is_whole = len(self._buffer) >= self._needed
            return self._finished(self._cut(self._needed, 0)) if is_whole else None
        return self._finished(b"".join(self._chunks)) if self._read_chunks() else None

    def _bad(self, reason: str) -> BadAnswer:
        return BadAnswer(self._address, reason, is_sent=True)

    def _cut(self, end: int, skip: int) -> bytes:
        """The bytes up to `end`; they and the next `skip` leave the buffer."""
        found = bytes(memoryview(self._buffer)[:end])
        del self._buffer[: end + skip]
        self._searched = 0
        return found

    def _read_head(self) -> bool:
        # The search goes on where the last one ended, so that an answer byte by byte is not searched again each time.
        end = self._buffer.find(_END_OF_HEADERS, max(0, self._searched - 3))
        if end < 0:
            self._searched = len(self._buffer)
            if self._searched > HEADER_BYTES_MAX:
                raise self._bad(f"headers of more than {HEADER_BYTES_MAX} bytes")
            if not b"HTTP/1.".startswith(self._buffer[:7]):
                raise self._bad(f"it begins with {bytes(self._buffer[:20])!r}, which is not HTTP")
            return False
        head = self._parse_head(self._cut(end, len(_END_OF_HEADERS)))
        if 100 <= head.status < 200:
            return True  # An interim answer; the real one follows.
        self._head = head
        self._choose_body(head)
        return True

    def _parse_head(self, raw: bytes) -> _Head:
        first, *lines = raw.split(_LINE_END)
        version, _, rest = first.partition(b" ")
        status = rest[:3]
        if version not in {b"HTTP/1.1", b"HTTP/1.0"} or not status.isdigit() or len(status) != 3:
            raise self._bad(f"it begins with {first[:40]!r}, which is not HTTP")
        headers = {}
        for line in lines:
            name, colon, value = line.partition(b":")
            if not colon or not name or name != name.strip():
                raise self._bad(f"{line[:40]!r} is not a header")
            headers[name.lower()] = value.strip()
        connection = headers.get(b"connection", b"").lower()
        is_last = connection == b"close" or (version == b"HTTP/1.0" and connection != b"keep-alive")
        return _Head(int(status), headers, is_last)

    def _choose_body(self, head: _Head) -> None:
        length = head.headers.get(b"content-length")
        if head.status in _BODYLESS:
            self._part, self._needed = _Part.BODY, 0
        elif head.headers.get(b"transfer-encoding", b"").lower() == b"chunked":
            self._part, self._chunks, self._chunks_size = _Part.CHUNK_SIZE, [], 0
        elif length is None or not length.isdigit() or len(length) > 18:
            raise self._bad("it does not say how long it is")
        else:
            self._part, self._needed = _Part.BODY, self._checked(int(length))

    def _checked(self, size: int) -> int:
        if size > self._body_bytes_max:
            raise self._bad(f"a body of {size} bytes, the limit is {self._body_bytes_max}")
        return size

    def _read_chunks(self) -> bool:
        """True when the last chunk and its trailers are here."""
        while True:
            if self._part is _Part.CHUNK:
                if len(self._buffer) < self._needed + 2:
                    return False
                self._chunks.append(self._cut(self._needed, 2))
                self._part = _Part.CHUNK_SIZE
            line = self._line()
            if line is None:
                return False
            if self._part is _Part.TRAILERS:
                if not line:
                    return True
                continue
            self._start_chunk(line)

    def _line(self) -> bytes | None:
        end = self._buffer.find(_LINE_END)
        if end > _CHUNK_LINE_BYTES_MAX or (end < 0 and len(self._buffer) > _CHUNK_LINE_BYTES_MAX):
            raise self._bad("a line between chunks is too long")
        return None if end < 0 else self._cut(end, 2)

    def _start_chunk(self, line: bytes) -> None:
        written = line.partition(b";")[0].strip()
        try:
            size = int(written, 16) if len(written) <= 8 and written.isalnum() else -1
        except ValueError:
            size = -1
        if size < 0:
            raise self._bad(f"{line[:20]!r} is not the size of a chunk")
        self._chunks_size = self._checked(self._chunks_size + size)
        self._needed, self._part = size, _Part.CHUNK if size else _Part.TRAILERS

    def _finished(self, body: bytes | memoryview) -> Answer:
        head = self._head
        assert head is not None, "a body follows its head"
        self._part, self._head, self._chunks, self._needed = _Part.HEAD, None, [], 0
        return Answer(head.status, head.headers, body, head.is_last)

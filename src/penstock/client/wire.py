"""HTTP/1.1 as far as a client needs it: a request as bytes, bytes as answers. No I/O.

A body has a length or comes in chunks. Every size has a limit. Bytes that are no answer are `BadAnswer`.
"""

from typing import NamedTuple

from ..errors import BadAnswer
from ..model import Buffer

HEADER_BYTES_MAX = 64 * 1024
# A fetch is at most 16 MiB and one batch more; JSON of it is larger.
BODY_BYTES_MAX = 64 * 1024 * 1024
_CHUNK_LINE_BYTES_MAX = 1024
# A body of this size is received into memory of its own; below it, a copy costs less than one more call.
_LARGE_BYTES = 256 * 1024
_BODYLESS = frozenset({204, 304})
_LINE_END = b"\r\n"
_END_OF_HEADERS = b"\r\n\r\n"

Body = bytes | tuple[Buffer, ...]
"""The body of a request: whole, or in pieces that are sent without a copy."""


class Headers:
    """The headers of an answer, in small letters. A value is searched when it is asked for: most never are."""

    __slots__ = ("_lines",)

    def __init__(self, lines: bytes) -> None:
        """`lines` begin and end with the end of a line."""
        self._lines = lines

    def get(self, name: bytes) -> bytes:
        """The value of a header, of a repeated one the last; empty if there is none."""
        start = self._lines.rfind(b"\r\n%b:" % name)
        if start < 0:
            return b""
        start += len(name) + 3
        return self._lines[start : self._lines.index(_LINE_END, start)].strip()

    def number(self, name: bytes) -> int:
        """The number in a header; ValueError if there is none."""
        written = self.get(name)
        if not written.isdigit() or len(written) > 20:
            raise ValueError(f"header {name.decode()} is {written[:40]!r}")
        return int(written)


class Answer(NamedTuple):
    """A whole answer."""

    status: int
    headers: Headers
    body: bytes | memoryview
    is_last: bool


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


class AnswerReader:
    """Puts answers together from pieces of any size. After BadAnswer it must not be used again."""

    def __init__(self, address: str, *, body_bytes_max: int = BODY_BYTES_MAX) -> None:
        self._address, self._body_bytes_max = address, body_bytes_max
        self._buffer = bytearray()
        self._searched = 0
        self._status, self._is_last = 0, False
        # The headers of an answer whose body is not all here yet.
        self.headers: Headers | None = None
        # The size of the body; None: it comes in chunks.
        self._size: int | None = 0
        self._chunks: list[bytes] = []
        self._chunks_size = 0
        # The size of the chunk that comes next; None: the line with its size comes first. The last is of size 0.
        self._chunk_size: int | None = None
        self._large: memoryview | None = None
        self._large_size = 0

    @property
    def is_idle(self) -> bool:
        """Whether no part of an answer is here."""
        return self.headers is None and not self._buffer

    def space(self) -> memoryview | None:
        """Where to receive the rest of a large body; `filled` has to follow. None: use `feed`."""
        if self.headers is None or self._size is None or self._size < _LARGE_BYTES:
            return None
        if self._large is None:
            self._large = memoryview(bytearray(self._size))
            self._large_size = len(self._buffer)
            self._large[: self._large_size] = self._buffer
            self._buffer.clear()
        return self._large[self._large_size :]

    def filled(self, size: int) -> Answer | None:
        """Note that `space` received so many bytes; returns the answer if they were the last."""
        assert self._large is not None, "space was called before"
        self._large_size += size
        if self._large_size < len(self._large):
            return None
        body, self._large = self._large, None
        return self._finished(body)

    def feed(self, piece: bytes) -> Answer | None:
        """Take a piece; returns an answer when one is complete."""
        self._buffer += piece
        while self.headers is None:
            if not self._read_head():
                return None
        if self._size is None:
            return self._finished(b"".join(self._chunks)) if self._read_chunks() else None
        if len(self._buffer) < self._size:
            return None
        return self._finished(self._cut(self._size, 0))

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
        head = self._cut(end + len(_LINE_END), len(_LINE_END)).lower()
        version, status = head[:9], head[9:12]
        if version not in (b"http/1.1 ", b"http/1.0 ") or not status.isdigit() or len(status) != 3:
            raise self._bad(f"it begins with {head[:40]!r}, which is not HTTP")
        self._status = int(status)
        if not 100 <= self._status < 200:
            self.headers = headers = Headers(head[head.index(_LINE_END) :])
            self._size = self._body_size(headers)
            connection = headers.get(b"connection")
            is_old = version == b"http/1.0 "
            self._is_last = connection != b"keep-alive" if is_old else connection == b"close"
        return True  # After an interim answer the real one follows.

    def _body_size(self, headers: Headers) -> int | None:
        if self._status in _BODYLESS:
            return 0
        if headers.get(b"transfer-encoding") == b"chunked":
            return None
        length = headers.get(b"content-length")
        if not length.isdigit() or len(length) > 18:
            raise self._bad("it does not say how long it is")
        return self._checked(int(length))

    def _checked(self, size: int) -> int:
        if size > self._body_bytes_max:
            raise self._bad(f"a body of {size} bytes, the limit is {self._body_bytes_max}")
        return size

    def _read_chunks(self) -> bool:
        """Whether the last chunk and its trailers are here."""
        while True:
            if self._chunk_size:
                if len(self._buffer) < self._chunk_size + 2:
                    return False
                self._chunks.append(self._cut(self._chunk_size, 2))
                self._chunk_size = None
            end = self._buffer.find(_LINE_END)
            size = len(self._buffer) if end < 0 else end
            if size > _CHUNK_LINE_BYTES_MAX:
                raise self._bad("a line between chunks is too long")
            if end < 0:
                return False
            line = self._cut(end, 2)
            if self._chunk_size is None:
                self._start_chunk(line)
            elif not line:
                return True

    def _start_chunk(self, line: bytes) -> None:
        written = line.partition(b";")[0].strip()
        try:
            size = int(written, 16) if len(written) <= 8 and written.isalnum() else -1
        except ValueError:
            size = -1
        if size < 0:
            raise self._bad(f"{line[:20]!r} is not the size of a chunk")
        self._chunks_size = self._checked(self._chunks_size + size)
        self._chunk_size = size

    def _finished(self, body: bytes | memoryview) -> Answer:
        assert self.headers is not None, "a body follows its head"
        headers, self.headers = self.headers, None
        self._chunks, self._chunks_size, self._chunk_size = [], 0, None
        return Answer(self._status, headers, body, self._is_last)

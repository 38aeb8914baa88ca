"""HTTP/1.1 as far as a client needs it: a request as bytes, bytes as answers. No I/O.

Bodies come with a length or in chunks; everything has a limit, and what does not look like an answer is `BadAnswer`.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache, partial
from typing import NamedTuple

from ..errors import BadAnswer
from ..model import Buffer
from .memory import MEMORY

HEADER_BYTES_MAX = 64 * 1024
# A fetch is at most 16 MiB and one batch more; JSON of it is larger.
BODY_BYTES_MAX = 64 * 1024 * 1024
_CHUNK_LINE_BYTES_MAX = 1024
# From here on a body is received straight into memory of its own; below, a copy costs less than another call.
_LARGE_BYTES = 256 * 1024
_BODYLESS = frozenset({204, 304})
_END_OF_HEADERS = b"\r\n\r\n"
# A header that says nothing of how the body comes.
_OTHER_LINE = rb"(?!(?:content-length|transfer-encoding|connection)[\s:])[^\s:]+:[^\r\n]*\r\n"
_USUAL = re.compile(
    rb"HTTP/1\.1 (\d\d\d)(?: [^\r\n]*)?\r\n"
    rb"((?:%b)*content-length:[ \t]*(\d{1,9})[ \t]*\r\n(?:%b)*)\r\n" % (_OTHER_LINE, _OTHER_LINE),
    re.ASCII | re.IGNORECASE,
)
# The same as our server writes it when all is well, which takes a quarter of the time to recognise.
_OURS = re.compile(
    rb"HTTP/1\.1 200 OK\r\ndate: [ -~]{29}\r\nx-request-id: [!-~]+\r\ncontent-type: [!-~]+\r\n"
    rb"content-length: (\d{1,9})\r\n(?:penstock-[a-z-]+: \d{1,18}\r\n)*\r\n"
)
_STATUS_LINE_BYTES = len(b"HTTP/1.1 200 OK\r\n")
# What our server says before the id of the request, and where that begins: dates are of one length.
_BEFORE_DATE = b"HTTP/1.1 200 OK\r\ndate: "
_AFTER_DATE = b"\r\nx-request-id: "
_AFTER_DATE_AT = len(_BEFORE_DATE) + 29
_ID_AT = _AFTER_DATE_AT + len(_AFTER_DATE)
PLACES = ("offset", "next-offset", "earliest", "latest", "seed")
# All that it says of a fetch, and of nothing else.
_PLACES = re.compile(b"".join(rb"penstock-%b: (\d{1,18})\r\n" % name.encode() for name in PLACES))
_OK = 200
_LINE_END = b"\r\n"
# No answer has this where a line ends.
_NEVER = b"nothing"


class LazyHeaders(Mapping[bytes, bytes]):
    """The headers of an answer, from lines that are known to be good: most answers are never asked for any.

    `places` are those of `PLACES`, if somebody has looked.
    """

    __slots__ = ("_found", "lines", "places")

    def __init__(self, lines: bytes, places: Sequence[bytes] = ()) -> None:
        self.lines, self.places = lines, places
        self._found: dict[bytes, bytes] | None = None

    def _all(self) -> dict[bytes, bytes]:
        if self._found is None:
            pairs = [line.partition(b":") for line in self.lines.split(_LINE_END)[:-1]]
            self._found = {name.lower(): value.strip() for name, _, value in pairs}
        return self._found

    def __getitem__(self, name: bytes) -> bytes:
        return (self._found or self._all())[name]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())


class Answer(NamedTuple):
    """A whole answer. Names of headers are in small letters; of repeated ones the last counts."""

    status: int
    headers: Mapping[bytes, bytes]
    body: bytes | memoryview
    is_last: bool

    def number(self, name: bytes) -> int:
        """A header that holds a number; BadAnswer if it does not."""
        written = self.headers.get(name, b"")
        if not written.isdigit() or len(written) > 20:
            raise ValueError(f"header {name.decode()} is {written[:40]!r}")
        return int(written)


# As calling the class does it, without a call of its own.
_answer: Callable[[tuple[int, Mapping[bytes, bytes], bytes, bool]], Answer] = partial(
    tuple.__new__, Answer
)

Headers = Mapping[bytes, bytes]

Body = bytes | tuple[Buffer, ...]
"""What follows the head of a request: whole, or in pieces that nobody has to copy together."""


def size_of(body: Body) -> int:
    return len(body) if isinstance(body, bytes) else sum(map(len, body))


def joined(head: bytes, body: Body) -> bytes:
    """A request in one piece."""
    return head + body if isinstance(body, bytes) else b"".join((head, *body))


def request_bytes(
    method: str, target: str, standing: bytes, body: Body, more: bytes = b""
) -> bytes:
    """The head of a request. `target` is quoted already; `more` are whole header lines."""
    if body or method != "GET":
        size = len(body) if type(body) is bytes else size_of(body)
        # Those mostly go to the same few places.
        line = _known_line(method, target)
        return b"%b%b%bContent-Length: %d\r\n\r\n" % (line, standing, more, size)
    return b"%b%b%b\r\n" % (_line(method, target), standing, more)


def _line(method: str, target: str) -> bytes:
    return f"{method} {target} HTTP/1.1\r\n".encode()


_known_line = lru_cache(maxsize=256)(_line)


class _Part(Enum):
    HEAD = 0
    BODY = 1
    CHUNK_SIZE = 2
    CHUNK = 3
    TRAILERS = 4


@dataclass(slots=True)
class _Head:
    status: int
    headers: dict[bytes, bytes]
    is_last: bool


class AnswerReader:
    """Puts answers together from whatever pieces they come in. After BadAnswer it is of no more use."""

    def __init__(self, address: str, *, body_bytes_max: int = BODY_BYTES_MAX) -> None:
        self._address, self._body_bytes_max = address, body_bytes_max
        self._buffer = bytearray()
        self._part = _Part.HEAD
        self._head: _Head | None = None
        self._needed = 0
        self._chunks: list[bytes] = []
        self._chunks_size = 0
        self._searched = 0
        # What the last answer said of its body, and how long that was.
        self._usual, self._usual_length = _NEVER, 0
        self._large: memoryview | None = None
        self._large_size = 0

    @property
    def is_idle(self) -> bool:
        """Nothing of an answer is here."""
        return self._part is _Part.HEAD and not self._buffer

    @property
    def headers(self) -> Headers | None:
        """Those of an answer whose body is not all here yet."""
        return None if self._head is None else self._head.headers

    @property
    def needed(self) -> int:
        """How many bytes of a body are still to come; 0 if that is not known."""
        return self._needed - len(self._buffer) if self._part is _Part.BODY else 0

    def space(self) -> memoryview | None:
        """Where to receive what comes next, if it is the rest of a large body; `filled` has to follow."""
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
        """So many bytes came into `space`; returns the answer if they were the last."""
        assert self._large is not None, "somebody asked where to put them"
        self._large_size += size
        if self._large_size < self._needed:
            return None
        body, self._large = self._large, None
        return self._finished(body)

    def feed(self, piece: bytes | memoryview) -> Answer | None:
        """Take a piece; returns an answer when one is complete. Call with b"" to look for one more."""
        if not self._buffer and self._head is None and isinstance(piece, bytes):
            answer = self._whole(piece)
            if answer is not None:
                return answer
        self._buffer += piece
        while True:
            if self._part is _Part.HEAD:
                if not self._read_head():
                    return None
            elif self._part is _Part.BODY:
                return self._read_body()
            elif not self._read_chunks():
                return None
            else:
                return self._finished(b"".join(self._chunks))

    def _whole(self, piece: bytes) -> Answer | None:
        """Most answers come in one piece and have nothing special. None: look at this one with more care."""
        if len(piece) > _LARGE_BYTES:
            return None
        answer = self._like_the_last(piece)
        if answer is not None:
            return answer
        found = _OURS.match(piece)
        if found is not None and int(found[1]) == len(piece) - (end := found.end()):
            self._remember(piece, int(found[1]), found.end(1))
            places = _PLACES.fullmatch(piece, found.end(1) + len(_LINE_END), end - len(_LINE_END))
            headers = LazyHeaders(
                piece[_STATUS_LINE_BYTES : end - 2], () if places is None else places.groups()
            )
            return Answer(_OK, headers, piece[end:], False)
        found = _USUAL.match(piece)
        if found is None or found.end() > HEADER_BYTES_MAX:
            return None
        status, end = int(found[1]), found.end()
        if status < _OK or status in _BODYLESS or int(found[3]) != len(piece) - end:
            return None
        return Answer(status, LazyHeaders(found[2]), piece[end:], False)

    def _remember(self, piece: bytes, length: int, end: int) -> None:
        """Of an answer that was read with care, keep what stands between its id and what only a fetch says."""
        start = piece.find(_LINE_END, _ID_AT)
        self._usual, self._usual_length = piece[start : end + len(_LINE_END)], length

    def _like_the_last(self, piece: bytes) -> Answer | None:
        """Whoever asks for the same again gets the same again, but for the id, the places and the body."""
        start = piece.find(_LINE_END, _ID_AT)
        if not piece.startswith(self._usual, start) or not piece.startswith(_BEFORE_DATE):
            return None
        if not piece.startswith(_AFTER_DATE, _AFTER_DATE_AT):
            return None
        own, end = start + len(self._usual), len(piece) - self._usual_length
        if piece[end - 2 : end] != _LINE_END:
            return None
        places: Sequence[bytes] = ()
        if own != end - 2:
            # Nothing else may stand there: it could end the headers, or say otherwise how the body comes.
            found = _PLACES.fullmatch(piece, own, end - 2)
            if found is None:
                return None
            places = found.groups()
        headers = LazyHeaders(piece[_STATUS_LINE_BYTES : end - 2], places)
        return _answer((_OK, headers, piece[end:], False))

    def _bad(self, reason: str) -> BadAnswer:
        return BadAnswer(self._address, reason, is_sent=True)

    def _cut(self, end: int, skip: int) -> bytes:
        """The bytes up to `end`; they and the next `skip` leave the buffer."""
        found = bytes(self._buffer[:end])
        del self._buffer[: end + skip]
        self._searched = 0
        return found

    def _read_head(self) -> bool:
        # From a little before where the last search ended, so that a slow trickle is not searched again and again.
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

    def _read_body(self) -> Answer | None:
        if len(self._buffer) < self._needed:
            return None
        if len(self._buffer) == self._needed:
            # The usual case, and the one in which the body need not be moved.
            body, self._buffer = bytes(self._buffer), bytearray()
            return self._finished(body)
        return self._finished(self._cut(self._needed, 0))

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

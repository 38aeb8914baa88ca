"""Where requests begin and end in what a connection receives: line and headers, body, trailers.

The answer depends on the bytes and not on how the network cuts them. llhttp reads the line and the headers; what it
lets pass and we do not is checked here. A body is what Content-Length or the chunks say, also after `Upgrade`.
"""

import re

import httptools

FIELDS_MAX = 256
TRAILER_BYTES_MAX = 8192
TRAILER_FIELDS_MAX = 64
CHUNK_LINE_BYTES_MAX = 4096
_END = b"\r\n\r\n"
_TOO_LARGE = 431
_VERSIONS = frozenset({"1.0", "1.1"})
# A request that says one of these twice may mean one thing to us and another to a proxy in front of us.
_ONCE = frozenset(
    {
        b"authorization",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"host",
        b"origin",
        b"transfer-encoding",
        b"x-api-key",
    }
)
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*;[\t\x20-\x7e\x80-\xff]*)?\r\n")
_FIELD_LINE = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t\x20-\x7e\x80-\xff]*\r\n")


class BadFraming(Exception):
    """What came is no request that is served here. It is answered with `status`, and the connection ends."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.code = "TOO_LARGE" if status == _TOO_LARGE else "MALFORMED_REQUEST"


class RequestHead:
    """The line and the headers of a request; names of headers in small letters."""

    __slots__ = (
        "_bytes_max",
        "_is_read",
        "_parser",
        "_received",
        "_size",
        "_tail",
        "_target",
        "expects_continue",
        "headers",
        "is_complete",
        "is_kept_alive",
        "length",
        "method",
        "path",
        "query",
        "version",
    )

    def __init__(self, bytes_max: int) -> None:
        # The last value of each name, once all are here.
        self.headers: dict[bytes, bytes] = {}
        self._received: list[tuple[bytes, bytes]] = []
        self.method = self.version = ""
        self.path = self.query = b""
        self.is_complete = self.is_kept_alive = self.expects_continue = False
        self._bytes_max, self._size = bytes_max, 0
        # Of the body; None if it comes in chunks.
        self.length: int | None = 0
        # The last bytes that came: the next ones may complete an end.
        self._tail = b""
        self._target: list[bytes] = []
        self._is_read = False
        self._parser: httptools.HttpRequestParser | None = None

    def feed(self, data: bytes, at: int) -> int:
        """Take what belongs to it, from `at` on; where that ends. BadFraming if it is not to be served."""
        first = at
        if self._parser is None and data[at] in b"\r\n":
            # Empty lines before a request are read over (RFC 9112, 2.2).
            at = len(data) - len(data[at:].lstrip(b"\r\n"))
        end = self._end_of(data, at) if at < len(data) else at
        self._size += end - first
        if self._size > self._bytes_max:
            raise BadFraming(431, f"headers are larger than {self._bytes_max} bytes")
        if at < end:
            self._parse(data if end - at == len(data) else data[at:end])
        if self.is_complete:
            self._check()
        return end

    def _end_of(self, data: bytes, at: int) -> int:
        """Where it ends. `is_complete` says whether it does; otherwise all of `data` belongs to it."""
        if self._tail:
            found = (self._tail + data[at : at + len(_END) - 1]).find(_END)
            if found >= 0:
                self.is_complete = True
                return at + found + len(_END) - len(self._tail)
        found = data.find(_END, at)
        if found >= 0:
            self.is_complete = True
            return found + len(_END)
        self._tail = (self._tail + data[max(at, len(data) - len(_END)) :])[1 - len(_END) :]
        return len(data)

    def _parse(self, piece: bytes) -> None:
        parser = self._parser
        if parser is None:
            parser = self._parser = httptools.HttpRequestParser(self)
        is_good = True
        try:
            parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            pass  # Nothing else is spoken here, so the request is served as any other.
        except httptools.HttpParserError:
            is_good = False
        if self.is_complete or not is_good:
            self.close()
        if not is_good or self._is_read != self.is_complete:
            raise BadFraming(400, "this cannot be read as a request of HTTP/1.1")
        if len(self._received) > FIELDS_MAX:
            raise BadFraming(431, f"there are more than {FIELDS_MAX} headers")

    def close(self) -> None:
        """Part from the parser: each holds the other, and both would wait for the garbage collector."""
        self._parser = None

    def on_url(self, url: bytes) -> None:
        """Called by the parser."""
        self._target.append(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser."""
        self._received.append((name.lower(), value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        """Called by the parser."""
        parser = self._parser
        assert parser is not None, "it calls"
        self.version = parser.get_http_version()
        self.method = parser.get_method().decode("ascii")
        self.is_kept_alive = self.version == "1.1" and parser.should_keep_alive()
        self._is_read = True

    def _check(self) -> None:
        if self.version not in _VERSIONS:
            raise BadFraming(400, "the version of HTTP has to be 1.1 or 1.0")
        found = self.headers = dict(self._received)
        if len(found) != len(self._received):
            self._require_once()
        self.length = self._body_length(
            found.get(b"content-length"), found.get(b"transfer-encoding")
        )
        host = found.get(b"host")
        if host is None and self.version == "1.1":
            raise BadFraming(400, "the host header is missing")
        self.path, self.query = _parts_of(b"".join(self._target), host or b"")
        expected = found.get(b"expect")
        self.expects_continue = expected is not None and expected.lower() == b"100-continue"

    def _require_once(self) -> None:
        seen: set[bytes] = set()
        for name, _ in self._received:
            if name in seen and name in _ONCE:
                raise BadFraming(400, f"the header {name.decode()} is there twice")
            seen.add(name)

    def _body_length(self, length: bytes | None, coding: bytes | None) -> int | None:
        if coding is None:
            return int(length or b"0")
        if coding.lower() != b"chunked":
            raise BadFraming(400, "transfer-encoding has to be chunked, and nothing else")
        if length is not None or self.version != "1.1":
            raise BadFraming(400, "transfer-encoding with content-length, or in HTTP/1.0")
        return None


def _parts_of(target: bytes, host: bytes) -> tuple[bytes, bytes]:
    """Path and query. A target that names a host, too, has to name that of the header."""
    if not target.startswith(b"/"):
        scheme, _, rest = target.partition(b"://")
        authority, slash, path = rest.partition(b"/")
        if scheme.lower() not in {b"http", b"https"} or authority.lower() != host.lower():
            raise BadFraming(400, "the target of a request has to be a path")
        target = slash + path or b"/"
    try:
        found = httptools.parse_url(target)
    except httptools.HttpParserError:
        raise BadFraming(400, "the target of a request cannot be read") from None
    return found.path, found.query or b""


class LengthBody:
    """A body of known length."""

    __slots__ = ("_left",)

    def __init__(self, length: int) -> None:
        self._left = length

    @property
    def is_complete(self) -> bool:
        return not self._left

    def skip(self, data: bytes, at: int) -> int:
        """Where the bytes of the body that are in `data` from `at` on end."""
        end = min(at + self._left, len(data))
        self._left -= end - at
        return end

    def feed(self, data: bytes, at: int) -> tuple[bytes, int]:
        """The bytes of the body that are in `data` from `at` on, and where they end."""
        end = self.skip(data, at)
        return data[at:end], end


class ChunkedBody:
    """A body in chunks. What follows the last one is limited, checked and dropped."""

    __slots__ = ("_is_after_data", "_left", "_line", "_trailer_bytes", "_trailers", "is_complete")

    def __init__(self) -> None:
        self.is_complete = False
        # Of the chunk; and whether it has been read up to the line end behind it.
        self._left, self._is_after_data = 0, False
        # The part of a line that is here.
        self._line = b""
        # None before the last chunk.
        self._trailers: int | None = None
        self._trailer_bytes = 0

    def feed(self, data: bytes, at: int) -> tuple[bytes, int]:
        """The bytes of the body that are in `data` from `at` on, and where the request ends, or `data`."""
        pieces = []
        while at < len(data) and not self.is_complete:
            if self._left:
                piece = data[at : at + self._left]
                pieces.append(piece)
                at += len(piece)
                self._left -= len(piece)
                self._is_after_data = not self._left
                continue
            end = data.find(b"\n", at) + 1
            self._line += data[at : end or len(data)]
            at = end or len(data)
            self._limit_line()
            if end:
                line, self._line = self._line, b""
                self._read_line(line)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces), at

    def _limit_line(self) -> None:
        size = len(self._line)
        if self._trailers is None:
            if size > CHUNK_LINE_BYTES_MAX:
                raise BadFraming(400, f"the line of a chunk is over {CHUNK_LINE_BYTES_MAX} bytes")
        elif self._trailer_bytes + size > TRAILER_BYTES_MAX:
            raise BadFraming(431, f"trailers are larger than {TRAILER_BYTES_MAX} bytes")

    def _read_line(self, line: bytes) -> None:
        if self._is_after_data:
            if line != b"\r\n":
                raise BadFraming(400, "a chunk is longer than it says")
            self._is_after_data = False
        elif self._trailers is None:
            found = _CHUNK_LINE.fullmatch(line)
            if found is None:
                raise BadFraming(400, "the size of a chunk cannot be read")
            self._left = int(found[1], 16)
            if not self._left:
                self._trailers = 0
        elif line == b"\r\n":
            self.is_complete = True
        else:
            self._count_trailer(line)

    def _count_trailer(self, line: bytes) -> None:
        assert self._trailers is not None, "the last chunk was read"
        self._trailers += 1
        self._trailer_bytes += len(line)
        if self._trailers > TRAILER_FIELDS_MAX:
            raise BadFraming(431, f"there are more than {TRAILER_FIELDS_MAX} trailers")
        if not _FIELD_LINE.fullmatch(line):
            raise BadFraming(400, "a trailer cannot be read")


class Framing:
    """Cuts what a connection receives into requests, one after the other."""

    __slots__ = ("_at", "_body", "_bytes_max", "_data", "_head")

    def __init__(self, header_bytes_max: int) -> None:
        self._bytes_max = header_bytes_max
        self._data, self._at = b"", 0
        self._head: RequestHead | None = None
        self._body: LengthBody | ChunkedBody | None = None

    @property
    def is_empty(self) -> bool:
        """Whether all that was received has been taken."""
        return self._at == len(self._data)

    @property
    def is_in_head(self) -> bool:
        return self._head is not None

    @property
    def is_in_body(self) -> bool:
        return self._body is not None

    def receive(self, data: bytes) -> None:
        self._data = data if self._at == len(self._data) else self._data[self._at :] + data
        self._at = 0

    def take(self) -> RequestHead | bytes | None:
        """What comes next: a head, a piece of its body, an empty piece where the request ends.

        None: more has to be received. BadFraming: nothing that follows can be trusted.
        """
        if self._body is not None:
            return self._take_body(self._body)
        if self._at == len(self._data):
            return None
        head = self._head
        if head is None:
            head = self._head = RequestHead(self._bytes_max)
        self._move(head.feed(self._data, self._at))
        if not head.is_complete:
            return None
        self._head = None
        self._body = ChunkedBody() if head.length is None else LengthBody(head.length)
        return head

    def _take_body(self, body: LengthBody | ChunkedBody) -> bytes | None:
        piece, at = body.feed(self._data, self._at)
        self._move(at)
        if piece:
            return piece
        if not body.is_complete:
            return None
        self._body = None
        return b""

    def skip_body(self) -> int:
        """Read over what was received of a body of known length; how many bytes that was. The rest is taken."""
        body, first = self._body, self._at
        if not isinstance(body, LengthBody):
            return 0
        at = body.skip(self._data, first)
        self._move(at)
        if body.is_complete:
            self._body = None
        return at - first

    def _move(self, at: int) -> None:
        self._at = at
        if at == len(self._data):
            # What was taken is not kept: there may be many connections that are idle.
            self._data, self._at = b"", 0

    def close(self) -> None:
        """Nothing more is taken."""
        if self._head is not None:
            self._head.close()
        self._head = self._body = None
        self._data, self._at = b"", 0

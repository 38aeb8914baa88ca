"""Frames of the binary port: Kafka's request header and our own api keys (docs/protocol.md).

    request   length int32, api key int16, version int16, correlation int32, client id (int16 length, -1 is null), body
    reply     length int32, correlation int32, body

All numbers are big endian; a length counts what follows it. Pure: bytes in, frames out.
"""

from collections.abc import Sequence
from struct import Struct

import msgspec

from ..errors import BadRequest, TooLarge
from ..model import Buffer

OWN_KEYS_FROM = 10_000
HELLO, COMMAND, CANCEL = 10_000, 10_001, 10_002
VERSION = 0
"""Of our own api keys: the newest, and the only one."""

_LENGTH = Struct(">i")
_HEADER = Struct(">hhih")
_REQUEST = Struct(">ihhih")
_REPLY = Struct(">ii")
_NULL = -1
# Less than this cannot hold a header.
_FRAME_BYTES_MIN = 8
_CORRELATION = Struct(">hhi")
# Up to here one copy costs less than one more call, or one more packet.
_JOINED_BYTES_MAX = 64 << 10


class RequestHeader(msgspec.Struct, frozen=True):
    """What a request says of itself before its body."""

    api_key: int
    version: int
    correlation: int
    client_id: str


class Limits(msgspec.Struct, frozen=True):
    """What the server takes and gives at once."""

    frame_bytes_max: int
    requests_in_flight_max: int
    poll_messages_max: int
    poll_wait_ms_max: int
    fetch_bytes_max: int
    batch_bytes_max: int
    value_bytes_max: int
    key_bytes_max: int
    headers_bytes_max: int


class ClientDefaults(msgspec.Struct, frozen=True):
    """What a client does where its program does not say: `producer` and `consumer` of the broker's settings."""

    batch_size: int = 100_000
    linger_ms: float = 5.0
    batch_bytes: int = 1 << 20
    ack_mode: str = "leader"
    retries: int = 3
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 30_000
    session_timeout_ms: int = 30_000
    heartbeat_interval_ms: int = 3000


class Hello(msgspec.Struct, frozen=True):
    """The first request of our clients: the version of the client, and its key if the server asks for keys."""

    client: str
    key: str = ""


class HelloReply(msgspec.Struct, frozen=True):
    """What a client has to know. `http` is the address of the other port, empty if there is none.

    `data_dir` is where the files of `HoldFiles` are, for clients that see the broker's disk. `started_at_ns` is the
    time of the broker's start in nanoseconds since 1970.
    """

    server: str
    node_id: int
    broker_id: str
    http: str
    limits: Limits
    features: tuple[str, ...] = ()
    data_dir: str = ""
    started_at_ns: int = 0
    defaults: ClientDefaults = ClientDefaults()


class FrameSplitter:
    """Whole frames out of bytes that arrive in any pieces.

    `error` is set by a length that cannot be: no frame follows it. `held_bytes` is what waits here for the rest of its
    frame.
    """

    __slots__ = ("_bytes_max", "_pending", "_rest", "_wanted", "error", "held_bytes")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._pending, self.held_bytes = bytearray(), 0
        # The length of the frame whose start is pending, with the length itself; 0 while that is not known.
        self._wanted = 0
        self.error: TooLarge | BadRequest | None = None
        # What came behind such a length.
        self._rest = memoryview(b"")

    def take_oversized(self) -> tuple[TooLarge, int, memoryview] | None:
        """If a frame over the limit begins here: why it is refused, its length, and what is there of it behind that.

        The caller goes on with `feed` behind that frame.
        """
        error, rest = self.error, self._rest
        if not isinstance(error, TooLarge):
            return None
        length = error.fields["found"]
        assert isinstance(length, int), "it was found in the bytes"
        self.error, self._rest = None, memoryview(b"")
        self._pending, self.held_bytes = bytearray(), 0
        return error, length, rest

    @property
    def pending_frame(self) -> memoryview:
        """The start of the frame that is not whole yet, without its length."""
        return memoryview(self._pending)[_LENGTH.size :]

    def feed(self, data: Buffer) -> list[memoryview]:
        """The frames that end in these bytes, without their lengths. They are views: of `data`, or of a buffer of their
        own."""
        frames: list[memoryview] = []
        view, position = memoryview(data), 0
        if self._pending:
            position = self._complete(view, frames)
        end = len(view)
        while self.error is None and end - position >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(view, position)
            if not _FRAME_BYTES_MIN <= length <= self._bytes_max:
                self.error = self._impossible(length)
                break
            start = position + _LENGTH.size
            if end - start < length:
                self._wanted = _LENGTH.size + length
                break
            position = start + length
            frames.append(view[start:position])
        if self.error is not None:
            # In `_complete` the length was taken already.
            self._rest = view[position if self._pending else position + _LENGTH.size :]
        elif position < end:
            self._pending += view[position:]
        self.held_bytes = len(self._pending)
        return frames

    def _complete(self, view: memoryview, frames: list[memoryview]) -> int:
        """Add bytes to the frame that is pending; how many of them belong to it."""
        pending, position = self._pending, 0
        if not self._wanted:
            position = min(len(view), _LENGTH.size - len(pending))
            pending += view[:position]
            if len(pending) < _LENGTH.size:
                return position
            (length,) = _LENGTH.unpack(pending)
            if not _FRAME_BYTES_MIN <= length <= self._bytes_max:
                self.error = self._impossible(length)
                return position
            self._wanted = _LENGTH.size + length
        more = min(len(view) - position, self._wanted - len(pending))
        pending += view[position : position + more]
        if len(pending) == self._wanted:
            frames.append(memoryview(pending)[_LENGTH.size :])
            self._pending, self._wanted = bytearray(), 0
        return position + more

    def _impossible(self, length: int) -> TooLarge | BadRequest:
        if length > self._bytes_max:
            return TooLarge("a frame in bytes", found=length, limit=self._bytes_max)
        return BadRequest(f"a frame of {length} bytes cannot hold a header")


def read_header(frame: memoryview) -> tuple[RequestHeader, memoryview]:
    """The header of a request and its body. BadRequest: the client id ends beyond the frame, or is no text."""
    size = _HEADER.size
    if len(frame) < size:
        raise BadRequest(f"a header has {size} bytes and a client id, found {len(frame)} bytes")
    key, version, correlation, length = _HEADER.unpack_from(frame)
    if length <= 0:
        if length < _NULL:
            raise BadRequest(f"a client id of {length} bytes")
        return RequestHeader(key, version, correlation, ""), frame[size:]
    end = size + length
    if end > len(frame):
        raise BadRequest(f"a client id of {length} bytes in a frame of {len(frame)}")
    try:
        client_id = str(frame[size:end], "utf-8")
    except UnicodeDecodeError:
        raise BadRequest("the client id is not text in UTF-8") from None
    return RequestHeader(key, version, correlation, client_id), frame[end:]


def key_and_correlation(frame: memoryview) -> tuple[int, int]:
    """The api key and the correlation of a frame whose header is bad otherwise."""
    key, _, correlation = _CORRELATION.unpack_from(frame)
    return key, correlation


def request_frame(
    api_key: int, correlation: int, body: Sequence[Buffer], client_id: bytes = b""
) -> list[Buffer]:
    """A request of one of our own api keys, as pieces that follow each other. A small one is one piece."""
    size = _HEADER.size + len(client_id) + sum(map(len, body))
    head = _REQUEST.pack(size, api_key, VERSION, correlation, len(client_id) or _NULL)
    pieces = [head, client_id, *body]
    return [b"".join(pieces)] if size <= _JOINED_BYTES_MAX else pieces


def reply_head(correlation: int, size: int) -> bytes:
    """What comes before the `size` bytes of the body of a reply."""
    return _REPLY.pack(4 + size, correlation)

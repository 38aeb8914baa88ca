"""Connections of the judging tool: bytes out, and what came of them. Of a long answer only the beginning is kept."""

import json
import socket
import struct
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from penstock.api.command import Command
from penstock.api.error_reply import ErrorReply
from penstock.api.frames import COMMAND, HELLO, Hello, request_frame
from penstock.api.wire import decode_reply, encode_command, encode_hello
from penstock.server.kafka.schema import RESPONSES
from penstock.server.kafka.wire import Reader, decoder_of

KEPT_BYTES = 1 << 20
_RECEIVED_BYTES = 1 << 18
_REPLY = struct.Struct(">BBI")
_CODES = frozenset({"error_code", "partition_error_code"})


class Outcome(NamedTuple):
    """What a client was answered: "ok", the code of an error, "closed" or "silent"; and how many bytes came."""

    answer: str
    size: int = 0


class Wire(Protocol):
    """A connection to one port."""

    def ask(self, request: bytes) -> Outcome: ...
    def close(self) -> None: ...


class _Stream:
    """A socket that gives up at a deadline."""

    def __init__(self, port: int, patience_s: float) -> None:
        self.patience_s = patience_s
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=patience_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except (ConnectionError, TimeoutError):
            return  # A server that refuses does not take the rest, and may have answered.

    def receive(self, most: int, deadline_s: float) -> bytes:
        """Some bytes; none at the end of the stream. TimeoutError."""
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self.socket.settimeout(left_s)
        return self.socket.recv(most)


class FrameWire:
    """The binary port, with a key: its own commands, and Kafka's api keys."""

    def __init__(self, port: int, key: str, patience_s: float) -> None:
        self._stream = _Stream(port, patience_s)
        hello = b"".join(request_frame(HELLO, 1, encode_hello(Hello("judge", key))))
        self.exchange(hello)

    def exchange(self, frame: bytes) -> tuple[bytes, int]:
        """The beginning of an answer's body behind its correlation, and its size. EOFError, TimeoutError."""
        deadline_s = time.monotonic() + self._stream.patience_s
        self._stream.send(frame)
        head = self._whole(8, 8, deadline_s)
        size = int.from_bytes(head[:4], "big") - 4
        return self._whole(size, KEPT_BYTES, deadline_s), size

    def _whole(self, size: int, kept: int, deadline_s: float) -> bytes:
        data, missing = bytearray(), size
        while missing:
            try:
                more = self._stream.receive(min(missing, _RECEIVED_BYTES), deadline_s)
            except ConnectionError:
                more = b""
            if not more:
                raise EOFError
            missing -= len(more)
            if len(data) < kept:
                data += more
        return bytes(data)

    def ask(self, request: bytes) -> Outcome:
        try:
            body, size = self.exchange(request)
        except EOFError:
            return Outcome("closed")
        except TimeoutError:
            return Outcome("silent")
        status, _, packed = _REPLY.unpack_from(body)
        if status == 0:
            return Outcome("ok", size)
        return Outcome(_code(body[_REPLY.size : _REPLY.size + packed]), size)

    def run(self, command: Command[Any]) -> Any:
        """The reply of a command that is not judged. Raises the error that it is answered with."""
        frame = b"".join(request_frame(COMMAND, 1, encode_command(command)))
        body, _ = self.exchange(frame)
        return decode_reply(type(command), memoryview(body)).value

    def close(self) -> None:
        self._stream.socket.close()


def _code(packed: bytes) -> str:
    return msgspec.msgpack.decode(packed, type=ErrorReply).code


class KafkaWire(FrameWire):
    """The same connection, with Kafka's answers."""

    def __init__(self, port: int, key: str, patience_s: float, api: tuple[int, int]) -> None:
        super().__init__(port, key, patience_s)
        self._api = api

    def ask(self, request: bytes) -> Outcome:
        try:
            body, size = self.exchange(request)
        except EOFError:
            return Outcome("closed")
        except TimeoutError:
            return Outcome("silent")
        if size > len(body):
            return Outcome("ok", size)
        key, version = self._api
        schema = RESPONSES[key]
        tags = int(version >= schema.flexible and key != 18)
        values = decoder_of(schema, version)(Reader(body[tags:], KEPT_BYTES))
        codes = sorted({code for code in _codes_in(values) if code})
        return Outcome(f"codes {' '.join(map(str, codes[:5]))}" if codes else "ok", size)


def _codes_in(values: object) -> Iterable[int]:
    if isinstance(values, dict):
        for name, value in values.items():
            if name in _CODES:
                yield value
            else:
                yield from _codes_in(value)
    elif isinstance(values, list):
        for value in values:
            yield from _codes_in(value)


class HttpWire:
    """One request a connection."""

    def __init__(self, port: int, key: str, patience_s: float) -> None:
        self._port, self._key, self._patience_s = port, key, patience_s

    def ask(self, request: bytes) -> Outcome:
        """`request` has a line and headers without the empty line, then that line, then its body."""
        head, _, body = request.partition(b"\r\n\r\n")
        more = f"\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {self._key}"
        stream = _Stream(self._port, self._patience_s)
        try:
            deadline_s = time.monotonic() + self._patience_s
            stream.send(b"".join((head, more.encode(), b"\r\n\r\n", body)))
            return self._answer(stream, deadline_s)
        finally:
            stream.socket.close()

    def _answer(self, stream: _Stream, deadline_s: float) -> Outcome:
        data, size = bytearray(), 0
        try:
            while more := stream.receive(_RECEIVED_BYTES, deadline_s):
                size += len(more)
                if len(data) < KEPT_BYTES:
                    data += more
                if b"text/event-stream" in data[:2000]:
                    break  # A stream has no end.
        except ConnectionError:
            pass
        except TimeoutError:
            return Outcome("silent", size)
        if not data.startswith(b"HTTP/1.1 "):
            return Outcome("closed", size)
        status = data[9:12].decode()
        return Outcome(status if status[0] == "2" else f"{status} {_error(data)}", size)

    def close(self) -> None:
        pass


def _error(data: bytearray) -> str:
    try:
        said = json.loads(data.partition(b"\r\n\r\n")[2])
    except ValueError:
        return ""
    return str(said.get("error", said.get("error_code", ""))) if isinstance(said, dict) else ""


def command_frame(name: str, packed: bytes, parts: Sequence[bytes] = ()) -> bytes:
    """The frame of a command whose msgpack is made already."""
    head = struct.pack(">BIBI", 1, 0, len(name), len(packed)) + name.encode() + packed
    sized = [piece for part in parts for piece in (struct.pack(">I", len(part)), part)]
    return b"".join(request_frame(COMMAND, 7, [head, *sized]))

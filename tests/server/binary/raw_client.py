"""A client of the binary port on a bare socket: every byte that it sends is seen here."""

import socket
import ssl
from contextlib import contextmanager
from itertools import count

from penstock.api.frames import (
    CANCEL,
    COMMAND,
    HELLO,
    FrameSplitter,
    Hello,
    HelloReply,
    request_frame,
)
from penstock.api.publish import Acks
from penstock.api.wire import decode_reply, decode_value, encode_command, encode_hello

REPLY_BYTES_MAX = 64 << 20


class RawClient:
    def __init__(self, port, *, context=None, timeout_s=120):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_hostname="localhost")
        self._splitter, self._numbers = FrameSplitter(REPLY_BYTES_MAX), count(1)
        # Replies that came and were not asked for yet, by correlation.
        self.replies = {}
        self.kinds = {}

    def send(self, *pieces):
        self.socket.sendall(b"".join(pieces))

    def hello(self, key=""):
        number = next(self._numbers)
        self.send(*request_frame(HELLO, number, encode_hello(Hello("test", key))))
        return decode_value(HelloReply, self.reply(number))

    def frame(self, command, *, acks=Acks.LEADER, wait_ms=0):
        """A request as bytes, and its number."""
        number = next(self._numbers)
        self.kinds[number] = type(command)
        pieces = request_frame(COMMAND, number, encode_command(command, acks, wait_ms), b"test")
        return number, b"".join(pieces)

    def begin(self, command, **more):
        number, frame = self.frame(command, **more)
        self.send(frame)
        return number

    def call(self, command, **more):
        return self.value(self.begin(command, **more))

    def value(self, number):
        return self.outcome(number).value

    def outcome(self, number):
        return decode_reply(self.kinds[number], self.reply(number))

    def cancel(self, number):
        own = next(self._numbers)
        self.send(*request_frame(CANCEL, own, [number.to_bytes(4, "big")]))
        return decode_value(bool, self.reply(own))

    def reply(self, number):
        while number not in self.replies:
            data = self.socket.recv(1 << 16)
            if not data:
                raise ConnectionResetError(f"closed before reply {number}")
            for frame in self._splitter.feed(data):
                self.replies[int.from_bytes(frame[:4], "big", signed=True)] = frame[4:]
        return self.replies.pop(number)

    def is_closed(self):
        """Whether the server has ended the connection; what it said before is read."""
        try:
            while self.socket.recv(1 << 16):
                pass
        except ConnectionResetError:
            pass
        except (TimeoutError, ssl.SSLError):
            return False
        return True

    def close(self):
        self.socket.close()


@contextmanager
def connected(port, **more):
    client = RawClient(port, **more)
    try:
        yield client
    finally:
        client.close()

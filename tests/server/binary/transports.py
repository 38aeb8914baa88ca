"""Connections of the binary port without sockets: a test feeds them, and reads what they write."""

import asyncio

from penstock.api.frames import HELLO, FrameSplitter, Hello, request_frame
from penstock.api.wire import encode_hello
from penstock.server.binary.commands import Commands
from penstock.server.binary.connection import Connection


class Wire(asyncio.Transport):
    """Keeps what is written until the connection is closed."""

    def __init__(self):
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 1)})
        self.frames, self.is_over = FrameSplitter(1 << 20), False
        # By correlation.
        self.replies = {}

    def write(self, data):
        if not self.is_over:
            for one in self.frames.feed(data):
                self.replies[int.from_bytes(one[:4], "big")] = one[4:]

    def is_closing(self):
        return self.is_over

    def close(self):
        self.is_over = True


def on_wire(service, key=None):
    """A connection without a socket, which has shown a key if there is one."""
    connection, wire = Connection(service, Commands(service)), Wire()
    connection.connection_made(wire)
    if key is not None:
        hello = request_frame(HELLO, 1, encode_hello(Hello("test", key.text)))
        connection.data_received(b"".join(hello))
        assert wire.replies.pop(1)
    return connection, wire

"""A wire that meddles with the answers to batches: each is passed on, or treated as the next of `tricks` says."""

import socket
import threading
from contextlib import suppress


def read_message(stream):
    """A whole request or answer; empty at the end."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = stream.recv(1 << 16)
        if not piece:
            return b""
        data += piece
    head, _, _ = data.partition(b"\r\n\r\n")
    length = 0
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            length = int(value)
    parts, size = [data], len(data)
    while size < len(head) + 4 + length:
        parts.append(stream.recv(1 << 20))
        size += len(parts[-1])
    return b"".join(parts)


class Wire:
    """Listens in front of a server. `_serve` gets each client's stream, and a stream to the server."""

    def __init__(self, url):
        self._port = int(url.rsplit(":", 1)[1])
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._connect, args=(near,), daemon=True).start()

    def _connect(self, near):
        with suppress(OSError), near, socket.create_connection(("127.0.0.1", self._port)) as far:
            self._serve(near, far)

    def close(self):
        # Without it the thread that accepts would go on to wait.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.close()


class Meddler(Wire):
    """Tricks get the answer and the client's stream. One that returns False ends the connection.

    `before` is called with each batch before it is passed on; if it gives bytes, they are the answer.
    """

    def __init__(self, url, *tricks, before=None):
        self.tricks, self.seen = [*tricks], []
        self._before = before or (lambda _asked: None)
        super().__init__(url)

    def _serve(self, near, far):
        while asked := read_message(near):
            is_batch = b"/batches" in asked[:200]
            said = self._before(asked) if is_batch else None
            if said is None:
                far.sendall(asked)
                said = read_message(far)
            if is_batch:
                self.seen.append(asked)
            if is_batch and self.tricks:
                if self.tricks.pop(0)(said, near) is False:
                    return
            else:
                near.sendall(said)


def swallowed(_said, _near):
    """The batch is stored, and nobody hears of it."""
    return False


def garbage(_said, near):
    near.sendall(b"\x00\x01 this is not HTTP\r\n\r\n")
    return False


def trickled(said, near):
    for place in range(len(said)):
        near.sendall(said[place : place + 1])


SLOW_DOWN = b'{"error":"RESOURCE_EXHAUSTED","message":"slow down","status":429,"retry_after_ms":1}'


def busy(_asked):
    """An answer that a server gives which has too much to do."""
    return b"HTTP/1.1 429 X\r\nContent-Length: %d\r\n\r\n%b" % (len(SLOW_DOWN), SLOW_DOWN)

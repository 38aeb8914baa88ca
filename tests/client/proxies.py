"""Proxies between a client and a server that lose, damage or delay what passes through them."""

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


class Proxy:
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


class BatchProxy(Proxy):
    """The answer to each batch is passed on, or given to the next of `tricks` with the client's stream.

    A trick that returns False ends the connection.

    `before` is called with each batch before it is passed on; if it gives bytes, they are the answer.
    """

    def __init__(self, url, *tricks, before=None):
        self.tricks, self.seen = [*tricks], []
        self._before = before or (lambda _request: None)
        super().__init__(url)

    def _serve(self, near, far):
        while request := read_message(near):
            is_batch = b"/batches" in request[:200]
            answer = self._before(request) if is_batch else None
            if answer is None:
                far.sendall(request)
                answer = read_message(far)
            if is_batch:
                self.seen.append(request)
            if is_batch and self.tricks:
                if self.tricks.pop(0)(answer, near) is False:
                    return
            else:
                near.sendall(answer)


class FetchProxy(Proxy):
    """`pass_on` gets the number of a fetch (from 0), its answer and the client's stream. False ends the connection."""

    def __init__(self, url, pass_on):
        self._pass_on, self.offsets, self.requests = pass_on, [], []
        self._came = threading.Condition()
        super().__init__(url)

    def _serve(self, near, far):
        while request := read_message(near):
            far.sendall(request)
            answer = read_message(far)
            if b"&offset=" not in request:
                near.sendall(answer)
                continue
            with self._came:
                number = len(self.offsets)
                self.requests.append(request)
                self.offsets.append(int(request.split(b"&offset=")[1].split(b" ")[0]))
                self._came.notify_all()
            if self._pass_on(number, answer, near) is False:
                return

    def await_fetches(self, count):
        """Wait until so many were asked for; returns whether they were."""
        with self._came:
            return self._came.wait_for(lambda: len(self.offsets) >= count, 10)


class Relay(Proxy):
    """Passes everything on, except what `swallows` picks: then the connection ends instead.

    It is called twice: with a request before that is passed on, and with its answer. If it gives bytes, those are the
    answer.
    """

    def __init__(self, url, swallows):
        self._swallows, self.swallowed = swallows, []
        super().__init__(url)

    def _serve(self, near, far):
        while request := read_message(near):
            if self._is_swallowed(near, request, None):
                return
            far.sendall(request)
            answer = read_message(far)
            if self._is_swallowed(near, request, answer):
                return
            near.sendall(answer)

    def _is_swallowed(self, near, request, answer):
        if instead := self._swallows(request, answer, len(self.swallowed)):
            self.swallowed.append(request)
            if isinstance(instead, bytes):
                near.sendall(instead)
        return instead


def swallowed(_answer, _near):
    """The batch is stored, and the client gets no answer."""
    return False


def whole(_number, answer, near):
    near.sendall(answer)


def garbage(_answer, near):
    near.sendall(b"\x00\x01 this is not HTTP\r\n\r\n")
    return False


def trickled(answer, near):
    for place in range(len(answer)):
        near.sendall(answer[place : place + 1])


SLOW_DOWN = b'{"error":"RESOURCE_EXHAUSTED","message":"slow down","status":429,"retry_after_ms":1}'


def busy(_request):
    """An answer that a server gives which has too much to do."""
    return b"HTTP/1.1 429 X\r\nContent-Length: %d\r\n\r\n%b" % (len(SLOW_DOWN), SLOW_DOWN)

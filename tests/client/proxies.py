"""Proxies that lose, damage or delay what passes between a client and a server, and servers that only pretend."""

import socket
import struct
import threading
from contextlib import contextmanager, suppress

from penstock.api.frames import COMMAND, HELLO, HelloReply, Limits, read_header
from penstock.api.frames import reply_head as head_of_reply
from penstock.api.wire import decode_command, encode_error, encode_reply, encode_value
from penstock.errors import TooManyRequests

LIMITS = Limits(
    frame_bytes_max=32 << 20,
    requests_in_flight_max=1000,
    poll_messages_max=10_000,
    poll_wait_ms_max=60_000,
    fetch_bytes_max=16 << 20,
    batch_bytes_max=16 << 20,
    value_bytes_max=10 << 20,
    key_bytes_max=1 << 20,
    headers_bytes_max=1 << 20,
)
HELLO_REPLY = HelloReply("test", 1, "test", "", LIMITS)


class Frame(bytes):
    """A request or an answer with its length. `command` is that of the request, None if it is none."""

    correlation = 0
    api_key = 0
    command = None

    @property
    def kind(self):
        return type(self.command).__name__


def frames_of(stream):
    """Frames until the end."""
    data = b""
    while True:
        while len(data) >= 4 and len(data) >= 4 + (size := struct.unpack(">i", data[:4])[0]):
            yield Frame(data[: 4 + size])
            data = data[4 + size :]
        try:
            piece = stream.recv(1 << 20)
        except OSError:
            return
        if not piece:
            return
        data += piece


def requests_of(stream):
    for frame in frames_of(stream):
        header, body = read_header(memoryview(frame)[4:])
        frame.correlation, frame.api_key = header.correlation, header.api_key
        if header.api_key == COMMAND:
            frame.command = decode_command(body).command
        yield frame


def reply_frame(correlation, pieces):
    body = b"".join(pieces)
    return head_of_reply(correlation, len(body)) + body


def reply_to(request, value):
    """The answer of a server that carried a command out."""
    return reply_frame(request.correlation, encode_reply(type(request.command), value))


def busy(frame):
    """An answer that a server gives which has too much to do."""
    error = TooManyRequests("requests at once", limit=1, retry_after_ms=1)
    return reply_frame(frame.correlation, [encode_error(error)])


class Link:
    """One connection through a proxy."""

    def __init__(self, near, far):
        self.near, self.far = near, far
        self.requests = {}
        self._sending = threading.Lock()

    def sendall(self, data):
        """To the client; whole answers do not mix."""
        with self._sending, suppress(OSError):
            self.near.sendall(data)

    def end(self):
        for stream in (self.near, self.far):
            with suppress(OSError):
                stream.shutdown(socket.SHUT_RDWR)


class Proxy:
    """Listens in front of a server. What `on_request` and `on_answer` return True for is not passed on.

    Both are called by a thread of their own if `is_special` says so of a request, so that they may take their time.
    """

    def __init__(self, url):
        self._port = int(url.rsplit(":", 1)[1])
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"penstock://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def is_special(self, _request):
        return False

    def on_request(self, _request, _link):
        return False

    def on_answer(self, _request, _answer, _link):
        return False

    def _accept(self):
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._connect, args=(near,), daemon=True).start()

    def _connect(self, near):
        with suppress(OSError), near, socket.create_connection(("127.0.0.1", self._port)) as far:
            link = Link(near, far)
            threading.Thread(target=self._pass_back, args=(link,), daemon=True).start()
            for request in requests_of(near):
                link.requests[request.correlation] = request
                if self.is_special(request):
                    self.ask(request, link)
                else:
                    far.sendall(request)
            link.end()

    def ask(self, request, link):
        """Pass a special request on, in a thread."""
        threading.Thread(target=self._ask, args=(request, link), daemon=True).start()

    def _ask(self, request, link):
        if not self.on_request(request, link):
            with suppress(OSError):
                link.far.sendall(request)

    def _pass_back(self, link):
        for answer in frames_of(link.far):
            (answer.correlation,) = struct.unpack_from(">i", answer, 4)
            request = link.requests.pop(answer.correlation)
            if not self.is_special(request):
                link.sendall(answer)
                continue
            threading.Thread(target=self._answer, args=(request, answer, link), daemon=True).start()
        link.end()

    def _answer(self, request, answer, link):
        if not self.on_answer(request, answer, link):
            link.sendall(answer)

    def close(self):
        # Without it the thread that accepts would go on to wait.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.close()


class BatchProxy(Proxy):
    """The answer to each batch is passed on, or given to the next of `tricks` with the link.

    A trick that returns False ends the connection.

    `before` is called with each batch before it is passed on; if it gives bytes, they are the answer.
    """

    def __init__(self, url, *tricks, before=None):
        self.tricks, self.seen = [*tricks], []
        self._before = before or (lambda _request: None)
        super().__init__(url)

    def is_special(self, request):
        return request.kind == "PublishBatch"

    def on_request(self, request, link):
        answer = self._before(request)
        if answer is not None:
            self._finish(request, Frame(answer), link)
        return answer is not None

    def on_answer(self, request, answer, link):
        self._finish(request, answer, link)
        return True

    def _finish(self, request, answer, link):
        answer.correlation = request.correlation
        self.seen.append(request)
        if not self.tricks:
            link.sendall(answer)
        elif self.tricks.pop(0)(answer, link) is False:
            link.end()


class FetchProxy(Proxy):
    """`pass_on` gets the number of a fetch (from 0), its answer and the link. False ends the connection."""

    def __init__(self, url, pass_on):
        self._pass_on, self.offsets, self.requests = pass_on, [], []
        self._came = threading.Condition()
        super().__init__(url)

    def is_special(self, request):
        return request.kind == "Fetch"

    def on_answer(self, request, answer, link):
        with self._came:
            number = len(self.offsets)
            self.requests.append(request)
            self.offsets.append(request.command.start.value)
            self._came.notify_all()
        answer.correlation = request.correlation
        if self._pass_on(number, answer, link) is False:
            link.end()
        return True

    def await_fetches(self, count):
        """Wait until so many were asked for; returns whether they were."""
        with self._came:
            return self._came.wait_for(lambda: len(self.offsets) >= count, 120)


class Relay(Proxy):
    """Passes everything on, except what `swallows` picks: then the connection ends instead.

    It is called twice: with a request before that is passed on, and with its answer. If it gives a function, that makes
    bytes of the request, which are the answer.
    """

    def __init__(self, url, swallows):
        self._swallows, self.swallowed = swallows, []
        super().__init__(url)

    def is_special(self, request):
        return request.command is not None

    def ask(self, request, link):
        # Here and now: of two that a client has under way the server must not get the second one first.
        self._ask(request, link)

    def on_request(self, request, link):
        return self._is_swallowed(request, None, link)

    def on_answer(self, request, answer, link):
        return self._is_swallowed(request, answer, link)

    def _is_swallowed(self, request, answer, link):
        instead = self._swallows(request, answer, len(self.swallowed))
        if not instead:
            return False
        self.swallowed.append(request)
        if callable(instead):
            link.sendall(instead(request))
        link.end()
        return True


def swallowed(_answer, _link):
    """The batch is stored, and the client gets no answer."""
    return False


def whole(_number, answer, link):
    link.sendall(answer)


def garbage(_answer, link):
    link.sendall(b"\xff\x01 this is no frame")
    return False


def trickled(answer, link):
    for place in range(len(answer)):
        link.near.sendall(answer[place : place + 1])


@contextmanager
def fake(*scripts):
    """A server that says hello, reads one request and does what the next script says; the last one is repeated.

    A script makes bytes of the request; None says nothing until the client leaves. `asked` has the requests. The
    connection ends then, but not after `busy`: a client that has its reply may send the next request before the end
    reaches it, and that request would be lost without having been asked.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    asked, streams = [], []

    def serve():
        while True:
            try:
                stream, _ = listener.accept()
            except OSError:
                return
            streams.append(stream)
            with stream, suppress(OSError):
                for request in requests_of(stream):
                    if request.api_key == HELLO:
                        hello = encode_value(HELLO_REPLY)
                        stream.sendall(reply_frame(request.correlation, hello))
                        continue
                    asked.append(request)
                    script = scripts[min(len(asked), len(scripts)) - 1]
                    if script is None:
                        stream.recv(1)
                    else:
                        stream.sendall(script(request))
                    if script is not busy:
                        break

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"penstock://127.0.0.1:{listener.getsockname()[1]}", asked
    finally:
        # Also those of clients whose loop waits for us here.
        for one in (listener, *streams):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()

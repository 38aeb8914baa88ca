"""Servers that come and go, and a wire on which answers get lost."""

import re
import select
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress


def until(found, seconds=30):
    """Wait for a condition; what it gave."""
    end = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)
    return value


class Server:
    """A broker process that keeps its port and its data from one life to the next."""

    def __init__(self, data, *words):
        self.data, self.words, self.port = data, words, 0
        self.process, self.is_over = None, False
        self._one_at_a_time = threading.Lock()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def restart(self, pause_s=0.2):
        """Dead for a moment, and there again."""
        with self._one_at_a_time:
            if not self.is_over:
                self.kill()
                time.sleep(pause_s)
                self.start()

    def end(self):
        with self._one_at_a_time:
            self.is_over = True
            self.kill()

    def start(self):
        command = [sys.executable, "-m", "penstock", "serve", "--data-dir", str(self.data)]
        words = ["--port", str(self.port), *self.words]
        said = self.data.with_name("said.txt")
        with said.open("wb") as stream:
            self.process = subprocess.Popen([*command, *words], stderr=stream)
        listens = re.compile(r"listens on http://\S+:(\d+)\n")
        self.port = int(until(lambda: listens.search(said.read_text()))[1])

    def kill(self):
        self.process.kill()
        self.process.wait()


@contextmanager
def restartable(data, *words):
    server = Server(data, *words)
    server.start()
    try:
        yield server
    finally:
        server.end()


class Relay:
    """Passes everything on to a server, except what `swallows` picks: then the connection ends instead.

    It is asked twice: with a request before that is passed on, and with its answer. If it gives bytes, those are the
    answer.
    """

    def __init__(self, url, swallows):
        self._port, self._swallows = int(url.rsplit(":", 1)[1]), swallows
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.swallowed = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._forward, args=(near,), daemon=True).start()

    def _forward(self, near):
        with suppress(OSError), near, socket.create_connection(("127.0.0.1", self._port)) as far:
            asked = b""
            while True:
                ready, _, _ = select.select([near, far], [], [])
                if near in ready:
                    asked = near.recv(1 << 20)
                    if not asked or self._is_swallowed(near, asked, None):
                        return
                    far.sendall(asked)
                if far in ready:
                    said = far.recv(1 << 20)
                    if not said or self._is_swallowed(near, asked, said):
                        return
                    near.sendall(said)

    def _is_swallowed(self, near, asked, said):
        if instead := self._swallows(asked, said, len(self.swallowed)):
            self.swallowed.append(asked)
            if isinstance(instead, bytes):
                near.sendall(instead)
        return instead

    def close(self):
        self._listener.close()

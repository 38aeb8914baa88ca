"""A way to the broker that breaks when a test says so."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit


class Proxy:
    """Passes bytes to a broker and back. `cut_after` answers' bytes it drops every connection, `times` times.

    If it `is_leaving`, it closes its port after the first of them.
    """

    def __init__(self, broker: str) -> None:
        parts = urlsplit(broker)
        assert parts.hostname is not None
        assert parts.port is not None
        self._target = (parts.hostname, parts.port)
        self._door = socket.create_server(("127.0.0.1", 0))
        self.url = f"penstock://127.0.0.1:{self._door.getsockname()[1]}"
        self.cut_after: int | None = None
        self.times = 0
        self.is_leaving = self.is_away = False
        self.cuts = 0
        self._passed = 0
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._door.accept()
            except OSError:
                return
            if self.is_away:
                near.close()
                continue
            far = socket.create_connection(self._target)
            self._open += [near, far]
            threading.Thread(target=self._pass, args=(near, far), daemon=True).start()
            threading.Thread(target=self._pass_back, args=(far, near), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(65536):
                sink.sendall(piece)
        self._close(source, sink)

    def _pass_back(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(4096):
                self._passed += len(piece)
                if self.times and self.cut_after is not None and self._passed > self.cut_after:
                    self.times -= 1
                    self.cuts += 1
                    self._passed = 0
                    self.is_away = self.is_leaving
                    break
                sink.sendall(piece)
        self._close(source, sink)

    @staticmethod
    def _close(*sockets: socket.socket) -> None:
        for one in sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def leave(self) -> None:
        """End all connections, and every new one, from now on."""
        self.is_away = True
        self._close(*self._open)

    def close(self) -> None:
        self._close(self._door, *self._open)


@contextlib.contextmanager
def proxied(broker: str) -> Iterator[Proxy]:
    proxy = Proxy(broker)
    try:
        yield proxy
    finally:
        proxy.close()

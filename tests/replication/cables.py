"""A cable between two nodes that can be cut, in one direction or both: connections stand, and nothing comes through."""

import socket
import threading
from contextlib import suppress


class Cable:
    """Takes connections and passes their bytes on to a port of this machine."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        # Set while bytes pass: from the node that has dialled, and back to it.
        self.there, self.back = threading.Event(), threading.Event()
        self.heal()
        threading.Thread(target=self._accept, daemon=True).start()

    def heal(self) -> None:
        self.there.set()
        self.back.set()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                dialled, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(dialled,), daemon=True).start()

    def _connect(self, dialled: socket.socket) -> None:
        try:
            other = socket.create_connection(("127.0.0.1", self._target))
        except OSError:
            dialled.close()
            return
        with dialled, other:
            back = threading.Thread(target=_pass, args=(other, dialled, self.back), daemon=True)
            back.start()
            _pass(dialled, other, self.there)
            back.join()


def _pass(source: socket.socket, target: socket.socket, is_whole: threading.Event) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            is_whole.wait()
            target.sendall(data)
    is_whole.wait()
    for one in (source, target):
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)

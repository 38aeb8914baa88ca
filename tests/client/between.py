"""A wire between a client and a server on which a test decides how each answer to a fetch is passed on."""

import socket
import threading
from contextlib import suppress

from .meddler import read_message


class Between:
    """`pass_on` gets the number of a fetch (from 0), its answer and the client's stream. False ends the connection."""

    def __init__(self, url, pass_on):
        self._port, self._pass_on = int(url.rsplit(":", 1)[1]), pass_on
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.offsets = []
        self._came = threading.Condition()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near):
        with suppress(OSError), near, socket.create_connection(("127.0.0.1", self._port)) as far:
            while asked := read_message(near):
                far.sendall(asked)
                said = read_message(far)
                if b"messages?offset=" not in asked:
                    near.sendall(said)
                    continue
                with self._came:
                    number = len(self.offsets)
                    self.offsets.append(int(asked.split(b"offset=")[1].split(b"&")[0]))
                    self._came.notify_all()
                if self._pass_on(number, said, near) is False:
                    return

    def await_fetches(self, count):
        """Wait until so many were asked for; whether they were."""
        with self._came:
            return self._came.wait_for(lambda: len(self.offsets) >= count, 10)

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def whole(_number, said, near):
    near.sendall(said)

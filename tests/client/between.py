"""A wire between a client and a server on which a test decides how each answer to a fetch is passed on."""

import threading

from .meddler import Wire, read_message


class Between(Wire):
    """`pass_on` gets the number of a fetch (from 0), its answer and the client's stream. False ends the connection."""

    def __init__(self, url, pass_on):
        self._pass_on, self.offsets, self.asked = pass_on, [], []
        self._came = threading.Condition()
        super().__init__(url)

    def _serve(self, near, far):
        while asked := read_message(near):
            far.sendall(asked)
            said = read_message(far)
            if b"&offset=" not in asked:
                near.sendall(said)
                continue
            with self._came:
                number = len(self.offsets)
                self.asked.append(asked)
                self.offsets.append(int(asked.split(b"&offset=")[1].split(b" ")[0]))
                self._came.notify_all()
            if self._pass_on(number, said, near) is False:
                return

    def await_fetches(self, count):
        """Wait until so many were asked for; whether they were."""
        with self._came:
            return self._came.wait_for(lambda: len(self.offsets) >= count, 10)


def whole(_number, said, near):
    near.sendall(said)

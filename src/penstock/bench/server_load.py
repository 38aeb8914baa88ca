"""Load for a server, from a process of its own: connections that send the same request again and again.

    python -m penstock.bench.server_load PORT CONNECTIONS SECONDS < request

Prints one JSON object: requests answered, how many of them with success, and seconds. As lean as Python gets, so that
the server is what is measured.
"""

import asyncio
import json
import re
import sys
import time
from typing import Any

_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
_HEAD_END = b"\r\n\r\n"


class Client(asyncio.Protocol):
    """Sends the next request when the answer to the last one is complete."""

    def __init__(self, request: bytes) -> None:
        self.request = request
        self.answered = self.good = 0
        self.is_over = False
        self._missing = 0
        self._head = b""
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        if not self._missing:
            self._head += data
            end = self._head.find(_HEAD_END)
            if end < 0:
                return
            found = _LENGTH.search(self._head, 0, end)
            size = int(found[1]) if found else 0
            self._missing = size + end + len(_HEAD_END) - len(self._head)
            self.good += self._head.startswith(b"HTTP/1.1 2")
            self._head = b""
        else:
            self._missing -= len(data)
        if self._missing <= 0:
            self._missing = 0
            self.answered += 1
            if not self.is_over:
                self._transport.write(self.request)

    def close(self) -> None:
        self.is_over = True
        self._transport.close()


async def drive(port: int, connections: int, seconds: float, request: bytes) -> dict[str, float]:
    loop = asyncio.get_running_loop()
    clients: list[Client] = []
    for _ in range(connections):
        _, client = await loop.create_connection(lambda: Client(request), "127.0.0.1", port)
        clients.append(client)
    before = sum(one.answered for one in clients)
    started = time.perf_counter()
    await asyncio.sleep(seconds)
    answered = sum(one.answered for one in clients) - before
    elapsed = time.perf_counter() - started
    good = sum(one.good for one in clients)
    for client in clients:
        client.close()
    return {"answered": answered, "good": min(good, answered), "seconds": elapsed}


def main() -> None:
    import uvloop

    from ..server.http.serving import raise_descriptor_limit

    raise_descriptor_limit()
    port, connections, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    request = sys.stdin.buffer.read()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        result = runner.run(drive(port, connections, seconds, request))
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()

"""Load for a server, from a process of its own: connections that send the same request again and again.

    python -m bench.server_load PORT CONNECTIONS SECONDS < request

Prints one JSON object: requests answered, how many of them with success, how many with 429 or 503, and seconds. As lean
as Python gets, so that the server is what is measured. A client that is refused comes back after `Retry-After`.
"""

import asyncio
import json
import re
import sys
import time
from collections.abc import Sequence
from typing import Any

_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
_RETRY_AFTER = re.compile(rb"retry-after: (\d+)", re.IGNORECASE)
_NAMES = ("answered", "good", "refused")
_HEAD_END = b"\r\n\r\n"


class Client(asyncio.Protocol):
    """Sends the next request when the answer to the last one is complete."""

    def __init__(self, request: bytes) -> None:
        self.request = request
        self.answered = self.good = self.refused = 0
        # What the answer that is coming in says; it counts when it is here, or the last may count by half.
        self._is_good = self._is_refused = False
        self._pause_s = 0.0
        self.is_over = False
        self._missing = 0
        self._head = b""
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def start(self) -> None:
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
            self._judge(end)
            self._head = b""
        else:
            self._missing -= len(data)
        if self._missing <= 0:
            self._missing = 0
            self.answered += 1
            self.good += self._is_good
            self.refused += self._is_refused
            self._go_on()

    def _judge(self, end: int) -> None:
        self._is_good = self._head.startswith(b"HTTP/1.1 2")
        self._is_refused = self._head.startswith((b"HTTP/1.1 429", b"HTTP/1.1 503"))
        if self._is_refused:
            found = _RETRY_AFTER.search(self._head, 0, end)
            assert found is not None, "a refusal says when to come back"
            self._pause_s = float(found[1])

    def _go_on(self) -> None:
        if self._pause_s:
            asyncio.get_running_loop().call_later(self._pause_s, self._go_on)
            self._pause_s = 0.0
        elif not self.is_over:
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
    # All are connected before the first one sends: a server that is busy takes connections late.
    for client in clients:
        client.start()
    before = _counts(clients)
    started = time.perf_counter()
    await asyncio.sleep(seconds)
    counts = [now - then for now, then in zip(_counts(clients), before, strict=True)]
    elapsed = time.perf_counter() - started
    for client in clients:
        client.close()
    return {**dict(zip(_NAMES, counts, strict=True)), "seconds": elapsed}


def _counts(clients: Sequence[Client]) -> list[int]:
    return [sum(getattr(one, name) for one in clients) for name in _NAMES]


def main() -> None:
    import uvloop

    from penstock.server.serving import raise_descriptor_limit

    raise_descriptor_limit()
    port, connections, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    request = sys.stdin.buffer.read()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        result = runner.run(drive(port, connections, seconds, request))
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()

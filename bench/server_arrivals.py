"""Arrivals at a server, from a process of its own: requests that come on a schedule, whatever was answered before.

    python -m bench.server_arrivals PORT CONNECTIONS PER_S SECONDS < request

Every arrival takes the connection that has been free for longest. Without a free one, because a request waits on each,
it is counted as `unsent`. Arrivals ignore `Retry-After`: they stand for other clients each time. Prints one JSON
object of counts; `p50_ms` and `p99_ms` are how long a success took from its place in the schedule. To those that were
sent and neither answered nor lost the server had not said anything at the end.
"""

import asyncio
import json
import re
import sys
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

_TICK_S = 0.001
_SETTLE_S = 1.0
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
_HEAD_END = b"\r\n\r\n"


@dataclass(slots=True)
class Counts:
    """Counts of arrivals by outcome."""

    sent: int = 0
    unsent: int = 0
    good: int = 0
    refused: int = 0
    other: int = 0
    lost: int = 0
    late_s: list[float] = field(default_factory=list)


class Connection(asyncio.Protocol):
    """One connection, with the due time of each of its requests."""

    def __init__(self, crowd: "ArrivalLoad") -> None:
        self.crowd, self.due = crowd, deque[float]()
        self._received = b""
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.crowd.free.append(self)

    def data_received(self, data: bytes) -> None:
        received = self._received + data
        while (end := received.find(_HEAD_END)) >= 0:
            found = _LENGTH.search(received, 0, end)
            end += len(_HEAD_END) + (int(found[1]) if found else 0)
            if len(received) < end:
                break
            self._answered(received[9:12])
            received = received[end:]
        self._received = received

    def connection_lost(self, exc: Exception | None) -> None:
        self.crowd.lose(self)

    def send(self, due: float) -> None:
        self.due.append(due)
        self.transport.write(self.crowd.request)

    def _answered(self, status: bytes) -> None:
        self.crowd.count(status, time.perf_counter() - self.due.popleft())
        if not self.due:
            self.crowd.free.append(self)


class ArrivalLoad:
    """All connections, and the counts of their answers."""

    def __init__(self, port: int, request: bytes) -> None:
        self.port, self.request = port, request
        self.counts = Counts()
        self.free: deque[Connection] = deque()
        self.busy: set[Connection] = set()
        self.is_over = False
        self._coming: set[asyncio.Task[None]] = set()

    async def connect(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            _, line = await loop.create_connection(
                partial(Connection, self), "127.0.0.1", self.port
            )
        except OSError:
            return
        self.busy.add(line)

    def arrive(self, due: float) -> None:
        """Send one more request."""
        while self.free and self.free[0].transport.is_closing():
            self.free.popleft()
        if self.free:
            self.counts.sent += 1
            self.free.popleft().send(due)
        else:
            self.counts.unsent += 1

    def count(self, status: bytes, late_s: float) -> None:
        counts = self.counts
        if status.startswith(b"2"):
            counts.good += 1
            counts.late_s.append(late_s)
        elif status in {b"429", b"503"}:
            counts.refused += 1
        else:
            counts.other += 1

    def lose(self, line: Connection) -> None:
        """Replace a closed connection by a new one."""
        self.counts.lost += len(line.due)
        self.busy.discard(line)
        if line in self.free:
            self.free.remove(line)
        if not self.is_over:
            task = asyncio.get_running_loop().create_task(self.connect())
            self._coming.add(task)
            task.add_done_callback(self._coming.discard)


async def drive(
    port: int, connections: int, per_s: float, seconds: float, request: bytes
) -> dict[str, float]:
    crowd = ArrivalLoad(port, request)
    for _ in range(connections):
        await crowd.connect()
    # The system lets clients in before the server does.
    await asyncio.sleep(_SETTLE_S)
    started = time.perf_counter()
    sent = 0
    while (elapsed := time.perf_counter() - started) < seconds:
        while sent < elapsed * per_s:
            crowd.arrive(started + sent / per_s)
            sent += 1
        await asyncio.sleep(_TICK_S)
    counts = crowd.counts
    found = {
        name: float(getattr(counts, name))
        for name in ("sent", "unsent", "good", "refused", "other", "lost")
    }
    # Later answers were not in time; they only show that the server still works.
    crowd.is_over = True
    for line in list(crowd.busy):
        line.transport.abort()
    late = sorted(counts.late_s) or [0.0]
    return {**found, "seconds": elapsed, **dict(_quantiles(late))}


def _quantiles(late_s: list[float]) -> Iterable[tuple[str, float]]:
    for percent in (50, 99):
        place = min(len(late_s) - 1, len(late_s) * percent // 100)
        yield f"p{percent}_ms", late_s[place] * 1000


def main() -> None:
    import uvloop

    from penstock.server.serving import raise_descriptor_limit

    raise_descriptor_limit()
    port, connections = int(sys.argv[1]), int(sys.argv[2])
    per_s, seconds = float(sys.argv[3]), float(sys.argv[4])
    request = sys.stdin.buffer.read()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        result = runner.run(drive(port, connections, per_s, seconds, request))
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()

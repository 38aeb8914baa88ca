"""What a latency cannot go below on this machine at this moment: a bare round trip, and a bare sync.

    python -m bench.floors        an echo server on uvloop, which says on stdout where it listens

A case takes a turn of the floors beside each of its own turns, with the bytes of its own request. As multiples of the
floors latencies of different machines and hours compare.
"""

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from . import ROOT
from .measure import Quantiles, least_us

TRIPS = 500
SYNCS = 100
_RECEIVED_BYTES = 1 << 16


class FloorTimes(NamedTuple):
    """p50 and p99 in microseconds, the best of the turns."""

    echo: Quantiles
    fsync: Quantiles

    def beside(self, value_us: float, place: int = 0) -> dict[str, float]:
        """Returns the fields of a case's settings: both floors, and the value as multiples of them.

        `place` says which quantile the value is: 0 is p50, 1 is p99.
        """
        echo, fsync = self.echo[place], self.fsync[place]
        return {
            "floor_echo": round(echo, 1),
            "floor_fsync": round(fsync, 1),
            "of_floor_echo": round(value_us / echo, 2),
            "of_floor_fsync": round(value_us / fsync, 2),
        }


class Floors:
    """An echo server and a file, measured in turns."""

    def __init__(self, request: bytes, connection: socket.socket, descriptor: int) -> None:
        self.request = request
        self._connection, self._descriptor = connection, descriptor
        self._echo: Quantiles | None = None
        self._fsync: Quantiles | None = None

    def take_turn(self) -> None:
        self._echo = least_us(self._echo, _times_ns(self._round_trip, TRIPS))
        self._fsync = least_us(self._fsync, _times_ns(self._sync, SYNCS))

    @property
    def times(self) -> FloorTimes:
        assert self._echo is not None, "a turn was taken"
        assert self._fsync is not None, "a turn was taken"
        return FloorTimes(self._echo, self._fsync)

    def _round_trip(self) -> None:
        self._connection.sendall(self.request)
        missing = len(self.request)
        while missing:
            missing -= len(self._connection.recv(_RECEIVED_BYTES))

    def _sync(self) -> None:
        os.write(self._descriptor, self.request)
        os.fdatasync(self._descriptor)


def _times_ns(work: Callable[[], None], count: int) -> list[int]:
    times = []
    for _ in range(count):
        started_ns = time.perf_counter_ns()
        work()
        times.append(time.perf_counter_ns() - started_ns)
    return times


@contextmanager
def echo_server() -> Iterator[int]:
    """Runs a bare echo server in a process of its own; its port."""
    server = subprocess.Popen(
        [sys.executable, "-m", "bench.floors"], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        assert server.stdout is not None, "it is a pipe"
        yield int(server.stdout.readline())
    finally:
        server.kill()
        server.communicate()


@contextmanager
def floors(request: bytes) -> Iterator[Floors]:
    """An echo server, and a file where the data of benches is."""
    with (
        echo_server() as port,
        socket.create_connection(("127.0.0.1", port)) as connection,
        tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory,
        (Path(directory) / "synced").open("wb", buffering=0) as file,
    ):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield Floors(request, connection, file.fileno())


class _Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


async def _serve() -> None:
    server = await asyncio.get_running_loop().create_server(_Echo, "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


def main() -> None:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve())


if __name__ == "__main__":
    main()

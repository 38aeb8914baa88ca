"""Clients that use the broker beside the request that is judged, from a process of their own.

    python -m dear.beside BINARY_PORT HTTP_PORT ECHO_PORT TOPIC

Each asks every 10 ms, or as soon as its last request was answered: one publishes, one asks GET /livez, and one asks a
bare echo server: what that one waits is the machine's doing, not the broker's. A line `begin` on stdin has them begin,
a line `end` has them stop after one more request each; then the longest wait of each is a JSON object on stdout. The
first line is the key that they show.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from select import select
from typing import NamedTuple

from dear.server import TOOLS, NotWell

EVERY_S = 0.01
_HEAD_END = b"\r\n\r\n"


class Stalls(NamedTuple):
    """The longest waits, in milliseconds: for a publish, for GET /livez, and for a bare echo."""

    publish: float
    livez: float
    floor: float

    @property
    def worst(self) -> float:
        return max(self.publish, self.livez)


class Beside:
    """The clients, as their process is told what to do."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def begin(self) -> None:
        self.say("begin")

    def end(self, patience_s: float) -> Stalls:
        """The longest waits since `begin`. NotWell: a request is still not answered."""
        self.say("end")
        assert self._process.stdout is not None, "it is a pipe"
        if not select([self._process.stdout], [], [], patience_s)[0]:
            raise NotWell(f"clients beside it were not answered for {patience_s:g} s")
        line = self._process.stdout.readline()
        if not line:
            raise NotWell("clients beside it lost their connections")
        return Stalls(**json.loads(line))

    def say(self, word: str) -> None:
        assert self._process.stdin is not None, "it is a pipe"
        try:
            self._process.stdin.write(f"{word}\n")
            self._process.stdin.flush()
        except OSError:
            raise NotWell("clients beside it lost their connections") from None


@contextmanager
def clients_beside(binary: int, http: int, echo: int, key: str, topic: str) -> Iterator[Beside]:
    ports = (str(binary), str(http), str(echo))
    process = subprocess.Popen(  # noqa: S603 - our own words
        [sys.executable, "-m", "dear.beside", *ports, topic],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=TOOLS,
    )
    beside = Beside(process)
    try:
        beside.say(key)
        yield beside
    finally:
        process.kill()
        process.communicate()


class _Asking:
    """One client. `worst_s` is its longest wait since `begin`."""

    def __init__(self, ask: Callable[[], Awaitable[None]]) -> None:
        self._ask = ask
        self.worst_s = 0.0

    async def run(self, ended: asyncio.Event) -> None:
        self.worst_s, is_last = 0.0, False
        while not is_last:
            # What is asked after the end was said sees a broker that is done with the request.
            is_last = ended.is_set()
            began_s = time.monotonic()
            await self._ask()
            took_s = time.monotonic() - began_s
            self.worst_s = max(self.worst_s, took_s)
            if took_s < EVERY_S:
                await asyncio.sleep(EVERY_S - took_s)


async def _publishing(port: int, key: str, topic: str) -> Callable[[], Awaitable[None]]:
    from penstock.api.frames import COMMAND, HELLO, Hello, request_frame
    from penstock.api.publish import Publish
    from penstock.api.wire import encode_command, encode_hello
    from penstock.model import Message

    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def exchange(frame: bytes) -> None:
        writer.write(frame)
        size = int.from_bytes(await reader.readexactly(4), "big")
        await reader.readexactly(size)

    await exchange(b"".join(request_frame(HELLO, 1, encode_hello(Hello("beside", key)))))
    command = Publish(topic, [Message(b"x" * 100)], 0)
    frame = b"".join(request_frame(COMMAND, 2, encode_command(command)))
    return lambda: exchange(frame)


async def _asking_livez(port: int) -> Callable[[], Awaitable[None]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def ask() -> None:
        writer.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        head = (await reader.readuntil(_HEAD_END)).lower()
        size = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        await reader.readexactly(size)

    return ask


async def _asking_echo(port: int) -> Callable[[], Awaitable[None]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def ask() -> None:
        writer.write(b"x" * 100)
        await reader.readexactly(100)

    return ask


async def _ask_beside(binary: int, http: int, echo: int, topic: str) -> None:
    words = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(words), sys.stdin)
    key = (await words.readline()).decode().strip()
    publish, floor = await _publishing(binary, key, topic), await _asking_echo(echo)
    while await words.readline():
        clients = {
            "publish": _Asking(publish),
            # The broker ends connections that were idle for long, while it is filled, say.
            "livez": _Asking(await _asking_livez(http)),
            "floor": _Asking(floor),
        }
        ended = asyncio.Event()
        running = asyncio.gather(*(client.run(ended) for client in clients.values()))
        await words.readline()
        ended.set()
        await running
        waits = {name: round(client.worst_s * 1000, 2) for name, client in clients.items()}
        sys.stdout.write(json.dumps(waits) + "\n")
        sys.stdout.flush()


def main(binary: str, http: str, echo: str, topic: str) -> None:
    # Clients of a broker that was killed have nothing to say.
    with suppress(OSError, EOFError):
        asyncio.run(_ask_beside(int(binary), int(http), int(echo), topic))


if __name__ == "__main__":
    main(*sys.argv[1:5])

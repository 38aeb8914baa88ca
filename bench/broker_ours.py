"""Our own broker at the same work as its peers, through the clients that users have."""

import asyncio
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import perf_counter_ns

from penstock.client import AsyncClient, Client, Delivered
from penstock.client.fetch import Fetched
from penstock.errors import AlreadyExists
from penstock.testing.server import running_server

from . import ROOT
from .broker_clients import Heard

DURABILITY = "acks=leader, fsync every second"
_POLLED = 10_000
_FETCH_BYTES = 4 << 20
_FETCH_MESSAGES = 1_000_000


class PenstockContender:
    """`Producer`, `fetch`, `Consumer` and `Worker`."""

    def __init__(self, port: int) -> None:
        self.client = Client(f"penstock://127.0.0.1:{port}")
        self._known: set[str] = set()

    def open(self, topic: str) -> None:
        if topic not in self._known:
            self._known.add(topic)
            with suppress(AlreadyExists):
                self.client.create_topic(topic, partitions=1)

    def remove(self, topic: str) -> None:
        """Delete the topic, so that the next turn can use its memory pages again."""
        self._known.discard(topic)
        self.client.delete_topic(topic)

    def publish(self, topic: str, values: Sequence[bytes], *, batch_bytes: int = 1 << 20) -> None:
        self.open(topic)
        with self.client.producer(topic, batch_bytes_max=batch_bytes) as producer:
            send = producer.send
            for value in values:
                send(value)

    def publish_one(self, topic: str, value: bytes) -> None:
        self.client.publish(topic, value)

    def consume(self, topic: str, count: int) -> None:
        touched = 0
        for fetched in self._fetches(topic, count):
            for message in fetched:
                touched += message.value is not None and message.key is None and message.offset >= 0
        assert touched == count, f"{touched} of {count} messages"

    def consume_arrow(self, topic: str, count: int) -> None:
        touched = sum(fetched.arrow().num_rows for fetched in self._ahead(topic))
        assert touched == count, f"{touched} of {count} messages"

    def _fetch(self, topic: str, offset: int) -> Fetched:
        return self.client.fetch(
            topic, 0, offset=offset, max_bytes=_FETCH_BYTES, limit=_FETCH_MESSAGES
        )

    def _fetches(self, topic: str, count: int) -> Iterator[Fetched]:
        offset = 0
        while offset < count:
            fetched = self._fetch(topic, offset)
            offset = fetched.next_offset
            yield fetched

    def _ahead(self, topic: str) -> Iterator[Fetched]:
        return self.client.fetches(topic, 0, offset=0)

    def fetch_ack(self, topic: str, count: int) -> None:
        done = 0
        with self.client.consumer(topic, "g") as consumer:
            while done < count:
                polled = consumer.poll(_POLLED, wait=5)
                for message in polled:
                    done += len(message.value or b"") > 0
                consumer.ack(polled)

    def fetch_ack_each(self, topic: str, count: int) -> None:
        done = 0

        def handle(message: Delivered) -> None:
            nonlocal done
            done += len(message.value or b"") > 0
            if done >= count:
                worker.stop()

        worker = self.client.worker(topic, "g", handle, max_poll=_POLLED)
        worker.run()

    def follow(self, topic: str, heard: Heard) -> None:
        """Read without a group, as other clients do where they can."""
        self.open(topic)
        offset = self.client.topic(topic).ends(0).latest
        while True:
            fetched = self.client.fetch(topic, 0, offset=offset, timeout=20)
            offset = fetched.next_offset
            if not all(heard(message.value or b"") for message in fetched):
                return

    def close(self) -> None:
        self.client.close()


async def publish_async(port: int, topic: str, values: Sequence[bytes], clock: list[int]) -> None:
    """Publish one by one through the asynchronous client; `clock` gets the time of each."""
    async with AsyncClient(f"penstock://127.0.0.1:{port}") as client:
        for value in values:
            started_ns = perf_counter_ns()
            await client.publish(topic, value)
            clock.append(perf_counter_ns() - started_ns)


def timed_async(port: int, topic: str, values: Sequence[bytes]) -> list[int]:
    clock: list[int] = []
    asyncio.run(publish_async(port, topic, values, clock))
    return clock


@contextmanager
def running_ours() -> Iterator[int]:
    """Returns the port of a Penstock broker on an empty directory."""
    data = Path(tempfile.mkdtemp(prefix="penstock-bench-ours-"))
    try:
        with running_server(data / "data", "--log-level", "error") as url:
            yield int(url.rsplit(":", 1)[1])
    finally:
        shutil.rmtree(data, ignore_errors=True)


@contextmanager
def following(name: str, port: int, topic: str, count: int) -> "Iterator[subprocess.Popen[str]]":
    """Runs a process that reads `count` messages with their send times, and prints how late each was."""
    command = [sys.executable, "-m", "bench.broker_follow", name, str(port), topic]
    process = subprocess.Popen(  # noqa: S603 - our own words
        [*command, str(count)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()

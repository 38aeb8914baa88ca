"""Measures a broker with a standby on the same machine: beside one alone that syncs always, and how fast it catches up.

All are processes of their own, and the two nodes talk over TLS. Both disks are one here, and the processor is
shared: on two machines the standby has its own.
"""

import os
import socket
import ssl
import statistics
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from penstock.client import Client, ClientSettings, RetryPolicy
from penstock.errors import PenstockError
from penstock.server.cluster_settings import ClusterSection
from penstock.server.standby.peer_tls import peer_contexts

from .fail_over import FEW, make_topics, measure_fail_over
from .floors import floors
from .measure import FULL, Effort
from .replication_nodes import Node, cluster_words, nodes, start_pair
from .report import Case, CaseResult, Unit, on_ratio, on_value

TOPIC = "bench"
BATCH_BYTES = 1 << 20
VALUE_BYTES = 1 << 10
CAUGHT_UP_BYTES, CAUGHT_UP_BYTES_QUICK = 512 << 20, 64 << 20
SWITCH_OVERS, SWITCH_OVERS_QUICK = 100, 6
PARTITIONS, PARTITIONS_QUICK = 1000, 100
_PATIENT = ClientSettings(retry=RetryPolicy(retries=10_000, backoff_ms=10, backoff_ms_max=20))
_MB = 1e6


def publish_rate(client: Client, seconds: float) -> float:
    """MB/s of batches of 1 MiB, one after the other, each on the disk, or on both, before the next."""
    values = [bytes(VALUE_BYTES)] * (BATCH_BYTES // VALUE_BYTES)
    client.publish_many(TOPIC, values, acks="all")
    sent, started_s = 0, time.perf_counter()
    while time.perf_counter() - started_s < seconds:
        client.publish_many(TOPIC, values, acks="all")
        sent += BATCH_BYTES
    return sent / (time.perf_counter() - started_s) / _MB


def publish_ms(client: Client, seconds: float) -> float:
    """The median time of one message that is on the disk, or on both."""
    times, started_s = [], time.perf_counter()
    while time.perf_counter() - started_s < seconds:
        before_s = time.perf_counter()
        client.publish(TOPIC, b"x" * 100, acks="all")
        times.append((time.perf_counter() - before_s) * 1000)
    return statistics.median(times)


def measure_pair(measure: Callable[[Client, float], float], effort: Effort = FULL) -> CaseResult:
    """A pair next to one node alone, in turns."""
    seconds = max(0.5, effort.turns * effort.turn_ms_min / 1000)
    with nodes() as (first, second, _), nodes() as (alone, _, _):
        start_pair(first, second)
        alone.start()
        found: dict[str, list[float]] = {"pair": [], "alone": []}
        with first.client() as both, alone.client() as one:
            for client in (both, one):
                client.create_topic(TOPIC, partitions=1, retention_bytes=1 << 30)
            for _ in range(3):
                found["pair"].append(measure(both, seconds))
                found["alone"].append(measure(one, seconds))
    pair, single = (statistics.median(found[name]) for name in ("pair", "alone"))
    return CaseResult(pair, single, settings={"seconds": seconds})


def measure_switch_over(effort: Effort = FULL, *, partitions: int = 0) -> CaseResult:
    """The longest time between two acknowledgements around a planned switch-over, for a client with both addresses.

    The 99th percentile; of fewer than 100 switch-overs that is the longest of all. With `partitions`, beside as many
    others, in which nothing is done, the median of a tenth as many.
    """
    count = SWITCH_OVERS if effort is FULL else SWITCH_OVERS_QUICK
    if partitions:
        count = SWITCH_OVERS // 10 if effort is FULL else 2
    with nodes() as (first, second, _), floors(b"x") as floor:
        start_pair(first, second)
        with first.client() as client:
            make_topics(client, partitions if effort is FULL else min(partitions, FEW))
        floor.take_turn()
        address = f"penstock://127.0.0.1:{first.binary},127.0.0.1:{second.binary}"
        with Client(address, settings=_PATIENT) as client, Producing(client) as producing:
            leader, other = first, second
            pauses = []
            for _ in range(count):
                producing.until_acknowledged(50)
                producing.pause_s = 0.0
                other.promote(cluster_words(other, leader, 2))
                producing.until_acknowledged(50)
                pauses.append(producing.pause_s * 1000)
                other.until_in_sync()
                leader, other = other, leader
    pauses.sort()
    worst, median = pauses[min(len(pauses) - 1, int(len(pauses) * 0.99))], statistics.median(pauses)
    settings = {"times": count, "median": median, "longest": pauses[-1], "partitions": partitions}
    floor_us = {"floor_fsync": round(floor.times.fsync[0], 1)}
    return CaseResult(median if partitions else worst, settings=settings | floor_us)


class Producing:
    """A thread that publishes one message after the other; `pause_s` is the longest time between two replies."""

    def __init__(self, client: Client) -> None:
        self.pause_s, self._count = 0.0, 0
        self.times_s: list[float] = []
        self._client, self._is_over = client, threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Producing":
        self._client.create_topic(TOPIC, partitions=1)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        last_s = time.perf_counter()
        while not self._is_over.is_set():
            try:
                self._client.publish(TOPIC, b"x", acks="all", idempotency_key=str(self._count))
            except PenstockError:
                continue  # Not known to be stored: once more, under the same key.
            now_s = time.perf_counter()
            self.times_s.append(now_s - last_s)
            self.pause_s, last_s = max(self.pause_s, now_s - last_s), now_s
            self._count += 1

    def until_acknowledged(self, more: int) -> None:
        wanted = self._count + more
        while self._count < wanted:
            if not self._thread.is_alive():
                raise RuntimeError("the producer has failed")
            time.sleep(0.001)


def measure_create(has_standby: bool, effort: Effort = FULL) -> CaseResult:
    """How long a topic of many partitions takes to be made, while a client publishes one message after the other.

    `publish_p99` is of these messages; `in_sync` is False if the standby was lost meanwhile.
    """
    count = PARTITIONS if effort is FULL else PARTITIONS_QUICK
    with nodes() as (first, second, directory):
        if has_standby:
            start_pair(first, second)
        else:
            first.start()
        floor = fsync_floor_ms(directory)
        with (
            first.client() as busy,
            first.client() as client,
            Producing(busy) as producing,
            Watching(first) as watching,
        ):
            producing.until_acknowledged(20)
            made_ms, *publish = timed(producing, lambda: create(client, count))
            deleted_ms, *beside = timed(producing, lambda: client.delete_topic("many"))
    return CaseResult(
        made_ms,
        floor,
        settings={
            "partitions": count,
            "publish_p99": publish[0],
            "publish_longest": publish[1],
            "in_sync": watching.least_in_sync == 1 + has_standby,
            "deleted": deleted_ms,
            "publish_p99_deleting": beside[0],
            "publish_longest_deleting": beside[1],
        },
    )


def create(client: Client, partitions: int) -> None:
    client.create_topic("many", partitions=partitions)


def timed(producing: Producing, work: Callable[[], None]) -> tuple[float, float, float]:
    """How long some work took, and of the publishes beside it and half a second on the 99th percentile and the longest,
    in ms: one that waits for all of the work is less than one in a hundred."""
    del producing.times_s[:]
    started_s = time.perf_counter()
    work()
    took_s = time.perf_counter() - started_s
    time.sleep(0.5)
    producing.until_acknowledged(1)
    times_s = sorted(producing.times_s)
    return took_s * 1000, times_s[int(len(times_s) * 0.99)] * 1000, times_s[-1] * 1000


def fsync_floor_ms(directory: Path) -> float:
    """The median of appends that are synced, one after the other."""
    times = []
    with (directory / "floor").open("ab") as file:
        for _ in range(100):
            started_s = time.perf_counter()
            file.write(b"x" * 100)
            file.flush()
            os.fsync(file.fileno())
            times.append((time.perf_counter() - started_s) * 1000)
    return statistics.median(times)


class Watching:
    """A thread that asks a node how many machines are in sync."""

    def __init__(self, node: Node) -> None:
        self.least_in_sync = 99
        self._node, self._is_over = node, threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Watching":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.wait(0.1):
            self.least_in_sync = min(
                self.least_in_sync, self._node.get("/cluster").get("in_sync", 1)
            )


def measure_catch_up(effort: Effort = FULL) -> CaseResult:
    """An empty standby beside a leader that has so much, next to a copy of its files over the same TLS."""
    total = CAUGHT_UP_BYTES if effort is FULL else CAUGHT_UP_BYTES_QUICK
    with nodes() as (first, second, directory):
        first.start(*cluster_words(first, second, 1), "--begin-cluster")
        values = [bytes(VALUE_BYTES)] * (BATCH_BYTES // VALUE_BYTES)
        with first.client() as client:
            client.create_topic(TOPIC, partitions=1)
            for _ in range(total // BATCH_BYTES):
                client.publish_many(TOPIC, values)
        second.start(*cluster_words(second, first, 1), "--follow", f"127.0.0.1:{first.peer}")
        second.until(lambda: second.get("/readyz")["received_bytes"] > 0)
        started_s = time.perf_counter()
        before = second.get("/readyz")["received_bytes"]
        first.until_in_sync()
        caught_up = total - before
        seconds = time.perf_counter() - started_s
        copied = copy_rate(directory, directory / "node-1" / "topics")
    return CaseResult(caught_up / seconds / _MB, copied, settings={"bytes": total})


def copy_rate(directory: Path, source: Path) -> float:
    """MB/s of all files below a directory through one TLS connection into another directory, synced at the end."""
    certs = directory / "certs"
    contexts = peer_contexts(
        ClusterSection(
            name="bench",
            ca_file=str(certs / "ca.pem"),
            cert_file=str(certs / "node-1.pem"),
            key_file=str(certs / "node-1-key.pem"),
        )
    )
    assert contexts is not None, "there are certificates"
    accepting, dialling = contexts
    total = sum(one.stat().st_size for one in source.rglob("*") if one.is_file())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        receiver = threading.Thread(target=_receive, args=(listener, accepting, directory / "copy"))
        receiver.start()
        started_s = time.perf_counter()
        with (
            socket.create_connection(listener.getsockname()[:2]) as plain,
            dialling.wrap_socket(plain) as sender,
        ):
            for path in source.rglob("*"):
                if path.is_file():
                    with path.open("rb") as file:
                        sender.sendfile(file)
        receiver.join()
        return total / (time.perf_counter() - started_s) / _MB


def _receive(listener: socket.socket, context: ssl.SSLContext, target: Path) -> None:
    plain, _ = listener.accept()
    with context.wrap_socket(plain, server_side=True) as reader, target.open("wb") as file:
        while data := reader.recv(1 << 20):
            file.write(data)
        file.flush()
        os.fsync(file.fileno())


CASES = (
    Case(
        name="publish",
        unit=Unit.MB_PER_S,
        measure=partial(measure_pair, publish_rate),
        goal=on_ratio(">=0.5"),
        baseline="one node with fsync always",
    ),
    Case(
        name="one",
        unit=Unit.MS,
        measure=partial(measure_pair, publish_ms),
        goal=on_ratio(">=0.33"),
        baseline="one node with fsync always",
    ),
    Case(
        name="catch-up",
        unit=Unit.MB_PER_S,
        measure=measure_catch_up,
        goal=on_ratio(">=0.3"),
        baseline="a copy of the files over the same TLS",
    ),
    Case(
        name="switch-over",
        unit=Unit.MS,
        measure=measure_switch_over,
        goal=on_value("<1000"),
    ),
    Case(
        name="switch-over-1000",
        unit=Unit.MS,
        measure=partial(measure_switch_over, partitions=1000),
        goal=on_value("<=700"),
    ),
    Case(
        name="fail-over-200",
        unit=Unit.MS,
        measure=partial(measure_fail_over, partitions=200),
        goal=on_value("<=1000"),
    ),
    Case(
        name="fail-over-1000",
        unit=Unit.MS,
        measure=partial(measure_fail_over, partitions=1000),
        goal=on_value("<=2000"),
    ),
    Case(
        name="fail-over-1000-data",
        unit=Unit.MS,
        measure=partial(measure_fail_over, partitions=1000, messages=50_000),
        goal=on_ratio(">=0.77"),
        baseline="the same pair before the messages",
    ),
    Case(
        name="create-1000",
        unit=Unit.MS,
        measure=partial(measure_create, True),
        goal=on_value("<=2000"),
        baseline="an append with its fsync, beside",
    ),
    Case(
        name="create-1000-alone",
        unit=Unit.MS,
        measure=partial(measure_create, False),
        goal=on_value("<=2000"),
        baseline="an append with its fsync, beside",
    ),
)

"""Long runs that watch memory, files, tasks and threads. JSON on stdout; exit code 1 if something grows.

    python tools/soak.py server [--minutes 30] [--rate 1000]     a broker process, two groups, nacks, delays, retention
    python tools/soak.py library [--messages 2000000]            a work queue in this process, at full speed
    python tools/soak.py partitions [--partitions 1000]          a broker in this process with many busy partitions

Samples are taken all along. The verdict fits a line through those after the first tenth: over the rest of the run
resident memory, and what malloc has given out, may not grow by more than 1 %, and files, tasks and threads by no more
than a few. `partitions` also wants resident memory to stay within 300 MB.
"""

import argparse
import gc
import json
import re
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import penstock
from penstock.client import Client
from penstock.runtime.malloc import malloc_bytes
from penstock.testing.server import running_server

GROWTH_MAX = 0.01
# The threads of a pool come one by one, and a file of a log is opened or closed meanwhile.
HANDLES_MAX = 8
RESIDENT_BYTES_MAX = 300_000_000
SAMPLES = 200
MIB = 1 << 20
NACKED_EVERY = 100
DELAYED_EVERY = 20
VALUE = b"x" * 200

Sample = dict[str, float]
MEMORY = ("resident_bytes", "malloc_bytes")
HANDLES = ("open_files", "threads", "tasks")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    commands = parser.add_subparsers(dest="soak", required=True)
    server = commands.add_parser("server")
    server.add_argument("--minutes", type=float, default=30)
    server.add_argument("--rate", type=int, default=1000, help="messages a second")
    library = commands.add_parser("library")
    library.add_argument("--messages", type=int, default=2_000_000)
    partitions = commands.add_parser("partitions")
    partitions.add_argument("--partitions", type=int, default=1000)
    partitions.add_argument("--rounds", type=int, default=120)
    settings = vars(parser.parse_args())
    soaks = {"server": soak_server, "library": soak_library, "partitions": soak_partitions}
    samples, facts = soaks[settings["soak"]](settings)
    found = verdict(samples)
    if settings["soak"] == "partitions":
        found["is_flat"] &= facts["resident_bytes_max"] <= RESIDENT_BYTES_MAX
    json.dump({"settings": settings, **facts, "verdict": found, "samples": samples}, sys.stdout)
    sys.stdout.write("\n")
    return 0 if found["is_flat"] else 1


# What is seen of a process.


def own_figures() -> Sample:
    """Returns the figures of this process, after a garbage collection."""
    gc.collect()
    status = Path("/proc/self/status").read_text()
    found = {
        "resident_bytes": 1024.0 * int(re.findall(r"VmRSS:\s+(\d+)", status)[0]),
        "open_files": float(sum(1 for _ in Path("/proc/self/fd").iterdir())),
        "threads": float(threading.active_count()),
    }
    in_use = malloc_bytes()
    return found if in_use is None else {**found, "malloc_bytes": float(in_use)}


def server_figures(address: str) -> Sample:
    """Returns the figures of a broker, from its metrics."""
    names = {
        "resident_bytes": "process_resident_memory_bytes",
        "malloc_bytes": "process_malloc_bytes",
        "open_files": "process_open_fds",
        "threads": "process_threads",
        "tasks": "penstock_tasks",
        "cache_bytes": "penstock_cache_bytes",
        "cpu_s": "process_cpu_seconds_total",
    }
    with urllib.request.urlopen(f"{address}/metrics", timeout=60) as reply:  # noqa: S310 - our own broker
        text = reply.read().decode()
    found = {key: re.search(rf"^{name} (\S+)$", text, re.MULTILINE) for key, name in names.items()}
    return {key: float(one[1]) for key, one in found.items() if one is not None}


def verdict(samples: list[Sample]) -> dict[str, Any]:
    """Returns how much each figure grows from the first tenth to the end, by linear regression."""
    later = samples[len(samples) // 10 :]
    growth, handles = {}, {}
    for name in (*MEMORY, *HANDLES):
        found = [one[name] for one in later if name in one]
        if not found:
            continue
        risen = slope([one["at"] for one in later], found) * (later[-1]["at"] - later[0]["at"])
        if name in MEMORY:
            growth[name] = round(risen / (sum(found) / len(found)), 5)
        else:
            handles[name] = round(risen, 2)
    is_flat = all(one <= GROWTH_MAX for one in growth.values())
    is_flat &= all(one <= HANDLES_MAX for one in handles.values())
    return {"is_flat": is_flat, "growth": growth, "handles_more": handles}


def slope(times: list[float], values: list[float]) -> float:
    """Returns the slope of the least-squares line."""
    mean_time, mean = sum(times) / len(times), sum(values) / len(values)
    spread = sum((one - mean_time) ** 2 for one in times)
    if not spread:
        return 0
    pairs = zip(times, values, strict=True)
    return sum((one - mean_time) * (value - mean) for one, value in pairs) / spread


@contextmanager
def scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="penstock-soak-") as directory:
        yield Path(directory) / "data"


# The soaks. Each returns its samples, by seconds or by messages, and what else is worth knowing.


def soak_server(settings: dict[str, Any]) -> tuple[list[Sample], dict[str, Any]]:
    """Soak a broker process that gets messages at a steady rate for two groups."""
    duration_s, rate = settings["minutes"] * 60, settings["rate"]
    done = threading.Event()
    counts = {"published": 0, "delayed": 0, "acked": 0, "nacked": 0}
    failures: list[BaseException] = []
    config: dict[str, Any] = {
        "retention_bytes": 8 * MIB,
        "segment_size_bytes": 2 * MIB,
        "backoff_base_ms": 100,
    }
    with scratch() as data, running_server(data) as address:
        with Client(address) as client:
            client.create_topic("soak", partitions=3, **config)
            http = client.server().http
        users: list[Callable[[], None]] = [
            lambda: _publish(address, rate, done, counts),
            lambda: _consume(address, "first", done, counts),
            lambda: _consume(address, "second", done, counts),
            lambda: _retain(address, done),
        ]
        threads = [threading.Thread(target=_guarded, args=(one, done, failures)) for one in users]
        for thread in threads:
            thread.start()
        began_s = time.monotonic()
        samples: list[Sample] = []
        while (at := time.monotonic() - began_s) < duration_s and not done.is_set():
            samples.append({"at": round(at, 1), **server_figures(http)})
            done.wait(min(10, duration_s / SAMPLES))
        done.set()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]
    return samples, {"unit": "s", "counts": counts}


def _guarded(use: Callable[[], None], done: threading.Event, failures: list[BaseException]) -> None:
    """Run a client; its failure ends the run."""
    try:
        use()
    except BaseException as error:
        failures.append(error)
        done.set()
        raise


def _publish(address: str, rate: int, done: threading.Event, counts: dict[str, int]) -> None:
    """Publish so many messages a second, some of them with a delay."""
    turns_s = 20
    together = max(1, rate // turns_s)
    with Client(address) as client:
        at_s = time.monotonic()
        while not done.is_set():
            delayed = together // DELAYED_EVERY
            client.publish_many("soak", [VALUE] * (together - delayed))
            for number in range(delayed):
                client.publish("soak", VALUE, delay=1 + number % 3)
            counts["published"] += together
            counts["delayed"] += delayed
            # Messages that a busy machine could not send in time are not sent later.
            at_s = max(at_s + together / rate, time.monotonic() - 1)
            done.wait(max(0, at_s - time.monotonic()))


def _consume(address: str, group: str, done: threading.Event, counts: dict[str, int]) -> None:
    """Consume, and ack all but one message of a hundred, which is delivered again."""
    seen = 0
    with Client(address) as client:
        while not done.is_set():
            held = client.poll("soak", group, limit=500, timeout=1)
            failed = [one for one in held if (seen + one.offset) % NACKED_EVERY == 0]
            passed = [one for one in held if (seen + one.offset) % NACKED_EVERY]
            seen += 1
            if passed:
                client.ack(passed)
            if failed:
                client.nack(failed, "try again")
            counts["acked"] += len(passed)
            counts["nacked"] += len(failed)


def _retain(address: str, done: threading.Event) -> None:
    """Run retention more often than every five minutes, so that a run of ten minutes shows it."""
    with Client(address) as client:
        while not done.wait(10):
            client.compact_topic("soak")


def soak_library(settings: dict[str, Any]) -> tuple[list[Sample], dict[str, Any]]:
    """Soak a work queue: put one by one, take a hundred, ack all but one of them, which is delivered again."""
    total, samples = settings["messages"], list[Sample]()
    began_s, put, acked = time.monotonic(), 0, 0
    with scratch() as data:
        sizes: dict[str, Any] = {"segment_size_bytes": 4 * MIB, "retention_hours": 0.001}
        with penstock.open(data, auto_ack=False, **sizes) as queue:
            while acked < total:
                if put < total:
                    for _ in range(100):
                        queue.put(VALUE)
                    put += 100
                held = queue.get_many(100)
                failed = [one for one in held if one.id % NACKED_EVERY == 0 and one.attempts == 1]
                passed = [one for one in held if one.id % NACKED_EVERY or one.attempts > 1]
                if passed:
                    queue.ack(passed)
                if failed:
                    queue.nack(failed, "try again", delay=0)
                acked += len(passed)
                if acked >= len(samples) * total / SAMPLES:
                    queue.compact()
                    samples.append({"at": float(acked), **own_figures()})
    return samples, {"unit": "messages", "seconds": round(time.monotonic() - began_s, 1)}


def soak_partitions(settings: dict[str, Any]) -> tuple[list[Sample], dict[str, Any]]:
    """Soak topics with a hundred partitions each: in each round every partition gets messages, read by two groups."""
    count, rounds = settings["partitions"], settings["rounds"]
    topics = [f"t{number}" for number in range(max(1, count // 100))]
    each = count // len(topics)
    samples: list[Sample] = []
    began_s, consumed = time.monotonic(), 0
    with scratch() as data, penstock.Broker(data) as broker:
        for topic in topics:
            config: dict[str, Any] = {"retention_bytes": 4 * MIB, "segment_size_bytes": MIB}
            broker.create_topic(topic, partitions=each, max_in_flight=100_000, **config)
        for number in range(rounds):
            for topic in topics:
                for partition in range(each):
                    broker.publish_many(topic, [VALUE] * 10, partition=partition)
                for group in ("first", "second"):
                    while held := broker.poll(topic, group, limit=1000):
                        broker.ack(held)
                        consumed += len(held)
            if number % 20 == 0:
                broker.retain()
            samples.append({"at": float(number), **own_figures()})
        largest = max(one["resident_bytes"] for one in samples)
        facts = {"unit": "rounds", "consumed": consumed, "resident_bytes_max": largest}
    return samples, {**facts, "seconds": round(time.monotonic() - began_s, 1)}


if __name__ == "__main__":
    sys.exit(main())

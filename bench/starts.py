"""Measures how long one node with thousands of partitions takes to start and to stop.

    python -m bench.starts DIRECTORY        opens a broker and ends at once; says on stdout what that took

A broker that is opened is a process of its own, so that nothing of the last one is there. The system's cache of files
is, as after the end of a process.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from penstock import Broker

from . import ROOT
from .measure import FULL, Effort
from .report import Case, CaseResult, Unit, on_value

_TOPICS = 30
_VALUE = bytes(100)
_SYNCS = 50


def open_once(directory: str) -> dict[str, float]:
    """Open a broker, and tell what that took, in milliseconds. It is not closed: the next start finds all as it was."""
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    Broker(directory)
    return {
        "cpu": (time.process_time() - cpu_s) * 1000,
        "wall": (time.perf_counter() - wall_s) * 1000,
    }


def opened(directory: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.starts", str(directory)]
    found = subprocess.run(command, check=True, capture_output=True, cwd=ROOT)  # noqa: S603 - this file
    took: dict[str, float] = json.loads(found.stdout)
    return took


@contextmanager
def partitions(effort: Effort) -> Iterator[tuple[Path, int]]:
    """A directory with empty partitions, and how many they are."""
    count = 3000 if effort is FULL else 300
    directory = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    try:
        with Broker(directory) as broker:
            for number in range(_TOPICS):
                broker.create_topic(f"t{number}", partitions=count // _TOPICS)
        yield directory, count
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def publish(broker: Broker, count: int, messages: int) -> None:
    """Publish one by one, in turn to all partitions."""
    per_topic = count // _TOPICS
    for number in range(messages):
        place = number // _TOPICS % per_topic
        broker.publish(f"t{number % _TOPICS}", _VALUE, partition=place)


def floor_fsync_ms(directory: Path) -> float:
    """The median of syncs of a small file on the same disk."""
    times = []
    with (directory / "floor").open("wb", buffering=0) as file:
        for _ in range(_SYNCS):
            file.write(_VALUE)
            began_s = time.perf_counter()
            os.fsync(file.fileno())
            times.append((time.perf_counter() - began_s) * 1000)
    (directory / "floor").unlink()
    return statistics.median(times)


def measure_clean_start(effort: Effort = FULL) -> CaseResult:
    with partitions(effort) as (directory, count):
        cpu_ms = min(opened(directory)["cpu"] for _ in range(3))
        return _result(cpu_ms, directory, count)


def measure_start(messages: int, effort: Effort = FULL) -> CaseResult:
    """After a process that published was killed."""
    messages = messages if effort is FULL else messages // 10
    with partitions(effort) as (directory, count):
        child = os.fork()
        if child == 0:
            publish(Broker(directory), count, messages)
            os._exit(0)
        os.waitpid(child, 0)
        return _result(opened(directory)["wall"], directory, count, messages=messages)


def measure_stop(effort: Effort = FULL) -> CaseResult:
    with partitions(effort) as (directory, count):
        broker = Broker(directory)
        publish(broker, count, count)
        began_s = time.perf_counter()
        broker.close()
        took_ms = (time.perf_counter() - began_s) * 1000
        return _result(took_ms, directory, count, messages=count)


def _result(value_ms: float, directory: Path, count: int, **settings: int) -> CaseResult:
    floor = round(floor_fsync_ms(directory), 3)
    return CaseResult(value_ms, settings={"partitions": count, "floor_fsync": floor, **settings})


CASES = (
    Case(
        name="clean-start-3000", unit=Unit.MS, measure=measure_clean_start, goal=on_value("<=2000")
    ),
    Case(
        name="start-3000",
        unit=Unit.MS,
        measure=partial(measure_start, 200_000),
        goal=on_value("<=4000"),
    ),
    Case(name="stop-3000", unit=Unit.MS, measure=measure_stop, goal=on_value("<=5000")),
)

if __name__ == "__main__":
    sys.stdout.write(json.dumps(open_once(sys.argv[1])))
    sys.stdout.flush()
    os._exit(0)

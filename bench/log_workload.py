"""Logs to measure: built from a few prepared batches, in a directory that goes away."""

import os
import random
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from functools import cache
from itertools import cycle, islice
from pathlib import Path
from typing import NamedTuple

from penstock.codec import Columns, Encoded, encode
from penstock.config import LogConfig, StorageConfig
from penstock.log import Log, open_log
from penstock.model import LogId
from penstock.runtime import RealDisk

from .measure import FULL, Effort, collector_off
from .report import CaseResult

VALUE_BYTES = 100
BATCHES = 16
TIME_NS = 1_700_000_000_000_000_000
# A log that appends a batch of 1,000 messages every millisecond.
BATCH_NS = 1_000_000
LOG_ID = LogId(0xBE4C)
DIRECTORY = "log"
STORAGE = StorageConfig(min_free_bytes=0)

# What a write to the page cache takes depends on the pages that it is given; in seven turns both get good ones.
_TURNS_MIN = 7


@cache
def batches_of(messages: int) -> tuple[Encoded, ...]:
    """Returns batches with so many messages each; no two values are equal."""
    entropy = random.Random(messages)  # noqa: S311 - payloads, and the same ones in every run
    made = []
    for _ in range(BATCHES):
        values = [entropy.randbytes(VALUE_BYTES) for _ in range(messages)]
        times = [TIME_NS + number * 1000 for number in range(messages)]
        made.append(encode(Columns(values=values, timestamps=times)))
    return tuple(made)


def scaled(count: int, effort: Effort) -> int:
    """Less work for less effort, and never none."""
    return max(1, count * effort.turn_ms_min // FULL.turn_ms_min)


@contextmanager
def scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        yield Path(name)


@contextmanager
def opened(root: Path, config: LogConfig | None = None) -> Iterator[Log]:
    """Returns the log in `root`, created if there is none. The caller closes it."""
    with RealDisk(root, STORAGE) as disk:
        yield open_log(disk, DIRECTORY, log_id=LOG_ID, config=config or LogConfig())[0]


def fill(log: Log, messages: int, *, messages_a_batch: int = 1000) -> None:
    """Append so many messages, each batch a little later than the one before."""
    count = messages // messages_a_batch
    start_ns = max(TIME_NS, log.append_time)
    for number, encoded in enumerate(islice(cycle(batches_of(messages_a_batch)), count), start=1):
        log.append(encoded, now_ns=start_ns + number * BATCH_NS)


def segment_paths(log: Log, root: Path) -> list[Path]:
    return [root / segment.path for segment in log.segments]


def drop_cache(root: Path) -> None:
    """Ask the system to forget the content of every file. It forgets only what is on the disk already."""
    for path in root.rglob("*"):
        if path.is_file():
            file = os.open(path, os.O_RDONLY)
            try:
                os.fsync(file)
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(file)


Contender = Callable[[], Generator[int, None, None]]
"""Work in pieces: the first step prepares, each further one does a piece and yields its bytes."""


def best_mb_per_s(ours: Contender, bare: Contender, effort: Effort) -> CaseResult:
    """Returns megabytes a second of both contenders; the best time of each piece counts.

    Counted in CPU time of the thread, the system's work for it included: none of this waits for a disk, and on a
    shared machine the wall clock mostly measures the neighbours. Its ratio goes along for comparison.
    """
    turns: list[list[tuple[Piece, Piece]]] = []
    for _ in range(max(effort.turns, _TURNS_MIN)):
        with collector_off(), closing(ours()) as one, closing(bare()) as other:
            next(one), next(other)
            turns.append(list(zip(pieces(one), pieces(other), strict=True)))
    cpu = [best_ns([[pair[side].cpu_ns for pair in turn] for turn in turns]) for side in (0, 1)]
    wall = [best_ns([[pair[side].wall_ns for pair in turn] for turn in turns]) for side in (0, 1)]
    size = sum(piece.size for piece, _ in turns[0])
    settings = {
        "value_bytes": VALUE_BYTES,
        "batch_messages": 1000,
        "bytes": size,
        "clock": "cpu",
        "wall_ratio": round(wall[1] / wall[0], 2),
    }
    return CaseResult(size / cpu[0] * 1000, size / cpu[1] * 1000, settings=settings)


class Piece(NamedTuple):
    size: int
    cpu_ns: int
    wall_ns: int


def pieces(work: Iterator[int]) -> Iterator[Piece]:
    while True:
        cpu_ns, wall_ns = time.thread_time_ns(), time.perf_counter_ns()
        size = next(work, 0)
        if size == 0:
            return
        yield Piece(size, time.thread_time_ns() - cpu_ns, time.perf_counter_ns() - wall_ns)


def best_ns(turns: list[list[int]]) -> int:
    """Returns the time of all pieces if each has its best turn."""
    return sum(map(min, zip(*turns, strict=True)))


def best_ms(run: Callable[[], object], turns: int) -> float:
    """Returns the milliseconds of the fastest of several runs."""
    found = []
    for _ in range(turns):
        with collector_off():
            start_ns = time.perf_counter_ns()
            run()
            found.append(time.perf_counter_ns() - start_ns)
    return min(found) / 1_000_000

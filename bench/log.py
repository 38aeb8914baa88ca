"""Measures a log on this disk: throughput against bare system calls, look-ups, opening, group commit, memory.

100-byte distinct values, batches of 1,000 unless said. Files are in the page cache unless a figure says cold.
"""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from itertools import cycle, islice
from pathlib import Path
from threading import Thread

from penstock.config import FsyncPolicy, LogConfig, StorageConfig
from penstock.log import Log, open_log
from penstock.log.layout import CHECKPOINT
from penstock.log.lookup import offset_at
from penstock.log.scan import walk_heads
from penstock.runtime import RealDisk, SystemClock
from penstock.runtime.commit import Committer
from penstock.runtime.file import RealFile

from . import ROOT
from .log_workload import (
    BATCH_NS,
    DIRECTORY,
    LOG_ID,
    STORAGE,
    TIME_NS,
    VALUE_BYTES,
    batches_of,
    best_mb_per_s,
    best_ms,
    drop_cache,
    fill,
    opened,
    scaled,
    scratch,
    segment_paths,
)
from .log_writer import LogWriter
from .measure import Effort
from .report import Case, CaseResult, Unit, on_ratio, on_value
from .watched_disk import WatchedDisk

MIB = 1 << 20
READ_BYTES = 1 * MIB
PIECE_BATCHES = 30
COLD = 100  # Look-ups with a cold cache: each empties it first, which takes longer.
APPENDERS = 32
SLOW_SYNC_S = 0.005
SETTINGS = {"value_bytes": VALUE_BYTES, "batch_messages": 1000, "clock": "wall"}
NEVER = {**SETTINGS, "fsync": FsyncPolicy.NEVER.value}
ALWAYS = StorageConfig(fsync=FsyncPolicy.ALWAYS, min_free_bytes=0)


@contextmanager
def writing(disk: RealDisk, config: StorageConfig) -> Iterator[tuple[LogWriter, Log]]:
    """A log with its writer, closed at the end."""
    clock = SystemClock()
    log, _ = open_log(disk, DIRECTORY, log_id=LOG_ID, config=LogConfig())
    with Committer(config, clock) as committer:
        writer = LogWriter(log, committer, clock)
        yield writer, log
        writer.close()


def measure_append(effort: Effort) -> CaseResult:
    work = list(islice(cycle(batches_of(1000)), PIECE_BATCHES))
    pieces, size = scaled(40, effort), sum(one.head.length for one in work)
    config = StorageConfig(fsync=FsyncPolicy.NEVER, min_free_bytes=0)

    def ours() -> Generator[int, None, None]:
        with (
            scratch() as root,
            RealDisk(root, config) as disk,
            writing(disk, config) as (writer, _),
        ):
            yield 0
            for _ in range(pieces):
                for encoded in work:
                    writer.append(encoded)
                yield size

    def bare() -> Generator[int, None, None]:
        with scratch() as root:
            file = os.open(root / "bare", os.O_CREAT | os.O_WRONLY)
            batches = [one.to_bytes() for one in work]
            yield 0
            for _ in range(pieces):
                for batch in batches:
                    os.write(file, batch)
                yield size
            os.close(file)

    found = best_mb_per_s(ours, bare, effort)
    return replace(found, settings={**found.settings, "fsync": FsyncPolicy.NEVER.value})


@contextmanager
def prepared_log(messages: int) -> Iterator[tuple[Log, Path]]:
    """Returns a log with so many messages, all in the page cache and synced."""
    with scratch() as root, opened(root) as log:
        fill(log, messages)
        log.sync(with_checkpoint=True)
        yield log, root


def measure_reading(effort: Effort) -> CaseResult:
    with prepared_log(scaled(2_000_000, effort)) as (log, root):

        def ours() -> Generator[int, None, None]:
            yield 0
            for segment in log.segments:
                offset, size = segment.base_offset, 0
                while size < segment.size:
                    found = log.read(offset, bytes_max=READ_BYTES)
                    offset, size = found.next_offset, size + len(found.data)
                yield segment.size

        return best_mb_per_s(ours, partial(bare_reading, segment_paths(log, root)), effort)


def bare_reading(paths: Sequence[Path]) -> Generator[int, None, None]:
    yield 0
    for path in paths:
        file, size = os.open(path, os.O_RDONLY), 0
        while data := os.read(file, READ_BYTES):
            size += len(data)
        os.close(file)
        yield size


def measure_walk(effort: Effort) -> CaseResult:
    with prepared_log(scaled(2_000_000, effort)) as (log, root):

        def ours() -> Generator[int, None, None]:
            yield 0
            for segment in log.segments:
                for _ in walk_heads(segment.file, 0, segment.size, seed=log.seed):
                    pass
                yield segment.size

        return best_mb_per_s(ours, partial(bare_reading, segment_paths(log, root)), effort)


def measure_lookup(effort: Effort, look_up: Callable[[Log, int], object]) -> CaseResult:
    """Measure the 99th percentile of look-ups at random offsets, in microseconds."""
    messages = scaled(1_000_000, effort)
    with scratch() as root:
        with opened(root) as log:
            fill(log, messages, messages_a_batch=100)
            log.close()
        with opened(root) as log:
            entropy = random.Random(1)  # noqa: S311 - places, and the same ones in every run
            places = [entropy.randrange(messages) for _ in range(scaled(5000, effort))]
            warm = percentile_us([partial(look_up, log, place) for place in places], effort.turns)
            paths = segment_paths(log, root)
            bare = percentile_us([partial(read_page, paths[0], place) for place in places], 3)
        cold_us = percentile_99(cold_ns(root, look_up, one) for one in places[:COLD]) / 1000
    settings = {
        **SETTINGS,
        "batch_messages": 100,
        "messages": messages,
        "clock": "cpu",
        "cold_p99_us": round(cold_us),
    }
    return CaseResult(warm, bare, settings=settings)


def percentile_us(calls: Sequence[Callable[[], object]], turns: int) -> float:
    """Returns the 99th percentile of calls in CPU time, in the best of several rounds."""
    return min(percentile_99(map(cpu_ns, calls)) for _ in range(turns)) / 1000


def percentile_99(found: Iterable[int]) -> int:
    ordered = sorted(found)
    return ordered[len(ordered) * 99 // 100]


def cpu_ns(call: Callable[[], object]) -> int:
    start_ns = time.thread_time_ns()
    call()
    return time.thread_time_ns() - start_ns


def cold_ns(root: Path, look_up: Callable[[Log, int], object], place: int) -> int:
    """Returns wall time in a log that was just opened and whose files are not in memory."""
    with opened(root) as log:
        drop_cache(root)
        start_ns = time.perf_counter_ns()
        look_up(log, place)
        return time.perf_counter_ns() - start_ns


def read_page(path: Path, place: int) -> bytes:
    file = os.open(path, os.O_RDONLY)
    try:
        return os.pread(file, 4096, place % 8192 * 4096)
    finally:
        os.close(file)


def look_up_offset(log: Log, offset: int) -> object:
    return log.head_at(offset)


def look_up_time(log: Log, place: int) -> object:
    return offset_at(log, TIME_NS + place // 100 * BATCH_NS)


def measure_open_clean(effort: Effort) -> CaseResult:
    messages = scaled(10_000_000, effort)
    with scratch() as root:
        with opened(root) as log:
            fill(log, messages)
            log.close()
        with RealDisk(root, STORAGE) as disk:
            open_it = partial(open_log, disk, DIRECTORY, log_id=LOG_ID, config=LogConfig())
            found_ms = best_ms(open_it, effort.turns)
            bare_ms = best_ms(lambda: [path.stat() for path in root.rglob("*")], effort.turns)
            drop_cache(root)
            cold_ms = best_ms(open_it, 1)
    settings = {**SETTINGS, "messages": messages, "cold_ms": round(cold_ms, 2)}
    return CaseResult(found_ms, bare_ms, settings=settings)


def measure_open_crash(effort: Effort) -> CaseResult:
    small, large = scaled(100_000, effort), scaled(800_000, effort)
    small_ms, _ = crash_and_open_ms(small, effort)
    large_ms, scanned = crash_and_open_ms(large, effort)
    settings = {
        **SETTINGS,
        "messages_after_checkpoint": [small, large],
        "ms": [round(small_ms, 2), round(large_ms, 2)],
        "scanned_mb_per_s": round(scanned / large_ms / 1000),
    }
    return CaseResult(large_ms, small_ms * large / small, settings=settings)


def crash_and_open_ms(messages: int, effort: Effort) -> tuple[float, int]:
    """Returns the time to open a log that was not closed and got messages after its checkpoint, and the bytes read."""
    with scratch() as root:
        with opened(root, LogConfig(checkpoint_bytes=1 << 40)) as log:
            fill(log, scaled(2_000_000, effort))
            log.sync(with_checkpoint=True)
            fill(log, messages)
            log.sync()
        checkpoint = root / DIRECTORY / CHECKPOINT
        left_behind = checkpoint.read_bytes()
        times_ms, scanned = [], 0
        for _ in range(effort.turns):
            checkpoint.write_bytes(left_behind)
            with RealDisk(root, STORAGE) as disk:
                start_ns = time.perf_counter_ns()
                _, recovery = open_log(disk, DIRECTORY, log_id=LOG_ID, config=LogConfig())
                times_ms.append((time.perf_counter_ns() - start_ns) / 1_000_000)
            scanned = recovery.scanned_bytes
    return min(times_ms), scanned


def run_apart(work: str, *words: str) -> dict[str, float]:
    """Returns the figures of a new process, in which memory can be measured."""
    command = [sys.executable, "-m", "bench.log_memory", work, *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)  # noqa: S603 - our own module
    found: dict[str, float] = json.loads(done.stdout)
    return found


@cache
def found_in_partitions(count: int) -> dict[str, float]:
    with scratch() as root:
        run_apart("make", str(root), str(count))
        runs = [run_apart("open", str(root), str(count)) for _ in range(3)]
    return min(runs, key=lambda run: run["ms"])


def measure_partitions(effort: Effort, figure: str) -> CaseResult:
    count = scaled(1000, effort)
    found = found_in_partitions(count)
    settings = {**SETTINGS, **found, "partitions": count, "open_files_max": STORAGE.open_files_max}
    return CaseResult(found[figure], settings=settings)


def measure_rss(effort: Effort) -> CaseResult:
    # Memory that leaks shows after one gigabyte as well, so a quick run need not write three.
    size = scaled(scaled(10_000, effort), effort) * 1_000_000
    with scratch() as root:
        found = run_apart("stream", str(root), str(size))
    return CaseResult(found["peak_bytes"], settings={**NEVER, **found, "bytes": size})


def measure_group_commit(effort: Effort) -> CaseResult:
    found = min(
        (commit_for(effort, APPENDERS, 0.0) for _ in range(3)), key=lambda one: one.syncs_an_append
    )
    settings = {**SETTINGS, "batch_messages": 10, "fsync": "always", "appenders": APPENDERS}
    settings["appends_per_s"] = round(found.appends_per_s)
    return CaseResult(found.syncs_an_append, 1.0, settings=settings)


def measure_group_commit_slow(effort: Effort) -> CaseResult:
    alone, together = 0.0, 0.0
    for _ in range(3):
        alone = max(alone, commit_for(effort, 1, SLOW_SYNC_S).appends_per_s)
        together = max(together, commit_for(effort, APPENDERS, SLOW_SYNC_S).appends_per_s)
    settings = {**SETTINGS, "batch_messages": 10, "fsync": "always", "appenders": APPENDERS}
    settings["sync_ms"] = SLOW_SYNC_S * 1000
    return CaseResult(together * 10, alone * 10, settings=settings)


class CommitResult:
    """The rate and latencies of some appenders together."""

    def __init__(self, appends: int, syncs: int, elapsed_s: float) -> None:
        self.appends_per_s = appends / elapsed_s
        # On a stalled machine no appender may have finished.
        self.syncs_an_append = syncs / max(appends, 1)


def commit_for(effort: Effort, appenders: int, sync_s: float) -> CommitResult:
    """Let so many threads append for a while, each waiting for a sync every time. Returns the result."""
    syncs = 0

    @contextmanager
    def around_sync(_file: RealFile) -> Iterator[None]:
        nonlocal syncs
        syncs += 1
        if sync_s:
            time.sleep(sync_s)
        yield

    encoded = batches_of(10)[0]
    counts = [0] * appenders

    def append(number: int) -> None:
        while time.perf_counter() < end_s:
            writer.append(encoded)
            counts[number] += 1

    with (
        scratch() as root,
        WatchedDisk(root, ALWAYS, around_sync) as disk,
        writing(disk, ALWAYS) as (writer, _),
    ):
        syncs = 0
        threads = [Thread(target=append, args=(number,)) for number in range(appenders)]
        start_s = time.perf_counter()
        end_s = start_s + 10 * effort.turn_ms_min / 1000
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return CommitResult(sum(counts), syncs, time.perf_counter() - start_s)


CASES = (
    Case(
        name="append",
        unit=Unit.MB_PER_S,
        measure=measure_append,
        goal=on_ratio(">=0.7"),
        baseline="os.write",
    ),
    Case(
        name="read_verified",
        unit=Unit.MB_PER_S,
        measure=measure_reading,
        goal=on_ratio(">=0.5"),
        baseline="os.read",
    ),
    Case(
        name="walk_heads",
        unit=Unit.MB_PER_S,
        measure=measure_walk,
        goal=on_value(">=2000"),
        baseline="os.read",
    ),
    Case(
        name="lookup_offset",
        unit=Unit.US,
        measure=partial(measure_lookup, look_up=look_up_offset),
        goal=on_value("<1000"),
        baseline="open and os.pread of a page",
    ),
    Case(
        name="lookup_time",
        unit=Unit.US,
        measure=partial(measure_lookup, look_up=look_up_time),
        goal=on_value("<1000"),
        baseline="open and os.pread of a page",
    ),
    Case(
        name="open_clean",
        unit=Unit.MS,
        measure=measure_open_clean,
        goal=on_value("<300"),
        baseline="stat of all files",
    ),
    Case(
        name="open_crash",
        unit=Unit.MS,
        measure=measure_open_crash,
        goal=on_ratio(">=0.7"),
        baseline="in proportion to an eighth",
    ),
    Case(
        name="open_partitions",
        unit=Unit.MS,
        measure=partial(measure_partitions, figure="ms"),
        goal=on_value("<3000"),
    ),
    Case(
        name="open_partitions_rss",
        unit=Unit.BYTES,
        measure=partial(measure_partitions, figure="peak_bytes"),
        goal=on_value(f"<{300 * MIB}"),
    ),
    Case(
        name="group_commit",
        unit=Unit.SYNCS,
        measure=measure_group_commit,
        goal=on_value("<=0.2"),
        baseline="an fsync for each append",
    ),
    Case(
        name="group_commit_slow",
        unit=Unit.MESSAGES_PER_S,
        measure=measure_group_commit_slow,
        goal=on_ratio(">=15"),
        baseline="one appender",
    ),
    Case(
        name="rss",
        unit=Unit.BYTES,
        measure=measure_rss,
        goal=on_value(f"<={150 * MIB}"),
    ),
)

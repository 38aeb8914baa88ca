"""Logs with writers on a real disk whose syncs are watched, slowed down or held up."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Semaphore, Thread
from typing import Any

from bench.log_writer import LogWriter
from bench.watched_disk import WatchedDisk
from penstock.codec import HEAD_BYTES, Columns, encode
from penstock.config import FsyncPolicy, LogConfig, StorageConfig
from penstock.errors import PenstockError
from penstock.log import AppendResult, Log, open_log
from penstock.log.layout import LOG
from penstock.model import LogId
from penstock.ports import Clock
from penstock.runtime import SystemClock
from penstock.runtime.commit import Committer

MESSAGES = 3
BATCH = encode(Columns(values=[b"x" * 100] * MESSAGES, timestamps=1))
HEAD = BATCH.head
PATIENCE_S = 120
ALWAYS = StorageConfig(fsync=FsyncPolicy.ALWAYS, min_free_bytes=0)
INTERVAL = StorageConfig(fsync=FsyncPolicy.INTERVAL, fsync_interval_ms=20)
# So long that no test is still running when it ends.
SLOW_INTERVAL = StorageConfig(fsync=FsyncPolicy.INTERVAL, fsync_interval_ms=3_600_000)
NEVER = StorageConfig(fsync=FsyncPolicy.NEVER)


class Gate:
    """Once shut, stops every sync of a segment at its door. `started` counts those that came."""

    def __init__(self) -> None:
        self.is_shut = False
        self.started, self.passing = Semaphore(0), Semaphore(0)

    @contextmanager
    def __call__(self, file) -> Iterator[None]:
        if self.is_shut and file.path.endswith(LOG):
            self.started.release()
            assert self.passing.acquire(timeout=PATIENCE_S)
        yield

    def wait_for_one(self) -> None:
        assert self.started.acquire(timeout=PATIENCE_S)

    def is_quiet(self) -> bool:
        return not self.started.acquire(timeout=0.05)

    def pass_one(self) -> None:
        self.passing.release()

    def open(self) -> None:
        self.is_shut = False
        self.passing.release(1000)


class Recorder:
    """How many bytes of each file are durable, which names are, and how many syncs of segments that took."""

    def __init__(self, delay_s: float = 0) -> None:
        self.delay_s, self.synced, self.syncs = delay_s, {}, 0
        self.names: set[str] = set()

    @contextmanager
    def __call__(self, file) -> Iterator[None]:
        size = file.size()
        if self.delay_s:
            Event().wait(self.delay_s)
        yield
        self.syncs += file.path.endswith(LOG)
        self.synced[file.path] = size


@dataclass
class Rig:
    disk: WatchedDisk
    committer: Committer
    fatal: list[BaseException]

    def writer(
        self, name: str = "log", *, config: LogConfig | None = None
    ) -> tuple[LogWriter, Log]:
        log, _ = open_log(self.disk, name, log_id=LogId(7), config=config or LogConfig())
        clock = self.committer.clock
        return LogWriter(log, self.committer, clock), log

    def append(self, writer: LogWriter) -> "Future[AppendResult]":
        return submit(writer.append, BATCH)


def submit(call: Callable[..., Any], *arguments: object) -> "Future[Any]":
    """Run in a thread of its own, one that keeps nobody from ending if it hangs."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(call(*arguments))
        except BaseException as error:
            future.set_exception(error)
            if not isinstance(error, PenstockError | KeyboardInterrupt | ZeroDivisionError):
                raise

    Thread(target=run, daemon=True).start()
    return future


def share(threads: int, calls: int, call: Callable[[int], Any]) -> list[Any]:
    """The results of so many calls, made by so many threads at once."""
    shares = [
        submit(lambda one: [*map(call, one)], range(n, calls, threads)) for n in range(threads)
    ]
    return [result for future in shares for result in future.result(6 * PATIENCE_S)]


Build = Callable[..., Rig]


@contextmanager
def building(root: Path) -> Iterator[Build]:
    """Makes rigs, and takes them apart at the end."""
    made = []

    def make(config: StorageConfig, around_sync=nullcontext, *, clock: Clock | None = None) -> Rig:
        disk = WatchedDisk(root / f"data{len(made)}", config, around_sync)
        if isinstance(around_sync, Recorder):
            record_names(disk, around_sync)
        fatal: list[BaseException] = []
        committer = Committer(config, clock or SystemClock(), on_fatal=fatal.append)
        made.append(Rig(disk, committer, fatal))
        return made[-1]

    try:
        yield make
    finally:
        for rig in made:
            if isinstance(rig.disk._around_sync, Gate):
                rig.disk._around_sync.open()
            submit(rig.committer.close).result(PATIENCE_S)
            rig.disk.close()


def record_names(disk: WatchedDisk, recorder: Recorder) -> None:
    sync_directory = disk.sync_directory

    def recording(directory: str) -> None:
        sync_directory(directory)
        recorder.names |= {f"{directory}/{name}" for name in disk.list(directory)}

    disk.sync_directory = recording


def gated(
    build: Build, config: StorageConfig = ALWAYS, *, clock: Clock | None = None
) -> tuple[Rig, LogWriter, Log, Gate]:
    """A log that is open, with a shut gate before every further sync."""
    gate = Gate()
    rig = build(config, gate, clock=clock)
    writer, log = rig.writer()
    gate.is_shut = True
    return rig, writer, log, gate


def until(condition: Callable[[], bool]) -> None:
    """Wait for something that no event tells us about."""
    for _ in range(PATIENCE_S * 1000):
        if condition():
            return
        Event().wait(0.001)
    raise AssertionError("it never happened")


def raiser(error: BaseException) -> Callable[..., None]:
    def call(*_: object) -> None:
        raise error

    return call


def reopened(rig: Rig, log: Log, writer: LogWriter) -> Log:
    """The log as the next process finds it; it must have been closed cleanly."""
    writer.close()
    found, recovery = open_log(rig.disk, log.directory, log_id=log.log_id, config=log.config)
    assert recovery.is_clean
    return found


def batches_in(log: Log) -> int:
    """Every batch of the log, verified, dense and the one we write."""
    offset = log.start_offset
    while offset < log.end_offset:
        run = log.read(offset, bytes_max=1)
        assert run.base_offset == offset
        assert run.data[HEAD_BYTES:] == BATCH.whole_body()
        offset = run.next_offset
    return (log.end_offset - log.start_offset) // MESSAGES

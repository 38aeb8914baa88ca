"""Starting, tracing and killing the writer, and looking at what it leaves behind."""

import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import pytest

from penstock.codec import HEAD_BYTES, decode_columns, read_head
from penstock.log import Log, Recovery, open_log
from penstock.runtime import RealDisk

from .writer import DIRECTORY, LOG_ID, SMALL, STORAGE, Job, batch_of, to_line

PROGRAM = Path(__file__).with_name("writer.py")
PATIENCE_S = 120
STORAGE_CALLS = (
    "openat,pwrite64,pwritev,pwritev2,fsync,fdatasync,ftruncate,"
    "rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat"
)
# Higher than any number that a job writes, so that its batches can be told from those.
BEFORE, AFTERWARDS = 10_000_000, 20_000_000
_CALL = re.compile(r"(\d+) +(?:(\d+\.\d+) )?(\w+)\((.*)")


@dataclass(frozen=True)
class Call:
    """One line of a trace."""

    thread: int
    time_s: float
    name: str
    rest: str

    @property
    def is_injected(self) -> bool:
        return "(INJECTED)" in self.rest


@dataclass(frozen=True)
class Outcome:
    """What became of a job: its exit code (minus the signal, if one killed it), reports and trace."""

    code: int
    acks: dict[int, int]
    refused: int
    calls: list[Call]


class Victims:
    """Runs jobs in children of one warm server."""

    def __init__(self) -> None:
        self._server = subprocess.Popen(
            [sys.executable, str(PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            env={**os.environ, "PYTHONPATH": str(PROGRAM.parents[2])},
        )
        self._running: int | None = None

    def close(self) -> None:
        if self._running is not None:  # A test failed half way.
            os.kill(self._running, signal.SIGKILL)
        self._server.stdin.close()
        self._server.wait(PATIENCE_S)
        self._server.stdout.close()

    def prepare(self, job: Job) -> int:
        """The process id of a child that waits for its start."""
        self._server.stdin.write(to_line(job).encode())
        self._running = int(self._line())
        return self._running

    def start(self) -> None:
        self._server.stdin.write(b"go\n")

    def code(self, pid: int) -> int:
        """The exit code, at the end. Who takes too long is killed, and that is a failure."""
        if not select.select([self._server.stdout], [], [], PATIENCE_S)[0]:
            os.kill(pid, signal.SIGKILL)
            self._line()
            self._running = None
            raise AssertionError("the writer hangs")
        self._running = None
        return int(self._line())

    def _line(self) -> bytes:
        return self._server.stdout.readline()

    def run(self, job: Job, *tracing: str) -> Outcome:
        """Do the job to its end, traced as the options of strace say; without any, not traced."""
        pid = self.prepare(job)
        trace = Path(job.reports + ".trace")
        with traced(pid, trace, tracing) if tracing else untraced():
            self.start()
            code = self.code(pid)
        return outcome(job, code, calls_in(trace) if tracing else [])


@contextmanager
def untraced() -> Iterator[None]:
    yield


@contextmanager
def traced(pid: int, trace: Path, options: tuple[str, ...]) -> Iterator[None]:
    """Attach to a process that has not started its work; leave when it is gone."""
    command = ["strace", "-f", "-ttt", "-p", str(pid), "-o", str(trace), *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as strace:
        first = strace.stderr.readline()
        if "attached" not in first:
            os.kill(pid, signal.SIGKILL)
            raise AssertionError(f"strace cannot attach: {first}")
        yield
        strace.stderr.read()


def require_strace() -> None:
    if shutil.which("strace") is None:
        pytest.skip("system calls cannot be tampered with: strace is not installed")
    tried = subprocess.run(
        ["strace", "-o", "/dev/null", "true"], capture_output=True, text=True, check=False
    )
    if tried.returncode:
        pytest.skip(f"system calls cannot be tampered with: {tried.stderr.strip()}")


def calls_in(trace: Path) -> list[Call]:
    found = map(_CALL.match, trace.read_text().splitlines())
    return [Call(int(one[1]), float(one[2]), one[3], one[4]) for one in found if one]


def points_in(calls: list[Call]) -> list[tuple[str, int]]:
    """Every place where strace can strike: it counts each kind of call in each thread by itself."""
    counts = Counter((call.thread, call.name) for call in calls)
    most: dict[str, int] = {}
    for (_, name), count in counts.items():
        most[name] = max(most.get(name, 0), count)
    return [(name, number) for name in sorted(most) for number in range(1, most[name] + 1)]


def outcome(job: Job, code: int, calls: list[Call]) -> Outcome:
    reports = Path(job.reports)
    lines = [line.split() for line in reports.read_text().splitlines()] if reports.exists() else []
    acks = {int(words[1]): int(words[2]) for words in lines if words[0] == "ack"}
    return Outcome(code, acks, sum(words[0] == "refused" for words in lines), calls)


def wait_for_reports(job: Job, count: int) -> None:
    """Until the writer has reported so often; on a busy machine time alone says little."""
    reports = Path(job.reports)
    for _ in range(PATIENCE_S * 1000):
        if not count or (reports.exists() and reports.read_bytes().count(b"\n") >= count):
            return
        Event().wait(0.001)
    raise AssertionError(f"no {count} reports in {PATIENCE_S} s")


def write_before(root: Path, batches: int) -> dict[int, int]:
    """A log that was not closed and has a torn batch at its end; where its batches are."""
    with RealDisk(root, STORAGE) as disk:
        log, _ = open_log(disk, DIRECTORY, log_id=LOG_ID, config=SMALL)
        places = {}
        for index in range(BEFORE, BEFORE + batches):
            appended = log.append(batch_of(index), now_ns=time.time_ns())
            places[index] = appended.base_offset
        log.sync()
        torn = root / log.segments[-1].path
    with torn.open("ab") as file:
        file.write(batch_of(BEFORE + batches).to_bytes()[:300])
    return places


def check_survivor(root: Path, promised: dict[int, int], *, extras_max: int) -> Recovery:
    """Everything promised is there, nothing is there twice or by chance, and life goes on."""
    with RealDisk(root, STORAGE) as disk:
        log, recovery = open_log(disk, DIRECTORY, log_id=LOG_ID, config=SMALL)
        found = stored_in(log)
        for index, base_offset in promised.items():
            assert base_offset < log.start_offset or found.pop(base_offset) == index
        assert len(found) <= extras_max, f"nobody was promised {found}"
        end = log.end_offset
        assert log.append(batch_of(AFTERWARDS), now_ns=time.time_ns()).base_offset == end
        log.close()
    with RealDisk(root, STORAGE) as disk:
        log, again = open_log(disk, DIRECTORY, log_id=LOG_ID, config=SMALL)
        assert again.is_clean
        assert stored_in(log)[end] == AFTERWARDS
    return recovery


def stored_in(log: Log) -> dict[int, int]:
    """Base offset and number of every batch, all of them verified, dense and as they were written."""
    found: dict[int, int] = {}
    offset = log.start_offset
    while offset < log.end_offset:
        run = log.read(offset, bytes_max=1)
        head = read_head(run.data, seed=log.seed)
        assert run.base_offset == head.base_offset == offset
        index = int(decode_columns(run.data, head).values[0].split(b"/", 1)[0])
        assert run.data[HEAD_BYTES:] == batch_of(index).to_bytes()[HEAD_BYTES:]
        found[offset] = index
        offset = run.next_offset
    assert len(set(found.values())) == len(found), "a batch is there twice"
    return found

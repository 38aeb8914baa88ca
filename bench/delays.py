"""Measures delayed messages: scheduling, cancelling and firing them while a million others wait, and starts.

Due times are spread over an hour at random, so that nothing is lucky: neighbours in the log are due far apart. The
node is driven by hand, on a clock that stands still until it is told to move, and on the disk of this machine.
"""

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from penstock.api.delays import CancelDelayed, DelayedId
from penstock.api.principals import LOCAL
from penstock.api.topics import CreateTopic
from penstock.broker.node import Node
from penstock.broker.partition import Now, Partition
from penstock.codec import Columns, read_head
from penstock.codec.decode import delay_ids, open_body
from penstock.config import FsyncPolicy, StorageConfig
from penstock.delivery.offsets import each_offset
from penstock.runtime import RealDisk

from . import ROOT
from .embedded import VALUE_BYTES, make_values, scratch, timed_ns
from .measure import FULL, Clock, Effort
from .report import Case, CaseResult, Unit, on_ratio, on_value

BATCH = 1000
PENDING, PENDING_QUICK = 1_000_000, 100_000
FEW = 2000
CANCELS = 500
SPREAD_NS = 3600 * 1_000_000_000
TOPIC = "later"
START_NS = 1_767_225_600 * 1_000_000_000
STORAGE = StorageConfig(fsync=FsyncPolicy.NEVER, min_free_bytes=0)


class Rig:
    """One partition with delayed messages, and a virtual clock."""

    def __init__(self, disk: RealDisk) -> None:
        self.now = Now(START_NS, 0)
        self.node = Node(disk, now=self.now, entropy=random.Random(3))  # noqa: S311 - nothing secret, and the same in every run
        if TOPIC not in self.node.open:
            create = CreateTopic(TOPIC, 1, {"retention_hours": -1})
            self.node.execute(create, LOCAL, self.now).outcome()
        self._chance = np.random.default_rng(5)
        self._dues: list[npt.NDArray[np.int64]] = []

    @property
    def partition(self) -> Partition:
        return self.node.partition(TOPIC, 0)

    def schedule(self, count: int, *, is_scattered: bool = True) -> None:
        values = make_values(BATCH)
        for number in range(count // BATCH):
            dues = START_NS + self._chance.integers(1, SPREAD_NS, BATCH)
            if not is_scattered:
                span_ns = SPREAD_NS * BATCH // count
                dues = START_NS + number * span_ns + np.arange(BATCH) * (span_ns // BATCH)
            self._dues.append(dues)
            columns = Columns(values=values, timestamps=START_NS, due_at=dues)
            self.partition.schedule(columns, self.now)

    def fire_all(self, step_ns: int) -> int:
        """Let the hour pass, a step at a time. Returns how many messages fired, each on time and once."""
        delays = self.partition.machine.delays
        while delays.pending:
            next_ns = delays.next_ns() or START_NS
            wall_ns = max(self.now.wall_ns, next_ns) + step_ns
            self.now = Now(wall_ns, wall_ns - START_NS)
            while delays.pending and delays.is_due(self.now.wall_ns):
                before = len(delays.pending)
                self.node.tick(self.now)
                if len(delays.pending) == before:
                    break
        return self._fired_once()

    def _fired_once(self) -> int:
        log = self.partition.messages
        seen, offset = np.zeros(self.partition.delayed.end_offset, np.bool_), 0
        dues = np.concatenate(self._dues)
        while offset < log.end_offset:
            run = log.read(offset, bytes_max=1 << 20)
            position, offset = 0, run.next_offset
            while position < len(run.data):
                head = read_head(run.data, position, seed=log.seed)
                body = open_body(run.data[position : position + head.length], head)
                ids = delay_ids(body, head)
                assert not seen[ids].any(), "a delayed message came twice"
                assert (dues[ids] <= head.append_time).all(), "a delayed message came early"
                seen[ids] = True
                position += head.length
        return int(seen.sum())


@contextmanager
def rig(pending: int, *, is_scattered: bool = True) -> Iterator[Rig]:
    with scratch() as path, RealDisk(path, STORAGE) as disk:
        made = Rig(disk)
        made.schedule(pending, is_scattered=is_scattered)
        yield made


def pending_of(effort: Effort) -> int:
    return PENDING if effort == FULL else PENDING_QUICK


def settings_of(pending: int, **others: object) -> Mapping[str, object]:
    return {"pending": pending, "batch": BATCH, "value_bytes": VALUE_BYTES, **others}


def measure_insert(effort: Effort) -> CaseResult:
    """Batches of a thousand, each message due at its own time, on top of those that wait."""
    pending, best = pending_of(effort), float("inf")
    with rig(pending) as made:
        for _ in range(effort.turns):
            count = 20 * BATCH
            best = min(best, timed_ns(lambda: made.schedule(20 * BATCH)) / count)
    return CaseResult(1_000_000_000 / best, settings=settings_of(pending, clock="cpu"))


def measure_cancel(effort: Effort) -> CaseResult:
    """Cancel one by one with many messages waiting, and with few: the time must not differ."""
    pending = pending_of(effort)
    many, few = (_cancel_ns(count, effort) for count in (pending, FEW))
    return CaseResult(many, few, settings=settings_of(pending, few=FEW))


def _cancel_ns(pending: int, effort: Effort) -> float:
    best = float("inf")
    with rig(pending) as made:
        for _ in range(effort.turns):
            ids = [*each_offset(made.partition.machine.delays.pending)]
            chosen = ids[:: max(1, len(ids) // CANCELS)][:CANCELS]
            best = min(best, timed_ns(_cancelling(made, chosen)) / len(chosen))
            made.schedule(BATCH)
    return best


def _cancelling(made: Rig, ids: list[int]) -> Callable[[], None]:
    def cancel() -> None:
        for identity in ids:
            command = CancelDelayed(TOPIC, DelayedId(0, identity), wants_message=False)
            made.node.execute(command, LOCAL, made.now)

    return cancel


def measure_fire(effort: Effort) -> CaseResult:
    """Fire messages that were sent in the order of their due times."""
    pending = pending_of(effort)
    return CaseResult(_fired_a_second(pending), settings=settings_of(pending, clock="cpu"))


def measure_fire_scattered(effort: Effort) -> CaseResult:
    """Fire messages with random due times: those of a second are in as many batches. The baseline fires in order."""
    pending = pending_of(effort)
    scattered, in_order = _fired_a_second(pending, is_scattered=True), _fired_a_second(pending)
    return CaseResult(scattered, in_order, settings=settings_of(pending, clock="cpu"))


def _fired_a_second(pending: int, *, is_scattered: bool = False) -> float:
    """Fire all messages, second by second, and check that each fires once and not early. Returns messages a second."""
    with rig(pending, is_scattered=is_scattered) as made:
        started_ns = time.process_time_ns()
        fired = made.fire_all(1_000_000_000)
        elapsed_ns = time.process_time_ns() - started_ns
    assert fired == pending, f"{fired} of {pending} came"
    return fired * 1_000_000_000 / elapsed_ns


def measure_memory(effort: Effort) -> CaseResult:
    pending = pending_of(effort)
    found = in_a_process("schedule", pending)
    return CaseResult(found["bytes"] / pending, settings=settings_of(pending))


def measure_restart(effort: Effort) -> CaseResult:
    """Measure from opening the directory to the first tick, after a proper stop; the baseline is after a kill."""
    pending = pending_of(effort)
    found = in_a_process("restart", pending)
    settings = settings_of(pending, clock=Clock.WALL.value)
    return CaseResult(found["closed_ms"], found["killed_ms"], settings=settings)


def in_a_process(work: str, pending: int) -> dict[str, float]:
    """Run a measurement in a new process: memory and starts depend on what a process did before."""
    with scratch() as path:
        command = [sys.executable, "-m", "bench.delays", work, str(path), str(pending)]
        done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)  # noqa: S603 - our own module
    found: dict[str, float] = json.loads(done.stdout)
    return found


def resident_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


def schedule_here(path: Path, pending: int) -> dict[str, float]:
    with RealDisk(path, STORAGE) as disk:
        made = Rig(disk)
        made.schedule(20 * BATCH)  # Everything that is loaded once is loaded now.
        before = resident_bytes()
        made.schedule(pending)
        return {"bytes": max(0, resident_bytes() - before)}


def restart_here(path: Path, pending: int) -> dict[str, float]:
    found = {}
    for stop in ("killed", "closed"):
        with RealDisk(path, STORAGE) as disk:
            made = Rig(disk)
            if stop == "killed":
                made.schedule(pending)
                made.partition.sync()
            if stop == "closed":
                made.node.close()
        with RealDisk(path, STORAGE) as disk:
            started_ns = time.perf_counter_ns()
            again = Rig(disk)
            again.node.tick(again.now)
            found[f"{stop}_ms"] = (time.perf_counter_ns() - started_ns) / 1_000_000
            assert len(again.partition.machine.delays.pending) == pending
    return found


WORKS = {"schedule": schedule_here, "restart": restart_here}

CASES = (
    Case(
        name="delayed_insert",
        unit=Unit.MESSAGES_PER_S,
        measure=measure_insert,
        goal=on_value(">=300000"),
    ),
    Case(
        name="delayed_memory",
        unit=Unit.BYTES,
        measure=measure_memory,
        goal=on_value("<=120"),
    ),
    Case(
        name="delayed_cancel",
        unit=Unit.NS,
        measure=measure_cancel,
        # Constant, give or take what a larger working set does to the caches.
        goal=on_ratio(">=0.5"),
        baseline="the same with few that wait",
    ),
    Case(
        name="delayed_restart",
        unit=Unit.MS,
        measure=measure_restart,
        goal=on_value("<=5000"),
        baseline="after a kill",
    ),
    Case(
        name="delayed_fire",
        unit=Unit.MESSAGES_PER_S,
        measure=measure_fire,
    ),
    Case(
        name="delayed_fire_scattered",
        unit=Unit.MESSAGES_PER_S,
        measure=measure_fire_scattered,
        goal=on_ratio(">=0.4"),
        baseline="due in the order of sending",
    ),
)

if __name__ == "__main__":
    _, name, where, amount = sys.argv
    sys.stdout.write(json.dumps(WORKS[name](Path(where), int(amount))))

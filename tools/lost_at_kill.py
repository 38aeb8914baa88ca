"""Measures what a kill -9 costs a queue that does not wait for the disk: kills a process that puts, and counts.

    python tools/lost_at_kill.py [ROUNDS]

Prints for each kind of load how many puts that had returned were gone, and how long before the kill the oldest of
them had returned. docs/embedded.md has the figures.
"""

import mmap
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import penstock

# Each put writes the time of its return to a file that outlives the process. More than half a second of puts.
SLOTS = 1 << 22
PROGRAM = """
import mmap, sys, threading, time, penstock
path, notes, putting, computing, switch_s = sys.argv[1:]
sys.setswitchinterval(float(switch_s))
file = open(notes, "r+b")
times = memoryview(mmap.mmap(file.fileno(), 0)).cast("q")
queue = penstock.open(path)
def put():
    while True:
        number = queue.put(b"x" * 100)
        times[number] = time.monotonic_ns()
def compute():
    while True:
        pass
work = [put] * int(putting) + [compute] * int(computing)
threads = [threading.Thread(target=one, daemon=True) for one in work]
[one.start() for one in threads]
print("ready", flush=True)
time.sleep(60)
"""


class Load(NamedTuple):
    """How many threads put, how many compute, and how long Python lets each of them run."""

    putting: int
    computing: int
    switch_s: float = 0.005


LOADS = (Load(1, 0), Load(4, 0), Load(1, 3), Load(1, 3, 0.001))


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    entropy = random.Random(1)  # noqa: S311 - when to kill
    for load in LOADS:
        found = [killed(load, entropy.uniform(0.2, 0.5)) for _ in range(rounds)]
        lost, ages_ms = zip(*found, strict=True)
        print(
            f"{load.putting} put, {load.computing} compute, switch {load.switch_s * 1000:g} ms:"
            f" lost {statistics.median(lost):.0f}, at most {max(lost)};"
            f" age {statistics.median(ages_ms):.1f} ms, at most {max(ages_ms):.1f}",
            flush=True,
        )


def killed(load: Load, seconds: float) -> tuple[int, float]:
    """Returns how many puts were lost, and the age of the oldest in milliseconds."""
    with tempfile.TemporaryDirectory() as directory:
        notes, path = Path(directory) / "notes", Path(directory) / "queue"
        with notes.open("wb") as file:
            file.truncate(8 * SLOTS)
        program = [sys.executable, "-c", PROGRAM, str(path), str(notes), *map(str, load)]
        with subprocess.Popen(program, stdout=subprocess.PIPE) as child:  # noqa: S603 - it is above
            assert child.stdout is not None
            child.stdout.readline()
            time.sleep(seconds)
            killed_ns = time.monotonic_ns()
            child.kill()
        with penstock.open(path) as queue:
            stored = queue.stats().put
        return lost_after(stored, notes, killed_ns)


def lost_after(stored: int, notes: Path, killed_ns: int) -> tuple[int, float]:
    with notes.open("rb") as file:
        times = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)).cast("q")
    # Zero: this put had not returned.
    lost = [noted for noted in times[stored + 1 :] if noted]
    return len(lost), (killed_ns - min(lost)) / 1_000_000 if lost else 0.0


if __name__ == "__main__":
    main()

"""The parts of the log bench that need a process of their own. Prints one JSON object.

make ROOT COUNT     a directory with so many small partitions, closed
open ROOT COUNT     open them all: milliseconds, descriptors and peak memory
stream ROOT BYTES   append and read so many bytes, dropping old segments: peak memory
"""

import json
import sys
import time
from pathlib import Path

from penstock.config import LogConfig
from penstock.log import Log, open_log
from penstock.log.trim import retain
from penstock.model import LogId
from penstock.runtime import RealDisk

from .log_workload import BATCH_NS, STORAGE, TIME_NS, batches_of, fill, opened
from .watched_disk import UnsyncedDisk

READ_BYTES = 1 << 20
KEPT = LogConfig(retention_segments=4)


def partition(number: int) -> str:
    return f"topics/default/bench.1/partition-{number}/messages"


def make(root: Path, count: int) -> dict[str, float]:
    with UnsyncedDisk(root, STORAGE) as disk:
        for number in range(count):
            log = open_partition(disk, number)
            fill(log, 100, messages_a_batch=10)
            log.close()
    return {}


def open_partition(disk: RealDisk, number: int) -> Log:
    return open_log(disk, partition(number), log_id=LogId(number), config=LogConfig())[0]


def open_all(root: Path, count: int) -> dict[str, float]:
    with RealDisk(root, STORAGE) as disk:
        start_ns = time.perf_counter_ns()
        logs = [open_partition(disk, number) for number in range(count)]
        elapsed_ns = time.perf_counter_ns() - start_ns
        # Read and not only opened: a partition without requests has no file open.
        for log in logs:
            log.read(0, bytes_max=READ_BYTES)
        descriptors = len(list(Path("/proc/self/fd").iterdir()))
        return {
            "ms": elapsed_ns / 1_000_000,
            "descriptors": descriptors,
            "peak_bytes": peak_bytes(),
        }


def stream(root: Path, size: int) -> dict[str, float]:
    """Append, read back each full segment, and remove old segments."""
    work = batches_of(1000)
    with opened(root, KEPT) as log:
        written = read = appended = 0
        offset = log.start_offset
        while written < size:
            encoded = work[appended % len(work)]
            appended += 1
            log.append(encoded, now_ns=TIME_NS + appended * BATCH_NS)
            written += encoded.head.length
            if written - read >= KEPT.segment_size_bytes:
                while offset < log.end_offset:
                    run = log.read(offset, bytes_max=READ_BYTES)
                    offset, read = run.next_offset, read + len(run.data)
                retain(log, now_ns=log.append_time, keep_from=offset)
    return {"peak_bytes": peak_bytes()}


def peak_bytes() -> int:
    """Returns the peak memory of this process. Not ru_maxrss, which includes the parent's."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


WORKS = {"make": make, "open": open_all, "stream": stream}

if __name__ == "__main__":
    _, work, where, amount = sys.argv
    sys.stdout.write(json.dumps(WORKS[work](Path(where), int(amount))))

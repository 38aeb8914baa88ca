"""Appends to a log and says what it was promised. The victim of the live tests.

Run as a program it is a server: for each job, one JSON object a line, it forks a child that does the job, so that a
crash point does not pay for the start of an interpreter. It answers with the child's process id, starts the child at
the next line, and answers with its exit status at the end.

The child reports by single writes to a file outside of the data directory, each after the fact:

    ack INDEX BASE_OFFSET     the batch is durable
    refused INDEX             no space; it will be tried again
"""

import json
import os
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from threading import Thread

from bench.log_writer import LogWriter
from penstock.codec import Columns, Encoded, encode
from penstock.config import FsyncPolicy, LogConfig, StorageConfig
from penstock.errors import NoSpace
from penstock.log import open_log
from penstock.log.trim import retain
from penstock.model import LogId
from penstock.runtime import RealDisk, SystemClock
from penstock.runtime.commit import Committer

LOG_ID = LogId(0x1BADB002)
DIRECTORY = "topic/messages"
STORAGE = StorageConfig(fsync=FsyncPolicy.ALWAYS, min_free_bytes=0)
# Small, so that a hundred appends roll, checkpoint and remove segments many times.
SMALL = LogConfig(
    segment_size_bytes=6000,
    checkpoint_bytes=2500,
    index_interval_bytes=700,
    retention_segments=4,
)


@dataclass(frozen=True)
class Job:
    root: str
    reports: str
    appends: int
    threads: int = 1
    retain_every: int = 0


def batch_of(index: int) -> Encoded:
    """The batch with this number: one to three messages, and never twice the same."""
    values = [b"%d/%d " % (index, part) * (20 + 7 * (index % 5)) for part in range(1 + index % 3)]
    return encode(Columns(values=values, timestamps=1 + index))


def run(job: Job) -> None:
    clock = SystemClock()
    reports = os.open(job.reports, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    with RealDisk(job.root, STORAGE) as disk, Committer(STORAGE, clock) as committer:
        log, _ = open_log(disk, DIRECTORY, log_id=LOG_ID, config=SMALL)
        writer = LogWriter(log, committer, clock)
        threads = [
            Thread(target=append, args=(writer, reports, range(first, job.appends, job.threads)))
            for first in range(1, job.threads)
        ]
        for thread in threads:
            thread.start()
        append(writer, reports, range(0, job.appends, job.threads), job.retain_every)
        for thread in threads:
            thread.join()
        writer.close()


def append(writer: LogWriter, reports: int, indexes: range, retain_every: int = 0) -> None:
    for index in indexes:
        encoded = batch_of(index)
        while True:
            try:
                appended = writer.append(encoded)
            except NoSpace:
                os.write(reports, b"refused %d\n" % index)
            else:
                break
        os.write(reports, b"ack %d %d\n" % (index, appended.base_offset))
        if retain_every and index % retain_every == retain_every - 1:
            with writer.maintenance() as log:
                retain(log, now_ns=appended.append_time, keep_from=log.end_offset)


def serve() -> None:
    for line in iter(sys.stdin.readline, ""):
        job = Job(**json.loads(line))
        wait_end, start_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(start_end)
            child(job, wait_end)
        os.close(wait_end)
        answer(pid)
        sys.stdin.readline()
        with suppress(BrokenPipeError):  # It may have been killed already.
            os.write(start_end, b"!")
        os.close(start_end)
        answer(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def answer(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


def child(job: Job, wait_end: int) -> None:
    # Whatever happens in here, nothing may return into the server's loop.
    code = 1
    try:
        if os.read(wait_end, 1):
            run(job)
            code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
        raise
    finally:
        os._exit(code)


def to_line(job: Job) -> str:
    return json.dumps(asdict(job)) + "\n"


if __name__ == "__main__":
    serve()

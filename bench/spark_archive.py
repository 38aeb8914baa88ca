"""A topic into a lake through Spark, with the proof that all of it is there.

The clock runs from an empty lake to the end of the verification. The session is warm, as it is for all commits of a
pipeline but its first. Broker, JVM and workers share the machine.
"""

import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from penstock.client import Client
from penstock.codec import Columns, encode

from .measure import FULL, Effort
from .report import Case, CaseResult, Unit, on_value
from .server_process import broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MESSAGES, MESSAGES_QUICK = 5_000_000, 500_000
PARTITIONS = 4
VALUE_BYTES = 100
BATCH_MESSAGES = 10_000
TURNS = 3
# A worker holds an answer of the broker, the rows of a row group and what Parquet makes of them.
WORKER_BYTES_MAX = 512 << 20


@dataclass(frozen=True, slots=True)
class ArchiveResult:
    """The best turn: messages a second with and without verification, and the peak memory of a worker."""

    per_s: float
    archive_per_s: float
    worker_bytes: int
    messages: int
    lake_bytes: int


def fill(client: Client, topic: str, messages: int) -> None:
    """Publish values that do not repeat, so that compression finds as little as with real data."""
    import random

    chance = random.Random(1)  # noqa: S311 - the same load every time
    client.create_topic(topic, partitions=PARTITIONS)
    batches = []
    for number in range(PARTITIONS):
        values = [chance.randbytes(VALUE_BYTES) for _ in range(BATCH_MESSAGES)]
        keys = [b"%08d" % (number * BATCH_MESSAGES + one) for one in range(BATCH_MESSAGES)]
        columns = Columns(values=values, keys=keys, timestamps=1_700_000_000_000_000_000)
        batches.append(encode(columns).to_bytes())
    for number in range(messages // BATCH_MESSAGES):
        client.append_batch(topic, number % PARTITIONS, batches[number % PARTITIONS])


@cache
def archived(effort: Effort) -> ArchiveResult:
    from penstock.spark import session

    messages = MESSAGES if effort is FULL else MESSAGES_QUICK
    spark = session("penstock bench", master="local[2]")
    with broker() as server:
        url = f"penstock://127.0.0.1:{server.binary_port}"
        with Client(url) as client:
            fill(client, "warm", BATCH_MESSAGES * PARTITIONS)
            fill(client, "full", messages)
        one_turn(spark, url, "warm")
        turns = [one_turn(spark, url, "full") for _ in range(TURNS)]
        workers = max(worker_peaks(), default=0)
    seconds, archive_s, size = min(turns)
    return ArchiveResult(messages / seconds, messages / archive_s, workers, messages, size)


def one_turn(spark: "SparkSession", url: str, topic: str) -> tuple[float, float, int]:
    """Returns seconds in all, seconds until the last commit, and bytes of the lake."""
    from penstock.spark.pipelines.archive import Archive, ArchiveOptions
    from penstock.spark.pipelines.lake import Lake, LakeReader
    from penstock.spark.pipelines.remote import Remote
    from penstock.spark.pipelines.task_runner import SparkTaskRunner
    from penstock.spark.pipelines.verify import verify

    root = Path(tempfile.mkdtemp(prefix="penstock-bench-lake-"))
    try:
        started = time.perf_counter()
        with Lake(root) as lake:
            options = ArchiveOptions(topics=(topic,), group=f"{topic}-lake")
            Archive(lake, Remote(url), SparkTaskRunner(spark), options).run_once(Event())
        committed = time.perf_counter()
        with Client(url) as client:
            report = verify(LakeReader(root), client)
        ended = time.perf_counter()
        assert report.is_good, report.problems
        assert all(one.behind == 0 for one in report.partitions.values()), "all of it is there"
        return ended - started, committed - started, report.bytes
    finally:
        shutil.rmtree(root, ignore_errors=True)


def worker_peaks() -> Iterator[int]:
    """Returns the peak memory of each worker of Spark on this machine, also of other sessions."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes()
            status = (process / "status").read_text()
        except OSError:
            continue  # The process has ended.
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        if b"pyspark.daemon" in words and found is not None:
            yield int(found[1]) * 1024


def settings_of(found: ArchiveResult) -> dict[str, object]:
    return {
        "messages": found.messages,
        "value_bytes": VALUE_BYTES,
        "partitions": PARTITIONS,
        "archive_per_s": round(found.archive_per_s),
        "lake_bytes": found.lake_bytes,
        "session": "local[2], warm",
        "proof": "every offset, every file, against the broker",
    }


def measure_archive(effort: Effort) -> CaseResult:
    found = archived(effort)
    return CaseResult(found.per_s, settings=settings_of(found))


def measure_memory(effort: Effort) -> CaseResult:
    found = archived(effort)
    return CaseResult(found.worker_bytes, settings=settings_of(found))


CASES = (
    Case(
        name="archive",
        unit=Unit.MESSAGES_PER_S,
        measure=measure_archive,
        goal=on_value(">=250000"),
    ),
    Case(
        name="archive_memory",
        unit=Unit.BYTES,
        measure=measure_memory,
        goal=on_value(f"<={WORKER_BYTES_MAX}"),
    ),
)

"""Loads files into a topic, each row once, however often it is run."""

import glob
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ...errors import Refused
from .archive import PipelineProgress, Stop
from .ledger import Ledger, LedgerEntry, sha256_of
from .load_task import FilePart, LoadTask
from .model import FileFormat
from .partitions import query_partitions
from .remote import Remote
from .task_runner import TaskRunner

# Parquet files are divided into tasks of about this size; others can only be read from their beginning.
PART_ROWS = 500_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """`patterns` are file names with * and ?. Without `value` a message is the whole row as a JSON object."""

    patterns: tuple[tuple[str, FileFormat], ...]
    topic: str
    key: str = ""
    value: str = ""
    interval_s: float = 10.0


class Load:
    """Loads files into one topic, with one checkpoint."""

    def __init__(
        self,
        checkpoint: Path,
        remote: Remote,
        run_tasks: TaskRunner,
        options: LoadOptions,
        on_progress: Callable[[PipelineProgress], None] = lambda _: None,
    ) -> None:
        self.ledger = Ledger(checkpoint)
        self.remote, self.run_tasks, self.options = remote, run_tasks, options
        self.on_progress = on_progress
        self.messages = self.commits = 0

    def run_once(self, stop: Stop) -> None:
        """Load all files that are there and not loaded. Refused: a pattern matches none."""
        for pattern, _ in self.options.patterns:
            if not glob.glob(pattern):  # noqa: PTH207 - an absolute pattern, which Path.glob refuses
                raise Refused(f"no file matches {pattern}")
        self._files(stop)
        self.on_progress(PipelineProgress("stopped", self.messages, self.commits, 0))

    def run(self, stop: Stop) -> None:
        """Load until `stop`, looking for new files every `interval_s`."""
        while not stop.is_set():
            self._files(stop)
            self.on_progress(PipelineProgress("running", self.messages, self.commits, 0))
            stop.wait(self.options.interval_s)
        self.on_progress(PipelineProgress("stopped", self.messages, self.commits, 0))

    def _files(self, stop: Stop) -> None:
        options = self.options
        with self.remote.connect() as client:
            partitions = query_partitions(client, [options.topic])
        for pattern, kind in options.patterns:
            for name in sorted(glob.glob(pattern)):  # noqa: PTH207 - as above
                if stop.is_set():
                    return
                if not is_utf8(name):
                    raise Refused(f"{name!r}: the name of the file is not UTF-8")
                wanted = LedgerEntry(
                    name=name,
                    sha256=sha256_of(Path(name)),
                    topic=options.topic,
                    log=partitions[0].log,
                    partitions=len(partitions),
                    key=options.key,
                    value=options.value,
                )
                entry = self.ledger.settle(wanted)
                if entry is not None:
                    self.load(entry, kind)

    def load(self, entry: LedgerEntry, kind: FileFormat) -> None:
        """Load one file: run all its parts, then write that it is done."""
        self.on_progress(PipelineProgress("starting", self.messages, self.commits, 0))
        answers = self.run_tasks(LoadTask(self.remote), parts_of(entry, kind))
        rows = sum(msgspec.json.decode(one, type=int) for one in answers)
        self.ledger.write(msgspec.structs.replace(entry, rows=rows, is_done=True))
        self.messages += rows
        self.commits += 1
        self.on_progress(PipelineProgress("running", self.messages, self.commits, 0))


def is_utf8(name: str) -> bool:
    """Whether the name of a file is text; Python keeps other bytes of it as surrogates."""
    return not any("\ud800" <= one <= "\udfff" for one in name)


def parts_of(entry: LedgerEntry, kind: FileFormat) -> list[FilePart]:
    """Returns the tasks for a file. They depend on its bytes alone, so a second run makes the same."""

    def part(number: int, first: int, groups: int) -> FilePart:
        return FilePart(
            path=entry.name,
            format=kind,
            number=number,
            first_group=first,
            groups=groups,
            identity=entry.sha256,
            topic=entry.topic,
            partitions=entry.partitions,
            key=entry.key,
            value=entry.value,
        )

    if kind is not FileFormat.PARQUET:
        return [part(0, 0, 0)]
    groups = row_groups(entry.name)
    return [part(number, *one) for number, one in enumerate(grouped(groups, PART_ROWS))]


def row_groups(path: str) -> list[int]:
    """Returns how many rows each row group has. Refused: it is no Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            found = file.metadata
            return [found.row_group(one).num_rows for one in range(found.num_row_groups)]
    except (pa.ArrowInvalid, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        raise Refused(f"{path} cannot be read as parquet: {reason}") from None


def grouped(rows: Sequence[int], rows_max: int) -> list[tuple[int, int]]:
    """Returns runs of neighbours with up to so many rows, as (first, how many)."""
    found: list[tuple[int, int]] = []
    start = size = 0
    for place, count in enumerate(rows):
        if place > start and size + count > rows_max:
            found.append((start, place - start))
            start, size = place, 0
        size += count
    return [*found, (start, len(rows) - start)] if start < len(rows) else found

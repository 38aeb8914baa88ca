"""Writes the Parquet files of one task into staging, with bounded memory."""

import os
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ...codec.checksum import checksum
from ...model import TopicPartition
from .lake import STAGING, Split
from .manifest import LakeFile
from .rows import SCHEMA, by_time, content_checksum, folders_of

# A row group is written when it has so many rows or bytes: that bounds the memory of a task.
GROUP_ROWS = 128 * 1024
GROUP_BYTES = 32 << 20
# Producers choose timestamps. With more days than this at once, the file that was not written to for longest is closed.
OPEN_FILES_MAX = 16
_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Staging:
    """Where a task writes. Each `attempt` at a task has its own folder; the manifest names the files of one."""

    root: str
    commit: int
    attempt: str
    split: Split
    compression: str
    # The schema by which values are columns, too.
    schema_id: int | None = None

    @property
    def folder(self) -> str:
        return f"{self.commit:020d}/{self.attempt}"

    def path(self, name: str) -> Path:
        return Path(self.root) / STAGING / self.folder / name


@dataclass(slots=True)
class _OpenFile:
    """A file that is being written, and the rows that wait for it."""

    name: str
    folders: dict[str, str]
    writer: pq.ParquetWriter
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    waiting_rows: int = 0
    waiting_bytes: int = 0
    rows: int = 0
    first: int = -1
    last: int = -1
    keys: int = 0
    values: int = 0


class TaskFiles:
    """The files of one partition's offsets, one for each day or hour that its messages fall into."""

    def __init__(
        self, staging: Staging, partition: TopicPartition, schema: pa.Schema = SCHEMA
    ) -> None:
        self._staging, self._partition, self._schema = staging, partition, schema
        self._open: dict[int, _OpenFile] = {}
        self._done: list[LakeFile] = []
        staging.path("").mkdir(parents=True, exist_ok=True)

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows of a lake, in the order of offsets."""
        for number, part in by_time(batch, self._staging.split):
            file = self._open.pop(number, None) or self._start(number, part)
            self._open[number] = file  # Moved to the end: the first is the least recently used.
            _put(file, part)

    def close(self) -> list[LakeFile]:
        """Finish and sync all files. Returns them; the lake syncs their names."""
        for number in [*self._open]:
            self._finish(number)
        return self._done

    def _start(self, number: int, part: pa.RecordBatch) -> _OpenFile:
        if len(self._open) >= OPEN_FILES_MAX:
            self._finish(next(iter(self._open)))
        first = part.column("offset")[0].as_py()
        folders = {"topic": self._partition.topic, **folders_of(number, self._staging.split)}
        name = f"p{self._partition.number:05d}-{first:020d}-{self._staging.commit:08d}.parquet"
        staged = self._staging.path(f"{number}-{name}")
        return _OpenFile(name, folders, new_writer(staged, self._schema, self._staging.compression))

    def _finish(self, number: int) -> None:
        file = self._open.pop(number)
        _flush(file)
        file.writer.close()
        staged = f"{self._staging.folder}/{number}-{file.name}"
        size, own = sync_and_checksum(self._staging.path(f"{number}-{file.name}"))
        folder = "".join(f"{name}={value}/" for name, value in file.folders.items())
        self._done.append(
            LakeFile(
                path=f"{folder}{file.name}",
                staged=staged,
                rows=file.rows,
                size=size,
                checksum=own,
                topic=self._partition.topic,
                partition=self._partition.number,
                first=file.first,
                last=file.last,
                keys=file.keys,
                values=file.values,
                folders=file.folders,
            )
        )


def new_writer(path: Path, schema: pa.Schema, compression: str) -> pq.ParquetWriter:
    # Keys and values rarely repeat, and looking for repeats costs more than writing them.
    columns = [one.name for one in schema if one.name not in {"key", "value", "idempotency_key"}]
    return pq.ParquetWriter(
        path,
        schema,
        compression=compression,
        use_dictionary=columns,
        write_statistics=columns,
        store_schema=False,
    )


def sync_and_checksum(path: Path) -> tuple[int, int]:
    """Sync a file. Returns its size and checksum, from the bytes read back."""
    number = size = 0
    with path.open("rb") as file:
        os.fsync(file.fileno())
        while data := file.read(_READ_BYTES):
            number = checksum(data, number)
            size += len(data)
    return size, number


def _put(file: _OpenFile, part: pa.RecordBatch) -> None:
    offsets = part.column("offset")
    if file.first < 0:
        file.first = offsets[0].as_py()
    file.last = offsets[-1].as_py()
    file.rows += part.num_rows
    file.keys = content_checksum(part.column("key"), file.keys)
    file.values = content_checksum(part.column("value"), file.values)
    file.waiting.append(part)
    file.waiting_rows += part.num_rows
    file.waiting_bytes += part.nbytes
    if file.waiting_rows >= GROUP_ROWS or file.waiting_bytes >= GROUP_BYTES:
        _flush(file)


def _flush(file: _OpenFile) -> None:
    if file.waiting:
        file.writer.write_table(pa.Table.from_batches(file.waiting))
    file.waiting, file.waiting_rows, file.waiting_bytes = [], 0, 0

"""Writes the Parquet files of one task, with bounded memory."""

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from math import isfinite
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from ...errors import Refused
from ...model import TopicPartition
from .lake import STAGING, Split
from .manifest import LakeFile, folder_path
from .rows import SCHEMA, by_time, by_value, content_checksum, folders_of
from .store import HashingFile, LakeStore, store_of

# A row group is written when it has so many rows or bytes: that bounds the memory of a task.
GROUP_ROWS = 128 * 1024
GROUP_BYTES = 32 << 20
# Producers choose timestamps. With more days than this at once, the file that was not written to for longest is closed.
OPEN_FILES_MAX = 16
# Of a lake that a field of the values divides, too, more files are open at once, with smaller row groups.
_FIELD_OPEN_MAX = 8 * OPEN_FILES_MAX
# As many files of a day: who reads them side by side opens them all.
_FIELD_VALUES_MAX = 500
# Keys and values rarely repeat, and looking for repeats costs more than writing them. Offsets never repeat and times
# seldom, but their differences are small: a file of orders in JSON is 37% smaller, and made in two thirds of the time.
_UNREPEATED = frozenset({"key", "value", "idempotency_key"})
_RISING = frozenset({"offset", "timestamp"})
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TICKS_US = {"milliseconds": timedelta(milliseconds=1), "microseconds": timedelta(microseconds=1)}


@dataclass(frozen=True, slots=True)
class Staging:
    """Where a task writes. Each `attempt` at a task has its own folder or names; the manifest has the files of one."""

    root: str
    commit: int
    attempt: str
    split: Split
    compression: str
    # The schema by which values are columns, too, and the field of them that divides the files.
    schema_id: int | None = None
    partition_by: str = ""

    def places(self, store: LakeStore, number: int, folder: str, name: str) -> tuple[str, str]:
        """Returns the path that a file gets, and where it is staged; empty if the store has no renames."""
        if store.stages:
            return (
                f"{folder}{name}.parquet",
                f"{self.commit:020d}/{self.attempt}/{number}-{name}.parquet",
            )
        return f"{folder}{name}-{self.attempt}.parquet", ""


class ParquetSink:
    """One Parquet file that is being written into a store."""

    def __init__(
        self, store: LakeStore, path: str, staged: str, schema: pa.Schema, compression: str
    ) -> None:
        self.path, self.staged = path, staged
        self._metadata: list[pq.FileMetaData] = []
        self._file: HashingFile = store.open_write(f"{STAGING}/{staged}" if staged else path)
        repeated = [one for one in schema.names if one not in _UNREPEATED]
        rising = [one.name for one in schema if one.name in _RISING and _is_integer(one.type)]
        self.writer = pq.ParquetWriter(
            self._file,
            schema,
            compression=compression,
            use_dictionary=[one for one in repeated if one not in rising],
            column_encoding=dict.fromkeys(rising, "DELTA_BINARY_PACKED"),
            write_statistics=repeated,
            store_schema=False,
            metadata_collector=self._metadata,
        )

    def close(self, **more: Any) -> LakeFile:
        """Finish the file. Returns it, with `more` of its fields; the lake syncs its name."""
        self.writer.close()
        self._file.close()
        (found,) = self._metadata
        return LakeFile(
            path=self.path,
            staged=self.staged,
            rows=found.num_rows,
            size=self._file.size,
            sha256=self._file.sha256,
            ranges=column_ranges(found),
            **more,
        )


def _is_integer(kind: pa.DataType) -> bool:
    """Whether a column is stored as 64-bit integers: that of a query may have any type."""
    return bool(pa.types.is_int64(kind) or pa.types.is_timestamp(kind))


def column_ranges(found: pq.FileMetaData) -> dict[str, list[int | float | str]]:
    """Returns the least and the greatest value of each column of numbers or times, from the statistics of a file."""
    lows: dict[str, Any] = {}
    highs: dict[str, Any] = {}
    left_out: set[str] = set()
    for number in range(found.num_row_groups):
        group = found.row_group(number)
        for place in range(group.num_columns):
            column = group.column(place)
            name, known = column.path_in_schema, column.statistics
            if "." in name or known is None or not known.has_min_max:
                left_out.add(name)
                continue
            limits = _limits(known)
            if limits is None:
                left_out.add(name)
                continue
            low, high = limits
            lows[name] = min(lows.get(name, low), low)
            highs[name] = max(highs.get(name, high), high)
    return {
        name: [_plain(lows[name]), _plain(highs[name])] for name in lows if name not in left_out
    }


def _limits(known: pq.Statistics) -> tuple[Any, Any] | None:
    """Returns both ends of a column of numbers or times; None if they cannot be written, as infinity or year 10000.

    Those of a time are worked out here: pyarrow would import pandas for them.
    """
    kind = known.logical_type
    try:
        if kind.type == "TIMESTAMP":
            ticks = _TICKS_US.get(msgspec.json.decode(kind.to_json())["timeUnit"])
            if ticks is None:
                # Nanoseconds do not fit: an end that was rounded would hide rows.
                return None
            return _EPOCH + known.min_raw * ticks, _EPOCH + known.max_raw * ticks
        ends = known.min, known.max
    except (OverflowError, ValueError):
        return None
    return ends if all(map(_can_be_written, ends)) else None


def _can_be_written(end: Any) -> bool:
    if isinstance(end, float):
        return isfinite(end)
    return isinstance(end, int | date) and not isinstance(end, bool)


def _plain(one: Any) -> int | float | str:
    if isinstance(one, datetime):
        moment = one if one.tzinfo is not None else one.replace(tzinfo=UTC)
        return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    if isinstance(one, date):
        return one.isoformat()
    found: int | float = one
    return found


@dataclass(slots=True)
class _OpenFile:
    """A file that is being written, and the rows that wait for it."""

    sink: ParquetSink
    folders: dict[str, str]
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    waiting_rows: int = 0
    waiting_bytes: int = 0
    first: int = -1
    last: int = -1
    keys: int = 0
    values: int = 0


class TaskFiles:
    """The files of one partition's offsets, one for each day or hour that its messages fall into."""

    def __init__(
        self,
        staging: Staging,
        partition: TopicPartition,
        log: int,
        schema: pa.Schema = SCHEMA,
    ) -> None:
        self._staging, self._partition, self._log = staging, partition, log
        self._schema, self._store = schema, store_of(staging.root)
        self._open: dict[tuple[int, str], _OpenFile] = {}
        self._open_max = _FIELD_OPEN_MAX if staging.partition_by else OPEN_FILES_MAX
        self._values: set[str] = set()
        self._done: list[LakeFile] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows of a lake, in the order of offsets. Refused: the field that divides them has too many values."""
        for number, rows in by_time(batch, self._staging.split):
            for value, part in by_value(rows, self._staging.partition_by):
                place = (number, value)
                file = self._open.pop(place, None) or self._start(place, part)
                self._open[place] = file  # Moved to the end: the first is the least recently used.
                _put(file, part, OPEN_FILES_MAX / self._open_max)

    def close(self) -> list[LakeFile]:
        """Finish and sync all files. Returns them; the lake syncs their names."""
        for place in [*self._open]:
            self._finish(place)
        return self._done

    def _start(self, place: tuple[int, str], part: pa.RecordBatch) -> _OpenFile:
        (number, value), field = place, self._staging.partition_by
        if len(self._open) >= self._open_max:
            self._finish(next(iter(self._open)))
        self._values.add(value)
        if len(self._values) > _FIELD_VALUES_MAX:
            raise Refused(
                f"{self._partition.topic} has more than {_FIELD_VALUES_MAX} values of {field}, too many to be divided "
                "by it: use another lake"
            )
        first = part.column("offset")[0].as_py()
        own = folders_of(number, self._staging.split, field, value)
        folders = {"topic": self._partition.topic, **own}
        folder = f"{folder_path(folders)}/"
        name = f"p{self._partition.number:05d}-{first:020d}-{self._staging.commit:08d}"
        path, staged = self._staging.places(self._store, number, folder, name)
        compression = self._staging.compression
        return _OpenFile(ParquetSink(self._store, path, staged, self._schema, compression), folders)

    def _finish(self, place: tuple[int, str]) -> None:
        file = self._open.pop(place)
        _flush(file)
        self._done.append(
            file.sink.close(
                topic=self._partition.topic,
                partition=self._partition.number,
                log=self._log,
                first=file.first,
                last=file.last,
                keys=file.keys,
                values=file.values,
                folders=file.folders,
            )
        )


def _put(file: _OpenFile, part: pa.RecordBatch, share: float) -> None:
    """Add rows to a file. It writes them when they are a `share` of a row group."""
    offsets = part.column("offset")
    if file.first < 0:
        file.first = offsets[0].as_py()
    file.last = offsets[-1].as_py()
    file.keys = content_checksum(part.column("key"), file.keys)
    file.values = content_checksum(part.column("value"), file.values)
    file.waiting.append(part)
    file.waiting_rows += part.num_rows
    file.waiting_bytes += part.nbytes
    if file.waiting_rows >= GROUP_ROWS * share or file.waiting_bytes >= GROUP_BYTES * share:
        _flush(file)


def _flush(file: _OpenFile) -> None:
    if file.waiting:
        file.sink.writer.write_table(pa.Table.from_batches(file.waiting))
    file.waiting, file.waiting_rows, file.waiting_bytes = [], 0, 0

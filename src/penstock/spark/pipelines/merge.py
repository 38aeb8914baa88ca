"""Merges small files of a lake into larger ones, with the same rows: `archive compact`.

A merge is a commit like any other: its files are written aside, and one manifest takes the small files out and puts the
large one in. A reader sees the one or the other. The small files stay until `archive vacuum` removes them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from secrets import token_hex

import pyarrow as pa

from ...errors import DamagedFile
from .file_hash import hash_of
from .lake import Lake
from .manifest import LakeFile, Manifest, folder_path
from .rows import content_checksum
from .schema import arrow_schema, with_columns
from .state import LakeState
from .task_files import GROUP_BYTES, GROUP_ROWS, ParquetSink

# Parquet files of this size read well, and one more of it is soon written.
TARGET_BYTES = 128 << 20
# One commit merges at most so many bytes: a merge that is cut off repeats no more.
COMMIT_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Merge:
    """Files of one partition and one folder whose rows go into one file, in this order."""

    files: tuple[LakeFile, ...]

    @property
    def size(self) -> int:
        return sum(one.size for one in self.files)

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.files)


def plan_merges(state: LakeState, target_bytes: int = TARGET_BYTES) -> list[Merge]:
    """Returns the merges that leave no two neighbours that fit into one file. A file of half the target stays."""
    groups: dict[tuple[object, ...], list[LakeFile]] = {}
    for file in state.files.values():
        folder = file.path.rpartition("/")[0]
        groups.setdefault((folder, file.topic, file.partition, file.log), []).append(file)
    found: list[Merge] = []
    for files in groups.values():
        # Those of a stream have no offsets; the sort keeps the order of their commits.
        files.sort(key=lambda one: one.first)
        run: list[LakeFile] = []
        for file in files:
            is_small = file.size * 2 < target_bytes
            if not is_small or sum(one.size for one in run) + file.size > target_bytes:
                found.append(Merge(tuple(run)))
                run = []
            if is_small:
                run.append(file)
        found.append(Merge(tuple(run)))
    return [one for one in found if len(one.files) > 1]


def commits_of(merges: Sequence[Merge]) -> Iterator[list[Merge]]:
    """Yields merges in portions of one commit, at least one in each."""
    portion: list[Merge] = []
    for one in merges:
        if portion and sum(other.size for other in portion) + one.size > COMMIT_BYTES:
            yield portion
            portion = []
        portion.append(one)
    if portion:
        yield portion


def compact(
    lake: Lake,
    target_bytes: int = TARGET_BYTES,
    compression: str = "zstd",
    on_merge: Callable[[int, int], None] = lambda _done, _of: None,
) -> list[Manifest]:
    """Merge small files. Returns the commits. DamagedFile: a file is not what was written; nothing of it is merged."""
    merges, done = plan_merges(lake.now, target_bytes), 0
    found: list[Manifest] = []
    for portion in commits_of(merges):
        attempt, files = token_hex(4), []
        for number, merge in enumerate(portion):
            files.append(_merge(lake, merge, f"{attempt}-{number}", compression))
            done += 1
            on_merge(done, len(merges))
        paths = [file.path for merge in portion for file in merge.files]
        found.append(lake.replace(paths, files))
    return found


def _merge(lake: Lake, merge: Merge, attempt: str, compression: str) -> LakeFile:
    """Write the rows of some files into one. Returns it."""
    first, last = merge.files[0], merge.files[-1]
    folder = f"{folder_path(first.folders)}/" if first.folders else ""
    commit = lake.next_commit
    name = f"p{first.partition:05d}-{first.first:020d}" if first.topic else "rows"
    path = f"{folder}{name}-{commit:08d}-{attempt}.parquet"
    staged = f"{commit:020d}/{attempt}/merged.parquet" if lake.store.stages else ""
    schema = arrow_schema(lake.now.columns)
    sink = ParquetSink(lake.store, path, staged, schema, compression)
    keys = values = 0
    for group in _groups(_batches(lake, merge, schema)):
        if first.topic:
            for batch in group:
                keys = content_checksum(batch.column("key"), keys)
                values = content_checksum(batch.column("value"), values)
        sink.writer.write_table(pa.Table.from_batches(group))
    made = sink.close(
        topic=first.topic,
        partition=first.partition,
        log=first.log,
        first=first.first,
        last=last.last,
        keys=keys,
        values=values,
        folders=first.folders,
    )
    assert made.rows == merge.rows, "each file has the rows that its manifest says"
    return made


def _batches(lake: Lake, merge: Merge, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yields the rows of files that are what was written. DamagedFile: one is not."""
    for file in merge.files:
        place = lake.place_of(file)
        if hash_of(lake.store, place) != (file.size, file.sha256):
            raise DamagedFile(file.path, "it is not what its commit says, so it is not merged")
        keys = values = rows = 0
        for batch in lake.batches(file):
            rows += batch.num_rows
            if file.topic:
                keys = content_checksum(batch.column("key"), keys)
                values = content_checksum(batch.column("value"), values)
            yield with_columns(batch, schema)
        if (rows, keys, values) != (file.rows, file.keys, file.values):
            raise DamagedFile(file.path, "its rows are not those that its commit says")


def _groups(batches: Iterator[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Yields batches in portions of one row group."""
    group: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        group.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= GROUP_ROWS or size >= GROUP_BYTES:
            yield group
            group, rows, size = [], 0, 0
    if group:
        yield group

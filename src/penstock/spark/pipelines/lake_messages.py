"""Messages of one topic in a lake, by offset: what `penstock replay` reads where the log of the broker has ended."""

import numpy as np
import pyarrow as pa

from ...errors import DamagedFile
from ...model import Headers, MessageColumns
from .file_hash import hash_of
from .lake import LakeReader
from .lake_log import WINDOW_OFFSETS, LogRows, files_of_topic, require_archive
from .manifest import LakeFile
from .rows import moments_ns

_COLUMNS = (
    "offset",
    "timestamp",
    "nanos",
    "key",
    "value",
    "headers",
    "priority",
    "expires_at",
    "schema_id",
)
_NS_PER_US = 1000


class LakePartition:
    """One partition of a topic in a lake: the log that it is, and the offsets from `start` up to `end`.

    Offsets in between that no file has were gone when they were archived; the manifests say why.
    """

    def __init__(self, files: LakeReader, own: list[LakeFile], log: int, end: int) -> None:
        self.log, self.end = log, end
        self.start = min((one.first for one in own), default=end)
        self._files, self._own = files, own
        self._rows: LogRows | None = None
        self._at = 0

    def between(self, start: int, end: int) -> list[LakeFile]:
        """Returns the files that have messages from `start` on and before `end`."""
        return [one for one in self._own if one.first < end and one.last >= start]

    def read(self, start: int, end: int) -> MessageColumns:
        """Returns the messages from `start` on and before `end`. FileMissing: a file of the lake is gone."""
        if self._rows is None or self._at != start:
            self._rows = LogRows(self._files, self.between(start, self.end), _COLUMNS)
            self._skip(start)
        self._at = end
        return columns_of(self._rows.below(end))

    def _skip(self, start: int) -> None:
        """Leaves out what the first files have before `start`, a window at a time."""
        assert self._rows is not None, "the files are open"
        at = min((one.first for one in self.between(start, self.end)), default=start)
        while at < start:
            at = min(at + WINDOW_OFFSETS, start)
            self._rows.below(at)

    def offset_at(self, time_ns: int, end: int) -> int:
        """Returns the first offset before `end` whose message has this time or a later one; `end`: there is none."""
        rows = LogRows(self._files, self.between(0, end), ("offset", "timestamp", "nanos"))
        for window in rows.windows():
            offsets = window.column("offset").to_numpy()
            found = np.flatnonzero((moments_ns(window) >= time_ns) & (offsets < end))
            if len(found):
                return int(offsets[found[0]])
        return end


class LakeMessages:
    """A topic of a lake, by partition."""

    def __init__(self, root: str, topic: str) -> None:
        """FileMissing: there is no lake. NotFound: it has no such topic. Refused: its rows are not messages."""
        self.files, self.topic = LakeReader(root), topic
        state = self.files.state()
        require_archive(state, root)
        self.partitions = {
            name.number: LakePartition(self.files, own, state.ends[name].log, state.ends[name].end)
            for name, own in files_of_topic(self.files, state, topic).items()
        }

    def check(self, partition: int, start: int, end: int) -> None:
        """DamagedFile, FileMissing: a file that has messages of the range is not what its commit says."""
        for file in self.partitions[partition].between(start, end):
            if hash_of(self.files.store, self.files.place_of(file)) != (file.size, file.sha256):
                raise DamagedFile(
                    file.path, "it is not what its commit says, so nothing is replayed"
                )


def columns_of(rows: pa.Table) -> MessageColumns:
    """Returns rows of a lake as messages."""
    ends = rows.column("expires_at").cast(pa.int64()).to_pylist()
    return MessageColumns(
        values=rows.column("value").to_pylist(),
        keys=rows.column("key").to_pylist(),
        headers=headers_of(rows.column("headers")),
        priorities=rows.column("priority").to_pylist(),
        timestamps=moments_ns(rows).tolist(),
        expires_at=[None if one is None else one * _NS_PER_US for one in ends],
        idempotency_keys=[None] * rows.num_rows,
        schema_ids=rows.column("schema_id").to_pylist(),
        offsets=rows.column("offset").to_pylist(),
    )


def headers_of(column: pa.ChunkedArray) -> list[Headers]:
    """Returns the headers of rows. Most topics have none, and then no row is looked at."""
    if all(len(chunk.flatten()) == 0 for chunk in column.chunks):
        return [()] * len(column)
    return [tuple((one["key"], one["value"]) for one in pairs) for pairs in column.to_pylist()]

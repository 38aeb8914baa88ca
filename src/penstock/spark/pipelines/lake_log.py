"""One log of a lake: the rows of a partition in the order of offsets, whichever files they are in."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from ...codec.arrow import int64s_of
from ...errors import NotFound, Refused
from ...model import TopicPartition
from .lake import LakeReader
from .manifest import LakeFile, Manifest
from .rows import SCHEMA
from .state import LakeState

# So many offsets are read at once. The windows begin at the same offsets in every run.
WINDOW_OFFSETS = 16 * 1024


class FileRows:
    """The rows of one file, taken from its beginning on in the order of offsets."""

    def __init__(self, files: LakeReader, file: LakeFile, columns: Sequence[str]) -> None:
        self.last = file.last
        self._batches: Iterator[pa.RecordBatch] = files.batches(file, columns)
        self._rest: pa.RecordBatch | None = None

    def below(self, end: int) -> list[pa.RecordBatch]:
        """Returns the rows that were not taken yet and whose offsets are below `end`."""
        taken = []
        while True:
            batch = self._rest if self._rest is not None else next(self._batches, None)
            if batch is None:
                break
            count = int(np.searchsorted(int64s_of(batch.column("offset")), end))
            if count:
                taken.append(batch.slice(0, count))
            self._rest = batch.slice(count) if count < batch.num_rows else None
            if self._rest is not None:
                break
        return taken


def sorted_rows(batches: Sequence[pa.RecordBatch], schema: pa.Schema = SCHEMA) -> pa.Table:
    """Returns rows by offset. Files of several days have them in turns."""
    found = pa.Table.from_batches([one.cast(schema) for one in batches], schema)
    offsets = found.column("offset").to_numpy()
    # With one file at a time they are in order, and sorting would copy every value.
    return found if np.all(np.diff(offsets) > 0) else found.sort_by("offset")


class LogRows:
    """Reads files of one log side by side, up to an offset at a time."""

    def __init__(
        self, files: LakeReader, live: Sequence[LakeFile], columns: Sequence[str] = SCHEMA.names
    ) -> None:
        self._files = files
        self._schema = pa.schema([SCHEMA.field(one) for one in columns])
        self._waiting = sorted(live, key=lambda one: one.first, reverse=True)
        self._reading: list[FileRows] = []

    def below(self, end: int) -> pa.Table:
        """Returns the rows that were not taken yet and whose offsets are below `end`, by offset."""
        while self._waiting and self._waiting[-1].first < end:
            file = self._waiting.pop()
            self._reading.append(FileRows(self._files, file, self._schema.names))
        found = [batch for one in self._reading for batch in one.below(end)]
        self._reading = [one for one in self._reading if one.last >= end]
        return sorted_rows(found, self._schema)

    def windows(self) -> Iterator[pa.Table]:
        """Yields all rows by offset, in the same portions every time."""
        at = 0
        while self._waiting or self._reading:
            # A file that is open goes on behind the last window; otherwise there may be a gap.
            start = at if self._reading else self._waiting[-1].first
            at = (start // WINDOW_OFFSETS + 1) * WINDOW_OFFSETS
            found = self.below(at)
            if found.num_rows:
                yield found


def files_of_topic(
    files: LakeReader, state: LakeState, topic: str
) -> dict[TopicPartition, list[LakeFile]]:
    """Returns the files of a topic since it was made last, by partition. NotFound: the lake has no such topic."""
    names = [name for name in state.ends if name.topic == topic]
    if not names:
        known = ", ".join(sorted({name.topic for name in state.ends})[:10])
        raise NotFound("topic", f"{topic} in the lake; there are {known or 'none'}")
    if any(len(state.logs[name]) > 1 for name in names):
        names = [*partitions_since_made(files.manifests()[: state.commits], topic)]
    found: dict[TopicPartition, list[LakeFile]] = {name: [] for name in sorted(names)}
    for file in state.files.values():
        if file.name in found and file.log == state.ends[file.name].log:
            found[file.name].append(file)
    return found


def partitions_since_made(manifests: Iterable[Manifest], topic: str) -> set[TopicPartition]:
    """Returns the partitions of a topic that were archived since it was made last.

    One that was deleted and made again may have fewer partitions than before, or empty ones: what the lake has of those
    is from the topic before.
    """
    logs: dict[TopicPartition, int] = {}
    for manifest in manifests:
        spans = {one.name: one.log for one in manifest.spans if one.topic == topic}
        if any(logs.get(name, log) != log for name, log in spans.items()):
            logs = {}
        logs |= spans
    return set(logs)


def require_archive(state: LakeState, root: object) -> None:
    """Refused: the lake was filled by a stream, so its rows are not messages."""
    if state.streams:
        raise Refused(f"{root} was filled through transforms: its rows are not messages")

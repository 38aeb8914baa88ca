"""Reading the broker's files directly, where executors see its data directory.

Only segments that do not grow any more, and only as the broker lists them, after it has checked who asks; it keeps them
for a while. Every batch is checked against both of its checksums, as if it came from the broker. What is gone or not as
it should be is fetched, so that the broker says what is the matter.
"""

import logging
import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..client import Client
from ..client.queries import SegmentFile, files
from ..codec import HEAD_BYTES, Head, batches_in, read_head
from ..errors import MalformedBatch, NotFound, OffsetOutOfRange, Refused
from .decoding import Stored
from .offsets import OffsetRange
from .parts import parts_of

PIECE_BYTES = 4 << 20
_LOG = logging.getLogger("penstock.spark")
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW


class FileReader:
    """Reads what it can of a range; `data_dir` is where we see the broker's, if not where the broker does."""

    def __init__(self, data_dir: str | None) -> None:
        self._data_dir = data_dir

    def stored(self, client: Client, wanted: OffsetRange) -> Generator[Stored, None, int]:
        """The stored batches of a range as far as they are in files; returns where to go on."""
        at = wanted.start
        try:
            listed = client.run(files(wanted.topic, wanted.partition, wanted.start, wanted.end))
        except (NotFound, OffsetOutOfRange):
            return at  # Whoever fetches hears the same, and knows what to say.
        root = self._root(listed.data_dir)
        for one in listed.files:
            try:
                with _opened(root / one.path) as file:
                    for head, data in _batches(file, one, at, listed.seed):
                        if head.base_offset >= wanted.end:
                            return wanted.end
                        yield from parts_of([(head, data)], at, wanted.end)
                        at = head.next_offset
            except (FileNotFoundError, MalformedBatch) as error:
                _LOG.warning(
                    "%s: %s; the rest of %s comes from the broker", one.path, error, wanted
                )
                return at
            at = max(at, one.end)
        return at

    def _root(self, of_broker: str | None) -> Path:
        if not self._data_dir and not of_broker:
            raise Refused(
                "mode=files: this key only reads and is not told where the broker's data is; dataDir says it"
            )
        root = Path(self._data_dir or of_broker or "")
        if not os.access(root, os.R_OK | os.X_OK):
            raise Refused(
                f"mode=files: {root} cannot be read here. Executors have to see the broker's data directory, as the "
                "same user; dataDir says where, if it is another place than the broker's"
            )
        return root


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    file = os.open(path, _FLAGS)
    try:
        yield file
    finally:
        os.close(file)


def _batches(
    file: int, segment: SegmentFile, start: int, seed: int
) -> Iterator[tuple[Head, memoryview]]:
    """Whole batches, from the one that holds `start` on, verified."""
    position = _position_of(file, segment, start, seed)
    while position < segment.size_bytes:
        wanted = min(PIECE_BYTES, segment.size_bytes - position)
        piece = memoryview(os.pread(file, wanted, position))
        first = read_head(piece, seed=seed)
        if first.length > len(piece):
            piece = memoryview(os.pread(file, first.length, position))
        used = 0
        for head, data in batches_in(piece, seed=seed, is_cut=True):
            yield head, data
            used += head.length
        position += used


def _position_of(file: int, segment: SegmentFile, start: int, seed: int) -> int:
    """Where the batch begins that holds an offset. Heads are small and far apart: no index is needed."""
    position = 0
    while position < segment.size_bytes:
        head = read_head(os.pread(file, HEAD_BYTES, position), seed=seed)
        if head.next_offset > start:
            break
        position += head.length
    return position

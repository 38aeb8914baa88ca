"""Reads segment files of the broker directly, where executors see its data directory.

It reads only full segments that the broker lists after it has checked the key; the broker keeps them for a while. Both
checksums of every batch are verified. What is missing, damaged or cannot be read is fetched from the broker instead.
"""

import logging
import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..api.queries import HoldFiles, SealedFile
from ..client import Client
from ..codec import HEAD_BYTES, Head, batches_in, read_head
from ..errors import MalformedBatch, NotFound, OffsetOutOfRange, Refused
from .decoder import BatchPart, parts_of
from .offsets import OffsetRange

PIECE_BYTES = 4 << 20
_HOLD_MS = 600_000
_LOG = logging.getLogger("penstock.spark")
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW


class FileReader:
    """Reads what it can of a range. `data_dir`: the data directory as executors see it, None if as the broker does."""

    def __init__(self, data_dir: str | None) -> None:
        self._data_dir = data_dir

    def stored(self, client: Client, wanted: OffsetRange) -> Generator[BatchPart, None, int]:
        """Yields the stored batches of a range that are in files. Returns the offset to fetch from."""
        at = wanted.start
        try:
            listed = client.execute(HoldFiles(*wanted, hold_ms=_HOLD_MS))
        except (NotFound, OffsetOutOfRange):
            return at  # A fetch gets the same error, and `RangeReader` reports it.
        root = self._root(client.server().data_dir)
        for one in listed.files:
            try:
                with _open(root / one.path) as file:
                    for head, data in _batches(file, one, at, listed.seed):
                        if head.base_offset >= wanted.end:
                            return wanted.end
                        yield from parts_of([(head, data)], at, wanted.end)
                        at = head.next_offset
            except (OSError, MalformedBatch) as error:
                _LOG.warning(
                    "%s: %s; the rest of %s comes from the broker", one.path, error, wanted
                )
                return at
            at = max(at, one.end)
        return at

    def _root(self, of_broker: str) -> Path:
        if not self._data_dir and not of_broker:
            raise Refused(
                "mode=files: this key only reads and is not told where the broker's data is; dataDir says it"
            )
        root = Path(self._data_dir or of_broker)
        if not os.access(root, os.R_OK | os.X_OK):
            raise Refused(
                f"mode=files: {root} cannot be read here. Executors have to see the broker's data directory, as the "
                "same user; dataDir says where, if it is another place than the broker's"
            )
        return root


@contextmanager
def _open(path: Path) -> Iterator[int]:
    file = os.open(path, _FLAGS)
    try:
        yield file
    finally:
        os.close(file)


def _batches(
    file: int, segment: SealedFile, start: int, seed: int
) -> Iterator[tuple[Head, memoryview]]:
    """Yields verified batches, from the one that holds `start` on."""
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


def _position_of(file: int, segment: SealedFile, start: int, seed: int) -> int:
    """Returns the position of the batch that holds an offset. Heads are few, so it reads them without an index."""
    position = 0
    while position < segment.size_bytes:
        head = read_head(os.pread(file, HEAD_BYTES, position), seed=seed)
        if head.next_offset > start:
            break
        position += head.length
    return position

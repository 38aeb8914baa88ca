"""Bytes that are cut out of a log, and the files that keep them."""

from collections.abc import Iterator
from contextlib import closing
from itertools import count, zip_longest

from ..errors import NoSpace
from ..ports import Disk, File
from .layout import TEMPORARY, remove_if_there

_COPY_BYTES = 1 << 20


def pieces_of(file: File, position: int, end: int) -> Iterator[bytes]:
    """Yields the bytes between two positions, a piece at a time."""
    for start in range(position, end, _COPY_BYTES):
        yield file.read(start, min(_COPY_BYTES, end - start))


def is_blank(file: File, position: int, end: int) -> bool:
    """Whether there are only zeros, as a file system shows them where bytes never arrived."""
    return not any(map(any, pieces_of(file, position, end)))


class CutNames:
    """Free names for the files of cuts. No file of an earlier cut is ever overwritten."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._taken: set[str] = set()

    def name_for(self, wanted: str, file: File, position: int, end: int) -> str:
        """Returns `wanted`, with a number if that file holds other bytes, or an empty name if the bytes are blank.

        A file that holds these very bytes is used again: an interrupted repair left it.
        """
        if is_blank(file, position, end):
            return ""
        names = (wanted if number == 1 else f"{wanted}-{number}" for number in count(1))
        path = next(name for name in names if self._is_fit(name, file, position, end))
        self._taken.add(path)
        return path

    def _is_fit(self, path: str, file: File, position: int, end: int) -> bool:
        if path in self._taken:
            return False
        if not self._disk.exists(path):
            return True
        if self._disk.size(path) != end - position:
            return False
        with closing(self._disk.open(path)) as kept:
            pairs = zip_longest(pieces_of(kept, 0, kept.size()), pieces_of(file, position, end))
            return all(one == other for one, other in pairs)


def copy_out(disk: Disk, file: File, position: int, end: int, *, path: str) -> None:
    """Copy bytes into a new file, whose name appears when all of them are durable."""
    try:
        with closing(disk.create(path + TEMPORARY)) as copy:
            for piece in pieces_of(file, position, end):
                copy.append(piece)
            copy.sync()
    except NoSpace:
        remove_if_there(disk, path + TEMPORARY)
        raise
    disk.rename(path + TEMPORARY, path)

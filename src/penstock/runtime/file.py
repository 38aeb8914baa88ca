"""A handle of a file that grows at its end."""

import errno
import os
from collections.abc import Sequence
from functools import partial
from typing import NoReturn

from ..errors import DamagedFile, DiskFailed, FileMissing, NoSpace, Refused
from ..model import Buffer
from .descriptors import Descriptor, Inode
from .failures import OUT_OF_SPACE, translate, translated
from .open_files import OpenFiles

PARTS_MAX = os.sysconf("SC_IOV_MAX")


class RealFile:
    """One handle of a file. The owner appends and truncates; any thread may read or sync."""

    __slots__ = ("_files", "_inode")

    def __init__(self, files: OpenFiles, inode: Inode) -> None:
        self._files, self._inode = files, inode

    @property
    def path(self) -> str:
        return self._inode.path

    def size(self) -> int:
        inode = self._inode
        if inode.descriptor is None:
            self._files.check(inode)
        if self._files.is_read_only:
            self._look_again(inode)
        return inode.end

    def append(self, *parts: Buffer) -> None:
        inode = self._inode
        descriptor = inode.descriptor or self._attach_to_write(inode)
        descriptor.is_recent = True
        try:
            written = os.pwritev(descriptor.number, parts[:PARTS_MAX], inode.end)
            if written != sum(map(len, parts)):
                written = self._write_rest(descriptor, parts, written)
        except OSError as error:
            self._take_back(descriptor, error)
        inode.end += written
        descriptor.changes += 1
        if inode.descriptor is not descriptor:
            self._settle(descriptor)

    def read(self, position: int, size: int) -> bytes:
        inode = self._inode
        descriptor = inode.descriptor or self._files.attach(inode)
        descriptor.is_recent = True
        if position + size > inode.end and self._files.is_read_only:
            self._look_again(inode)
        # pread allocates what it is asked for, so a careless caller must not ask for more than there is.
        size = min(size, inode.end - position)
        if size <= 0:
            return b""
        try:
            data = os.pread(descriptor.number, size, position)
            if len(data) == size:
                return data
            return data + self._read_rest(descriptor, position + len(data), size - len(data))
        except OSError as error:
            raise translate(error, inode.path) from error

    def lend(self) -> Descriptor:
        """A descriptor for a reader: the file stays open for it, also when it is evicted."""
        inode = self._inode
        descriptor = inode.descriptor or self._files.attach(inode)
        descriptor.is_recent = True
        return descriptor

    def truncate(self, size: int) -> None:
        inode = self._inode
        descriptor = inode.descriptor or self._attach_to_write(inode)
        self._files.check_change(inode.path)
        assert 0 <= size <= inode.end, f"{inode.path} has {inode.end} bytes, not {size}"
        descriptor.was_truncated = True
        try:
            os.ftruncate(descriptor.number, size)
        except OSError as error:
            raise self._files.change_failed(error, inode.path) from error
        inode.end = size
        descriptor.changes += 1
        if inode.descriptor is not descriptor:
            self._settle(descriptor)

    def sync(self) -> None:
        inode = self._inode
        # No short cut for a file without changes: the process before us may have died between write and sync.
        descriptor = inode.descriptor or self._files.attach(inode)
        self._files.sync(descriptor, inode.path)

    def is_there(self) -> bool:
        inode = self._inode
        try:
            descriptor = inode.descriptor or self._files.attach(inode)
        except FileMissing:
            return False
        return self._files.is_at(descriptor, inode.path)

    def close(self) -> None:
        inode = self._inode
        if inode.handles:
            self._files.release(inode)
        closed = Inode(inode.path)
        closed.refusal = partial(Refused, f"the handle of {inode.path} is closed", path=inode.path)
        self._inode = closed

    def _attach_to_write(self, inode: Inode) -> Descriptor:
        """We own the directory, so the file is as we left it, or we would leave holes and overwrite."""
        descriptor = self._files.attach(inode)
        with translated(inode.path):
            size = os.fstat(descriptor.number).st_size
        if size != inode.end and not self._files.is_read_only:
            raise DamagedFile(inode.path, f"{size} bytes, and we left it with {inode.end}")
        return descriptor

    def _write_rest(self, descriptor: Descriptor, parts: Sequence[Buffer], written: int) -> int:
        """Go on after a short write or over the system's limit of parts; the total written."""
        views = [memoryview(part).cast("B") for part in parts]
        total = sum(view.nbytes for view in views)
        while written < total:
            rest = _after(views, written)[:PARTS_MAX]
            more = os.pwritev(descriptor.number, rest, self._inode.end + written)
            if more == 0:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            written += more
        return written

    def _take_back(self, descriptor: Descriptor, error: OSError) -> NoReturn:
        """Make a failed append undone, and raise what it means."""
        inode = self._inode
        self._files.check_change(inode.path)
        descriptor.was_truncated = True
        descriptor.changes += 1
        try:
            os.ftruncate(descriptor.number, inode.end)
        except OSError as second:
            raise self._files.fail(second, inode.path, DiskFailed) from error
        if error.errno in OUT_OF_SPACE:
            raise NoSpace(inode.path) from error
        raise self._files.fail(error, inode.path, DiskFailed) from error

    def _settle(self, descriptor: Descriptor) -> None:
        """The file was evicted while we wrote, and the sync that goes with it may have missed our bytes."""
        self._files.sync(descriptor, self._inode.path)
        self._files.check(self._inode)

    def _read_rest(self, descriptor: Descriptor, position: int, size: int) -> bytes:
        pieces = []
        while size > 0 and (piece := os.pread(descriptor.number, size, position)):
            pieces.append(piece)
            position, size = position + len(piece), size - len(piece)
        return b"".join(pieces)

    def _look_again(self, inode: Inode) -> None:
        """Without the lock we are not the only one: the owner may have appended since."""
        descriptor = inode.descriptor or self._files.attach(inode)
        with translated(inode.path):
            inode.end = os.fstat(descriptor.number).st_size


def _after(views: list[memoryview], count: int) -> list[memoryview]:
    """What is left of `views` when the first `count` bytes are done."""
    for place, view in enumerate(views):
        if count < view.nbytes:
            return [view[count:], *views[place + 1 :]]
        count -= view.nbytes
    return []

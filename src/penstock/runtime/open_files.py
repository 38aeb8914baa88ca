"""The files of one disk that have a handle: one inode each, few of them with a descriptor."""

import errno
import os
import stat
from collections.abc import Callable
from functools import partial
from threading import RLock

from ..errors import DamagedFile, DiskFailed, Fatal, FileMissing, PenstockError, Refused, SyncFailed
from .descriptors import Descriptor, DescriptorPool, Inode
from .failures import DiskState, reason_of, translate

_OPEN_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # NONBLOCK: a fifo must not hang us.

# Messages may be secrets of users: only the owner of the process reads them.
_FILE_MODE = 0o600


class OpenFiles:
    """Finds, opens, evicts and forgets. Everything here is the slow path; appends and reads pass it by.

    The lock is held across system calls, which is against our custom: a file that is being opened by its name
    must not be renamed or evicted in between, and an evicted one must be synced before it is opened again.
    """

    def __init__(self, root: int, limit: int, *, is_read_only: bool) -> None:
        self.is_read_only = is_read_only
        self.lock = RLock()
        self._root = root
        self._state = DiskState()
        self._pool = DescriptorPool(limit)
        self._inodes: dict[str, Inode] = {}

    def check(self, inode: Inode | None = None) -> None:
        """Raise if the disk has failed or was closed, or if the file is gone."""
        self._state.check()
        if inode is not None and inode.refusal is not None:
            raise inode.refusal()

    def check_change(self, path: str) -> None:
        self._state.check()
        if self.is_read_only:
            raise Refused(f"{path} cannot be changed: opened for reading only", path=path)

    def hold(self, path: str, *, create: bool = False) -> Inode:
        """The inode of a file, with one more handle; made if it is missing and `create`."""
        with self.lock:
            self._state.check()
            inode = self._inodes.get(path) or Inode(path)
            if inode.descriptor is None:
                self._reopen(inode, os.O_CREAT if create else 0)
            self._inodes[path] = inode
            inode.handles += 1
            return inode

    def attach(self, inode: Inode) -> Descriptor:
        """The descriptor of a file that may have lost it."""
        with self.lock:
            self.check(inode)
            return inode.descriptor or self._reopen(inode)

    def release(self, inode: Inode) -> None:
        """One handle less. The last one closes without a sync, so the caller gives up on what was not synced."""
        with self.lock:
            inode.handles -= 1
            if inode.handles == 0 and inode.refusal is None:
                self._pool.detach(inode)
                self._inodes.pop(inode.path, None)

    def forget(self, path: str) -> None:
        """The file was removed or replaced: its handles are of no use any more.

        POSIX would let them read on, but only until the descriptor is evicted; an error that depends on how many
        files are open would never be met in a test.
        """
        inode = self._inodes.pop(path, None)
        if inode is not None:
            inode.refusal = partial(FileMissing, path)
            self._pool.detach(inode)

    def move(self, old: str, new: str) -> None:
        if old == new:
            return
        self.forget(new)
        inode = self._inodes.pop(old, None)
        if inode is not None:
            inode.path = new
            self._inodes[new] = inode

    def held_below(self, directory: str) -> str | None:
        """The path of a file at or below `directory` that has a handle; None if there is none."""
        below = f"{directory}/"
        held = (path for path in self._inodes if path == directory or path.startswith(below))
        return next(held, None)

    def fail(self, error: OSError, path: str, kind: type[DiskFailed | SyncFailed]) -> Fatal:
        """Stop the whole disk and return what to raise. Every call after this one raises the same."""
        refusal: Callable[[], Fatal] = partial(kind, path, reason_of(error))
        self._stop(refusal)
        return refusal()

    def change_failed(self, error: OSError, path: str) -> PenstockError:
        """What to raise when a change did not happen. If we cannot tell why, the disk stops."""
        meaning = translate(error, path)
        # A file system that turns read-only under us does so because it found itself broken.
        if isinstance(meaning, DiskFailed) or error.errno == errno.EROFS:
            return self.fail(error, path, DiskFailed)
        return meaning

    def close(self, root_name: str) -> None:
        self._stop(partial(Refused, f"{root_name} is closed", path=root_name))

    def _stop(self, refusal: Callable[[], PenstockError]) -> None:
        # Without its descriptor a file takes the slow path, and meets the gate there.
        with self.lock:
            self._state.fail(refusal)
            for inode in self._inodes.values():
                self._pool.detach(inode)

    def _reopen(self, inode: Inode, flags: int = 0) -> Descriptor:
        self._make_room()
        descriptor = self._open(inode.path, flags)
        found = os.fstat(descriptor.number)
        if not stat.S_ISREG(found.st_mode):
            raise DamagedFile(inode.path, "not a regular file")
        descriptor.identity = found.st_dev, found.st_ino
        if inode.handles == 0:
            # Later only the owner of the file moves its end: it may be in the middle of a write, in which case
            # the system is ahead of it.
            inode.end = found.st_size
        self._pool.add(inode, descriptor)
        return descriptor

    def _open(self, path: str, flags: int) -> Descriptor:
        access = os.O_RDONLY if self.is_read_only else os.O_RDWR
        try:
            number = os.open(path, access | flags | _OPEN_FLAGS, _FILE_MODE, dir_fd=self._root)
        except OSError as error:
            raise (self.change_failed if flags else translate)(error, path) from error
        return Descriptor(number)

    def _make_room(self) -> None:
        victim = self._pool.victim()
        if victim is None:
            return
        descriptor = self._pool.detach(victim)
        assert descriptor is not None
        if not descriptor.is_clean:
            # The system reports a failed write-back to processes that have the file open. Closing before asking could
            # lose the only report, and the next sync, on a new descriptor, would promise lost bytes.
            self.sync(descriptor, victim.path)

    def is_at(self, descriptor: Descriptor, path: str) -> bool:
        """Whether the file that is open is the one that a path leads to."""
        try:
            found = os.stat(path, dir_fd=self._root, follow_symlinks=False)
            return (found.st_dev, found.st_ino) == descriptor.identity
        except OSError as error:
            meaning = translate(error, path)
            if isinstance(meaning, FileMissing):
                return False
            raise meaning.fresh() from error

    def sync(self, descriptor: Descriptor, path: str) -> None:
        """Sync through one descriptor; a failure stops the disk."""
        try:
            descriptor.sync()
        except OSError as error:
            raise self.fail(error, path, SyncFailed) from error

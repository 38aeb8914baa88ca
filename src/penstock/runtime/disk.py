"""The real disk: files below one directory, owned by one process."""

import errno
import os
import stat
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from ..config import StorageConfig
from ..errors import FileMissing, PenstockError, Refused, SyncFailed
from ..ports import File
from .failures import translate, translated
from .file import RealFile
from .lock import LOCK_NAME, DirectoryLock
from .open_files import OpenFiles

T = TypeVar("T")
_DIRECTORY_MODE = 0o700
_SYNCS_AT_ONCE = 8
# It is not empty, or a file, or a link to where an operator keeps it, or a disk of its own.
_STAYS = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EBUSY})
_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class RealDisk:
    """Implements `ports.Disk`. Thread-safe; one owner at a time appends to a file.

    A failed sync, or any other change that fails for no known reason, stops the disk: from then on every call
    raises what the first one raised.
    """

    def __init__(self, root: str | Path, config: StorageConfig) -> None:
        """Lock the directory, making it if needed; AlreadyOpen if another process has it."""
        self._root_name = os.fspath(root)
        _make_root(Path(root))
        self._root = _open_root(root)
        try:
            self._lock: DirectoryLock | None = DirectoryLock(self._root_name, self._root)
        except PenstockError:
            os.close(self._root)
            raise
        self._files = OpenFiles(self._root, config.open_files_max, is_read_only=False)
        self._durable_directories = {""}

    @classmethod
    def open_read_only(cls, root: str | Path) -> Self:
        """Look at a directory that another process may own and be writing to; every change is refused."""
        disk = cls.__new__(cls)
        disk._root_name = os.fspath(root)
        disk._root = _open_root(root)
        disk._lock = None
        limit = StorageConfig().open_files_max
        disk._files = OpenFiles(disk._root, limit, is_read_only=True)
        disk._durable_directories = {""}
        return disk

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give everything back, the lock last. Does not sync."""
        with self._files.lock:
            self._files.close(self._root_name)
            if self._root >= 0:
                os.close(self._root)
                self._root = -1
            if self._lock is not None:
                self._lock.close()
                self._lock = None

    def open(self, path: str) -> RealFile:
        return RealFile(self._files, self._files.hold(_checked(path)))

    def create(self, path: str) -> RealFile:
        self._files.check_change(_checked(path))
        file = RealFile(self._files, self._files.hold(path, create=True))
        if file.size():
            file.truncate(0)
        return file

    def exists(self, path: str) -> bool:
        self._files.check()
        try:
            self._stat(_checked(path))
        except FileMissing:
            return False
        return True

    def size(self, path: str) -> int:
        self._files.check()
        found = self._stat(_checked(path))
        _refuse_directory(path, found)
        return found.st_size

    def list(self, directory: str) -> list[str]:
        self._files.check()
        try:
            descriptor = self._open_directory(directory)
        except FileMissing:
            return []
        try:
            with translated(directory):
                names = os.listdir(descriptor)  # noqa: PTH208 - below our own root, not by its name
        finally:
            os.close(descriptor)
        return sorted(name for name in names if directory or name != LOCK_NAME)

    def make_directories(self, directory: str, *, is_synced: bool = True) -> None:
        self._files.check_change(directory)
        if directory in self._durable_directories:
            return
        parts = _checked(directory).split("/")
        for depth in range(len(parts)):
            level, parent = "/".join(parts[: depth + 1]), "/".join(parts[:depth])
            if level in self._durable_directories:
                continue
            self._make_directory(level)
            # Also when it was there before: a process that died between the two calls left a directory that is
            # only in memory, and everything we put into it would go with it.
            if is_synced:
                self.sync_directory(parent)
                self._durable_directories.add(level)

    def rename(self, old: str, new: str) -> None:
        self._files.check_change(_checked(old))
        _checked(new)
        with self._files.lock:
            # Open handles find their files again by name, so the name of a directory must not change.
            _refuse_directory(old, self._stat(old))
            with suppress(FileMissing):
                _refuse_directory(new, self._stat(new))
            try:
                os.rename(old, new, src_dir_fd=self._root, dst_dir_fd=self._root)
            except OSError as error:
                raise self._files.change_failed(error, new) from error
            self._files.move(old, new)

    def move(self, old: str, new: str) -> None:
        self._files.check_change(_checked(old))
        _checked(new)
        with self._files.lock:
            self._stat(old)
            if _is_at_or_below(new, old) or self.exists(new):
                raise Refused(f"{new} is not free for {old}", path=new)
            if (held := self._files.held_below(old)) is not None:
                raise Refused(f"{old} stays: {held} is open", path=old)
            try:
                os.rename(old, new, src_dir_fd=self._root, dst_dir_fd=self._root)
            except OSError as error:
                if error.errno == errno.EXDEV:
                    raise Refused(f"{old} stays: {new} is on another disk", path=old) from None
                raise self._files.change_failed(error, new) from error
            moved = {one for one in self._durable_directories if _is_at_or_below(one, old)}
            self._durable_directories -= moved

    def remove(self, path: str) -> None:
        self._files.check_change(_checked(path))
        with self._files.lock:
            try:
                os.unlink(path, dir_fd=self._root)
            except OSError as error:
                raise self._files.change_failed(error, path) from error
            self._files.forget(path)

    def remove_directory(self, directory: str) -> None:
        self._files.check_change(_checked(directory))
        with self._files.lock:
            try:
                os.rmdir(directory, dir_fd=self._root)
            except OSError as error:
                if error.errno in _STAYS:
                    reason = os.strerror(error.errno)
                    raise Refused(f"{directory} stays: {reason}", path=directory) from None
                raise self._files.change_failed(error, directory) from error
            self._durable_directories.discard(directory)

    def sync_directory(self, directory: str) -> None:
        self._files.check_change(directory)
        descriptor = self._open_directory(directory)
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise self._files.fail(error, directory or ".", SyncFailed) from error
        finally:
            os.close(descriptor)

    def sync_all(self, files: Sequence[File], directories: Sequence[str]) -> None:
        # A file system makes durable together what is asked of it at the same time. Each thread has its share: to hand
        # over one file after the other costs more than most syncs.
        with ThreadPoolExecutor(_SYNCS_AT_ONCE) as pool:
            for _ in pool.map(_sync_files, _shares(files)):
                pass
            for _ in pool.map(self._sync_directories, _shares(directories)):
                pass

    def _sync_directories(self, directories: Sequence[str]) -> None:
        for directory in directories:
            self.sync_directory(directory)

    def free_bytes(self) -> int:
        self._files.check()
        with translated(self._root_name):
            found = os.fstatvfs(self._root)
        return found.f_bavail * found.f_frsize

    def _stat(self, path: str) -> os.stat_result:
        with translated(path):
            return os.stat(path, dir_fd=self._root, follow_symlinks=False)

    def _open_directory(self, directory: str) -> int:
        name = _checked(directory) if directory else "."
        with translated(directory):
            return os.open(name, _DIRECTORY_FLAGS, dir_fd=self._root)

    def _make_directory(self, directory: str) -> None:
        try:
            os.mkdir(directory, _DIRECTORY_MODE, dir_fd=self._root)
        except FileExistsError:
            # Followed, unlike files: an operator may keep a topic on another disk.
            if not stat.S_ISDIR(os.stat(directory, dir_fd=self._root).st_mode):
                place = f"{self._root_name}/{directory}"
                raise Refused(f"{place} is not a directory", path=directory) from None
        except OSError as error:
            raise self._files.change_failed(error, directory) from error


def _shares(items: Sequence[T]) -> list[Sequence[T]]:
    """The items, in as many parts as are synced at once."""
    return [items[first::_SYNCS_AT_ONCE] for first in range(min(len(items), _SYNCS_AT_ONCE))]


def _sync_files(files: Sequence[File]) -> None:
    for file in files:
        file.sync()


def _checked(path: str) -> str:
    """`path`, if it stays below the root and is not ours to give away."""
    parts = path.split("/")
    if not {"", ".", ".."}.isdisjoint(parts) or "\0" in path or path == LOCK_NAME:
        raise Refused(f"{path!r} is not a path below the data directory", path=path)
    return path


def _is_at_or_below(path: str, directory: str) -> bool:
    return path == directory or path.startswith(f"{directory}/")


def _refuse_directory(path: str, found: os.stat_result) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise Refused(f"{path} is a directory", path=path)


def _open_root(root: str | Path) -> int:
    with translated(os.fspath(root)):
        return os.open(root, _DIRECTORY_FLAGS)


def _make_root(root: Path) -> None:
    """Make the data directory and what is missing above it, durably."""
    with translated(os.fspath(root)):
        missing = [level for level in (root, *root.parents) if not level.exists()]
    for level in reversed(missing):
        try:
            level.mkdir(mode=_DIRECTORY_MODE, exist_ok=True)
        except (FileNotFoundError, NotADirectoryError, FileExistsError) as error:
            raise _cannot_make(level, error) from error
        except OSError as error:
            raise translate(error, os.fspath(level)) from error
        with translated(os.fspath(level)):
            parent = os.open(level.parent, _DIRECTORY_FLAGS)
            try:
                os.fsync(parent)
            finally:
                os.close(parent)


def _cannot_make(level: Path, error: OSError) -> Refused:
    """To say that it does not exist would be no news: it was to be made."""
    why = "a link that leads nowhere is in its place"
    if isinstance(error, NotADirectoryError):
        why = f"{level.parent} is not a directory"
    elif isinstance(error, FileNotFoundError):
        why = f"{level.parent} takes no directories"
    return Refused(f"cannot make the directory {level}: {why}", path=os.fspath(level))

"""Real disks whose syncs are counted, slowed down, or left out."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from penstock.config import StorageConfig
from penstock.runtime import RealDisk
from penstock.runtime.file import RealFile

AroundSync = Callable[[RealFile], AbstractContextManager[object]]


class WatchedFile(RealFile):
    """A file around another handle, which it owns."""

    __slots__ = ("_around_sync",)

    def __init__(self, file: RealFile, around_sync: AroundSync) -> None:
        super().__init__(file._files, file._inode)
        self._around_sync = around_sync

    def sync(self) -> None:
        with self._around_sync(self):
            super().sync()


class WatchedDisk(RealDisk):
    """Enters `around_sync(file)` before each sync of a file and leaves it afterwards."""

    def __init__(self, root: str | Path, config: StorageConfig, around_sync: AroundSync) -> None:
        super().__init__(root, config)
        self._around_sync = around_sync

    def open(self, path: str) -> WatchedFile:
        return WatchedFile(super().open(path), self._around_sync)

    def create(self, path: str) -> WatchedFile:
        return WatchedFile(super().create(path), self._around_sync)


class UnsyncedDisk(WatchedDisk):
    """Syncs nothing, to prepare files faster."""

    def __init__(self, root: str | Path, config: StorageConfig) -> None:
        super().__init__(root, config, lambda _: nullcontext())

    def open(self, path: str) -> WatchedFile:
        return HastyFile(super().open(path), self._around_sync)

    def create(self, path: str) -> WatchedFile:
        return HastyFile(super().create(path), self._around_sync)

    def sync_directory(self, directory: str) -> None:
        pass


class HastyFile(WatchedFile):
    __slots__ = ()

    def sync(self) -> None:
        pass

"""A disk in memory that remembers every operation, so that a power cut can be tried at any of them."""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import accumulate

from ..errors import DiskFailed, FileMissing, NoSpace, PenstockError, Refused, SyncFailed
from ..model import Buffer
from ..ports import Entropy, File
from .faults import Call, Fault, Faults
from .operations import (
    EMPTY,
    Create,
    MakeDirectory,
    Mark,
    Move,
    Operation,
    Remove,
    RemoveDirectory,
    Rename,
    Sync,
    SyncDirectory,
    Tree,
    Truncate,
    Write,
    parent_of,
)

UNLIMITED = 1 << 62


class _NoOperations(list[Operation | Mark]):
    """Keeps nothing, for a disk of which no crash is tried."""

    def append(self, _one: Operation | Mark) -> None:
        return


class SimDisk:
    """Implements `ports.Disk`. What it holds at the start is durable; what happens later is in `operations`.

    A failed sync, or an injected failure of any other change, stops it as it stops the real disk. Not for threads.
    """

    def __init__(
        self,
        start: Tree = EMPTY,
        *,
        entropy: Entropy | None = None,
        capacity_bytes: int = UNLIMITED,
        is_forgetful: bool = False,
    ) -> None:
        """`is_forgetful`: no crash will be tried, so operations are not recorded."""
        self.start = start
        self.operations: list[Operation | Mark] = _NoOperations() if is_forgetful else []
        # May change at any time: another program fills the disk, or removes files.
        self.capacity_bytes = capacity_bytes
        self.faults = Faults(entropy)
        self._directories = set(start.directories)
        self._inodes = {
            path: _Inode(number, path, start.files[path]) for path, number in start.inodes().items()
        }
        self._inodes_made = len(self._inodes)
        # By directory, the names in it.
        self._names: dict[str, set[str]] = {}
        for path in (*self._inodes, *self._directories):
            self._add_name(path)
        self._refusal: Callable[[], PenstockError] | None = None

    def mark(self, what: object) -> None:
        """Note something about this moment, for the checks of crash states from here on."""
        self.operations.append(Mark(what))

    def inject(self, fault: Fault) -> None:
        self.faults.add(fault)

    def power_off(self) -> None:
        """Refuse every later call with DiskFailed. `power_cut` and `CrashStates` say what is left."""
        self._refusal = partial(DiskFailed, ".", "the power is off")

    def tree(self) -> Tree:
        """Everything that is on the disk now, durable or not."""
        files = {path: bytes(inode.data) for path, inode in self._inodes.items()}
        return Tree(files, frozenset(self._directories))

    def open(self, path: str) -> "SimFile":
        self.begin(Call.OPEN, _checked(path))
        return SimFile(self, self._inode(path))

    def create(self, path: str) -> "SimFile":
        self.begin(Call.CREATE, _checked(path))
        if path in self._directories:
            raise Refused(f"{path} is a directory", path=path)
        self._require_parent(path)
        if path in self._inodes:
            file = SimFile(self, self._inodes[path])
            if file.size():
                file.truncate(0)
            return file
        inode = _Inode(self._inodes_made, path, b"")
        self._inodes_made += 1
        self._inodes[path] = inode
        self._add_name(path)
        self.operations.append(Create(path, inode.number))
        return SimFile(self, inode)

    def exists(self, path: str) -> bool:
        self.check()
        return _checked(path) in self._inodes or path in self._directories

    def size(self, path: str) -> int:
        self.check()
        return len(self._inode(_checked(path)).data)

    def list(self, directory: str) -> list[str]:
        self.check()
        if directory:
            _checked(directory)
        return sorted(self._names.get(directory, ()))

    def make_directories(self, directory: str, *, is_synced: bool = True) -> None:
        self.begin(Call.MAKE_DIRECTORIES, directory)
        if not directory:
            return
        parts = _checked(directory).split("/")
        for depth in range(len(parts)):
            level, parent = "/".join(parts[: depth + 1]), "/".join(parts[:depth])
            if level in self._inodes:
                raise Refused(f"{level} is a file", path=level)
            if level not in self._directories:
                self._directories.add(level)
                self._add_name(level)
                self.operations.append(MakeDirectory(level))
                if is_synced:
                    self.sync_directory(parent)

    def rename(self, old: str, new: str) -> None:
        self.begin(Call.RENAME, _checked(old))
        inode = self._inode(old)
        if _checked(new) in self._directories:
            raise Refused(f"{new} is a directory", path=new)
        self._require_parent(new)
        if old == new:
            return
        self.operations.append(Rename(old, new, inode.number, new in self._inodes))
        self._forget(new)
        self._inodes[new] = self._inodes.pop(old)
        self._drop_name(old)
        self._add_name(new)
        inode.path = new

    def move(self, old: str, new: str) -> None:
        self.begin(Call.MOVE, _checked(old))
        if not self.exists(old):
            raise FileMissing(old)
        below = f"{old}/"
        if new.startswith(below) or self.exists(new):
            raise Refused(f"{new} is not free for {old}", path=new)
        self._require_parent(new)
        moved = [one for one in self._inodes if one == old or one.startswith(below)]
        self.operations.append(Move(old, new))
        for one in moved:
            inode = self._inodes.pop(one)
            inode.path = new + one[len(old) :]
            self._inodes[inode.path] = inode
        directories = {one for one in self._directories if one == old or one.startswith(below)}
        self._directories -= directories
        self._directories |= {new + one[len(old) :] for one in directories}
        for one in (*moved, *directories):
            self._drop_name(one)
            self._add_name(new + one[len(old) :])

    def remove(self, path: str) -> None:
        self.begin(Call.REMOVE, _checked(path))
        self._inode(path)
        self.operations.append(Remove(path))
        self._forget(path)

    def remove_directory(self, directory: str) -> None:
        self.begin(Call.REMOVE_DIRECTORY, _checked(directory))
        steps = [*accumulate(directory.split("/"), "{}/{}".format)]
        if any(step in self._inodes for step in steps):
            raise Refused(f"{directory} stays: not a directory", path=directory)
        if directory not in self._directories:
            raise FileMissing(directory)
        if self.list(directory):
            raise Refused(f"{directory} stays: it is not empty", path=directory)
        self.operations.append(RemoveDirectory(directory))
        self._directories.remove(directory)
        self._drop_name(directory)

    def vanish(self, path: str) -> None:
        """Remove a file, or a directory with all that is in it, as another program would: handles do not notice."""
        below = f"{path}/"
        for one in [one for one in self._inodes if one == path or one.startswith(below)]:
            self.operations.append(Remove(one))
            del self._inodes[one]
            self._drop_name(one)
        for one in sorted((path, *self._directories), reverse=True):
            if one in self._directories and (one == path or one.startswith(below)):
                self.operations.append(RemoveDirectory(one))
                self._directories.discard(one)
                self._drop_name(one)

    def sync_directory(self, directory: str) -> None:
        is_lie = self.begin(Call.SYNC_DIRECTORY, directory)
        if directory and _checked(directory) not in self._directories:
            raise FileMissing(directory)
        if not is_lie:
            self.operations.append(SyncDirectory(directory))

    def sync_all(self, files: Sequence[File], directories: Sequence[str]) -> None:
        for file in files:
            file.sync()
        for directory in directories:
            self.sync_directory(directory)

    def free_bytes(self) -> int:
        self.check()
        return max(0, self.capacity_bytes - self._used_bytes())

    def check(self) -> None:
        if self._refusal is not None:
            raise self._refusal()

    def begin(self, call: Call, path: str) -> bool:
        """Raise the fault that waits for this call. True: the call must do nothing and report success."""
        if self._refusal is not None:
            raise self._refusal()
        try:
            return self.faults.is_lying(call, path)
        except (DiskFailed, SyncFailed) as error:
            if call is not Call.READ:
                self._refusal = partial(type(error), path, "injected")
            raise

    def holds(self, inode: "_Inode") -> bool:
        """Whether the path of a handle still leads to its file."""
        return self._inodes.get(inode.path) is inode

    def take_space(self, path: str, size: int) -> None:
        if self.capacity_bytes != UNLIMITED and self._used_bytes() + size > self.capacity_bytes:
            raise NoSpace(path)

    def _used_bytes(self) -> int:
        return sum(len(inode.data) for inode in self._inodes.values())

    def _inode(self, path: str) -> "_Inode":
        if path in self._directories:
            raise Refused(f"{path} is a directory", path=path)
        if path not in self._inodes:
            raise FileMissing(path)
        return self._inodes[path]

    def _require_parent(self, path: str) -> None:
        parent = parent_of(path)
        if parent and parent not in self._directories:
            raise FileMissing(parent)

    def _forget(self, path: str) -> None:
        """Remove a name. Handles of the file fail from now on, as on the real disk."""
        inode = self._inodes.pop(path, None)
        if inode is not None:
            self._drop_name(path)
            inode.refusal = partial(FileMissing, path)

    def _add_name(self, path: str) -> None:
        directory, _, name = path.rpartition("/")
        self._names.setdefault(directory, set()).add(name)

    def _drop_name(self, path: str) -> None:
        directory, _, name = path.rpartition("/")
        self._names[directory].remove(name)


class SimFile:
    """One handle of a file of a `SimDisk`."""

    __slots__ = ("_disk", "_inode")

    def __init__(self, disk: SimDisk, inode: "_Inode") -> None:
        self._disk, self._inode = disk, inode

    @property
    def path(self) -> str:
        return self._inode.path

    def size(self) -> int:
        self._disk.check()
        return len(self._inode.present().data)

    def append(self, *parts: Buffer) -> None:
        inode = self._begin(Call.APPEND)
        data = b"".join(parts)
        self._disk.take_space(inode.path, len(data))
        if data:
            content = inode.writable()
            self._disk.operations.append(Write(inode.path, inode.number, len(content), data))
            content += data

    def read(self, position: int, size: int) -> bytes:
        inode = self._begin(Call.READ)
        assert position >= 0
        if size <= 0:
            return b""
        return bytes(memoryview(inode.data)[position : position + size])

    def lend(self) -> None:
        """Returns None: there is no file descriptor to lend."""
        self._disk.check()
        self._inode.present()

    def truncate(self, size: int) -> None:
        inode = self._begin(Call.TRUNCATE)
        assert 0 <= size <= len(inode.data), f"{inode.path} has {len(inode.data)} bytes, not {size}"
        self._disk.operations.append(Truncate(inode.path, inode.number, size))
        del inode.writable()[size:]

    def sync(self) -> None:
        inode = self._inode
        is_lie = self._disk.begin(Call.SYNC, inode.path)
        inode.present()
        if not is_lie:
            self._disk.operations.append(Sync(inode.path, inode.number))

    def is_there(self) -> bool:
        self._disk.check()
        return self._disk.holds(self._inode)

    def close(self) -> None:
        path = self._inode.path
        inode = _Inode(-1, path, b"")
        inode.refusal = lambda: Refused(f"the handle of {path} is closed", path=path)
        self._inode = inode

    def _begin(self, call: Call) -> "_Inode":
        self._disk.begin(call, self._inode.path)
        return self._inode.present()


class _Inode:
    __slots__ = ("data", "number", "path", "refusal")

    def __init__(self, number: int, path: str, data: bytes) -> None:
        self.number, self.path = number, path
        self.data: bytes | bytearray = data  # Shared with other disks until the first change.
        self.refusal: Callable[[], PenstockError] | None = None

    def present(self) -> "_Inode":
        if self.refusal is not None:
            raise self.refusal()
        return self

    def writable(self) -> bytearray:
        if not isinstance(self.data, bytearray):
            self.data = bytearray(self.data)
        return self.data


@lru_cache(maxsize=4096)
def _checked(path: str) -> str:
    """`path`, if it stays below the root."""
    if not path or "\0" in path or any(part in {"", ".", ".."} for part in path.split("/")):
        raise Refused(f"{path!r} is not a path below the data directory", path=path)
    return path

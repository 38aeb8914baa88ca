"""What a disk was asked to do, as the crash enumerator sees it.

Bytes belong to an inode, names belong to a directory, and the two become durable apart from each other: that is
where most crash bugs live. So a change is either one of bytes (`Write`, `Truncate`) or one of names.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import msgspec


class Write(msgspec.Struct, frozen=True, gc=False):
    path: str
    inode: int
    position: int
    data: bytes


class Truncate(msgspec.Struct, frozen=True, gc=False):
    path: str
    inode: int
    size: int


class Create(msgspec.Struct, frozen=True, gc=False):
    path: str
    inode: int


class MakeDirectory(msgspec.Struct, frozen=True, gc=False):
    path: str


class Rename(msgspec.Struct, frozen=True, gc=False):
    old: str
    new: str
    inode: int
    is_replacing: bool


class Move(msgspec.Struct, frozen=True, gc=False):
    """A directory with all that is in it, or a file, to a name that was free."""

    old: str
    new: str


class Remove(msgspec.Struct, frozen=True, gc=False):
    path: str


class RemoveDirectory(msgspec.Struct, frozen=True, gc=False):
    path: str


class Sync(msgspec.Struct, frozen=True, gc=False):
    path: str
    inode: int


class SyncDirectory(msgspec.Struct, frozen=True, gc=False):
    path: str


class Mark(msgspec.Struct, frozen=True):
    """Not an operation: what a scenario notes about this moment ("17 was acknowledged")."""

    what: object


ByteChange = Write | Truncate
NameChange = Create | MakeDirectory | Rename | Move | Remove | RemoveDirectory
Change = ByteChange | NameChange
Operation = Change | Sync | SyncDirectory


@dataclass(frozen=True, slots=True)
class Tree:
    """All files with their bytes, and all directories but the root. The bytes may be shared: never change them."""

    files: Mapping[str, bytes]
    directories: frozenset[str]

    def inodes(self) -> dict[str, int]:
        """Inode numbers of a disk that starts with this tree."""
        return {path: number for number, path in enumerate(self.files)}

    def fingerprint(self) -> int:
        # Python keeps the hash of a bytes object, so files that states share are read once.
        return hash((frozenset(self.files.items()), self.directories))


EMPTY = Tree({}, frozenset())


@lru_cache(maxsize=4096)
def parent_of(path: str) -> str:
    return path.rpartition("/")[0]


def directories_of(change: NameChange) -> set[str]:
    """The directories whose entries a change touches: it is durable when all of them were synced."""
    if isinstance(change, Rename | Move):
        return {parent_of(change.old), parent_of(change.new)}
    return {parent_of(change.path)}


def describe(operation: Operation | Mark) -> str:
    match operation:
        case Write(path, _, position, data):
            return f"write {path} [{position}:{position + len(data)}]"
        case Truncate(path, _, size):
            return f"truncate {path} to {size}"
        case Rename(old, new):
            return f"rename {old} to {new}"
        case Move(old, new):
            return f"move {old} to {new}"
        case SyncDirectory(path):
            return f"sync directory {path or '.'}"
        case Mark(what):
            return f"mark {what!r}"
        case RemoveDirectory(path):
            return f"remove directory {path}"
        case Create(path) | MakeDirectory(path) | Remove(path) | Sync(path):
            words = {Create: "create", MakeDirectory: "make directory", Remove: "remove"}
            return f"{words.get(type(operation), 'sync')} {path}"

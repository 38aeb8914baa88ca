"""Which operations a power cut may still undo, and what else goes with them.

    STRICT  What POSIX promises and no more. Every change that was not synced may be missing on its own: bytes until
            the file is synced, names until their directories are. Syncing a file does nothing for its name.

    EXT4    What ext4 with its defaults does. Changes of names and sizes go through one journal: what is lost is a
            suffix of it, and any sync writes out all of it. Unsynced bytes are lost from some place to the end of
            their file, or read as zeros. A rename over an existing file waits for the bytes of the new one
            (auto_da_alloc), one to a new name does not.

Every EXT4 state is a STRICT state. STRICT finds what is wrong on any file system, EXT4 what users of ext4 would meet.
"""

from collections.abc import Mapping
from enum import Enum
from operator import itemgetter

from .operations import (
    Change,
    NameChange,
    Operation,
    RemoveDirectory,
    Rename,
    Sync,
    SyncDirectory,
    Truncate,
    Write,
    directories_of,
)

Damage = Mapping[int, bytes | None]
"""By operation number: what reached the disk instead of a write's bytes, or None for an operation that is lost."""

_NEVER = 1 << 62


class Model(Enum):
    STRICT = "strict"
    EXT4 = "ext4"


class Strict:
    """See `Model.STRICT`."""

    def __init__(self) -> None:
        self.volatile: dict[int, Change] = {}
        # The changes of bytes among them, by inode.
        self._unsynced_bytes: dict[int, list[int]] = {}
        self._unsynced_directories: dict[int, set[str]] = {}

    def advance(self, number: int, operation: Operation) -> None:
        match operation:
            case Sync(_, inode):
                for settled in self._unsynced_bytes.pop(inode, ()):
                    del self.volatile[settled]
            case SyncDirectory(path):
                self._settle_names(path)
            case Write(_, inode) | Truncate(_, inode):
                self.volatile[number] = operation
                self._unsynced_bytes.setdefault(inode, []).append(number)
            case _:
                self.volatile[number] = operation
                self._unsynced_directories[number] = directories_of(operation)

    def with_consequences(self, damage: Damage) -> Damage:
        return damage

    def _settle_names(self, directory: str, *, before: int = _NEVER) -> None:
        removed: dict[int, str] = {}
        for number, unsynced in list(self._unsynced_directories.items()):
            if number >= before:
                break
            unsynced.discard(directory)
            if not unsynced:
                change = self.volatile.pop(number)
                del self._unsynced_directories[number]
                if isinstance(change, RemoveDirectory):
                    removed[number] = change.path
        # No change in a directory that is durably removed can matter any more, and it can no longer be synced.
        for number, path in removed.items():
            self._settle_names(path, before=number)


class Ext4:
    """See `Model.EXT4`."""

    def __init__(self) -> None:
        self._journal: dict[int, NameChange | Truncate] = {}
        # The writes of each inode that has some.
        self._unwritten: dict[int, dict[int, Write]] = {}
        self._volatile: dict[int, Change] | None = None

    @property
    def volatile(self) -> dict[int, Change]:
        if self._volatile is None:
            writes = self._unwritten.values()
            every = [*self._journal.items(), *(one for some in writes for one in some.items())]
            self._volatile = dict(sorted(every, key=itemgetter(0)))
        return self._volatile

    def advance(self, number: int, operation: Operation) -> None:
        self._volatile = None
        match operation:
            case Sync(_, inode):
                self._write_journal()
                self._unwritten.pop(inode, None)
            case SyncDirectory():
                self._write_journal()
            case Write(_, inode):
                self._unwritten.setdefault(inode, {})[number] = operation
            case _:
                self._journal[number] = operation

    def with_consequences(self, damage: Damage) -> Damage:
        """Returns the damage with the operations that cannot have survived without these."""
        if not damage:
            return damage
        whole = dict(damage)
        journal_end = self._journal_end(damage)
        cut_inodes = set()
        for number, change in self.volatile.items():
            if isinstance(change, Write):
                if change.inode in cut_inodes:
                    whole[number] = None
                elif len(whole.get(number, change.data) or b"") < len(change.data):
                    cut_inodes.add(change.inode)
            elif number >= journal_end:
                whole[number] = None
                if isinstance(change, Truncate):
                    # Later appends went to blocks that belong to the file only after the truncation.
                    cut_inodes.add(change.inode)
        return whole

    def _journal_end(self, damage: Damage) -> int:
        """The first operation that the journal cannot hold."""
        ends = [_NEVER]
        for number in damage:
            change = self.volatile[number]
            if isinstance(change, Write):
                ends.append(self._rename_waiting_for(change.inode, number))
            else:
                ends.append(number)
        return min(ends)

    def _rename_waiting_for(self, inode: int, number: int) -> int:
        for later, change in self._journal.items():
            match change:
                case Rename(inode=moved, is_replacing=True) if moved == inode and later > number:
                    return later
        return _NEVER

    def _write_journal(self) -> None:
        for number, change in self._journal.items():
            if isinstance(change, Rename) and change.is_replacing:
                writes = self._unwritten.get(change.inode, {})
                for written in [one for one in writes if one < number]:
                    del writes[written]
        self._journal.clear()


def durability(model: Model) -> Strict | Ext4:
    return Strict() if model is Model.STRICT else Ext4()

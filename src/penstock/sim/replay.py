"""Computes what is on a disk when some of its operations are lost or damaged.

Out of order, a directory entry is a register: an operation sets the names it is about, whatever they hold. So a
file whose creation was lost is absent until a rename gives it another name; a lost rename leaves the old name
and what the new one held; a lost removal leaves the file; without its directory a file is not there, also if its own
removal was lost.
"""

from .durability import Damage, Model, durability
from .operations import (
    ByteChange,
    Change,
    Create,
    MakeDirectory,
    Move,
    NameChange,
    Operation,
    Remove,
    RemoveDirectory,
    Rename,
    Tree,
    Truncate,
    Write,
    parent_of,
)

NAMES = -1  # In place of an inode number: the names as a whole.


class Names:
    """Which name leads to which inode, and which directories there are."""

    __slots__ = ("directories", "inodes")

    def __init__(self, inodes: dict[str, int], directories: set[str]) -> None:
        self.inodes, self.directories = inodes, directories

    def copy(self) -> "Names":
        return Names(dict(self.inodes), set(self.directories))

    def apply(self, change: NameChange) -> None:
        match change:
            case Create(path, inode):
                self.inodes[path] = inode
            case MakeDirectory(path):
                self.directories.add(path)
            case Rename(old, new, inode):
                self.inodes.pop(old, None)
                self.inodes[new] = inode
            case Move(old, new):
                self.inodes = {_moved(one, old, new): at for one, at in self.inodes.items()}
                self.directories = {_moved(one, old, new) for one in self.directories}
            case Remove(path):
                self.inodes.pop(path, None)
            case RemoveDirectory(path):
                self._drop_directory(path)

    def _drop_directory(self, path: str) -> None:
        """Drop a directory with all that lost removals left in it: a later one of this name starts empty."""
        below = f"{path}/"
        self.directories -= {
            one for one in self.directories if one == path or one.startswith(below)
        }
        for one in [one for one in self.inodes if one.startswith(below)]:
            del self.inodes[one]

    def drop_unreachable(self) -> None:
        lost = {path for path in self.directories if not self._is_reachable(path)}
        self.directories -= lost
        self.inodes = {
            path: inode for path, inode in self.inodes.items() if self._is_reachable(path)
        }

    def _is_reachable(self, path: str) -> bool:
        while path := parent_of(path):
            if path not in self.directories:
                return False
        return True


def _moved(path: str, old: str, new: str) -> str:
    """The name of a path after `old` has become `new`."""
    return new + path[len(old) :] if path == old or path.startswith(f"{old}/") else path


class Replay:
    """Advances along recorded operations, and computes at each of them the tree that any damage leaves.

    For names and for every file it has the last state in which all was durable and the changes since. So a damaged
    tree costs the replay of what the damage touches, and shares the rest.
    """

    def __init__(self, start: Tree, model: Model) -> None:
        self._durability = durability(model)
        self._names = Names(start.inodes(), set(start.directories))
        self._settled_names = self._names.copy()
        self._contents = dict(enumerate(start.files.values()))
        self._settled_contents = dict(self._contents)
        self._tails: dict[int, dict[int, Change]] = {NAMES: {}}
        # Whether a sync came since durable changes were last moved out of the tails.
        self._is_unsettled = False

    @property
    def volatile(self) -> dict[int, Change]:
        """What a power cut here may undo, by operation number."""
        return self._durability.volatile

    def advance(self, number: int, operation: Operation) -> None:
        self._durability.advance(number, operation)
        match operation:
            case Write(_, inode) | Truncate(_, inode):
                self._tails.setdefault(inode, {})[number] = operation
                content = self._contents.get(inode, b"")
                self._contents[inode] = changed(content, [(operation, None)])
            case Create() | MakeDirectory() | Rename() | Move() | Remove() | RemoveDirectory():
                self._tails[NAMES][number] = operation
                self._names.apply(operation)
            case _:
                self._is_unsettled = True

    def tree(self, damage: Damage) -> Tree:
        """Returns the disk after the operations so far, with `damage` and everything that follows from it."""
        damage = self._durability.with_consequences(damage)
        if damage and self._is_unsettled:
            self._settle()
        names, contents, volatile = self._names, self._contents, self.volatile
        touched = {_part_of(volatile[number]) for number in damage}
        if NAMES in touched:
            touched.remove(NAMES)
            names = self._damaged_names(damage)
        if touched:
            contents = dict(contents)
            for inode in touched:
                contents[inode] = self._damaged_content(inode, damage)
        files = {path: contents.get(inode, b"") for path, inode in names.inodes.items()}
        return Tree(files, frozenset(names.directories))

    def _damaged_names(self, damage: Damage) -> Names:
        names = self._settled_names.copy()
        for number, change in self._tails[NAMES].items():
            if number not in damage and not isinstance(change, Write | Truncate):
                names.apply(change)
        names.drop_unreachable()
        return names

    def _damaged_content(self, inode: int, damage: Damage) -> bytes:
        kept = [
            (change, damage.get(number))
            for number, change in self._tails[inode].items()
            if isinstance(change, Write | Truncate) and damage.get(number, b"") is not None
        ]
        return changed(self._settled_contents.get(inode, b""), kept)

    def _settle(self) -> None:
        """Move the changes that are durable now, up to the first that is not, out of the tails."""
        self._is_unsettled, volatile = False, self.volatile
        for part, tail in [*self._tails.items()]:
            while tail and (number := next(iter(tail))) not in volatile:
                change = tail.pop(number)
                if isinstance(change, Write | Truncate):
                    content = self._settled_contents.get(part, b"")
                    self._settled_contents[part] = changed(content, [(change, None)])
                else:
                    self._settled_names.apply(change)
            if not tail and part != NAMES:
                del self._tails[part]


def changed(content: bytes, changes: list[tuple[ByteChange, bytes | None]]) -> bytes:
    """Returns `content` after changes. The bytes beside a write, if any, reached the disk instead of its own."""
    if len(changes) == 1:
        (change, instead), *_ = changes
        if isinstance(change, Write) and change.position == len(content):
            return content + (change.data if instead is None else instead)
    result = bytearray(content)
    for change, instead in changes:
        if isinstance(change, Truncate):
            _resize(result, change.size)
            continue
        data = change.data if instead is None else instead
        if change.position > len(result):
            _resize(result, change.position)
        result[change.position : change.position + len(data)] = data
    return bytes(result)


def _resize(content: bytearray, size: int) -> None:
    del content[size:]
    # A size that survived without the bytes below it: the file system shows zeros.
    content.extend(bytes(size - len(content)))


def _part_of(change: Change) -> int:
    return change.inode if isinstance(change, Write | Truncate) else NAMES

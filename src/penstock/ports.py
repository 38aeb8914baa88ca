"""What the core asks of the world: a disk, a clock, entropy, the rules of time zones.

Each port has two implementations, a real one in `runtime` and one in `sim` that misbehaves on purpose. Both disks pass
the same suite in `tests/conformance`.
"""

from collections.abc import Sequence
from typing import Protocol

from .model import Buffer


class Lent(Protocol):
    """A descriptor of the system, open as long as this is referred to."""

    @property
    def number(self) -> int: ...


class File(Protocol):
    """A file that grows at its end. Reads see an append at once; only `sync` makes it durable.

    A handle follows its file through a rename. Once the file is removed or replaced, every use of the handle
    raises FileMissing, whatever the operating system would allow.
    """

    @property
    def path(self) -> str: ...

    def size(self) -> int: ...

    def append(self, *parts: Buffer) -> None:
        """Write all parts at the end, or nothing: NoSpace leaves the file as long as it was."""
        ...

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`; fewer only at the end of the file."""
        ...

    def lend(self) -> Lent | None:
        """For a sender that has the system send from the file. None: there is nothing to lend, so read it."""
        ...

    def truncate(self, size: int) -> None:
        """Make the file shorter; it never grows this way."""
        ...

    def sync(self) -> None:
        """Return once every byte appended so far is durable, or raise SyncFailed, which is fatal.

        May run in another thread while the owner appends.
        """
        ...

    def is_there(self) -> bool:
        """Whether the file still has its path: False if something other than this disk has removed or replaced it."""
        ...

    def close(self) -> None:
        """Give the handle back. Does not sync."""
        ...


class Disk(Protocol):
    """A tree of files below one root. Paths are relative and use '/'; the root itself is "".

    Creating, renaming and removing become durable with `sync_directory` of the directory they happen in.
    """

    def open(self, path: str) -> File:
        """An existing file; FileMissing otherwise."""
        ...

    def create(self, path: str) -> File:
        """A new, empty file; one that is there already is emptied."""
        ...

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def list(self, directory: str) -> list[str]:
        """Names in a directory, sorted; none if there is no such directory."""
        ...

    def make_directories(self, directory: str, *, is_synced: bool = True) -> None:
        """Create a directory and its parents, durably; unless `is_synced`, the caller syncs the parents."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Replace `new` by `old` in one step."""
        ...

    def move(self, old: str, new: str) -> None:
        """Give a directory with all that is in it, or a file, another name. The caller has nothing of it open.

        Refused, and nothing moved: `new` is taken or inside of `old`, or on another disk.
        """
        ...

    def remove(self, path: str) -> None: ...

    def remove_directory(self, directory: str) -> None:
        """An empty one. Refused if something is in it or it is not ours to remove; FileMissing if it is not there."""
        ...

    def sync_directory(self, directory: str) -> None: ...

    def sync_all(self, files: Sequence[File], directories: Sequence[str]) -> None:
        """Return once the files, and then the directories, are durable. Cheaper than one after the other."""
        ...

    def free_bytes(self) -> int: ...


class Clock(Protocol):
    """Two times that never mix: `now_ns` is stored, `monotonic_ns` measures waiting."""

    def now_ns(self) -> int: ...

    def monotonic_ns(self) -> int: ...


class Entropy(Protocol):
    """One source a node. Secrets of keys are drawn from it: in `runtime` it is the system's (`random.SystemRandom`).

    In simulations it is a seeded `random.Random`, and nothing is secret.
    """

    def randint(self, low: int, high: int, /) -> int: ...

    def getrandbits(self, bits: int, /) -> int: ...


class Zones(Protocol):
    """The rules of time zones. They are data: the same question has the same answer for as long as a process lives."""

    def offset_s(self, zone: str, at_s: int, /) -> int:
        """How many seconds the clocks of a zone are ahead of UTC at an instant. Refused: there is no such zone."""
        ...

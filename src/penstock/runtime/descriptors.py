"""Open descriptors of the system: few, shared, and never closed while one is used.

No lock on the way of an append. A thread that uses a descriptor holds a reference to its object, and the number is
closed when the last reference goes: the reference count is the pin. An evicted file notices after its write
(see `RealFile.append`).
"""

import os
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress

from ..errors import PenstockError


class Descriptor:
    """One open file of the system. Closed by its last user letting go of it."""

    __slots__ = (
        "changes",
        "changes_synced",
        "identity",
        "is_recent",
        "number",
        "was_truncated",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        # Device and inode of the file, once it is known to be a regular one.
        self.identity = (0, 0)
        self.is_recent = False
        self.was_truncated = False
        # Only the owner of the file counts changes, and only after making them. A sync that runs meanwhile may
        # then take a synced change for an unsynced one, never the other way round.
        self.changes = 0
        self.changes_synced = 0

    def __del__(self) -> None:
        # A Ctrl-C may have come before it had its number.
        with suppress(AttributeError):
            os.close(self.number)

    @property
    def is_clean(self) -> bool:
        return self.changes == self.changes_synced

    def sync(self) -> None:
        """Raises OSError, once: the next call may succeed although the bytes are gone."""
        changes = self.changes
        # fdatasync flushes the data and what is needed to read it back, which includes a grown size; it leaves
        # out the times. A shrunk size is not needed to read what is left, so after a truncation we do not
        # rely on it and ask for everything.
        if self.was_truncated:
            os.fsync(self.number)
        else:
            os.fdatasync(self.number)
        self.changes_synced = changes


class Inode:
    """What all handles of one file share. Follows the file when it is renamed."""

    __slots__ = ("descriptor", "end", "handles", "path", "refusal")

    def __init__(self, path: str) -> None:
        self.path = path
        self.end = 0
        self.handles = 0
        self.descriptor: Descriptor | None = None
        self.refusal: Callable[[], PenstockError] | None = None


class DescriptorPool:
    """At most `limit` files with a descriptor; second chance instead of strict order of use.

    Strict order would have every append move its file in a shared list, under a lock. A flag that an append sets
    and a sweep clears finds nearly the same victims. The caller serialises all calls.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._residents: OrderedDict[Inode, Descriptor] = OrderedDict()

    def add(self, inode: Inode, descriptor: Descriptor) -> None:
        assert len(self._residents) < self._limit
        self._residents[inode] = descriptor
        inode.descriptor = descriptor

    def detach(self, inode: Inode) -> Descriptor | None:
        """Take the descriptor away; users in flight keep theirs until they are done."""
        inode.descriptor = None
        return self._residents.pop(inode, None)

    def victim(self) -> Inode | None:
        """The descriptor to be closed before `add`, if the pool is full: a clean one, if there is any."""
        if len(self._residents) < self._limit:
            return None
        oldest_unsynced: Inode | None = None
        for _ in range(2 * self._limit):  # The first round may only clear flags.
            inode, descriptor = next(iter(self._residents.items()))
            if descriptor.is_recent:
                descriptor.is_recent = False
            elif descriptor.is_clean:
                return inode
            elif oldest_unsynced is None:
                oldest_unsynced = inode
            self._residents.move_to_end(inode)
        return oldest_unsynced or next(iter(self._residents))

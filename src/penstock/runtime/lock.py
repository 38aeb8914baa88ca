"""One process owns a data directory: an flock on `<root>/lock`, which holds the owner's process id.

The system gives the lock back when the owner dies, however it dies, so there is no stale lock to clean up.
The process id is only for the message to the second one; the lock is what counts. It belongs to all who have the same
open file, forked processes too, so a child closes its own: it may not use the directory, and could outlive the owner.
"""

import fcntl
import os
from contextlib import suppress
from weakref import WeakSet

from ..errors import AlreadyOpen
from .failures import translated

LOCK_NAME = "lock"
_PID_DIGITS_MAX = 20


_HELD: "WeakSet[DirectoryLock]" = WeakSet()


class DirectoryLock:
    """Held from construction to `close`; AlreadyOpen if somebody else holds it, this process included."""

    def __init__(self, root: str, directory: int) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        path = f"{root}/{LOCK_NAME}"
        self._owner = os.getpid()
        with translated(path):
            self._descriptor = os.open(LOCK_NAME, flags, 0o600, dir_fd=directory)
        _HELD.add(self)
        try:
            self._acquire(root, path)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go. Once more does nothing."""
        # Forgotten first: a process that is forked in between must not close whatever has this number next.
        _HELD.discard(self)
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor < 0:
            return
        # A process that was forked just before this line has the same open file, and would keep the lock. But a
        # forked one must never unlock: that would take the lock from its parent.
        if os.getpid() == self._owner:
            with suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)

    def _acquire(self, root: str, path: str) -> None:
        with translated(path):
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise AlreadyOpen(root, self._holder()) from None
        # A full disk has no room for the number and must open all the same, or nothing could be deleted.
        with suppress(OSError):
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, b"%d\n" % os.getpid(), 0)

    def _holder(self) -> str:
        pid = os.pread(self._descriptor, _PID_DIGITS_MAX, 0).strip()
        if not pid.isdigit():
            return "another process"  # It has the lock and has not written its number yet.
        return "this process" if int(pid) == os.getpid() else f"process {int(pid)}"


def _after_fork() -> None:
    """In the child: what it has inherited is not its own."""
    for lock in list(_HELD):
        lock.close()


os.register_at_fork(after_in_child=_after_fork)

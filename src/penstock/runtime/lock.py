"""One process owns a data directory: an flock on the directory, and one on `<root>/lock`, which holds the owner's
process id.

The directory's own lock is what counts, because the file can be removed or replaced under a running owner. The file is
for the message to the second process, and for file systems that lock no directories, as NFS. The system gives both back
when the owner dies, however it dies, so there is no stale lock to clean up. They belong to all processes that have the
same open files, forked ones too, so a child closes its own: it may not use the directory, and could outlive the owner.
"""

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path
from weakref import WeakSet

from ..errors import AlreadyOpen
from .failures import translated

LOCK_NAME = "lock"
_PID_DIGITS_MAX = 20
_LOOK_FLAGS = os.O_RDONLY | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
# NFS makes record locks of flocks, and wants them on files that are open for writing, which no directory is.
_NOT_FOR_DIRECTORIES = frozenset({errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.EOPNOTSUPP})

_HELD: "WeakSet[DirectoryLock]" = WeakSet()


class DirectoryLock:
    """Held from construction to `close`; AlreadyOpen if another one holds it, of this process or of another."""

    def __init__(self, root: str, directory: int) -> None:
        """`directory` is `root`, open; it stays the caller's."""
        self._owner = os.getpid()
        self._descriptors: list[int] = []
        _HELD.add(self)
        try:
            self._acquire(root, directory)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go. Once more does nothing."""
        # Forgotten first: a process that is forked in between must not close whatever has these numbers next.
        _HELD.discard(self)
        descriptors, self._descriptors = self._descriptors, []
        for descriptor in descriptors:
            # A process that was forked just before this line has the same open file, and would keep the lock. But a
            # forked one must never unlock: that would take the lock from its parent.
            if os.getpid() == self._owner:
                with suppress(OSError):
                    fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def _acquire(self, root: str, directory: int) -> None:
        with translated(root):
            # Opened anew: `directory` may be open in forked processes, too, and would keep the lock there.
            self._descriptors.append(os.open(".", _LOOK_FLAGS | os.O_DIRECTORY, dir_fd=directory))
            try:
                self._lock(root, directory)
            except OSError as error:
                if error.errno not in _NOT_FOR_DIRECTORIES:
                    raise
        with translated(f"{root}/{LOCK_NAME}"):
            file = os.open(LOCK_NAME, _FILE_FLAGS, 0o600, dir_fd=directory)
            self._descriptors.append(file)
            self._lock(root, directory)
        # A full disk has no room for the number and must open all the same, or nothing could be deleted.
        with suppress(OSError):
            os.ftruncate(file, 0)
            os.pwrite(file, b"%d\n" % os.getpid(), 0)

    def _lock(self, root: str, directory: int) -> None:
        """Lock what was opened last."""
        try:
            fcntl.flock(self._descriptors[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _written_holder(directory)
            is_ours = holder == _process(os.getpid())
            raise AlreadyOpen(root, "this process" if is_ours else holder) from None


def holder_of(root: Path) -> str | None:
    """The process that has a directory open; None if there is none, or if that is not for the caller to know."""
    try:
        directory = os.open(root, _LOOK_FLAGS | os.O_DIRECTORY)
    except OSError:
        return None
    try:
        is_held = _is_locked(directory)
        with suppress(OSError):
            file = os.open(LOCK_NAME, _LOOK_FLAGS | os.O_NOFOLLOW, dir_fd=directory)
            try:
                is_held = is_held or _is_locked(file)
            finally:
                os.close(file)
        return _written_holder(directory) if is_held else None
    finally:
        os.close(directory)


def _is_locked(descriptor: int) -> bool:
    """Whether a process owns it. Shared and given back when it is closed: two that look do not see each other."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _written_holder(directory: int) -> str:
    """The owner as it is written in the lock file. It may not have written its number yet, or the file is gone."""
    try:
        file = os.open(LOCK_NAME, _LOOK_FLAGS | os.O_NOFOLLOW, dir_fd=directory)
    except OSError:
        return "another process"
    try:
        pid = os.read(file, _PID_DIGITS_MAX).strip()
    finally:
        os.close(file)
    return _process(int(pid)) if pid.isdigit() else "another process"


def _process(number: int) -> str:
    return f"process {number}"


def _after_fork() -> None:
    """In the child: what it has inherited is not its own."""
    for lock in list(_HELD):
        lock.close()


os.register_at_fork(after_in_child=_after_fork)

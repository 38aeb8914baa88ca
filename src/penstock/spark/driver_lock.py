"""Which process of this machine is the driver of a name: the kernel frees the lock when that is gone."""

import fcntl
import os
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Self

from ..api.members import DescribeMember, LeaveGroup
from ..errors import PenstockError
from .java import cache_folder

if TYPE_CHECKING:
    from ..client import Client


class DriverLock:
    """The lock of a driver, with the number of its membership, which the one after it ends.

    That one waits then for no session to end. A driver of the same name on another machine has another number, and is
    left alone.
    """

    def __init__(self, url: str, group: str, name: str) -> None:
        self._group, self._name = group, name
        words = f"{url}\0{group}\0{name}".encode()
        self._path = Path("drivers") / f"{sha256(words).hexdigest()[:32]}.lock"
        self._file: int | None = None

    def end_former(self, client: "Client") -> None:
        """Have the broker forget the driver that had this name here, if its process is gone."""
        if self._file is None:
            return
        with suppress(ValueError, PenstockError):
            number = int(os.pread(self._file, 32, 0))
            client.execute(LeaveGroup(self._group, self._name, number))

    def note(self, client: "Client") -> None:
        """Keep the number of this driver, for the one after it."""
        if self._file is None:
            return
        standing = client.execute(DescribeMember(self._group, self._name))
        os.ftruncate(self._file, 0)
        if standing is not None:
            os.pwrite(self._file, b"%d" % standing.generation, 0)

    def __enter__(self) -> Self:
        path = cache_folder(os.environ) / self._path
        path.parent.mkdir(exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            # Another driver of the name lives here, or the file system has no locks: its session is waited for.
            self._close()
        return self

    def __exit__(self, *_error: object) -> None:
        self._close()

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

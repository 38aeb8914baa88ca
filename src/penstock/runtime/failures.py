"""What an error of the operating system means to us, and when the disk stops answering."""

import errno
import os
from collections.abc import Callable
from types import TracebackType

from ..errors import (
    DamagedFile,
    DiskFailed,
    FileMissing,
    NoSpace,
    PenstockError,
    Refused,
    Unavailable,
)

OUT_OF_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
_MISSING = frozenset({errno.ENOENT, errno.ENOTDIR})
_REFUSED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_PATH_SHOWN_MAX = 100
_OUT_OF_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})


def reason_of(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else str(error)


def translate(error: OSError, path: str) -> PenstockError:
    """Our error for one of the system; one that is not expected is a failed disk."""
    code = error.errno
    if code in _MISSING:
        return FileMissing(path)
    if code in OUT_OF_SPACE:
        return NoSpace(path)
    if code == errno.EISDIR:
        return Refused(f"{path} is a directory", path=path)
    if code == errno.ELOOP:
        return DamagedFile(path, "a symbolic link where a file should be")
    if code == errno.ENAMETOOLONG:
        start = path[:_PATH_SHOWN_MAX]
        return Refused(f"{start}...: a name of more than 255 bytes, or a path of more than 4095")
    if code in _REFUSED:
        return Refused(f"{path}: {reason_of(error)}", path=path)
    if code in _OUT_OF_DESCRIPTORS:
        return Unavailable(f"too many open files to open {path}", path=path)
    return DiskFailed(path, reason_of(error))


class translated:  # noqa: N801 - used as `contextlib.suppress` is, and a generator would take longer than the calls
    """For calls that change nothing: they raise our errors, and the disk goes on."""

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        """Nothing is held."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, OSError):
            raise translate(error, self._path) from error


class DiskState:
    """Whether the disk still answers. It fails once and for good; the first reason stays."""

    def __init__(self) -> None:
        self._refusal: Callable[[], PenstockError] | None = None

    def fail(self, refusal: Callable[[], PenstockError]) -> None:
        # A failure makes others follow; only the first one explains anything.
        self._refusal = self._refusal or refusal

    def check(self) -> None:
        # Made anew each time: a shared instance would collect the tracebacks of all threads that met it.
        if self._refusal is not None:
            raise self._refusal()

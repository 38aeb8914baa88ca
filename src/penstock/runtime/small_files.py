"""Small files outside the logs (keys, contexts, the head of the audit log): written whole or not at all."""

import os
from contextlib import suppress
from pathlib import Path

from .failures import translated

_OWNER_ONLY = 0o600
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC


def replace_file(path: Path, content: bytes) -> None:
    """Put `content` into a file that only its owner may read, so that a crash leaves the old file or the new one.

    NoSpace, Refused, DiskFailed: the file is as it was.
    """
    # With the process in its name: two commands may write the same file at the same time.
    beside = path.with_name(f"{path.name}.{os.getpid()}.new")
    with translated(os.fspath(path)):
        try:
            _write_synced(beside, content)
            beside.rename(path)
        except OSError:
            with suppress(OSError):
                beside.unlink()
            raise
        _sync_directory(path.parent)


def write_all(descriptor: int, content: bytes) -> None:
    """Write every byte. OSError: some of them may be there."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _write_synced(path: Path, content: bytes) -> None:
    descriptor = os.open(path, _FLAGS, _OWNER_ONLY)
    try:
        write_all(descriptor, content)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

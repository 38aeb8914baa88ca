"""Finds the logs below a directory, and the data directory that they belong to."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import Refused

# <data>/topics/<namespace>/<topic>/partition-<n>/messages: a log is at most so many levels below the data directory.
_LEVELS_MAX = 5
_SET_ASIDE = "set-aside"


@dataclass(frozen=True, slots=True)
class LogLocation:
    """A log: `directory` below `root`, whose lock protects it. `shown` is its path as the user wrote it."""

    root: Path
    directory: str
    shown: str

    @property
    def real(self) -> Path:
        """The directory of the log, without links."""
        return self.root / self.directory

    def is_below(self, directory: Path) -> bool:
        """Whether the log is in a directory, and not only a link to it."""
        return self.real.is_relative_to(directory.resolve())

    def show(self, path: str) -> str:
        """Returns a path of the disk as the user would write it."""
        return self.shown + path.removeprefix(self.directory)


def is_data_directory(directory: Path) -> bool:
    """Whether a directory is the data directory of a queue or broker, and not a part of it or a copy of a log."""
    return (directory / "meta").is_dir() or (directory / "topics").is_dir()


def find_logs(directory: Path) -> list[LogLocation]:
    """Returns the log in a directory, or those below it. Refused: there is none. PermissionError: no right to read."""
    logs = [_place(found) for found in _logs_in(directory, _LEVELS_MAX + 1, set())]
    if not logs:
        raise Refused(f"there is no log in {directory}", directory=str(directory))
    return logs


def _logs_in(directory: Path, levels: int, seen: set[str]) -> Iterator[Path]:
    real = os.path.realpath(directory)
    if real in seen:  # A link to a directory above.
        return
    seen.add(real)
    with os.scandir(directory) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    if any(_is_of_log(entry.name) for entry in entries):
        _require_readable(entries)
        yield directory
    elif levels:
        for entry in entries:
            # A directory that was set aside belongs to no topic until it is adopted. It is read if named itself.
            if entry.name == _SET_ASIDE and is_data_directory(directory):
                continue
            if entry.is_dir():
                yield from _logs_in(directory / entry.name, levels - 1, seen)


def _require_readable(entries: Iterable[os.DirEntry[str]]) -> None:
    """PermissionError: a file of a log may not be read, which says nothing of what is in it."""
    for entry in entries:
        if entry.is_file(follow_symlinks=False):
            try:
                Path(entry).open("rb").close()
            except PermissionError:
                raise
            except OSError:
                pass  # It is gone, or the disk does not answer: what reads the log will tell.


def _is_of_log(name: str) -> bool:
    from ..log.layout import IDENTITY, REPAIRING, base_offset_of

    return name in {IDENTITY, REPAIRING} or base_offset_of(name) is not None


def _place(directory: Path) -> LogLocation:
    """Returns the location of a log. A copy outside of a data directory has its parent as root."""
    from ..runtime.lock import LOCK_NAME, holder_of

    real = directory.resolve()
    above = list(real.parents)[:_LEVELS_MAX]
    # The lock file can be missing while a process has the data directory open.
    roots = (one for one in above if _is_plain_file(one / LOCK_NAME) or holder_of(one) is not None)
    root = next(roots, above[0])
    return LogLocation(root, real.relative_to(root).as_posix(), str(directory))


def _is_plain_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()

"""Where the logs are below a directory, and which data directory they belong to."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import Refused

# <data>/topics/<topic>/partition-<n>/messages: so far below the data directory, and its lock, a log can be.
_LEVELS_MAX = 4
_SET_ASIDE = "set-aside"


@dataclass(frozen=True, slots=True)
class Place:
    """A log: `directory` below `root`, whose lock protects it. `shown` is how the user would write it."""

    root: Path
    directory: str
    shown: str

    def show(self, path: str) -> str:
        """A path of the disk as the user would write it."""
        return self.shown + path.removeprefix(self.directory)


def is_data_directory(directory: Path) -> bool:
    """Whether a directory is the whole of a queue or broker, and not one of its parts or a copy of a log."""
    return (directory / "meta").is_dir() or (directory / "topics").is_dir()


def find_places(directory: Path) -> list[Place]:
    """The log in a directory, or those below it."""
    places = [_place(found) for found in _logs_in(directory, _LEVELS_MAX + 1, set())]
    if not places:
        raise Refused(f"there is no log in {directory}", directory=str(directory))
    return places


def _logs_in(directory: Path, levels: int, seen: set[str]) -> Iterator[Path]:
    real = os.path.realpath(directory)
    if real in seen:  # A link that leads back up.
        return
    seen.add(real)
    with os.scandir(directory) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    if any(_is_of_log(entry.name) for entry in entries):
        yield directory
    elif levels:
        for entry in entries:
            # What a start set aside belongs to no topic until it is adopted. Named itself, it is looked at.
            if entry.name == _SET_ASIDE and is_data_directory(directory):
                continue
            if entry.is_dir():
                yield from _logs_in(directory / entry.name, levels - 1, seen)


def _is_of_log(name: str) -> bool:
    from ..log.layout import IDENTITY, REPAIRING, base_offset_of

    return name in {IDENTITY, REPAIRING} or base_offset_of(name) is not None


def _place(directory: Path) -> Place:
    """A copy of a log somewhere else has no data directory: the directory it lies in takes that part."""
    from ..runtime.lock import LOCK_NAME, holder_of

    real = directory.resolve()
    above = list(real.parents)[:_LEVELS_MAX]
    # The lock file can be gone while a process has the data directory open.
    roots = (one for one in above if _is_plain_file(one / LOCK_NAME) or holder_of(one) is not None)
    root = next(roots, above[0])
    return Place(root, real.relative_to(root).as_posix(), str(directory))


def _is_plain_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()

"""Where the logs of a data directory are, also those that a crash left unfinished."""

from collections.abc import Iterator
from contextlib import suppress

from ..errors import FileMissing, Refused
from ..log.layout import CHECKPOINT, IDENTITY, base_offset_of, remove_settings
from ..ports import Disk
from .reconcile import META

_TOPICS = "topics"
# topics/<namespace>/<topic>/<partition>/<log>
_DEPTH_MAX = 4
# Of the directory of a log that is being removed.
LEAVING = ".leaving"


def log_paths(disk: Disk) -> Iterator[str]:
    """The directories that hold a log, or what is left of one."""
    if disk.list(META):
        yield META
    yield from _below(disk, _TOPICS, _DEPTH_MAX)


def _below(disk: Disk, directory: str, depth: int) -> Iterator[str]:
    names: list[str] = []
    with suppress(Refused):  # A file, or not ours to look at.
        names = disk.list(directory)
    is_log = not {IDENTITY, CHECKPOINT}.isdisjoint(names) or directory.endswith(LEAVING)
    if is_log or any(base_offset_of(name) is not None for name in names):
        yield directory
        return
    for name in names if depth else ():
        yield from _below(disk, f"{directory}/{name}", depth - 1)
    if directory.count("/") >= 2:
        # Left by a crash of a topic that was being made: refused unless it is empty.
        with suppress(Refused, FileMissing):
            remove_settings(disk, directory)
            disk.remove_directory(directory)

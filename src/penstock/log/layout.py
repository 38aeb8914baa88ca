"""Names of the files of a log, and the replacement of small files.

<directory>/identity                      the id of the log; written once
<directory>/checkpoint                    how far everything is durable and checked; replaced
<directory>/00000000000000000042.log      batches from offset 42 on
<directory>/00000000000000000042.index, .timeindex
<directory>/00000000000000000042.journeys  which messages the records of a state segment are about
<directory>/00000000000000000042.cut-512  bytes that a recovery or a repair took out at byte 512

Only while a repair is under way or was interrupted:
<directory>/identity.repairing            the identity: without its name the log cannot be opened
<directory>/00000000000000000042.log.parked
"""

import re
from contextlib import closing, suppress

from ..codec.head import OFFSET_MAX
from ..errors import NoSpace, Refused
from ..model import Buffer, Offset
from ..ports import Disk

LOG, INDEX, TIME_INDEX, JOURNEY_INDEX = ".log", ".index", ".timeindex", ".journeys"
INDEXES = (INDEX, TIME_INDEX, JOURNEY_INDEX)
IDENTITY, CHECKPOINT = "identity", "checkpoint"
REPAIRING, PARKED = "identity.repairing", ".parked"
TEMPORARY = ".tmp"
# Of a topic, beside the directories of its partitions.
SETTINGS = "settings"
_SEGMENT = re.compile(r"(\d{20})\.log", re.ASCII)
_INDEX = re.compile(r"(\d{20})\.(?:index|timeindex|journeys)", re.ASCII)


def segment_path(directory: str, base_offset: int, suffix: str = LOG) -> str:
    return f"{directory}/{base_offset:020d}{suffix}"


def cut_path(directory: str, base_offset: int, position: int) -> str:
    return segment_path(directory, base_offset, f".cut-{position}")


def base_offset_of(name: str) -> Offset | None:
    """Returns the first offset in a segment with this file name, or None if it is not a segment's name."""
    found = _SEGMENT.fullmatch(name)
    base = int(found[1]) if found else OFFSET_MAX
    return Offset(base) if base < OFFSET_MAX else None


def indexed_offset_of(name: str) -> Offset | None:
    """Returns the first offset of the segment of an index with this file name, or None."""
    found = _INDEX.fullmatch(name)
    return Offset(int(found[1])) if found else None


def replace_file(disk: Disk, directory: str, name: str, *parts: Buffer) -> None:
    """Put `parts` into a file so that a crash leaves the old file or the new one, whole.

    The content is synced before the rename, or the new name could stand for an empty file; the directory is
    synced after it, or the caller could go on to remove what only the old file still knew about. NoSpace: the
    old file is as it was.
    """
    path = f"{directory}/{name}" if directory else name
    temporary = path + TEMPORARY
    try:
        with closing(disk.create(temporary)) as file:
            file.append(*parts)
            file.sync()
        disk.rename(temporary, path)
    except NoSpace:
        remove_if_there(disk, temporary)
        raise
    disk.sync_directory(directory)


def remove_segment(disk: Disk, directory: str, base_offset: int) -> None:
    for suffix in (*INDEXES, LOG):
        remove_if_there(disk, segment_path(directory, base_offset, suffix))


def remove_if_there(disk: Disk, path: str) -> bool:
    is_there = disk.exists(path)
    if is_there:
        disk.remove(path)
    return is_there


def remove_settings(disk: Disk, directory: str, *, is_alone: bool = True) -> None:
    """Remove the settings in the directory of a topic, by default only if nothing else is left there."""
    ours, names = {SETTINGS, SETTINGS + TEMPORARY}, {*disk.list(directory)}
    for name in ours & names if names <= ours or not is_alone else ():
        with suppress(Refused):
            disk.remove(f"{directory}/{name}")


def read_file(disk: Disk, path: str) -> bytes:
    with closing(disk.open(path)) as file:
        return file.read(0, file.size())

"""The directories of topics: which are there, whose they are, and how they leave.

    topics/<namespace>/<name>.<id>/partition-<n>/messages, state, delayed, staging
    topics/<namespace>/<name>.<id>/settings
    set-aside/<name>.<id>                   a topic that meta does not know
    set-aside/<name>.<id>-partition-<n>     a partition that meta does not know, of a topic that it does
    set-aside/<name>.<id>-partition-<n>-state   one of its logs, which `log repair --forget-progress` replaced
    set-aside/<name>.<id>-2                 the next one, if the name was taken

What lies in `topics/` itself and has the name of a topic's directory is one that is out of place. Everything else there
is the directory of a namespace.

Only what an intent in meta names is ever removed. Everything else that is unknown moves to `set-aside` and stays there.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from ..errors import Damaged, FileMissing, NoSpace, Refused
from ..log.layout import base_offset_of, remove_settings
from ..log.snapshot import SUFFIX as SNAPSHOT
from ..ports import Disk

TOPICS, SET_ASIDE = "topics", "set-aside"
DEFAULT_NAMESPACE = "default"
"""The namespace of all topics, as long as there are no others."""
LOGS = ("messages", "state", "delayed", "staging")
# A partition's id as one number has 20 bits for the partition and is a signed 64-bit integer.
TOPIC_ID_MAX = (1 << 43) - 1
_NUMBER = "0|[1-9][0-9]*"
_TOPIC = re.compile(rf"(.+)\.({_NUMBER})")
_SET_ASIDE = re.compile(rf"(.+)\.({_NUMBER})(?:-partition-({_NUMBER}))?(?:-[1-9][0-9]*)?")
_PARTITION = re.compile(rf"partition-({_NUMBER})")


class TopicEntry(NamedTuple):
    """What the name of a topic's directory says."""

    name: str
    topic_id: int
    # Below zero: it is the whole topic.
    partition: int = -1


def topic_directory(namespace: str, name: str, topic_id: int) -> str:
    return f"{TOPICS}/{namespace}/{name}.{topic_id}"


def topic_entry(entry: str) -> TopicEntry | None:
    """The topic that a directory belongs to, by the last part of its path; None if it has not the name of a topic's."""
    return _entry(_TOPIC.fullmatch(entry.rpartition("/")[2]))


def set_aside_entry(entry: str) -> TopicEntry | None:
    """The topic that an entry of `set-aside/` belonged to; None if its name does not say."""
    return _entry(_SET_ASIDE.fullmatch(entry))


def _entry(found: re.Match[str] | None) -> TopicEntry | None:
    if found is None or len(found[2]) >= 20 or int(found[2]) > TOPIC_ID_MAX:
        return None
    *_, partition = found.groups()
    is_partition = len(found.groups()) > 2 and partition is not None
    return TopicEntry(found[1], int(found[2]), int(partition) if is_partition else -1)


def partition_number(entry: str) -> int | None:
    """The number of the partition whose directory has this name; None if it is none."""
    found = _PARTITION.fullmatch(entry)
    return int(found[1]) if found and len(found[1]) < 10 else None


def paths_in_topics(disk: Disk) -> Iterator[str]:
    """Everything in the directories of namespaces, and topics' directories that are beside those."""
    for entry in disk.list(TOPICS):
        path = f"{TOPICS}/{entry}"
        if topic_entry(entry) is not None:
            yield path
            continue
        # A file, or not ours to look at.
        with suppress(Refused):
            yield from (f"{path}/{one}" for one in disk.list(path))


def ids_present(disk: Disk) -> Iterator[int]:
    """Ids of all topics that have left something on the disk."""
    for entry in paths_in_topics(disk):
        if (found := topic_entry(entry)) is not None:
            yield found.topic_id
    for entry in disk.list(SET_ASIDE):
        if (found := set_aside_entry(entry)) is not None:
            yield found.topic_id


def is_untouched(disk: Disk, directory: str) -> bool:
    """Whether nothing was ever written to a partition: no message, no state, no snapshot."""
    for log in LOGS:
        path = f"{directory}/{log}"
        for name in disk.list(path):
            base = base_offset_of(name)
            if base is None and not name.endswith(SNAPSHOT):
                continue
            if base != 0 or disk.size(f"{path}/{name}") > 0:
                return False
    return True


def is_missing(disk: Disk, directory: str) -> bool:
    """Whether there is nothing of a directory. One that cannot be listed is there."""
    try:
        return not disk.list(directory)
    except (Damaged, Refused):
        return False


def set_aside(disk: Disk, path: str) -> str:
    """Move the directory of a topic, a partition or a log to `set-aside/`, durably; its path there.

    Refused: it cannot be moved, and is where it was.
    """
    parent, wanted = path.rpartition("/")[0], set_aside_name(path)
    disk.make_directories(SET_ASIDE)
    taken = {*disk.list(SET_ASIDE)}
    number, name = 1, wanted
    while name in taken:
        number += 1
        name = f"{wanted}-{number}"
    disk.move(path, f"{SET_ASIDE}/{name}")
    # First where it came to: a crash between the two may leave both names, never none.
    disk.sync_directory(SET_ASIDE)
    disk.sync_directory(parent)
    return f"{SET_ASIDE}/{name}"


def set_aside_name(path: str) -> str:
    """The name in `set-aside/` of a directory of a topic, a partition or a log, if it is not taken."""
    parts = path.split("/")
    is_partition = partition_number(parts[-1]) is not None
    return "-".join(parts[-3:] if parts[-1] in LOGS else parts[-2:] if is_partition else parts[-1:])


def remove_topic(disk: Disk, directory: str) -> None:
    """Remove the files of a topic that an intent names, durably. What is not ours stays, and its directory with it."""
    if not disk.exists(directory):
        return
    for entry in disk.list(directory):
        if partition_number(entry) is not None:
            _remove_partition(disk, f"{directory}/{entry}")
    remove_settings(disk, directory, is_alone=False)
    _remove_if_empty(disk, directory)
    disk.sync_directory(directory.rpartition("/")[0])


def remove_partitions(disk: Disk, directories: Sequence[str]) -> None:
    """Remove the files of partitions of a topic that an intent names, durably. What is not ours stays, as above."""
    there = [directory for directory in directories if disk.exists(directory)]
    for directory in there:
        _remove_partition(disk, directory)
    if there:
        disk.sync_directory(there[0].rpartition("/")[0])


def remove_empty(disk: Disk, directory: str) -> bool:
    """Remove the directory of a topic, or of a partition, if there is no file in it. True: it is gone.

    A crash, or another leader whose history is not this one, may leave directories and no intent that names them.
    """
    if partition_number(directory.rpartition("/")[2]) is None:
        with suppress(Refused, FileMissing):
            for entry in disk.list(directory):
                remove_empty(disk, f"{directory}/{entry}")
            remove_settings(disk, directory)
    for path in (*(f"{directory}/{log}" for log in LOGS), directory):
        with suppress(Refused, FileMissing):
            disk.remove_directory(path)
    return not disk.exists(directory)


def _remove_partition(disk: Disk, directory: str) -> None:
    for log in LOGS:
        path = f"{directory}/{log}"
        for file in disk.list(path):
            with suppress(Refused):
                disk.remove(f"{path}/{file}")
        _remove_if_empty(disk, path)
    _remove_if_empty(disk, directory)


def _remove_if_empty(disk: Disk, directory: str) -> None:
    """What is removed in a directory that stays has to be durable by itself."""
    if not disk.exists(directory):
        return
    with suppress(FileMissing, NoSpace):
        try:
            disk.remove_directory(directory)
        except Refused:
            disk.sync_directory(directory)

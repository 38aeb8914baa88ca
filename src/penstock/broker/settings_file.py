"""The settings of a topic, kept beside its partitions: where meta is lost, an adoption restores them.

A line of JSON, and one with its CRC32C in hexadecimal. Meta is what counts: the making of the topic, each change, and a
start of a node that is alone write the file where it says something else. Nothing waits until it is durable.
"""

from contextlib import closing, suppress
from typing import Any

import msgspec

from ..codec.checksum import checksum
from ..config import TopicConfig
from ..errors import Damaged, DamagedFile, Refused, Unavailable
from ..log.layout import SETTINGS, TEMPORARY, read_file
from ..ports import Disk
from .topics import TopicFacts, settings_of


def keep_settings(disk: Disk, facts: TopicFacts) -> None:
    """Write the settings of a topic where the file has others. Without room the next start does it."""
    path, content = f"{facts.directory}/{SETTINGS}", _content_of(facts.config)
    with suppress(Unavailable, Damaged, Refused):
        if read_file(disk, path) == content:
            return
    with suppress(Unavailable, Damaged, Refused):
        with closing(disk.create(path + TEMPORARY)) as file:
            file.append(content)
        disk.rename(path + TEMPORARY, path)


def kept_settings(disk: Disk, directory: str) -> dict[str, Any]:
    """Returns the settings that are kept in the directory of a topic; without the file there are none.

    DamagedFile: they cannot be read.
    """
    path = f"{directory}/{SETTINGS}"
    if not disk.exists(path):
        return {}
    line, _, mark = read_file(disk, path).partition(b"\n")
    if mark != _mark(line):
        raise DamagedFile(path, "the checksum is wrong; say the settings with `--set`")
    return msgspec.json.decode(line, type=dict[str, Any])


def _content_of(config: TopicConfig) -> bytes:
    line = msgspec.json.encode(settings_of(config))
    return line + b"\n" + _mark(line)


def _mark(line: bytes) -> bytes:
    return b"%08x\n" % checksum(line)

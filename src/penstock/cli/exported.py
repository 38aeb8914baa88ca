"""A topic as files: what `penstock export` writes and `penstock import` reads.

`topic.json` has the settings, the range, size and seed of each partition, and how far each group was. A partition is a
file of batches as the broker stores them, with their checksums; `delayed.jsonl` has a line for each message that waits.
"""

import mmap
import os
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from ..client.replies import REPLY_BYTES_MAX
from ..codec import Head, batches_in, decode_columns
from ..errors import MalformedBatch, Refused
from ..model import Message, MessageColumns
from .transfer import FETCH_BYTES, Range, columns_between

VERSION = 1
TOPIC_FILE, DELAYED_FILE = "topic.json", "delayed.jsonl"


class PartitionFile(msgspec.Struct, frozen=True):
    """One partition: offsets from `start` to `end`, in a file of so many bytes, sealed with `seed`."""

    partition: int
    start: int
    end: int
    seed: int
    size: int = 0


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """What `topic.json` says. `groups` has the offset that each group reads next, by partition."""

    version: int
    id: str
    topic: str
    config: dict[str, Any]
    partitions: list[PartitionFile]
    groups: dict[str, dict[int, int]]
    delayed: int


class DelayedLine(msgspec.Struct, frozen=True):
    """A message that waits for its time."""

    partition: int
    id: int
    due_ns: int
    delay_key: bytes | None
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    priority: int

    @classmethod
    def of(
        cls, partition: int, id_: int, due_ns: int, delay_key: bytes | None, one: Message
    ) -> "DelayedLine":
        headers = [(name, value) for name, value in one.headers]
        return cls(partition, id_, due_ns, delay_key, one.key, one.value, headers, one.priority)


def partition_file(folder: Path, partition: int) -> Path:
    return folder / f"partition-{partition:05}.batches"


def write_synced(path: Path, content: bytes) -> None:
    """Writes a small file, and waits until the disk has it."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def read_exported(folder: Path) -> Exported:
    """Returns what a directory holds. Refused: it is no export, not a whole one, or a later version."""
    try:
        found = msgspec.json.decode((folder / TOPIC_FILE).read_bytes(), type=Exported)
    except OSError as error:
        raise Refused(f"{folder} is no export: {TOPIC_FILE}: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise Refused(f"{folder} is no export: {TOPIC_FILE}: {error}") from None
    if found.version != VERSION:
        raise Refused(f"{folder} has version {found.version}; this program knows {VERSION}")
    for one in found.partitions:
        file = partition_file(folder, one.partition)
        size = file.stat().st_size if file.is_file() else -1
        if size != one.size:
            raise Refused(f"{file} is not whole: {max(size, 0)} bytes instead of {one.size}")
    return found


def read_delayed(folder: Path, exported: Exported) -> list[DelayedLine]:
    """Returns the messages that wait. Refused: some of them are not there, or damaged."""
    file = folder / DELAYED_FILE
    try:
        lines = file.read_bytes().splitlines()
        found = [msgspec.json.decode(line, type=DelayedLine) for line in lines]
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise Refused(f"{file} is damaged: {reason}") from None
    if len(found) != exported.delayed:
        raise Refused(f"{file} is not whole: {len(found)} lines instead of {exported.delayed}")
    return found


class ExportReader:
    """Reads the messages of an export."""

    def __init__(self, folder: Path, exported: Exported) -> None:
        """Checks every batch. Refused: one is damaged."""
        self._folder = folder
        self._files = {one.partition: one for one in exported.partitions}
        self._batches = {one.partition: self._opened(one) for one in exported.partitions}

    def read(self, one: Range, at: int, end: int) -> tuple[int, list[MessageColumns]]:
        """Returns some messages from an offset on, and the offset behind them."""
        taken, size, following = [], 0, end
        for head, batch in self._from(one.partition, at):
            if head.base_offset >= end:
                break
            if size >= FETCH_BYTES:
                following = head.base_offset
                break
            taken.append((head, batch))
            size += len(batch)
        return following, [*columns_between(taken, at, following)]

    def count_before(self, partition: int, offset: int) -> int:
        """Returns how many messages an export has before an offset: where that offset is in a topic without gaps.

        A group that read on during the export may be behind its end; it begins there.
        """
        start, count = self._files[partition].start, 0
        offset = min(offset, self._files[partition].end)
        for head, batch in self._from(partition, start):
            if head.base_offset >= offset:
                break
            if start <= head.base_offset and head.next_offset <= offset:
                count += head.message_count
                continue
            offsets = decode_columns(batch, head, size_max=REPLY_BYTES_MAX).offsets
            count += bisect_left(offsets, offset) - bisect_left(offsets, start)
        return count

    def _from(self, partition: int, at: int) -> Iterator[tuple[Head, memoryview]]:
        batches = self._batches[partition]
        return iter(batches[bisect_left(batches, at, key=lambda one: one[0].last_offset) :])

    def _opened(self, one: PartitionFile) -> list[tuple[Head, memoryview]]:
        path = partition_file(self._folder, one.partition)
        if not one.size:
            return []
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        try:
            return [*batches_in(memoryview(data), seed=one.seed)]
        except MalformedBatch as error:
            raise Refused(f"{path} is damaged: {error}") from None


def summary(exported: Exported) -> dict[str, Any]:
    return {
        "topic": exported.topic,
        "partitions": len(exported.partitions),
        "offsets": sum(one.end - one.start for one in exported.partitions),
        "bytes": sum(one.size for one in exported.partitions),
        "delayed": exported.delayed,
        "groups": sorted(exported.groups),
    }

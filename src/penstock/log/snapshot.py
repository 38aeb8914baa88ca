"""Snapshots: a machine's state in a file, so that a restart does not replay all records.

     0  u32  magic            "PNSS"
     4  u32  version          1
     8  i64  state offset     everything the state log holds below it is in here
    16  u64  message epoch    \\  end of the message log when this was the state
    24  i64  message offset   /
    32  u64  body bytes
    40  u32  (zero)
    44  u32  checksum         CRC32C of bytes 0..43, seeded with the state log's id
    48  ...  batches of records, each with its own checksums

A snapshot is written after both logs are durable up to it, so one that is ahead of its log is damage.
"""

import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from ..codec import Marks, batches_in
from ..codec.checksum import checksum
from ..codec.head import pack_head
from ..errors import DamagedFile, MalformedBatch
from ..model import Buffer, Epoch, LogEnd, Offset
from ..ports import Disk
from .layout import read_file, replace_file
from .records import RecordFormat

Record = TypeVar("Record")
SUFFIX = ".snapshot"
_MAGIC = 0x53534E50  # b"PNSS"
_VERSION = 1
_FIELDS = struct.Struct("<IIqQqQI")
_HEADER = struct.Struct("<IIqQqQII")
_NAME = re.compile(r"(\d{20})\.snapshot", re.ASCII)
# Keeps a batch of records far below the size limit of a batch, whatever the records hold.


@dataclass(frozen=True, slots=True)
class SnapshotPlan:
    """A snapshot ready to be written. Run it after the plans that make its two logs durable."""

    disk: Disk
    directory: str
    offset: Offset
    content: tuple[Buffer, ...]

    def run(self) -> None:
        replace_file(self.disk, self.directory, _name(self.offset), *self.content)


@dataclass(frozen=True, slots=True)
class Snapshot(Generic[Record]):
    """A snapshot that was read and checked."""

    path: str
    offset: Offset
    message_end: LogEnd
    body: memoryview


def _name(offset: int) -> str:
    return f"{offset:020d}{SUFFIX}"


def snapshot_path(directory: str, offset: int) -> str:
    return f"{directory}/{_name(offset)}"


def snapshot_offsets(disk: Disk, directory: str) -> list[Offset]:
    """Returns the offsets of all snapshots, oldest first."""
    return offsets_among(disk.list(directory))


def offsets_among(names: Iterable[str]) -> list[Offset]:
    """Returns the offsets of the snapshots among these files."""
    found = (_NAME.fullmatch(name) for name in names)
    return [Offset(int(name[1])) for name in found if name]


def remove_snapshot(disk: Disk, directory: str, offset: Offset) -> None:
    disk.remove(snapshot_path(directory, offset))


def snapshot_content(
    records: Iterable[Record],
    form: RecordFormat[Record],
    *,
    offset: Offset,
    message_end: LogEnd,
    seed: int,
) -> tuple[Buffer, ...]:
    """Returns header and batches of a snapshot of the present state."""
    pieces = list[Buffer]()
    for encoded in form.to_batches(records, marks=Marks(control=True), now_ns=0):
        pieces += (pack_head(encoded.head, seed=seed), *encoded.body)
    size = sum(map(len, pieces))
    fields = _FIELDS.pack(_MAGIC, _VERSION, offset, message_end.epoch, message_end.offset, size, 0)
    return fields + struct.pack("<I", checksum(fields, seed)), *pieces


def read_snapshot(disk: Disk, directory: str, offset: Offset, *, seed: int) -> Snapshot[Record]:
    """Returns a snapshot whose checksums are right. DamagedFile."""
    path = snapshot_path(directory, offset)
    raw = read_file(disk, path)
    if len(raw) < _HEADER.size:
        raise DamagedFile(path, f"only {len(raw)} bytes")
    magic, version, found, epoch, message_offset, body_bytes, _, crc = _HEADER.unpack_from(raw)
    if magic != _MAGIC or version != _VERSION or crc != checksum(raw[: _FIELDS.size], seed):
        raise DamagedFile(path, "wrong magic, version or checksum")
    body = memoryview(raw)[_HEADER.size :]
    if found != offset or len(body) != body_bytes:
        raise DamagedFile(path, f"for offset {found} with {body_bytes} bytes, has {len(body)}")
    try:
        for _ in batches_in(body, seed=seed):
            pass
    except MalformedBatch as error:
        raise DamagedFile(path, error.reason) from None
    return Snapshot(path, offset, LogEnd(Epoch(epoch), Offset(message_offset)), body)

"""The checkpoint of a log: how far it is durable and whole, so that a restart reads only what follows.

     0  u32  magic          "PNCP"
     4  u32  version        2
     8  i64  start offset   first offset kept; segments that end below it are leftovers of a retention
    16  i64  segment        base offset of the segment that the position is in
    24  u64  position       every byte of the log up to here is synced and checked
    32  i64  offset         next offset at that position
    40  i64  append time    of the last batch below it
    48  i64  compacted to   below it no key has an older message than its last one
    56  u32  epochs         number of pairs that follow
    60  u32  is closed      1 if the log was closed after it, 0 if it went on
    64  i64  meta epoch     \\  how far the owner's meta journal was durable when this was written;
    72  i64  meta offset    /  zero where there is none
    80  ...  pairs          i64 epoch, i64 first offset of that epoch
     .  u32  checksum       CRC32C of everything before, seeded with the log's id

Losing it costs a full scan, and nothing else where meta knows the log's epochs. One that was not written by closing
says that offsets may have been used since, in an epoch that must not be used again.
"""

import struct
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from ..codec.checksum import checksum
from ..errors import DamagedFile, FileMissing, Refused
from ..model import Epoch, LogEnd, Offset
from ..ports import Disk
from .layout import CHECKPOINT, read_file

_MAGIC = 0x50434E50  # b"PNCP"
_VERSION = 2
_FIELDS = struct.Struct("<IIqqQqqqIIqq")
_KIND = struct.Struct("<II")
_PAIR = struct.Struct("<qq")
_CHECKSUM = struct.Struct("<I")


NO_META = LogEnd(Epoch(0), Offset(0))


class EpochStart(NamedTuple):
    """An epoch and the first offset written in it."""

    epoch: Epoch
    offset: Offset


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """See the head of this file."""

    start_offset: Offset
    segment: Offset
    position: int
    offset: Offset
    append_time: int
    compacted_to: Offset
    epochs: tuple[EpochStart, ...]
    is_closed: bool = False
    meta_end: LogEnd = NO_META

    def to_bytes(self, seed: int) -> bytes:
        fields = _FIELDS.pack(
            _MAGIC,
            _VERSION,
            self.start_offset,
            self.segment,
            self.position,
            self.offset,
            self.append_time,
            self.compacted_to,
            len(self.epochs),
            self.is_closed,
            *self.meta_end,
        )
        raw = fields + b"".join(_PAIR.pack(*pair) for pair in self.epochs)
        return raw + _CHECKSUM.pack(checksum(raw, seed))


class MetaMark(msgspec.Struct, eq=False):
    """How far the node's meta journal is durable. All logs share one; each checkpoint records it."""

    end: LogEnd


def read_checkpoint(disk: Disk, directory: str, seed: int) -> Checkpoint | None:
    """Returns the checkpoint, or None if there is none. DamagedFile; Refused: it is whole and of another version."""
    path = f"{directory}/{CHECKPOINT}"
    try:
        raw = read_file(disk, path)
    except FileMissing:
        return None
    if len(raw) < _KIND.size + _CHECKSUM.size:
        raise DamagedFile(path, f"only {len(raw)} bytes")
    if _CHECKSUM.unpack(raw[-4:])[0] != checksum(raw[:-4], seed):
        raise DamagedFile(path, "wrong checksum")
    magic, version = _KIND.unpack_from(raw)
    if magic != _MAGIC:
        raise DamagedFile(path, f"magic {magic:#010x}")
    if version != _VERSION:
        said = f"{path} is of version {version}, and this Penstock reads version {_VERSION} only"
        raise Refused(said, path=path, version=version)
    if len(raw) < _FIELDS.size + _CHECKSUM.size:
        raise DamagedFile(path, f"only {len(raw)} bytes")
    start, segment, position, offset, time, compacted, count, is_closed, *meta = (
        _FIELDS.unpack_from(raw)[2:]
    )
    if len(raw) != _FIELDS.size + count * _PAIR.size + _CHECKSUM.size:
        raise DamagedFile(path, f"{count} epochs in {len(raw)} bytes")
    pairs = _PAIR.iter_unpack(raw[_FIELDS.size : -_CHECKSUM.size])
    epochs = tuple(EpochStart(Epoch(epoch), Offset(offset)) for epoch, offset in pairs)
    return Checkpoint(
        start,
        segment,
        position,
        offset,
        time,
        compacted,
        epochs,
        is_closed=bool(is_closed),
        meta_end=LogEnd(*meta),
    )

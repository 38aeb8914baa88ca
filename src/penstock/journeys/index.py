"""Which parts of a state log speak of a message: for blocks of some records each, the set of keys that they name.

A key is the offset of a message, or one of four other things in ranges of their own: the id of a delayed message, the
sequence of a letter, the number of a group, the offset of the message that a letter became. The index of a segment
is a file beside it. It can always be built again from the records, and one that is torn or stale is.

     0  u32  magic        "PNJX"
     4  u32  version      1
     8  i64  base offset  of the segment
    16  i64  covered      the first offset of the state log that it does not know
    24  u32  blocks
    28  u32  checksum     CRC32C of everything else, seeded with the log's id
    32  ...  blocks       i64 first offset, i64 end, u32 bytes of the keys; no bytes: the records could not be read
     .  ...  keys         64-bit Roaring bitmaps in their portable format
"""

import struct
from collections.abc import Iterable, Iterator

from pyroaring import BitMap64

from ..codec.checksum import checksum

DELAYS = 1 << 62
"""Keys from here on are ids of delayed messages."""

LETTERS = 1 << 61
"""Keys from here up to `DELAYS` are sequences of letters to other partitions."""

GROUPS = 1 << 60
"""Keys from here up to `LETTERS` are numbers of groups."""

ARRIVALS = 1 << 59
"""Keys from here up to `GROUPS` are offsets of the messages that letters became in other partitions."""

BLOCK_RECORDS = 32
"""A look-up reads whole blocks: so many records take less than a millisecond."""

_MAGIC, _VERSION = 0x584A4E50, 1  # b"PNJX"
_FIELDS = struct.Struct("<IIqqI")
_CHECKSUM = struct.Struct("<I")
_BLOCK = struct.Struct("<qqI")
_HEADER_BYTES = _FIELDS.size + _CHECKSUM.size


class Block:
    """Records from `first` up to `end`. Of one without keys nothing is known: it may speak of anything.

    The keys are kept as bytes: as bitmaps those of a busy partition would take several times the memory.
    """

    __slots__ = ("_stored", "end", "first")

    def __init__(self, first: int, end: int, keys: "BitMap64 | bytes | None") -> None:
        self.first, self.end = first, end
        if isinstance(keys, BitMap64):
            keys.run_optimize()
            keys = keys.serialize()
        self._stored = keys

    @property
    def is_unreadable(self) -> bool:
        return self._stored is None

    def keys(self) -> "BitMap64 | None":
        return None if self._stored is None else BitMap64.deserialize(self._stored)

    def stored(self) -> bytes:
        """Returns the keys as bytes; empty if the index cannot be read."""
        return self._stored or b""

    def may_hold(self, wanted: BitMap64) -> bool:
        keys = self.keys()
        return keys is None or keys.intersect(wanted)


class SegmentIndex:
    """The blocks of one segment of a state log, in the order of its records, up to `covered`."""

    def __init__(self, base_offset: int, blocks: Iterable[Block] = (), covered: int = -1) -> None:
        self.base_offset = base_offset
        self.blocks = [*blocks]
        self.covered = base_offset if covered < 0 else covered

    def add(self, end: int, keys: "BitMap64 | None") -> None:
        """Add a block from where the last one ended."""
        self.blocks.append(Block(self.covered, end, keys))
        self.covered = end

    def holding(self, wanted: BitMap64) -> Iterator[Block]:
        """The blocks that may speak of one of these keys."""
        return (block for block in self.blocks if block.may_hold(wanted))

    def to_bytes(self, seed: int) -> bytes:
        stored = [block.stored() for block in self.blocks]
        fields = _FIELDS.pack(_MAGIC, _VERSION, self.base_offset, self.covered, len(stored))
        table = b"".join(
            _BLOCK.pack(block.first, block.end, len(keys))
            for block, keys in zip(self.blocks, stored, strict=True)
        )
        rest = b"".join((table, *stored))
        return fields + _CHECKSUM.pack(checksum(fields + rest, seed)) + rest


def read_index(content: bytes, base_offset: int, *, seed: int) -> SegmentIndex | None:
    """The index of a segment from its file; None if the file is not whole, or that of another segment."""
    if len(content) < _HEADER_BYTES:
        return None
    magic, version, base, covered, count = _FIELDS.unpack_from(content)
    (found,) = _CHECKSUM.unpack_from(content, _FIELDS.size)
    fields, rest = content[: _FIELDS.size], content[_HEADER_BYTES:]
    is_ours = (magic, version, base) == (_MAGIC, _VERSION, base_offset)
    if not is_ours or found != checksum(fields + rest, seed):
        return None
    blocks, position = [], count * _BLOCK.size
    for first, end, size in _BLOCK.iter_unpack(rest[:position]):
        blocks.append(Block(first, end, rest[position : position + size] if size else None))
        position += size
    return SegmentIndex(base, blocks, covered)

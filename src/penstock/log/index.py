"""Sparse index of one segment: some offsets and append times, and where their batches start.

Both files begin with

     0  u32  magic            "PNSI"
     4  u16  version          1
     6  u16  entry bytes      8 or 16
     8  u32  entries
    12  u32  checksum         CRC32C of everything else, seeded with the log's id
    16  i64  base offset
    24  i64  next offset      of the part of the segment that is indexed
    32  u64  segment bytes    size of that part
    40  i64  first append time
    48  i64  last append time

and go on with entries, one for the same batches in both: u32 offset minus base and u32 position in `.index`;
i64 append time and i64 offset in `.timeindex`. An index finds the last entry at or before what is asked for, and
the reader walks on from there. An index is always checked: loading one compares its last entry with the log and walks
the rest, and a look-up compares the entry that it uses. After a wrong checksum, or at a position where the right batch
does not start, it is built anew. So it may be lost, be older than the log, or have batches that a crash took.
"""

import struct
from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ..codec import Head
from ..codec.checksum import checksum

_HEADER = struct.Struct("<IHHIIqqQqq")
HEADER_BYTES = _HEADER.size
_MAGIC = 0x49534E50  # b"PNSI"
_VERSION = 1
_CHECKSUM_AT = 12
_OFFSET_ENTRY_BYTES, _TIME_ENTRY_BYTES = 8, 16


class IndexEntry(NamedTuple):
    """The entry of a batch in both files."""

    offset: int
    append_time: int
    position: int


@dataclass(slots=True)
class Index:
    """Entries of both files, and what they cover."""

    base_offset: int
    interval_bytes: int
    next_offset: int = -1
    size: int = 0
    first_time: int = 0
    last_time: int = 0
    offsets: "array[int]" = field(default_factory=lambda: array("I"))
    positions: "array[int]" = field(default_factory=lambda: array("I"))
    times: "array[int]" = field(default_factory=lambda: array("q"))

    def add(self, head: Head, position: int) -> None:
        """Add a batch at the end; it gets an entry if the last one is far enough behind."""
        positions = self.positions
        if not positions:
            self.first_time = head.append_time
        if not positions or position - positions[-1] >= self.interval_bytes:
            self.offsets.append(head.base_offset - self.base_offset)
            positions.append(position)
            self.times.append(head.append_time)
        self.next_offset = head.base_offset + head.last_delta + 1
        self.size = position + head.length
        self.last_time = head.append_time

    def copy(self) -> "Index":
        """The index as it is now: a thread may write it out while the other one goes on with batches."""
        return replace(
            self, offsets=self.offsets[:], positions=self.positions[:], times=self.times[:]
        )

    def pop_entry(self, *, below: int) -> "IndexEntry | None":
        """Go back to the last entry at a position under `below`, and take it out: it is to be added again."""
        for column in (self.offsets, self.times, self.positions):
            del column[bisect_left(self.positions, below) :]
        if not self.positions:
            return None
        entry = IndexEntry(
            self.base_offset + self.offsets.pop(), self.times.pop(), self.positions.pop()
        )
        self.next_offset, self.last_time, self.size = entry
        return entry

    def position_before(self, offset: int) -> int:
        """Returns the position from which to walk to the batch that holds `offset`."""
        entry = bisect_right(self.offsets, offset - self.base_offset) - 1
        return self.positions[entry] if entry >= 0 else 0

    def position_before_time(self, time_ns: int) -> int:
        """Returns the position from which to walk to the first batch appended at `time_ns` or later."""
        entry = bisect_left(self.times, time_ns) - 1
        return self.positions[entry] if entry >= 0 else 0

    def to_files(self, seed: int) -> tuple[bytes, bytes]:
        """Content of `.index` and `.timeindex`."""
        pairs = array("I", bytes(_OFFSET_ENTRY_BYTES * len(self.offsets)))
        pairs[0::2], pairs[1::2] = self.offsets, self.positions
        stamps = array("q", bytes(_TIME_ENTRY_BYTES * len(self.offsets)))
        stamps[0::2] = self.times
        stamps[1::2] = array("q", (self.base_offset + offset for offset in self.offsets))
        return (
            self._file(pairs.tobytes(), _OFFSET_ENTRY_BYTES, seed),
            self._file(stamps.tobytes(), _TIME_ENTRY_BYTES, seed),
        )

    def _file(self, entries: bytes, entry_bytes: int, seed: int) -> bytes:
        def header(found: int) -> bytes:
            return _HEADER.pack(
                _MAGIC,
                _VERSION,
                entry_bytes,
                len(self.offsets),
                found,
                self.base_offset,
                self.next_offset,
                self.size,
                self.first_time,
                self.last_time,
            )

        return header(checksum(entries, checksum(header(0), seed))) + entries


class IndexHeader(NamedTuple):
    """The first bytes of either file."""

    magic: int
    version: int
    entry_bytes: int
    entries: int
    checksum: int
    base_offset: int
    next_offset: int
    size: int
    first_time: int
    last_time: int


def read_index(by_offset: bytes, by_time: bytes, *, interval_bytes: int, seed: int) -> Index | None:
    """An index from the content of its two files; None if they cannot be believed."""
    header = _checked_header(by_offset, _OFFSET_ENTRY_BYTES, seed)
    twin = _checked_header(by_time, _TIME_ENTRY_BYTES, seed)
    if header is None or twin is None or header[5:] != twin[5:] or header.entries != twin.entries:
        return None
    pairs = array("I", by_offset[HEADER_BYTES:])
    stamps = array("q", by_time[HEADER_BYTES:])
    return Index(
        base_offset=header.base_offset,
        interval_bytes=interval_bytes,
        next_offset=header.next_offset,
        size=header.size,
        first_time=header.first_time,
        last_time=header.last_time,
        offsets=pairs[0::2],
        positions=pairs[1::2],
        times=stamps[0::2],
    )


def read_header(raw: bytes) -> IndexHeader | None:
    """The first bytes of an index file, not checked against their checksum; None if they are not that."""
    if len(raw) < HEADER_BYTES:
        return None
    header = IndexHeader._make(_HEADER.unpack_from(raw))
    return header if (header.magic, header.version) == (_MAGIC, _VERSION) else None


def _checked_header(raw: bytes, entry_bytes: int, seed: int) -> IndexHeader | None:
    header = read_header(raw)
    if header is None or header.entry_bytes != entry_bytes:
        return None
    if len(raw) != HEADER_BYTES + header.entries * entry_bytes:
        return None
    blank = raw[:_CHECKSUM_AT] + bytes(4) + raw[_CHECKSUM_AT + 4 :]
    return header if header.checksum == checksum(blank, seed) else None

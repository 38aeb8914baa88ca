"""Sets of offsets: compressed bitmaps, in memory and in records.

A poll of 500 neighbours is two small numbers in its record, and every set operation takes a few hundred nanoseconds.
"""

from collections.abc import Iterator, Mapping

from pyroaring import BitMap64

Runs = tuple[int, ...] | bytes
"""A set of offsets in a record: nothing, or first offset and length of the only run there is; of anything else the
bytes of a 64-bit Roaring bitmap in its portable format (https://github.com/RoaringBitmap/RoaringFormatSpec)."""

# A search for the first gap looks at so many offsets at a time; most gaps are near.
_WINDOW = 8192
# A bitmap keeps this many neighbours in one container of at most 8 KiB.
_CONTAINER = 1 << 16


def runs_of(offsets: BitMap64) -> Runs:
    """A set as it is recorded."""
    if not offsets:
        return ()
    first, last = offsets.min(), offsets.max()
    if last - first + 1 == len(offsets):
        return first, len(offsets)
    packed = BitMap64(offsets)
    packed.run_optimize()
    written: bytes = packed.serialize()
    return written


def offsets_of(runs: Runs) -> BitMap64:
    """The set that was recorded."""
    if isinstance(runs, bytes):
        return BitMap64.deserialize(runs)
    return BitMap64(range(runs[0], runs[0] + runs[1])) if runs else BitMap64()


def runs_in_pieces(offsets: BitMap64) -> Iterator[Runs]:
    """A set in pieces of at most a container, each of which can be read alone; a set of one run stays whole."""
    runs = runs_of(offsets)
    if not isinstance(runs, bytes):
        if runs:
            yield runs
        return
    start, last = offsets.min(), offsets.max()
    while True:
        end = start - start % _CONTAINER + _CONTAINER
        yield runs_of(offsets & BitMap64(range(start, end)))
        if last < end:
            return
        start = offsets.next_set_bit(end)


def first_missing(offsets: BitMap64, start: int) -> int:
    """The smallest offset from `start` on that is not in the set."""
    if start not in offsets:
        return start
    last: int = offsets.max()
    if offsets.contains_range(start, last + 1):
        return last + 1
    while True:
        missing = BitMap64(range(start, start + _WINDOW)) - offsets
        if missing:
            found: int = missing.min()
            return found
        start += _WINDOW


def known_among(table: Mapping[int, object], offsets: BitMap64) -> list[int]:
    """Keys of a table that are in a set, found from whichever of the two is smaller."""
    if len(offsets) < len(table):
        return [offset for offset in offsets if offset in table]
    return [offset for offset in table if offset in offsets]

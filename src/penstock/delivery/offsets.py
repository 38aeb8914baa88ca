"""Sets of offsets: compressed bitmaps, in memory and in records.

A poll of 500 neighbours is two small numbers in its record, and every set operation takes a few hundred nanoseconds.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import cast

from pyroaring import BitMap64

Runs = tuple[int, ...] | bytes
"""A set of offsets in a record: empty, or first offset and length of a single run; otherwise the bytes of a 64-bit
Roaring bitmap in its portable format (https://github.com/RoaringBitmap/RoaringFormatSpec)."""

# A bitmap keeps this many neighbours in one container of at most 8 KiB.
_CONTAINER = 1 << 16


def runs_of(offsets: BitMap64) -> Runs:
    """Returns a set as it is recorded."""
    if not offsets:
        return ()
    first, last = offsets.min(), offsets.max()
    if last - first + 1 == len(offsets):
        return first, len(offsets)
    # Fewer bytes for the same set: it stays equal for other owners of the object.
    offsets.run_optimize()
    written: bytes = offsets.serialize()
    return written


def offsets_of(runs: Runs) -> BitMap64:
    """Returns the set that was recorded."""
    if isinstance(runs, bytes):
        return BitMap64.deserialize(runs)
    return BitMap64(range(runs[0], runs[0] + runs[1])) if runs else BitMap64()


def each_offset(offsets: BitMap64) -> Iterable[int]:
    """Returns the offsets of a set, smallest first.

    The only way to iterate one: pyroaring 1.2 leaks 224 bytes when an empty set is iterated, and its types in
    tools/stubs refuse any other iteration.
    """
    return cast("Iterable[int]", offsets) if offsets else ()


def runs_in_pieces(offsets: BitMap64) -> Iterator[Runs]:
    """Yields a set in pieces of at most a container, each of which can be read alone; a single run stays whole."""
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
        start = next_of(offsets, end)


def next_of(offsets: BitMap64, start: int) -> int:
    """Returns the smallest offset of a set from `start` on; there must be one. Ten times faster than `next_set_bit`."""
    found: int = start if start in offsets else offsets[offsets.rank(start)]
    return found


def first_missing(offsets: BitMap64, start: int) -> int:
    """Returns the smallest offset from `start` on that is not in the set."""
    if start not in offsets:
        return start
    # Makes no set: a step that is too long is halved until the gap is found.
    width = 1
    while offsets.contains_range(start, start + width):
        start, width = start + width, 2 * width
    while width > 1:
        width //= 2
        if offsets.contains_range(start, start + width):
            start += width
    return start


def known_among(table: Mapping[int, object], offsets: BitMap64) -> list[int]:
    """Returns the keys of a table that are in a set, by iterating the smaller of the two."""
    if len(offsets) < len(table):
        return [offset for offset in each_offset(offsets) if offset in table]
    return [offset for offset in table if offset in offsets]

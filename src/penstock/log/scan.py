"""Walks the batches of a file, forwards, from a position at which one starts."""

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from ..codec import HEAD_BYTES, Head, read_head
from ..codec.head import ALIGNMENT, MAGIC, verify_body
from ..errors import MalformedBatch, UnsupportedFormat
from ..ports import File

# Large enough that a verified walk is one read per some batches, small enough to stay in the CPU's cache.
_VERIFIED_BYTES = 1 << 20
# Heads only: a few small batches a read, and not much wasted when batches are large.
_HEADS_BYTES = 1 << 14
_MAGIC_BYTES = MAGIC.to_bytes(4, "little")


class HeadPosition(NamedTuple):
    """A batch and where it starts."""

    position: int
    head: Head


class BrokenBatch(Exception):
    """There is no whole batch at `position`. Never leaves this package.

    `is_unknown`: there is one, of a format that only a later version knows. `is_malformed`: its bytes are no batch;
    otherwise it is a whole one in a wrong place.
    """

    def __init__(
        self, position: int, reason: str, *, is_unknown: bool = False, is_malformed: bool = False
    ) -> None:
        super().__init__(reason)
        self.position, self.reason, self.is_unknown = position, reason, is_unknown
        self.is_malformed = is_malformed


def broken_by(error: MalformedBatch, position: int) -> BrokenBatch:
    is_unknown = isinstance(error, UnsupportedFormat)
    return BrokenBatch(position, error.reason, is_unknown=is_unknown, is_malformed=not is_unknown)


class Window:
    """A piece of a file in memory; a request outside of it reads the next piece."""

    def __init__(self, file: File, end: int, read_bytes: int) -> None:
        self.file, self.end, self.read_bytes = file, end, read_bytes
        self.start, self.view = 0, memoryview(b"")

    def at(self, position: int, size: int) -> memoryview:
        """Returns up to `size` bytes from `position`, fewer only at the end."""
        size = min(size, self.end - position)
        low = position - self.start
        if low < 0 or low + size > len(self.view):
            wanted = min(max(size, self.read_bytes), self.end - position)
            self.start, low = position, 0
            self.view = memoryview(self.file.read(position, wanted))
        return self.view[low : low + size]


def walk_heads(file: File, position: int, end: int, *, seed: int) -> Iterator[HeadPosition]:
    """Yields every batch by its head alone. BrokenBatch: one is not whole."""
    window = Window(file, end, _HEADS_BYTES)
    while position < end:
        try:
            head = read_head(window.at(position, HEAD_BYTES), seed=seed)
        except MalformedBatch as error:
            raise broken_by(error, position) from None
        if position + head.length > end:
            raise BrokenBatch(position, f"{head.length} bytes long, {end - position} are there")
        yield HeadPosition(position, head)
        position += head.length


def walk_around(
    file: File, position: int, end: int, *, seed: int, next_offset: int
) -> Iterator[HeadPosition | BrokenBatch]:
    """Yields every batch by its head; for a broken one that error, and then the next head of this log behind it.

    `next_offset` is the least that the first batch can have: a copy of an older batch may lie inside a message.
    """
    while position < end:
        try:
            for found in walk_heads(file, position, end, seed=seed):
                position, next_offset = found.position + found.head.length, found.head.next_offset
                yield found
        except BrokenBatch as broken:
            yield broken
            start = broken.position + 1
            following = next_head(file, start, end, seed=seed, offset_min=next_offset)
            position = end if following is None else following.position


class StoredBatch(NamedTuple):
    """A verified batch, where it starts, and its bytes."""

    position: int
    head: Head
    data: memoryview


def walk_batches(file: File, position: int, end: int, *, seed: int) -> Iterator[StoredBatch]:
    """Yields every batch with its bytes, checked by both checksums. BrokenBatch: one fails."""
    window = Window(file, end, _VERIFIED_BYTES)
    while position < end:
        try:
            head = read_head(window.at(position, HEAD_BYTES), seed=seed)
            data = window.at(position, head.length)
            verify_body(data, head)
        except MalformedBatch as error:
            raise broken_by(error, position) from None
        yield StoredBatch(position, head, data)
        position += head.length


def find_heads(file: File, position: int, end: int, *, seed: int) -> Iterator[HeadPosition]:
    """Yields every head of this log from `position` on, whatever is in between.

    Batches start at multiples of 8, so the search is quick; a head inside a message's bytes would need our
    seed to pass.
    """
    window = Window(file, end, _VERIFIED_BYTES)
    while position + HEAD_BYTES <= end:
        piece = bytes(window.at(position, _VERIFIED_BYTES))
        low = piece.find(_MAGIC_BYTES)
        while low >= 0:
            found = position + low
            if found % ALIGNMENT == 0:
                with suppress(MalformedBatch):
                    yield HeadPosition(found, read_head(window.at(found, HEAD_BYTES), seed=seed))
            low = piece.find(_MAGIC_BYTES, low + 1)
        # A magic number may lie across the border of two pieces.
        position += max(len(piece) - len(_MAGIC_BYTES) + 1, ALIGNMENT)


def next_head(
    file: File, position: int, end: int, *, seed: int, offset_min: int
) -> HeadPosition | None:
    """Returns the first head from `position` on of a batch that starts at `offset_min` or later, or None."""
    found = find_heads(file, position, end, seed=seed)
    return next((one for one in found if one.head.base_offset >= offset_min), None)


def following(data: memoryview, first: Head, seed: int) -> tuple[list[Head], int, int]:
    """Returns the heads of all whole batches that follow each other, from the first on, where the last one ends, and
    the offset behind it.

    A later batch that is not whole ends them: the next read will say so.
    """
    heads, position = [first], first.length
    offset = first.base_offset + first.last_delta + 1
    try:
        while position + HEAD_BYTES <= len(data):
            head = read_head(data, position, seed=seed)
            end = position + head.length
            if head.base_offset != offset or end > len(data):
                break
            verify_body(data[position:end], head)
            heads.append(head)
            position, offset = end, offset + head.last_delta + 1
    except MalformedBatch:
        pass
    return heads, position, offset

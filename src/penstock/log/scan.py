"""Walking the batches of a file, forwards, from a position that starts one."""

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from ..codec import HEAD_BYTES, Head, read_head, verify
from ..codec.head import ALIGNMENT, MAGIC
from ..errors import MalformedBatch, UnsupportedFormat
from ..ports import File

# Large enough that a verified walk is one read per some batches, small enough to stay in the CPU's cache.
_VERIFIED_BYTES = 1 << 20
# Heads only: a few small batches a read, and not much wasted when batches are large.
_HEADS_BYTES = 1 << 14
_MAGIC_BYTES = MAGIC.to_bytes(4, "little")


class Found(NamedTuple):
    """A batch and where it starts."""

    position: int
    head: Head


class Broken(Exception):
    """There is no whole batch at `position`. Never leaves this package.

    `is_unknown`: there is one, of a format that only a later version knows.
    """

    def __init__(self, position: int, reason: str, *, is_unknown: bool = False) -> None:
        super().__init__(reason)
        self.position, self.reason, self.is_unknown = position, reason, is_unknown


def broken_by(error: MalformedBatch, position: int) -> Broken:
    return Broken(position, error.reason, is_unknown=isinstance(error, UnsupportedFormat))


class Window:
    """A piece of a file in memory, read again where somebody looks outside of it."""

    def __init__(self, file: File, end: int, read_bytes: int) -> None:
        self.file, self.end, self.read_bytes = file, end, read_bytes
        self.start, self.view = 0, memoryview(b"")

    def at(self, position: int, size: int) -> memoryview:
        """Up to `size` bytes from `position`; fewer only at the end."""
        size = min(size, self.end - position)
        low = position - self.start
        if low < 0 or low + size > len(self.view):
            wanted = min(max(size, self.read_bytes), self.end - position)
            self.start, low = position, 0
            self.view = memoryview(self.file.read(position, wanted))
        return self.view[low : low + size]


def walk_heads(file: File, position: int, end: int, *, seed: int) -> Iterator[Found]:
    """Every batch by its head alone; Broken at the first that is not there whole."""
    window = Window(file, end, _HEADS_BYTES)
    while position < end:
        try:
            head = read_head(window.at(position, HEAD_BYTES), seed=seed)
        except MalformedBatch as error:
            raise broken_by(error, position) from None
        if position + head.length > end:
            raise Broken(position, f"{head.length} bytes long, {end - position} are there")
        yield Found(position, head)
        position += head.length


def walk_around(
    file: File, position: int, end: int, *, seed: int, next_offset: int
) -> Iterator[Found | Broken]:
    """Every batch by its head; where one is broken, that, and on from the next head of this log behind it.

    `next_offset` is the least that the first batch can have: a copy of an older batch may lie inside a message.
    """
    while position < end:
        try:
            for found in walk_heads(file, position, end, seed=seed):
                position, next_offset = found.position + found.head.length, found.head.next_offset
                yield found
        except Broken as broken:
            yield broken
            start = broken.position + 1
            following = next_head(file, start, end, seed=seed, offset_min=next_offset)
            position = end if following is None else following.position


def walk_verified(file: File, position: int, end: int, *, seed: int) -> Iterator[Found]:
    """Every batch with both checksums; Broken at the first that fails."""
    for stored in walk_batches(file, position, end, seed=seed):
        yield Found(stored.position, stored.head)


class Stored(NamedTuple):
    """A verified batch, where it starts, and its bytes."""

    position: int
    head: Head
    data: memoryview


def walk_batches(file: File, position: int, end: int, *, seed: int) -> Iterator[Stored]:
    """Every batch with both checksums and its bytes; Broken at the first that fails."""
    window = Window(file, end, _VERIFIED_BYTES)
    while position < end:
        try:
            head = read_head(window.at(position, HEAD_BYTES), seed=seed)
            data = window.at(position, head.length)
            verify(data, seed=seed)
        except MalformedBatch as error:
            raise broken_by(error, position) from None
        yield Stored(position, head, data)
        position += head.length


def find_heads(file: File, position: int, end: int, *, seed: int) -> Iterator[Found]:
    """Every place from `position` on where a head of this log stands, whatever is in between.

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
                    yield Found(found, read_head(window.at(found, HEAD_BYTES), seed=seed))
            low = piece.find(_MAGIC_BYTES, low + 1)
        # A magic number may lie across the border of two pieces.
        position += max(len(piece) - len(_MAGIC_BYTES) + 1, ALIGNMENT)


def next_head(file: File, position: int, end: int, *, seed: int, offset_min: int) -> Found | None:
    """The first head from `position` on of a batch that starts at `offset_min` or later."""
    found = find_heads(file, position, end, seed=seed)
    return next((one for one in found if one.head.base_offset >= offset_min), None)

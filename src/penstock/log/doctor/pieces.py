"""What the bytes of one file are made of: whole batches, and stretches between them that are none."""

import struct
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from ...codec import HEAD_BYTES, Head, read_head, verify
from ...codec.checksum import checksum
from ...codec.decode import open_body
from ...codec.head import ALIGNMENT, MAGIC
from ...errors import MalformedBatch, TooLarge, UnsupportedFormat
from ...ports import File
from ..scan import Window, find_heads

_READ_BYTES = 1 << 20
_START = struct.Struct("<II")
_CHECKSUM = struct.Struct("<I")


class Kind(Enum):
    """What is wrong with a place in a log."""

    BATCH = "batch"  # Bytes that are no whole batch of this log.
    BODY = "body"  # The checksums are right, and the content makes no sense.
    FORMAT = (
        "format"  # Written by a version that we do not know. Not damage, and not ours to touch.
    )
    ORDER = "order"  # A whole batch that does not belong here.
    GAP = "gap"  # Offsets that are in no file.
    NAME = "name"  # A segment under another name than that of its first offset.
    FOREIGN = "foreign"  # A segment of another log.
    FILE = "file"  # One that is left over, strange, or cannot be read.
    CUT = "cut"  # What a recovery or a repair took out.
    IDENTITY = "identity"
    CHECKPOINT = "checkpoint"
    INDEX = "index"
    SNAPSHOT = "snapshot"
    META = "meta"  # Which topics there are cannot be read.
    PARTITION = "partition"  # One that meta knows is missing, or a part of it.
    UNKNOWN = "unknown"  # A directory that meta does not know.
    SET_ASIDE = "set_aside"  # What a start did not know, and kept.


class Piece(NamedTuple):
    """Bytes from `position` to `end`: a whole batch, or something else if it has a `kind`.

    A head that verifies is there also when its body does not.
    """

    position: int
    end: int
    head: Head | None
    kind: Kind | None = None
    reason: str = ""


def pieces_in(file: File, size: int, *, seed: int, parse_bytes_max: int = 0) -> Iterator[Piece]:
    """All bytes of a file, in order. Batches are checked by both checksums.

    The columns are looked at too in bodies that unpack to `parse_bytes_max` at the most.
    """
    window = Window(file, size, _READ_BYTES)
    position = 0
    while position < size:
        piece = _piece_at(window, position, seed)
        if piece.kind is None:
            piece = _parsed(window, piece, parse_bytes_max)
        yield piece
        position = piece.end


def _piece_at(window: Window, position: int, seed: int) -> Piece:
    try:
        head = read_head(window.at(position, HEAD_BYTES), seed=seed)
    except UnsupportedFormat as error:
        return Piece(position, _next_head(window, position, seed), None, Kind.FORMAT, error.reason)
    except MalformedBatch as error:
        return Piece(position, _next_head(window, position, seed), None, Kind.BATCH, error.reason)
    end = position + head.length
    try:
        verify(window.at(position, head.length), seed=seed)
    except MalformedBatch as error:
        # The head is right, so its length is; unless the body was written over, and another batch starts in there.
        end = min(end, _next_head(window, position, seed, end + HEAD_BYTES))
        return Piece(position, end, head, Kind.BATCH, error.reason)
    return Piece(position, end, head)


def _parsed(window: Window, piece: Piece, bytes_max: int) -> Piece:
    head = piece.head
    assert head is not None
    if head.body_size > bytes_max:
        return piece
    try:
        open_body(window.at(piece.position, head.length), head, size_max=bytes_max)
    except UnsupportedFormat as error:
        return piece._replace(kind=Kind.FORMAT, reason=error.reason)
    except (MalformedBatch, TooLarge) as error:
        return piece._replace(kind=Kind.BODY, reason=str(error))
    return piece


def _next_head(window: Window, position: int, seed: int, limit: int | None = None) -> int:
    """Where the next head of this log stands behind `position`; the end of the file if there is none."""
    start = (position // ALIGNMENT + 1) * ALIGNMENT
    end = window.end if limit is None else min(limit, window.end)
    following = next(find_heads(window.file, start, end, seed=seed), None)
    return window.end if following is None else following.position


def is_foreign(file: File) -> bool:
    """Do the first two heads of a file, which are none of this log, belong to one and the same other log?

    A seed adds to a CRC something that depends on nothing but the length of the data, so two heads give it away.
    """
    first = file.read(0, HEAD_BYTES)
    if len(first) < HEAD_BYTES:
        return False
    magic, length = _START.unpack_from(first)
    second = file.read(length, HEAD_BYTES)
    if magic != MAGIC or length < HEAD_BYTES or len(second) < HEAD_BYTES:
        return False
    return _START.unpack_from(second)[0] == MAGIC and _trace(first) == _trace(second)


def _trace(head: bytes) -> int:
    """What the seed has added to the checksum of a head."""
    fields = len(head) - _CHECKSUM.size
    found: int = _CHECKSUM.unpack_from(head, fields)[0]
    return found ^ checksum(head[:fields])

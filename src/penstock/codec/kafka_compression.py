"""How Kafka's producers compress the records of a batch, and an unpacking that cannot be made to grow."""

import struct
import zlib

import cramjam
import numpy as np

from ..errors import MalformedBatch, TooLarge
from .stated_size import gzip_size, lz4_size, zstd_size

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
_STATED = {GZIP: gzip_size, LZ4: lz4_size, ZSTD: zstd_size}
# What the library says, in Rust's own words, where the room is too small for what comes.
_IS_FULL = "failed to write whole buffer"
_GZIP_WINDOW = 31  # zlib's largest, with gzip's header.
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16
_I32 = struct.Struct(">i")


def unpack(stored: memoryview, kind: int, *, size_max: int) -> bytes:
    """Returns unpacked records; no more than `size_max` bytes are ever unpacked, and nothing twice.

    TooLarge: they are more, and where they say so nothing is unpacked. MalformedBatch.
    """
    if kind == NONE:
        _require_room(len(stored), size_max)
        return bytes(stored)
    stated = _STATED.get(kind)
    if stated is not None:
        _require_room(stated(stored) or 0, size_max)
    try:
        if kind == GZIP:
            return _unpack_gzip(stored, size_max)
        if kind == SNAPPY:
            return _unpack_snappy(stored, size_max)
        return _unpack_into(stored, kind, size_max)
    except (cramjam.DecompressionError, zlib.error) as error:
        raise MalformedBatch(f"records do not unpack: {error}") from None


def _require_room(size: int, size_max: int) -> None:
    if size > size_max:
        raise TooLarge("records in bytes", found=size, limit=size_max)


def _unpack_gzip(stored: memoryview, size_max: int) -> bytes:
    machine = zlib.decompressobj(_GZIP_WINDOW)
    found = machine.decompress(stored, size_max + 1)
    _require_room(len(found), size_max)
    if not machine.eof:
        raise MalformedBatch("records do not unpack: the gzip data is cut short")
    return found


def _unpack_snappy(stored: memoryview, size_max: int) -> bytes:
    """A bare block, or blocks in the framing of the Java library, each behind its size."""
    blocks = [stored] if bytes(stored[: len(_XERIAL)]) != _XERIAL else _xerial_blocks(stored)
    _require_room(sum(map(cramjam.snappy.decompress_raw_len, blocks)), size_max)
    return b"".join([bytes(cramjam.snappy.decompress_raw(block)) for block in blocks])


def _xerial_blocks(stored: memoryview) -> list[memoryview]:
    blocks, position = [], _XERIAL_HEADER_BYTES
    while position + _I32.size <= len(stored):
        (size,) = _I32.unpack_from(stored, position)
        position += _I32.size
        if not 0 <= size <= len(stored) - position:
            raise MalformedBatch(f"a snappy block of {size} bytes")
        blocks.append(stored[position : position + size])
        position += size
    return blocks


def _unpack_into(stored: memoryview, kind: int, size_max: int) -> bytes:
    into = cramjam.lz4.decompress_into if kind == LZ4 else cramjam.zstd.decompress_into
    # Of this the system gives only what is written to.
    room = np.empty(size_max, dtype=np.uint8)
    try:
        size = into(stored, room.data)
    except cramjam.DecompressionError as error:
        if str(error) == _IS_FULL:
            _require_room(size_max + 1, size_max)
        raise
    return room[:size].tobytes()

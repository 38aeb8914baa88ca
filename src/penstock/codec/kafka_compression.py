"""How Kafka's producers compress the records of a batch, and an unpacking that cannot be made to grow."""

import struct
import zlib

import cramjam

from ..errors import MalformedBatch, TooLarge

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
# What a batch unpacks to is not said, so the room grows from here to the limit.
_UNPACK_BYTES_MIN = 1 << 16
_GROWTH = 4
_GZIP_WINDOW = 31  # zlib's largest, with gzip's header.
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16
_I32 = struct.Struct(">i")


def unpack(stored: memoryview, kind: int, *, size_max: int, size: int | None = None) -> bytes:
    """Returns unpacked records; no more than `size_max` bytes are ever allocated. MalformedBatch, TooLarge.

    `size`: what they unpack to, where that is known.
    """
    if kind == NONE:
        if len(stored) > size_max:
            raise TooLarge("records in bytes", found=len(stored), limit=size_max)
        return bytes(stored)
    try:
        if kind == GZIP:
            return _unpack_gzip(stored, size_max)
        if kind == SNAPPY:
            return _unpack_snappy(stored, size_max)
        return _unpack_growing(stored, kind, size_max, size)
    except (cramjam.DecompressionError, zlib.error) as error:
        raise MalformedBatch(
            f"records do not unpack to {size_max} bytes at most: {error}"
        ) from None


def _unpack_gzip(stored: memoryview, size_max: int) -> bytes:
    machine = zlib.decompressobj(_GZIP_WINDOW)
    found = machine.decompress(stored, size_max + 1)
    if len(found) > size_max:
        raise TooLarge("records in bytes", found=len(found), limit=size_max)
    if not machine.eof:
        raise MalformedBatch("records do not unpack: the gzip data is cut short")
    return found


def _unpack_snappy(stored: memoryview, size_max: int) -> bytes:
    """A bare block, or blocks in the framing of the Java library, each behind its size."""
    if bytes(stored[: len(_XERIAL)]) != _XERIAL:
        return _unpack_block(stored, size_max)
    found, room, position = [], size_max, _XERIAL_HEADER_BYTES
    while position + _I32.size <= len(stored):
        (size,) = _I32.unpack_from(stored, position)
        position += _I32.size
        if not 0 <= size <= len(stored) - position:
            raise MalformedBatch(f"a snappy block of {size} bytes")
        found.append(_unpack_block(stored[position : position + size], room))
        room, position = room - len(found[-1]), position + size
    return b"".join(found)


def _unpack_block(block: memoryview, size_max: int) -> bytes:
    size = cramjam.snappy.decompress_raw_len(block)
    if size > size_max:
        raise TooLarge("records in bytes", found=size, limit=size_max)
    return bytes(cramjam.snappy.decompress_raw(block))


def _unpack_growing(stored: memoryview, kind: int, size_max: int, known: int | None) -> bytes:
    into = cramjam.lz4.decompress_into if kind == LZ4 else cramjam.zstd.decompress_into
    size = min(size_max, max(_UNPACK_BYTES_MIN, _GROWTH * len(stored))) if known is None else known
    while True:
        room = bytearray(size)
        try:
            return bytes(memoryview(room)[: into(stored, room)])
        except cramjam.DecompressionError:
            # Bytes that are wrong and room that is too small look the same.
            if size >= size_max:
                raise
            size = min(size_max, size * _GROWTH)

"""What compressed bytes say of themselves that they unpack to, read from their header without unpacking them.

    zstd    28 B5 2F FD, descriptor, [window], [dictionary], [size of 1, 2, 4 or 8 bytes]      RFC 8878
    lz4     04 22 4D 18, flags, largest block, [size of 8 bytes]                               of a frame
    gzip    ..., size of 4 bytes at the very end, modulo 4 GiB                                 RFC 1952

A sender may leave the first two out, and may lie: this refuses what says too much, and unpacking is bounded as well.
"""

import struct

_ZSTD, _LZ4 = b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18"
_DICTIONARY_BYTES = (0, 1, 2, 4)
_LZ4_SIZE_FLAG, _LZ4_SIZE_AT = 1 << 3, 6
_U64, _U32 = struct.Struct("<Q"), struct.Struct("<I")
# The shortest there is: header, an empty block, checksum and size.
_GZIP_BYTES_MIN = 20


def zstd_size(stored: memoryview) -> int | None:
    """Returns what the first frame unpacks to, or None if it does not say so, or is none."""
    if stored[:4] != _ZSTD or len(stored) < 5:
        return None
    descriptor = stored[4]
    is_single, flag = bool(descriptor >> 5 & 1), descriptor >> 6
    width = 1 << flag if flag or is_single else 0
    start = 5 + (not is_single) + _DICTIONARY_BYTES[descriptor & 0b11]
    if not width or len(stored) < start + width:
        return None
    size = int.from_bytes(stored[start : start + width], "little")
    # Two bytes begin where one byte ends.
    return size + 256 if flag == 1 else size


def lz4_size(stored: memoryview) -> int | None:
    """Returns what the first frame unpacks to, or None if it does not say so, or is none."""
    end = _LZ4_SIZE_AT + _U64.size
    if stored[:4] != _LZ4 or len(stored) < end or not stored[4] & _LZ4_SIZE_FLAG:
        return None
    return int(_U64.unpack_from(stored, _LZ4_SIZE_AT)[0])


def gzip_size(stored: memoryview) -> int | None:
    """Returns what the last member unpacks to, modulo 4 GiB, or None if this is too short for one."""
    if len(stored) < _GZIP_BYTES_MIN:
        return None
    return int(_U32.unpack_from(stored, len(stored) - _U32.size)[0])

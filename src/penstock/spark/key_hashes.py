"""Hashes of many keys, as in docs/partitioner.md: murmur3, 32 bits, seed 0. Keys of one length are hashed together."""

from itertools import pairwise

import mmh3
import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint32]
# Keys with more lengths than this, or longer ones, are hashed one by one: a group of a few rows costs more than that.
_LENGTHS_MAX = 16
_LENGTH_MAX = 256
_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)


def key_hashes(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int32]) -> Hashes:
    """Returns the hash of each key; key i is the bytes from the i-th offset to the next."""
    lengths = np.diff(offsets)
    found = np.bincount(lengths) if len(lengths) and lengths.max() <= _LENGTH_MAX else None
    if found is None or np.count_nonzero(found) > _LENGTHS_MAX:
        blob, ends = data.tobytes(), offsets.tolist()
        keys = (blob[start:end] for start, end in pairwise(ends))
        return np.fromiter(map(mmh3.mmh3_32_uintdigest, keys), np.uint32, len(lengths))
    hashes = np.empty(len(lengths), np.uint32)
    for length in np.flatnonzero(found).tolist():
        rows = np.flatnonzero(lengths == length)
        if len(rows) == len(lengths):
            keys_of_length = data[offsets[0] : offsets[-1]].reshape(len(rows), length)
        else:
            keys_of_length = data[offsets[:-1][rows, None] + np.arange(length)]
        hashes[rows] = _murmur3(keys_of_length)
    return hashes


def _murmur3(keys: npt.NDArray[np.uint8]) -> Hashes:
    """Returns the hashes of keys of one length, a row each."""
    count, length = keys.shape
    whole = length // 4
    hashes = np.zeros(count, np.uint32)
    blocks = np.ascontiguousarray(keys[:, : 4 * whole]).view("<u4")
    for place in range(whole):
        hashes ^= _mixed(blocks[:, place])
        hashes = _turned(hashes, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    rest = np.zeros(count, np.uint32)
    for place in range(length - 1, 4 * whole - 1, -1):
        rest = (rest << np.uint32(8)) | keys[:, place]
    if length % 4:
        hashes ^= _mixed(rest)
    hashes ^= np.uint32(length)
    hashes = (hashes ^ (hashes >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    hashes = (hashes ^ (hashes >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return hashes ^ (hashes >> np.uint32(16))


def _mixed(blocks: Hashes) -> Hashes:
    return _turned(blocks * _C1, 15) * _C2


def _turned(numbers: Hashes, bits: int) -> Hashes:
    return (numbers << np.uint32(bits)) | (numbers >> np.uint32(32 - bits))

"""Fingerprints of rows of Arrow: a count and a sum of hashes, the same for the same rows in any order and any tasks."""

import hashlib

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from mmh3 import hash64

from .fingerprint import Fingerprint

Words = npt.NDArray[np.uint64]
_WORD_BYTES = 8
_SUM_BITS = (1 << 64) - 1
# Of splitmix64 and of murmur3's last step.
_GOLDEN = 0x9E3779B97F4A7C15
_MIX_1, _MIX_2 = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_SHIFT = np.uint64(33)
_OF_BYTES = (pa.binary(), pa.string(), pa.large_binary(), pa.large_string())
# Byte strings are filled up to one of these lengths and hashed together; longer ones are hashed one by one.
_WIDTHS = (64, 512)
# A hash for null, and weights that tell an item's parts from each other.
_NULL = np.uint64(0x2545F4914F6CDD1D)
_LENGTH = np.uint64(0xD6E8FEB86659FD93)


def fingerprint_of(batch: pa.RecordBatch) -> Fingerprint:
    """Returns the fingerprint of rows, by the names, types and values of all columns, in whatever order these are."""
    if not batch.num_rows:
        return Fingerprint()
    hashes = np.zeros(batch.num_rows, np.uint64)
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        seed = hashlib.sha256(name.encode()).digest()[:_WORD_BYTES]
        hashes += _mixed(_hashes(column) ^ np.frombuffer(seed, np.uint64)[0])
    return Fingerprint(batch.num_rows, int(_mixed(hashes).sum(dtype=np.uint64)))


def _hashes(column: pa.Array) -> Words:
    """Returns the hash of each item; that of a null, too."""
    kind = column.type
    if pa.types.is_struct(kind):
        found = np.zeros(len(column), np.uint64)
        for place, field in enumerate(column.flatten()):
            found += _mixed(_hashes(field) + _weight(place))
    elif pa.types.is_list(kind):
        found = _of_lists(column)
    elif _has_bytes(kind):
        found = _of_bytes(column.cast(pa.binary()))
    elif pa.types.is_primitive(kind) and kind.bit_width in {8, 16, 32, 64}:
        number = pa.int64() if kind.bit_width == 64 else pa.int32()
        numbers = column.view(number) if kind.bit_width >= 32 else column.cast(number)
        found = numbers.fill_null(0).to_numpy().astype(np.int64).view(np.uint64)
    else:
        # Of what is rare the text is as good.
        found = _of_bytes(pa.array([str(item).encode() for item in column.to_pylist()]))
    if column.null_count:
        found[column.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return found


def _has_bytes(kind: pa.DataType) -> bool:
    return any(kind == known for known in _OF_BYTES)


def _of_lists(column: pa.Array) -> Words:
    """Returns the hash of each list, by its items in their order."""
    lengths = pc.list_value_length(column).fill_null(0).to_numpy().astype(np.int64)
    items, ends = _hashes(column.flatten()), np.cumsum(lengths)
    places = np.arange(len(items)) - np.repeat(ends - lengths, lengths)
    weights = (places + 1).astype(np.uint64) * np.uint64(_GOLDEN)
    sums = np.zeros(len(items) + 1, np.uint64)
    np.cumsum(_mixed(items + weights), out=sums[1:])
    found: Words = sums[ends] + lengths.astype(np.uint64) * _LENGTH
    found[1:] -= sums[ends[:-1]]
    return found


def _of_bytes(column: pa.Array) -> Words:
    """Returns the hash of each byte string; null is as an empty one."""
    column = column.fill_null(b"")
    lengths = pc.binary_length(column).to_numpy()
    hashes: Words = lengths.astype(np.uint64) * _LENGTH
    shorter = -1
    for width in _WIDTHS:
        rows = np.flatnonzero((lengths > shorter) & (lengths <= width))
        if len(rows) == len(lengths):
            hashes += _of_padded(column, width)
        elif len(rows):
            hashes[rows] += _of_padded(column.take(pa.array(rows)), width)
        shorter = width
    rows = np.flatnonzero(lengths > shorter)
    longer = [hash64(column[row].as_py(), signed=False)[0] for row in rows.tolist()]
    hashes[rows] += np.array(longer, np.uint64)
    return hashes


def _of_padded(column: pa.Array, width: int) -> Words:
    """Returns a sum over the words of each string, of at most `width` bytes. What is behind its end adds nothing."""
    longest = pc.max(pc.binary_length(column)).as_py() or 0
    width = min(width, -(-longest // _WORD_BYTES) * _WORD_BYTES)
    found: Words = np.zeros(len(column), np.uint64)
    if not width:
        return found
    # To Arrow they are text, which it fills up without a look at it.
    text = pa.Array.from_buffers(pa.string(), len(column), column.buffers(), offset=column.offset)
    padded = pc.ascii_rpad(text, width, padding="\0")
    words = np.frombuffer(padded.buffers()[2], "<u8", len(column) * width // _WORD_BYTES)
    for place in range(width // _WORD_BYTES):
        some = words[place :: width // _WORD_BYTES] * _weight(place)
        some ^= some >> _SHIFT
        some *= _MIX_1
        some ^= some >> _SHIFT
        found += some
    return found


def _weight(place: int) -> np.uint64:
    """Returns an odd number, another one for each place."""
    return np.uint64((2 * place + 1) * _GOLDEN & _SUM_BITS)


def _mixed(words: Words) -> Words:
    """Returns words of which each bit depends on all bits of the former."""
    found = (words ^ (words >> _SHIFT)) * _MIX_1
    found = (found ^ (found >> _SHIFT)) * _MIX_2
    mixed: Words = found ^ (found >> _SHIFT)
    return mixed

"""A column of byte strings: lengths, which of them are null, and all bytes end to end."""

import struct
from collections.abc import Iterator, Sequence
from io import BytesIO
from itertools import compress
from operator import itemgetter
from typing import NamedTuple, TypeVar, overload

import numpy as np
import numpy.typing as npt

from ..errors import Refused, TooLarge
from ..model import Buffer
from .numbers import Array, Numbers, narrow, starts_of

Bools = npt.NDArray[np.bool_]
U32 = np.dtype("<u4")
Null = TypeVar("Null", None, bytes)


class Blobs(NamedTuple):
    """`lengths` None: every item is null. `valid` None: no item is null. A null item has length 0."""

    lengths: Numbers | None = None
    valid: Bools | None = None
    blob: Buffer = b""

    def starts(self, count: int) -> npt.NDArray[np.int64]:
        return starts_of(0 if self.lengths is None else self.lengths, count)

    def items(self, count: int, null: Null) -> list[bytes | Null]:
        """Returns the byte strings, and `null` for each that is null."""
        lengths = self.lengths
        if lengths is None:
            return [null] * count
        items: list[bytes | Null]
        if not isinstance(lengths, int):
            # Reading on takes two thirds of the time of slicing: no slice has to be made for each.
            items = list(map(BytesIO(self.blob).read, lengths.tolist()))
        elif lengths == 0:
            items = [b""] * count
        elif count == 1:
            items = [bytes(self.blob)]
        else:
            # numpy cuts equal pieces five times faster than slicing does.
            items = np.frombuffer(self.blob, dtype=f"V{lengths}").tolist()
        if self.valid is not None:
            for index in np.flatnonzero(~self.valid).tolist():
                items[index] = null
        return items

    def picked(self, positions: npt.NDArray[np.int64], count: int) -> list[bytes | None]:
        """Returns some of the byte strings and nulls, without cutting the others."""
        lengths = self.lengths
        if lengths is None:
            return [None] * len(positions)
        if isinstance(lengths, int) and lengths and self.valid is None:
            equal = np.frombuffer(self.blob, dtype=f"V{lengths}")
            found: list[bytes | None] = equal[positions].tolist()
            return found
        items: list[bytes | None] = self._cut_at(positions, count)  # type: ignore[assignment]  # As in `items`.
        if self.valid is not None:
            for index in np.flatnonzero(~self.valid[positions]).tolist():
                items[index] = None
        return items

    def chosen(self, mask: Bools, count: int) -> "Blobs":
        """Returns the items where the mask is true."""
        if self.lengths is None:
            return self
        is_few = mask.sum() * 8 < count
        kept = (
            self._cut_at(np.flatnonzero(mask), count)
            if is_few
            else compress(self.items(count, b""), mask)
        )
        return Blobs(
            self.lengths if isinstance(self.lengths, int) else self.lengths[mask],
            None if self.valid is None else self.valid[mask],
            b"".join(kept),
        )

    def _cut_at(self, positions: npt.NDArray[np.int64], count: int) -> list[bytes]:
        """Returns some of the byte strings, a null as an empty one, without cutting the others."""
        starts, blob = self.starts(count), memoryview(self.blob)
        pairs = zip(starts[positions].tolist(), starts[positions + 1].tolist(), strict=True)
        return [bytes(blob[start:end]) for start, end in pairs]

    def plain(self) -> "Blobs":
        """Returns these items as an encoder writes them: no array or bitmap without need."""
        lengths, valid, blob = self
        if lengths is None or (valid is not None and not valid.any()):
            return Blobs()
        return Blobs(narrow(lengths), None if valid is None or valid.all() else valid, blob)


class JoinedBlobs(Sequence[bytes]):
    """Byte strings in parts that are joined already, so that an encoder only has to concatenate them."""

    def __init__(self, parts: Sequence[tuple[Blobs, int]]) -> None:
        """Parts, each with its number of items. One that has nulls has its lengths as an array."""
        self.parts = parts
        self._count: int = sum(map(itemgetter(1), parts))

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        return [item for part, count in self.parts for item in part.items(count, b"")][index]

    def __iter__(self) -> Iterator[bytes]:
        # By its items, as a sequence does by itself, each would make all of them.
        return iter(self[:])

    def blobs(self) -> Blobs:
        size, pieces = self.parts[0][0].lengths, []
        for part, _ in self.parts:
            # Arrays are not compared with a number: that gives an array.
            if not isinstance(part.lengths, int) or part.lengths != size:
                return join_blobs(self.parts)
            pieces.append(part.blob)
        return Blobs(size, None, b"".join(pieces))


def blobs_of(items: Sequence[bytes | None], what: str, *, limit: int) -> Blobs:
    """Returns a column of a list. TooLarge: an item has more than `limit` bytes."""
    # A sixth of the time of isinstance with an abstract base class.
    if type(items) is JoinedBlobs:
        return items.blobs()
    try:
        blob = b"".join(items)  # type: ignore[arg-type]  # A None raises TypeError.
    except TypeError:
        return _with_nulls(items, what, limit)
    sizes = list(map(len, items))  # type: ignore[arg-type]  # None of them is null.
    largest = sizes[0]
    lengths: Numbers = largest
    joined = largest * len(sizes)
    if sizes.count(largest) != len(sizes):
        lengths = np.frombuffer(struct.pack(f"<{len(sizes)}Q", *sizes), dtype="<u8")
        largest, joined = int(lengths.max()), int(lengths.sum())
    if joined != len(blob):
        # An array of wider numbers joins as its bytes, while its length counts the numbers.
        raise Refused(f"{what} must be bytes or None, got a buffer of something wider")
    if largest > limit:
        raise TooLarge(f"{what} in bytes", found=largest, limit=limit)
    return Blobs(lengths, None, blob)


def _with_nulls(items: Sequence[bytes | None], what: str, limit: int) -> Blobs:
    for item in items:
        if item is not None and not _is_bytes(item):
            raise Refused(f"{what} must be bytes or None, got {type(item).__name__}")
    valid = np.fromiter((item is not None for item in items), dtype=np.bool_, count=len(items))
    if not valid.any():
        return Blobs()
    filled = blobs_of([b"" if item is None else item for item in items], what, limit=limit)
    return Blobs(filled.lengths, valid, filled.blob)


def _is_bytes(item: object) -> bool:
    if isinstance(item, memoryview):
        return item.ndim == 1 and item.itemsize == 1 and item.c_contiguous
    return isinstance(item, bytes | bytearray)


def join_blobs(columns: Sequence[tuple[Blobs, int]]) -> Blobs:
    """Returns columns, each with its number of items, end to end."""
    if all(column.lengths is None for column, _ in columns):
        return Blobs()
    lengths: list[Array] = []
    valid: list[Bools] = []
    for column, count in columns:
        size = 0 if column.lengths is None else column.lengths
        lengths.append(np.full(count, size, U32) if isinstance(size, int) else size.astype(U32))
        is_null = column.lengths is None
        valid.append(np.full(count, not is_null) if column.valid is None else column.valid)
    blob = b"".join(column.blob for column, _ in columns)
    return Blobs(np.concatenate(lengths), np.concatenate(valid), blob).plain()

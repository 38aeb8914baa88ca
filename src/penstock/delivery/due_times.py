"""Due times of delayed messages by id, eight bytes each.

Ids are given one after the other, so blocks of an array are the cheapest map while most of a block is pending. The rest
of old blocks moves into one sorted table, so a few messages that wait for a year hold no block.
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

Int64s = npt.NDArray[np.int64]

_BLOCK_BITS = 12
_BLOCK = 1 << _BLOCK_BITS
_MASK = _BLOCK - 1
# A block with less than this part left moves to the table: it takes 32 KiB.
_SPARSE_ONE_IN = 8
_NOTHING = np.empty(0, np.int64)
# The entry of an id that was not set, or was forgotten.
_NEVER = np.iinfo(np.int64).max


def ids_in(ids: BitMap64) -> Int64s:
    """Returns a set as an array, smallest first."""
    return np.frombuffer(ids.to_array(), np.uint64).view(np.int64)


class DueTimes:
    """Due times by id. Only ids that were set and not forgotten may be asked for."""

    def __init__(self) -> None:
        self._blocks: dict[int, Int64s] = {}
        self._left: dict[int, int] = {}
        self._old_ids, self._old_dues = _NOTHING, _NOTHING

    def set_many(self, ids: Int64s, dues: Int64s) -> None:
        """Set the due times of new ids, in growing order."""
        first, last = int(ids[0]) >> _BLOCK_BITS, int(ids[-1]) >> _BLOCK_BITS
        for number in range(first, last + 1):
            if first == last:
                self._fill(number, ids, dues)
                return
            start, end = np.searchsorted(ids, (number << _BLOCK_BITS, number + 1 << _BLOCK_BITS))
            if start < end:
                self._fill(number, ids[start:end], dues[start:end])

    def _fill(self, number: int, ids: Int64s, dues: Int64s) -> None:
        block = self._blocks.get(number)
        if block is None:
            block = self._blocks[number] = np.full(_BLOCK, _NEVER)
            self._left[number] = 0
        block[ids & _MASK] = dues
        self._left[number] += len(ids)

    def change(self, identity: int, due_ns: int) -> None:
        block = self._blocks.get(identity >> _BLOCK_BITS)
        if block is not None:
            block[identity & _MASK] = due_ns
        else:
            self._old_dues[np.searchsorted(self._old_ids, identity)] = due_ns

    def of(self, identity: int) -> int:
        block = self._blocks.get(identity >> _BLOCK_BITS)
        if block is not None:
            return int(block[identity & _MASK])
        return int(self._old_dues[np.searchsorted(self._old_ids, identity)])

    def of_many(self, ids: Int64s) -> Int64s:
        """Returns the due times of ids in growing order."""
        found = np.empty(len(ids), np.int64)
        start = 0
        numbers = ids >> _BLOCK_BITS
        ends = [*(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(ids)] if len(ids) else []
        for end in ends:
            part, block = ids[start:end], self._blocks.get(int(numbers[start]))
            if block is None:
                found[start:end] = self._old_dues[np.searchsorted(self._old_ids, part)]
            else:
                found[start:end] = block[part & _MASK]
            start = end
        return found

    def before(self, time_ns: int, first: int, end: int) -> Int64s:
        """Returns ids from `first` to `end` that are due before a time, in growing order.

        Some ids of the table may be among them that were forgotten.
        """
        low, high = np.searchsorted(self._old_ids, (first, end)).tolist()
        found = [self._old_ids[low:high][self._old_dues[low:high] < time_ns]]
        for number in range(first >> _BLOCK_BITS, (end - 1 >> _BLOCK_BITS) + 1):
            block, base = self._blocks.get(number), number << _BLOCK_BITS
            if block is not None:
                start = max(0, first - base)
                found.append(np.flatnonzero(block[start : end - base] < time_ns) + (base + start))
        return np.sort(np.concatenate(found))

    def forget(self, ids: Iterable[int]) -> None:
        """Drop ids that are no longer asked for."""
        for identity in ids:
            number = identity >> _BLOCK_BITS
            left = self._left.get(number)
            if left is None:
                continue  # In the table, which `thin_out` cleans.
            if left == 1:
                del self._blocks[number], self._left[number]
            else:
                self._left[number] = left - 1
                self._blocks[number][identity & _MASK] = _NEVER

    def thin_out(self, pending: BitMap64) -> None:
        """Free blocks that are mostly empty, and entries of the table that are not pending."""
        # New ids still go into the last block.
        last = max(self._left, default=0)
        sparse = [
            one for one, left in self._left.items() if left * _SPARSE_ONE_IN < _BLOCK and one < last
        ]
        is_old = ids_in(pending & BitMap64(self._old_ids.tolist())) if len(self._old_ids) else None
        if not sparse and (is_old is None or len(is_old) * 2 > len(self._old_ids)):
            return
        ids = [] if is_old is None else [is_old]
        for number in sparse:
            span = BitMap64(range(number << _BLOCK_BITS, number + 1 << _BLOCK_BITS))
            ids.append(ids_in(pending & span))
        merged = np.sort(np.concatenate(ids))
        dues = self.of_many(merged)
        for number in sparse:
            del self._blocks[number], self._left[number]
        self._old_ids, self._old_dues = merged, dues

    @property
    def size(self) -> int:
        """Bytes that the arrays take."""
        blocks = sum(block.nbytes for block in self._blocks.values())
        return blocks + self._old_ids.nbytes + self._old_dues.nbytes

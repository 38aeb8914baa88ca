"""Which messages of stored batches are in a range."""

from collections.abc import Iterable, Iterator

import numpy as np

from ..client.wire import BODY_BYTES_MAX
from ..codec import Head
from ..codec.arrow import decode_arrow, int64s_of
from .decoding import Stored


def parts_of(batches: Iterable[tuple[Head, memoryview]], start: int, end: int) -> Iterator[Stored]:
    """Those messages of whole stored batches that are in a range."""
    for head, data in batches:
        part = part_of(head, data, start, end)
        if part.first < part.last:
            yield part


def part_of(head: Head, data: memoryview, start: int, end: int) -> Stored:
    """Which messages of a stored batch are in a range."""
    if head.base_offset >= start and head.next_offset <= end:
        return Stored(head, data, 0, head.message_count)
    if head.is_dense:
        first, last = start - head.base_offset, end - head.base_offset
        return Stored(head, data, max(first, 0), min(last, head.message_count))
    column = decode_arrow(data, head, columns=("offset",), size_max=BODY_BYTES_MAX).column(0)
    first, last = np.searchsorted(int64s_of(column), [start, end]).tolist()
    return Stored(head, data, first, last)

"""Where batches lie in their file, for whoever has the system send them. Of the batches only the heads are read."""

from typing import NamedTuple

from ..codec import HEAD_BYTES, Head, read_head
from ..errors import MalformedBatch
from ..model import Offset
from ..ports import File
from .segment import Segment

# Smaller ones are read as quickly as their heads are, one by one.
_BATCH_BYTES_MIN = 64 * 1024


class Stretch(NamedTuple):
    """Consecutive whole batches. Their heads are good; of their bodies nothing is known."""

    file: File
    position: int
    size: int
    next_offset: Offset


def stretch_at(
    segment: Segment, position: int, offset: int, *, bytes_max: int, limit: int
) -> Stretch | None:
    """Batches from the one at `position`, which holds `offset`, on. None: read them, which also tells what is wrong."""
    last = _head_at(segment, position)
    if last is None or last.length < _BATCH_BYTES_MIN:
        return None
    if not last.base_offset <= offset <= last.last_offset:
        return None
    end = position + last.length
    while last.next_offset < offset + limit:
        following = _head_at(segment, end)
        if following is None or following.base_offset != last.next_offset:
            break
        if end + following.length > position + bytes_max:
            break
        last, end = following, end + following.length
    return Stretch(segment.file, position, end - position, Offset(last.next_offset))


def _head_at(segment: Segment, position: int) -> Head | None:
    """The head of a batch that is whole, as far as its head can tell."""
    try:
        head = read_head(segment.file.read(position, HEAD_BYTES), seed=segment.seed)
    except MalformedBatch:
        return None
    return head if position + head.length <= segment.size else None

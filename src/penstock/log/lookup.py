"""Looks things up in a whole log: the offset of a time, and how much there is from an offset on."""

from ..codec.decode import offsets_of, open_body
from ..codec.head import BODY_BYTES_MAX
from ..errors import DamagedBatch
from ..model import Offset
from .log import Log


def offset_at(log: Log, time_ns: int) -> Offset:
    """Returns the first offset that was appended at `time_ns` or later, or the end if there is none yet.

    With damage before that it is the first damaged offset, so that a read there raises DamagedBatch.
    """
    low, high = 0, len(log.segments)
    while low < high:
        middle = (low + high) // 2
        is_before = _ends_before(log, middle, time_ns)
        low, high = (middle + 1, high) if is_before else (low, middle)
    found = log.segments[low].offset_at(time_ns) if low < len(log.segments) else None
    offset = log.end_offset if found is None else Offset(found)
    is_first = low > 0 and offset == log.end_of(low - 1)
    return max(_end_known(log, low - 1) if is_first else offset, log.start_offset)


def _ends_before(log: Log, number: int, time_ns: int) -> bool:
    """Whether all readable batches of a segment are older. If none is readable, the segment before it counts."""
    if log.segments[number].size == 0:
        return False
    for earlier in range(number, -1, -1):
        segment = log.segments[earlier]
        index = segment.index()
        log.note_index(segment)
        if index.size:
            return index.last_time < time_ns
    return True


def _end_known(log: Log, number: int) -> Offset:
    """Returns the end of the last whole batch of a segment: before the next segment only if there is damage."""
    segment = log.segments[number]
    end = max(segment.base_offset, segment.index().next_offset)
    log.note_index(segment)
    return Offset(min(end, log.end_of(number)))


def bytes_from(log: Log, offset: int) -> int:
    """Returns the stored bytes from the batch that holds `offset` on; if it is damaged, from its file's start."""
    if offset >= log.end_offset:
        return 0
    try:
        number, found = log.place_of_batch(offset)
        position = found.position
    except DamagedBatch:
        number, position = log.segment_number(offset), 0
    return sum(segment.size for segment in log.segments[number:]) - position


def messages_from(log: Log, offset: int) -> int:
    """Returns how many messages there are from an offset on, which must not lie before the start.

    DamagedBatch: the batch that holds the offset is damaged. Only sealed segments are compacted. The count of
    one is known from the compaction, or from the heads of its first batches, and estimated for the others.
    """
    active = log.segments[-1]
    if offset >= active.base_offset:
        return log.end_offset - offset
    number, (position, head) = log.place_of_batch(offset)
    body = open_body(log.read(offset, bytes_max=1).data, head, size_max=BODY_BYTES_MAX)
    here = sum(one >= offset for one in offsets_of(body, head))
    behind = log.segments[number].messages_from(position + head.length)
    later = sum(one.messages() for one in log.segments[number + 1 : -1])
    return here + behind + later + log.end_offset - active.base_offset

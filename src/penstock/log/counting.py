"""How many messages there are in a log that was compacted: offsets without a message are not counted."""

from ..codec.decode import offsets_of, open_body
from ..codec.head import BODY_BYTES_MAX
from .log import Log


def messages_from(log: Log, offset: int) -> int:
    """Messages from an offset on, which must not lie before the start. DamagedBatch: the one that holds it is.

    Only sealed segments are compacted. What is in them is known from the compaction, or from the heads of their
    batches: of the first `HEADS_MAX` of them, and estimated of the others by their size.
    """
    active = log.segments[-1]
    if offset >= active.base_offset:
        return log.end_offset - offset
    number, (position, head) = log.place_of_batch(offset)
    run = log.read(offset, bytes_max=1)
    body = open_body(run.data, head, size_max=BODY_BYTES_MAX)
    here = sum(one >= offset for one in offsets_of(body, head))
    behind = log.segments[number].messages_from(position + head.length)
    later = sum(one.messages() for one in log.segments[number + 1 : -1])
    return here + behind + later + log.end_offset - active.base_offset

"""Appends batches that another node has placed: their offsets, epochs and times are kept.

Only `unsynced` is stamped anew. It says what was durable when the batch was written, and on this disk something else
was: with the leader's, an ordinary power cut of a follower would look like damage.
"""

from ..codec import HEAD_BYTES, Head, batches_in
from ..codec.head import UNSYNCED_MAX, pack_head
from ..errors import Fenced, MalformedBatch
from ..model import Buffer, Epoch, Offset
from .log import Log


def append_placed(log: Log, data: Buffer, *, epoch_max: int) -> list[Head]:
    """Write whole batches at the end of a log as another node has placed them. Returns their heads.

    MalformedBatch: they are not whole, not of this log, or do not follow its end; Fenced: they are of a later epoch
    than the one that is followed. Nothing was written then. NoSpace: perhaps a part of them.
    """
    end_offset, epoch, append_time = log.end_offset, log.epoch, log.append_time
    batches: list[tuple[Head, memoryview]] = []
    for head, batch in batches_in(data, seed=log.seed):
        if head.base_offset != end_offset:
            raise MalformedBatch(f"offset {head.base_offset} at the end {end_offset} of a replica")
        if head.epoch < epoch:
            reason = f"offset {head.base_offset} of epoch {head.epoch} in a log of epoch {epoch}"
            raise MalformedBatch(reason)
        if head.append_time < append_time:
            raise MalformedBatch(f"offset {head.base_offset} is older than the batch before it")
        if head.epoch > epoch_max:
            raise Fenced(epoch_max, promised=head.epoch)
        end_offset = Offset(head.next_offset)
        epoch, append_time = Epoch(head.epoch), head.append_time
        batches.append((head, batch))
    for head, batch in batches:
        _append(log, head, batch[HEAD_BYTES:])
    return [head for head, _ in batches]


def _append(log: Log, head: Head, body: memoryview) -> None:
    active = log.segments[-1]
    if log.must_roll(active, head, head.append_time):
        active = log.roll()
    if head.epoch > log.epoch:
        log.note_epoch(Epoch(head.epoch))
    unsynced = min(head.base_offset - log.durable_end, UNSYNCED_MAX)
    placed = head._replace(unsynced=unsynced)
    active.append(placed, pack_head(placed, seed=log.seed), body)
    log.go_on_behind(head)

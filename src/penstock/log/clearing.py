"""Taking single messages out of a log, wherever they are: sealed segments are written anew with what is to stay.

As in compaction offsets never change, and a crash leaves each segment as it was or as it should be. What goes is not
needed any more, so either is right.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..codec.blobs import Bools
from ..codec.decode import offsets_of
from ..model import Offset
from .compaction import STEP_BYTES, Compaction, body_of, perform, sealed_segments
from .log import Log
from .scan import Stored

Keeps = Callable[[npt.NDArray[np.int64]], Bools]
"""Of offsets in growing order, which have to stay."""


class Cleared(NamedTuple):
    """What a run did."""

    segments_rewritten: int
    messages_removed: int
    bytes_freed: int


class _Clearing(Compaction):
    """A compaction that is told what to keep."""

    keeps: Keeps

    def _kept(self, batch: Stored) -> Bools | None:
        if batch.head.is_control or batch.head.message_count == 0:
            return None
        offsets = np.asarray(offsets_of(body_of(batch), batch.head), dtype=np.int64)
        kept = self.keeps(offsets)
        return None if kept.all() else kept


def clear(log: Log, keeps: Keeps, segments: Sequence[int], *, keep_from: Offset) -> Cleared:
    """Write some segments, named by their first offsets, anew; durable on return.

    Only those count that end at or before `keep_from`. NoSpace and DamagedBatch leave the segment as it was.
    """
    log.sync(with_checkpoint=True)
    chosen = [one for one in sealed_segments(log, keep_from) if one.segment.base_offset in segments]
    assert not log.is_compacting, "one at a time"
    log.is_compacting = True
    try:
        run = _Clearing(log, 0, chosen, STEP_BYTES)
        run.keeps = keeps
        perform(run.rewrite_segments())
    finally:
        log.is_compacting = False
    return Cleared(run.segments_rewritten, run.messages_removed, run.bytes_freed)

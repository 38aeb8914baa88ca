"""What a producer has for one partition."""

from collections import deque

from ..calls import Call
from ..producer_batch import Batch, Numbering
from ..publish import BatchStored
from .io import Connection, Lock


class AsyncPartitionQueue:
    """One partition: what waits for it, and the one batch that is under way. In order, so one at a time."""

    def __init__(self, number: int, numbering: Numbering | None) -> None:
        self.number, self.numbering = number, numbering
        # The one that is being filled.
        self.filling: Batch | None = None
        self.queue: deque[Batch] = deque()
        self.lock = Lock()
        self.sent: tuple[Batch, Call[BatchStored], Connection] | None = None
        self.sent_s = 0.0
        # A batch that failed, and when to try it again.
        self.trouble: tuple[Batch, Call[BatchStored], float] | None = None

    @property
    def is_idle(self) -> bool:
        return not (self.filling or self.queue or self.sent or self.trouble)

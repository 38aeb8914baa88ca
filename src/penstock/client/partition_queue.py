"""The batches of one partition on their way to the server: several at once, stored in order. No I/O."""

import time
from collections import deque
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..api.publish import PublishBatch
from ..codec import Marks
from .producer_batch import Batch

# The server recognises a repeat of the last five batches of a producer (broker/partition/producers.py).
IN_FLIGHT_MAX = 5
# Large batches go one at a time: the server is busy with one while the next is filled, and two would only take memory.
_IN_FLIGHT_BYTES_MAX = 1 << 20
_SEQUENCE_MASK = (1 << 31) - 1


@dataclass(slots=True)
class Numbering:
    """The numbers of a producer's messages for one partition.

    The server stores a number that comes twice once, and refuses one that is not the next (OutOfSequence).
    """

    producer_id: int
    epoch: int = 0
    next_sequence: int = 0

    def marks(self) -> Marks:
        return Marks(
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            first_sequence=self.next_sequence,
        )

    def use(self, count: int) -> None:
        self.next_sequence = (self.next_sequence + count) & _SEQUENCE_MASK

    def give_back(self, marks: Marks, count: int) -> None:
        """The server refused a batch. The next one gets its numbers, if no batch has got later ones."""
        is_last = (marks.first_sequence + count) & _SEQUENCE_MASK == self.next_sequence
        if is_last and marks.producer_epoch == self.epoch:
            self.next_sequence = marks.first_sequence

    def start_again(self) -> None:
        """Begin a new epoch, after a batch that may have been stored: the server refuses requests of the old one."""
        self.epoch += 1
        self.next_sequence = 0


class Request(NamedTuple):
    """A batch and the command that stores it. A retry keeps the command, and with it the numbers of the messages."""

    order: int
    batch: Batch
    command: PublishBatch
    marks: Marks


class PartitionQueue:
    """The batches of one partition, from the open one to those that were sent.

    Numbered batches are sent before the one ahead of them is answered. If one fails, nothing new is sent until all
    those behind it are answered, too; the server has refused them, because the number of the failed one is missing.
    Then they are sent again one at a time, the oldest first.
    """

    def __init__(self, number: int, numbering: Numbering | None, lock: Any) -> None:
        self.number, self.numbering = number, numbering
        self.open_batch: Batch | None = None
        self.sealed: deque[Batch] = deque()
        # Held by the task or thread that sends and collects.
        self.lock = lock
        # Requests that were sent, and where their replies will be, the oldest first.
        self.in_flight: deque[tuple[Request, Any]] = deque()
        # Requests that failed, the oldest first, and when to send that one again.
        self.retry: list[Request] = []
        self.retry_at_s = 0.0

    @property
    def is_idle(self) -> bool:
        return not (self.open_batch or self.sealed or self.in_flight or self.retry)

    @property
    def is_answered(self) -> bool:
        """Whether the answer to the oldest request has come."""
        return bool(self.in_flight) and self.in_flight[0][1].pending.is_settled

    @property
    def may_send(self) -> bool:
        """Whether the oldest sealed batch may be sent before another answer comes, if none has to be sent again."""
        if not self.in_flight:
            return True
        # Without numbers, the server would not refuse a batch that comes without the one ahead of it.
        if self.numbering is None or len(self.in_flight) >= IN_FLIGHT_MAX:
            return False
        # A batch that is sent again goes alone: those behind its first try may be stored, and of others behind this one
        # the server would forget it, and refuse the next repeat of what it has stored.
        if self.in_flight[0][0].batch.tries > 1:
            return False
        # The server refuses an old epoch once it has seen the new one: those of the old one have to be answered first.
        if self.in_flight[-1][0].marks.producer_epoch != self.numbering.epoch:
            return False
        weight = sum([request.batch.weight for request, _ in self.in_flight])
        return weight + self.sealed[0].weight <= _IN_FLIGHT_BYTES_MAX

    @property
    def may_send_again(self) -> bool:
        """Whether the oldest failed request may be sent now: everything behind it has to be answered before."""
        return bool(self.retry) and not self.in_flight and self.retry_at_s <= time.monotonic()

    def put_back(self, request: Request, at_s: float) -> None:
        """Have a request sent again, not before `at_s` if it is the oldest."""
        self.retry.append(request)
        self.retry.sort(key=lambda one: one.order)
        if self.retry[0] is request:
            self.retry_at_s = at_s

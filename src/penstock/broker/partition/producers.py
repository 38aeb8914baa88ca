"""Producers that number their messages: a repeat gets the first result, a gap and an old epoch are refused."""

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import NamedTuple

from ...codec import Head
from ...errors import OutOfSequence
from ...model import PRODUCER_NONE

# A client has at most this many batches on the way, so only these can come again.
_BATCHES_REMEMBERED = 5
# Oldest forgotten first; a producer that comes back after that starts with sequence 0 in a new epoch.
_PRODUCERS_MAX = 10_000
# Sequences go from 0 to 2^31 - 1 and start again, as they do in Kafka.
_SEQUENCE_MASK = (1 << 31) - 1


class Sent(NamedTuple):
    """A batch that a producer sent before, with as many messages as it had then."""

    first_sequence: int
    message_count: int
    base_offset: int


@dataclass(slots=True)
class Producer:
    """How far one producer has come."""

    epoch: int
    next_sequence: int
    recent: deque[Sent] = field(default_factory=lambda: deque(maxlen=_BATCHES_REMEMBERED))


class Producers:
    """All producers of one partition. Filled from the heads of batches."""

    def __init__(self) -> None:
        self.by_id: OrderedDict[int, Producer] = OrderedDict()

    def repeat_of(self, head: Head, *, may_begin_anywhere: bool = False) -> Sent | None:
        """The batch that this one repeats; None if it is new; OutOfSequence if it is neither.

        `may_begin_anywhere`: the first one of an epoch has any sequence. Not for clients with several batches on the
        way, of which the second may come first.
        """
        if head.producer_id == PRODUCER_NONE:
            return None
        known = self.by_id.get(head.producer_id)
        if known is None or head.producer_epoch > known.epoch:
            if head.first_sequence != 0 and not may_begin_anywhere:
                self._refuse(head, f"a new epoch starts with sequence 0, not {head.first_sequence}")
            return None
        if head.producer_epoch < known.epoch:
            self._refuse(head, f"epoch {head.producer_epoch} was replaced by {known.epoch}")
        if head.first_sequence == known.next_sequence:
            return None
        for sent in known.recent:
            if sent[:2] == (head.first_sequence, head.last_delta + 1):
                return sent
        expected = known.next_sequence
        self._refuse(head, f"sequence {head.first_sequence} instead of {expected}", expected)
        return None

    def _refuse(self, head: Head, reason: str, expected: int | None = None) -> None:
        raise OutOfSequence(head.producer_id, reason, next_sequence=expected)

    def add(self, head: Head) -> None:
        """Take note of a batch in the log. What it leaves out of its range was numbered by the producer, too."""
        if head.producer_id == PRODUCER_NONE:
            return
        known = self.by_id.get(head.producer_id)
        if known is None:
            known = self.by_id[head.producer_id] = Producer(head.producer_epoch, 0)
        elif head.producer_epoch > known.epoch:
            known.epoch = head.producer_epoch
            known.recent.clear()
        count = head.last_delta + 1
        known.next_sequence = (head.first_sequence + count) & _SEQUENCE_MASK
        known.recent.append(Sent(head.first_sequence, count, head.base_offset))
        self.by_id.move_to_end(head.producer_id)
        if len(self.by_id) > _PRODUCERS_MAX:
            self.by_id.popitem(last=False)

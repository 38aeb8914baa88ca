"""Stored batches as Kafka's clients read them. The last that were converted are kept: many consumers read the same."""

from collections import OrderedDict

from ...codec import Head
from ...codec.decode import open_body
from ...codec.head import BODY_BYTES_MAX
from ...codec.kafka_writer import kafka_batch_of
from ...codec.verbatim import as_fetched
from ...model import Buffer
from .dead_letters import told_headers

# Together with the requests under way, well below what a small machine has; a topic's consumers are mostly close.
_BYTES_MAX = 32 << 20

Key = tuple[int, int, int, int]


class ConvertedBatches:
    """Batches by the seed of their log, their offset, epoch and checksum. Belongs to one event loop."""

    def __init__(self, bytes_max: int = _BYTES_MAX) -> None:
        self._bytes_max, self._size = bytes_max, 0
        self._kept: OrderedDict[Key, bytes] = OrderedDict()

    def convert(
        self, head: Head, batch: memoryview, seed: int, *, is_dead_letters: bool = False
    ) -> tuple[Buffer, ...]:
        """Returns a checked batch as a record batch of Kafka, in pieces. What is stored as it came is not copied."""
        if head.is_verbatim:
            return as_fetched(batch, head)
        key = seed, head.base_offset, head.epoch, head.head_checksum
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
            return (found,)
        told = told_headers if is_dead_letters else None
        found = kafka_batch_of(head, open_body(batch, head, size_max=BODY_BYTES_MAX), told)
        self._kept[key] = found
        self._size += len(found)
        while self._size > self._bytes_max and len(self._kept) > 1:
            self._size -= len(self._kept.popitem(last=False)[1])
        return (found,)

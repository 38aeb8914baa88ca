"""Reading a partition by offset or by time: whole batches as they are stored, or messages."""

from collections.abc import Iterator
from typing import NamedTuple

from ..codec import decode_messages, read_head
from ..codec.head import BODY_BYTES_MAX
from ..errors import Refused
from ..model import Message
from .partition import Partition
from .start import Start

FETCH_BYTES_DEFAULT = 1 << 20


class Fetched(NamedTuple):
    """Whole batches, sealed with the seed of the log. The first one may begin before `offset`: readers trim.

    No data means nothing yet: ask again when the log ends beyond `offset`.
    """

    data: memoryview
    offset: int
    next_offset: int
    start_offset: int
    end_offset: int
    seed: int

    @property
    def wake_at(self) -> int | None:
        """The end offset that this reader waits to see passed; None if there is something to read now."""
        return None if self.data else self.offset

    def messages(self, limit: int | None = None) -> list[Message]:
        """The messages from `offset` on, at most so many."""
        found: list[Message] = []
        for message in self._messages():
            if message.offset >= self.offset:
                found.append(message)
            if limit is not None and len(found) >= limit:
                break
        return found

    def _messages(self) -> Iterator[Message]:
        position = 0
        while position < len(self.data):
            head = read_head(self.data, position, seed=self.seed)
            batch = self.data[position : position + head.length]
            yield from decode_messages(batch, head, size_max=BODY_BYTES_MAX)
            position += head.length


def fetch(
    partition: Partition,
    start: Start,
    *,
    bytes_max: int = FETCH_BYTES_DEFAULT,
    limit: int | None = None,
) -> Fetched:
    """Batches from a place on: at least one if there is any, then while they fit and `limit` is not reached."""
    if bytes_max < 1 or (limit is not None and limit < 1):
        raise Refused("a fetch needs room for at least one message")
    log = partition.messages
    offset = start.in_log(log)
    run = log.read(offset, bytes_max=bytes_max)
    data, next_offset = run.data, int(run.next_offset)
    # Mostly there are fewer, and no head has to be read once more to find out.
    if limit is not None and next_offset - offset > limit:
        data, next_offset = _limited(data, log.seed, offset, limit)
    return Fetched(data, offset, next_offset, log.start_offset, log.end_offset, log.seed)


def _limited(data: memoryview, seed: int, offset: int, limit: int) -> tuple[memoryview, int]:
    """As many batches as are needed for so many offsets."""
    position, next_offset = 0, offset
    while position < len(data) and next_offset < offset + limit:
        head = read_head(data, position, seed=seed)
        position, next_offset = position + head.length, head.next_offset
    return data[:position], next_offset

"""Reading a partition by offset or by time: whole batches as they are stored, or messages."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from ..api.start import Start
from ..codec import batches_in, decode_messages
from ..codec.decode import Messages, open_body
from ..codec.head import BODY_BYTES_MAX, OFFSET_MAX
from ..config import OnDamage
from ..errors import DamagedBatch, Refused
from ..log import Log
from ..model import Message
from ..ports import Lent
from .damage import behind
from .delaying import ids_of
from .partition import Partition
from .start import offset_in

FETCH_BYTES_DEFAULT = 1 << 20
_NOTHING = memoryview(b"")
# Compaction leaves few and small batches without messages; so many bytes of them are some milliseconds.
_IDLE_BYTES_MAX = 4 << 20
_READ_BYTES_MIN = 1 << 16


class InFile(NamedTuple):
    """Bytes of a file that stays open as long as somebody holds this."""

    lent: Lent
    position: int
    size: int


class SkippedRange(NamedTuple):
    """Offsets from `start` to before `end` that a read passed over, because they are damaged."""

    start: int
    end: int
    reason: str


class Fetched(NamedTuple):
    """Whole batches, sealed with the seed of the log. The first one may begin before `offset`: readers trim.

    No data means nothing yet: ask again when the log ends beyond `offset`. If `in_file`, they lie there, and nobody has
    read more than their heads. What was `skipped` lies before `offset`.
    """

    data: memoryview
    offset: int
    next_offset: int
    start_offset: int
    end_offset: int
    seed: int
    in_file: InFile | None = None
    skipped: tuple[SkippedRange, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.data and self.in_file is None and not self.skipped

    @property
    def wake_at(self) -> int | None:
        """The end offset that this reader waits to see passed; None if there is something to read now."""
        return self.offset if self.is_empty else None

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
        for head, batch in batches_in(self.data, seed=self.seed, is_verified=True):
            yield from decode_messages(batch, head, size_max=BODY_BYTES_MAX)


# As calling the class does it, without a call of its own.
_fetched: Callable[[tuple[memoryview, int, int, int, int, int, None, tuple[()]]], Fetched] = (
    partial(tuple.__new__, Fetched)
)


def fetch(
    partition: Partition,
    start: Start,
    *,
    bytes_max: int = FETCH_BYTES_DEFAULT,
    limit: int | None = None,
    is_checked: bool = True,
) -> Fetched:
    """Batches from a place on: at least one if there is any, then while they fit and `limit` is not reached.

    Not `is_checked`: whoever gets them checks them, so that large ones may stay where they are.
    """
    offset = offset_in(partition.messages, start)
    return fetch_from(partition, offset, bytes_max, limit, is_checked=is_checked)


def fetch_from(
    partition: Partition,
    offset: int,
    bytes_max: int,
    limit: int | None,
    *,
    is_checked: bool = True,
) -> Fetched:
    """The same from an offset on. Where the topic skips damage, from behind it."""
    skipped: list[SkippedRange] = []
    while True:
        try:
            found = _fetch(partition, offset, bytes_max, limit, is_checked=is_checked)
        except DamagedBatch as damage:
            end = behind(damage, partition.config)
            skipped.append(SkippedRange(offset, end, damage.reason))
            offset = end
        else:
            return found._replace(skipped=tuple(skipped)) if skipped else found


def _fetch(
    partition: Partition, offset: int, bytes_max: int, limit: int | None, *, is_checked: bool
) -> Fetched:
    if bytes_max < 1 or (limit is not None and limit < 1):
        raise Refused("a fetch needs room for at least one message")
    log = partition.messages
    if not is_checked and (found := _in_file(log, offset, bytes_max, limit)) is not None:
        return found
    run = log.read(offset, bytes_max=bytes_max)
    data, next_offset = run.data, int(run.next_offset)
    # Mostly there are fewer, and no head has to be read once more to find out.
    if limit is not None and next_offset - offset > limit:
        data, next_offset = _limited(data, log.seed, offset, limit)
    return _fetched(
        (data, offset, next_offset, log.start_offset, log.end_offset, log.seed, None, ())
    )


class MessagesRead(NamedTuple):
    """Messages from an offset on, and where to go on. None of them, and `next_offset` is the end: nothing yet.

    `delay_ids` are those of messages that were delayed, by offset.
    What was `skipped` is damaged and lies between the messages, or before or behind them.
    """

    messages: list[Message]
    delay_ids: dict[int, int]
    next_offset: int
    start_offset: int
    end_offset: int
    skipped: tuple[SkippedRange, ...] = ()


def read_messages(
    partition: Partition, start: Start, *, limit: int, bytes_max: int = FETCH_BYTES_DEFAULT
) -> MessagesRead:
    """The next messages, at least one if there is any: at most so many, while their batches fit into so many bytes.

    It goes on over the ends of segments and over offsets without a message, but gives up, with none, after 4 MiB of
    batches that hold nothing to be read. DamagedBatch: the first message cannot be read, and the topic does not skip.
    """
    log = partition.messages
    first = offset = offset_in(log, start)
    found: list[Message] = []
    skipped: list[SkippedRange] = []
    ids: dict[int, int] = {}
    room, idle = bytes_max, _IDLE_BYTES_MAX
    while len(found) < limit and offset < log.end_offset and idle > 0 and room > 0:
        try:
            run = log.read(offset, bytes_max=max(room, _READ_BYTES_MIN))
        except DamagedBatch as damage:
            if found and partition.config.on_damage is OnDamage.STOP:
                break
            end = behind(damage, partition.config)
            skipped.append(SkippedRange(offset, end, damage.reason))
            offset = end
            continue
        for head, batch in batches_in(run.data, seed=log.seed, is_verified=True):
            if len(found) >= limit or (found and room < head.length):
                room = 0
                break
            offset = head.next_offset
            body = open_body(batch, head, size_max=BODY_BYTES_MAX)
            fresh = [one for one in Messages(body, head) if one.offset >= first]
            found += fresh
            ids |= ids_of(body, head)
            if fresh:
                room -= head.length
            else:
                idle -= head.length
    if len(found) >= limit:
        # Behind the last message, and not behind its batch.
        del found[limit:]
        offset = found[-1].offset + 1
    return MessagesRead(found, ids, offset, log.start_offset, log.end_offset, tuple(skipped))


def _in_file(log: Log, offset: int, bytes_max: int, limit: int | None) -> Fetched | None:
    """None: they have to be read."""
    found = log.find(offset, bytes_max=bytes_max, limit=OFFSET_MAX if limit is None else limit)
    lent = None if found is None else found.file.lend()
    if found is None or lent is None:
        return None
    return Fetched(
        _NOTHING,
        offset,
        int(found.next_offset),
        log.start_offset,
        log.end_offset,
        log.seed,
        InFile(lent, found.position, found.size),
    )


def _limited(data: memoryview, seed: int, offset: int, limit: int) -> tuple[memoryview, int]:
    """As many batches as are needed for so many offsets."""
    size, next_offset = 0, offset
    for head, _ in batches_in(data, seed=seed, is_verified=True):
        size, next_offset = size + head.length, head.next_offset
        if next_offset >= offset + limit:
            break
    return data[:size], next_offset

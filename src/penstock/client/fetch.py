"""Reading by position: the call, the batches that it returns, and the order in which a whole topic is read. No I/O."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import dropwhile
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from ..api.arguments import partition_number, whole_number
from ..api.dead_letters import dead_letter_message
from ..api.fetch import Fetch, FetchReply
from ..api.start import EARLIEST, Start
from ..api.units import Duration, Moment, moment_ns
from ..codec import Head, Origin, batches_in, decode_messages
from ..errors import BadAnswer, MalformedBatch, NotFound, PartitionFaulty, Refused
from ..model import Message
from .commands import name_of, past_moment
from .replies import REPLY_BYTES_MAX
from .topics import Topic

if TYPE_CHECKING:
    import pyarrow as pa

LIMIT_MAX = 10_000
# The limit for stored batches, which cost the same whatever number of messages they hold.
LIMIT_MAX_BATCHES = 1_000_000
# Four batches of 1 MiB with their heads. A request costs little a message then, and the server can prepare all of it
# while the caller uses the one before; two of them are in memory at once.
PREFETCH_BYTES = (4 << 20) + (128 << 10)
_READ_BYTES = 4 << 20
# While other partitions may have messages, a request does not wait long at the end of one.
_WAIT_S_SHARED = 0.25
_WAIT_S_ALONE = 20.0
# For so long a read that follows waits for a server that is away, as a consumer does.
FOLLOW_PATIENCE_S = 300.0


class FetchOptions(TypedDict, total=False):
    """From where (the earliest offset by default), how much, and how long to wait at the end."""

    offset: int | None
    from_time: Moment | None
    limit: int
    max_bytes: int
    timeout: Duration


class FetchRequest(NamedTuple):
    """A fetch: from where, how much, and how long to wait at the end."""

    topic: str
    partition: int
    offset: int | None = None
    from_time: Moment | None = None
    limit: int = LIMIT_MAX
    max_bytes: int = 1 << 20
    timeout: Duration = 0

    def at(self, offset: int) -> "FetchRequest":
        """This request from another offset on."""
        return self._replace(offset=offset, from_time=None)

    def after(self, fetched: "Fetched") -> "FetchRequest | None":
        """The request that follows an answer; None at the end, unless there is a timeout to wait for more."""
        is_over = not (fetched or fetched.skipped) if self.timeout else fetched.more_at is None
        return None if is_over else self.at(fetched.next_offset)


class Fetched:
    """Messages of a partition from `offset` on. Iterate for `Message` objects, or take them as Arrow.

    `next_offset` is where to go on; `earliest` and `latest` are the partition's ends. `seed` tells this partition's log
    from any other, also from that of a topic which had the same name before. Every batch was checked against both of
    its checksums. `skipped` are ranges before `offset`, each a first and a next one, that are damaged, in a topic that
    skips damage.
    """

    def __init__(self, reply: FetchReply) -> None:
        """MalformedBatch if the batches are not what the reply says."""
        self.offset, self.next_offset, self.seed = reply.offset, reply.next_offset, reply.seed
        self.earliest, self.latest = reply.start_offset, reply.end_offset
        self.skipped = [(one.start, one.end) for one in reply.skipped]
        # Where to go on, if the partition had more when this was read.
        self.more_at = self.next_offset if self.next_offset < self.latest else None
        # The first batch may begin before `offset`.
        self.batches = [*_split(reply.data, self.seed, self.next_offset)]

    def __bool__(self) -> bool:
        return bool(self.batches)

    def __iter__(self) -> Iterator[Message]:
        for head, batch in self.batches:
            messages: Iterable[Message] = decode_messages(batch, head, size_max=REPLY_BYTES_MAX)
            if head.origin is Origin.OUTBOX:
                messages = map(dead_letter_message, messages)
            if head.base_offset < self.offset:
                messages = dropwhile(self._is_before, messages)
            yield from messages

    def _is_before(self, message: Message) -> bool:
        return message.offset < self.offset

    def record_batches(self, columns: Sequence[str] | None = None) -> "Iterator[pa.RecordBatch]":
        """The messages as Arrow, a record batch for each stored batch; keys and values are not copied."""
        from ..codec.arrow import ARROW_COLUMNS, decode_arrow, int64s_of

        wanted = tuple(columns or ARROW_COLUMNS)
        for head, batch in self.batches:
            found = decode_arrow(batch, head, columns=wanted, size_max=REPLY_BYTES_MAX)
            if head.base_offset < self.offset:
                own = decode_arrow(batch, head, columns=("offset",), size_max=REPLY_BYTES_MAX)
                found = found.slice(int(int64s_of(own.column(0)).searchsorted(self.offset)))
            yield found

    def arrow(self, columns: Sequence[str] | None = None) -> "pa.Table":
        """All messages as one Arrow table."""
        return arrow_table(columns, self.record_batches)


def arrow_table(
    columns: Sequence[str] | None,
    decode: "Callable[[Sequence[str]], Iterable[pa.RecordBatch]]",
) -> "pa.Table":
    """A table of these columns (None: all) from the record batches that `decode` makes of them."""
    import pyarrow as pa

    from ..codec.arrow import ARROW_COLUMNS, FIELDS

    wanted = tuple(columns or ARROW_COLUMNS)
    schema = pa.schema([one for name in wanted for one in FIELDS if one.name == name])
    return pa.Table.from_batches(decode(wanted), schema=schema)


def _split(data: bytes | memoryview, seed: int, end: int) -> Iterator[tuple[Head, memoryview]]:
    """The batches of an answer, verified; MalformedBatch if they do not follow each other up to `end`."""
    following = None
    for head, batch in batches_in(data, seed=seed):
        if following is not None and head.base_offset != following:
            raise MalformedBatch(f"offset {head.base_offset} after {following - 1}")
        yield head, batch
        following = head.next_offset
    if following is not None and following != end:
        raise MalformedBatch(f"the last offset is {following - 1}, not {end - 1}")


def fetch_command(request: FetchRequest, *, is_checked: bool = True) -> Fetch:
    """Not `is_checked`: the server need not verify the batches that it sends, because the client always does.

    Refused if a part of the request is wrong.
    """
    if request.offset is not None and request.from_time is not None:
        raise Refused("give one of offset and from_time")
    start = EARLIEST
    if request.offset is not None:
        start = Start.at_offset(partition_number(request.offset))
    elif request.from_time is not None:
        start = Start.at_time(moment_ns(request.from_time, "from_time"))
    return Fetch(
        name_of("topic", request.topic),
        partition_number(request.partition),
        start,
        whole_number("max_bytes", request.max_bytes, 1),
        min(whole_number("limit", request.limit, 1), LIMIT_MAX_BATCHES),
        is_checked,
    )


def fetched_of(reply: FetchReply, server: str) -> Fetched:
    """BadAnswer if the batches are not whole: they were, when the server sent them."""
    try:
        return Fetched(reply)
    except MalformedBatch as error:
        raise BadAnswer(server, str(error)[:200], is_sent=True) from None


@dataclass(slots=True)
class PartitionReader:
    """One partition of a topic that is read. `end` is the offset where it stops; None: never."""

    request: FetchRequest
    end: int | None

    def end_before(self, offset: int) -> None:
        self.end = offset if self.end is None else min(self.end, offset)

    @property
    def is_done(self) -> bool:
        offset = self.request.offset
        return self.end is not None and offset is not None and offset >= self.end


class TopicReader:
    """Reads partitions in turns. `next` says which one to fetch from, `advance` takes what it gave.

    `fault` is why another partition cannot be read: raised when these are done.
    """

    def __init__(
        self, partitions: Iterable[PartitionReader], fault: PartitionFaulty | None = None
    ) -> None:
        self._partitions = deque(one for one in partitions if not one.is_done)
        self._fault = fault
        self._empty_in_a_row = 0

    def partitions(self) -> list[PartitionReader]:
        return [*self._partitions]

    def forget_done(self) -> None:
        """Leave out partitions that end where they begin."""
        self._partitions = deque(one for one in self._partitions if not one.is_done)

    def next(self) -> PartitionReader | None:
        """The partition to fetch from now; None when all are done. PartitionFaulty: all but one that is faulty."""
        if not self._partitions:
            if self._fault is not None:
                raise self._fault
            return None
        first, count = self._partitions[0], len(self._partitions)
        if first.end is None:
            # Only after a whole round without a message is it worth waiting.
            longest_s = _WAIT_S_ALONE if count == 1 else _WAIT_S_SHARED
            wait_s = longest_s if self._empty_in_a_row >= count else 0.0
            first.request = first.request._replace(timeout=wait_s)
        return first

    def advance(self, fetched: Fetched) -> None:
        """Take what the partition from `next` gave; then it is the turn of another one."""
        first = self._partitions.popleft()
        first.request = first.request.at(fetched.next_offset)
        self._empty_in_a_row = 0 if fetched else self._empty_in_a_row + 1
        # An empty answer before the end: retention removed the rest, or nothing was stored from that time on.
        is_over = first.is_done or (not fetched and first.end is not None)
        if not is_over:
            self._partitions.append(first)

    def leave_out(self, fault: PartitionFaulty) -> None:
        """The partition from `next` cannot be read any more: the others go on, unless there is no end to that."""
        first = self._partitions.popleft()
        if first.end is None:
            raise fault
        self._fault = self._fault or fault


def topic_reader(
    topic: Topic, start: Moment, partition: int | None, *, follow: bool
) -> TopicReader:
    """Reads all partitions, or one, from `start` on. NotFound if there is no such partition."""
    if partition is not None and not whole_number("partition", partition, 0) < topic.partitions:
        raise NotFound("partition", f"{topic.name}/{partition}")
    if not isinstance(start, str | datetime):
        start = whole_number("start, as an offset,", start, 0)
    if partition is not None:
        return TopicReader([_partition_reader(topic, start, partition, follow)])
    readers: list[PartitionReader] = []
    fault: PartitionFaulty | None = None
    for number in range(topic.partitions):
        try:
            readers.append(_partition_reader(topic, start, number, follow))
        except PartitionFaulty as error:
            # Who follows never comes to the end, where this is told.
            if follow:
                raise
            fault = fault or error
    return TopicReader(readers, fault)


def _partition_reader(topic: Topic, start: Moment, number: int, follow: bool) -> PartitionReader:
    ends = topic.ends(number)
    request = FetchRequest(topic.name, number, max_bytes=_READ_BYTES)
    if isinstance(start, int):
        request = request.at(min(max(start, ends.earliest), ends.latest))
    elif start in ("earliest", "latest"):
        request = request.at(ends.earliest if start == "earliest" else ends.latest)
    else:
        request = request._replace(from_time=moment_ns(past_moment(start), "start"))
    return PartitionReader(request, None if follow else ends.latest)


def request_of_end(reader: PartitionReader, until: Moment) -> FetchRequest:
    """A request whose answer begins where a partition is to end."""
    first = reader.request._replace(max_bytes=1, limit=1)
    if not isinstance(until, str | datetime):
        latest = reader.end or 0
        return first.at(min(whole_number("until, as an offset,", until, 0), latest))
    return first._replace(offset=None, from_time=moment_ns(past_moment(until), "until"))

"""Reading by position: the call, and the batches that come back, decoded when they are touched."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import dropwhile
from typing import TYPE_CHECKING, Any, NamedTuple

from ..api.units import Duration, duration_s
from ..codec import Head, decode_messages, verify
from ..codec.single import decode_value, read_value
from ..errors import MalformedBatch, Refused
from ..model import Message
from .calls import (
    ACCEPT_BATCH,
    CHECKED_HERE,
    Call,
    Moment,
    moment,
    path_of,
    span,
    with_query,
)
from .options import FetchOptions
from .wire import BODY_BYTES_MAX, Answer, Headers

if TYPE_CHECKING:
    import pyarrow as pa

LIMIT_MAX = 10_000
# Of stored batches, which cost the same however many messages they hold.
LIMIT_MAX_BATCHES = 1_000_000
# Large enough that a request costs little a message, and small enough that a server can hand over all of it while the
# one before is looked at; two of them are in memory at once. Four batches of 1 MiB fit, with their heads.
PREFETCH_BYTES = (4 << 20) + (128 << 10)
_DIGITS_MAX = 20
_POSITION_HEADERS = (
    b"penstock-offset",
    b"penstock-next-offset",
    b"penstock-earliest",
    b"penstock-latest",
    b"penstock-seed",
)


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
        """The same from another offset on."""
        return self._replace(offset=offset, from_time=None)

    def after(self, fetched: "Fetched") -> "FetchRequest | None":
        """What follows an answer; None at the end, unless there is something to wait for."""
        is_over = not (fetched or fetched.skipped) if self.timeout else fetched.more_at is None
        return None if is_over else self.at(fetched.next_offset)


def in_large_pieces(topic: str, partition: int, options: FetchOptions) -> FetchRequest:
    """A fetch of as much at once as is worth it, unless the options say how much."""
    sizes: FetchOptions = {"limit": LIMIT_MAX_BATCHES, "max_bytes": PREFETCH_BYTES}
    sizes.update(options)
    return FetchRequest(topic, partition, **sizes)


class Fetched:
    """Messages of a partition from `offset` on. Iterate for `Message` objects, or take them as Arrow.

    `next_offset` is where to go on; `earliest` and `latest` are the partition's ends. `seed` tells this partition's log
    from any other, also from that of a topic which had the same name before. Every batch was checked against both of
    its checksums. `skipped` are ranges before `offset`, each a first and a next one, that are damaged, in a topic that
    skips damage.
    """

    __slots__ = (
        "_batches",
        "_single",
        "earliest",
        "latest",
        "more_at",
        "next_offset",
        "offset",
        "seed",
        "skipped",
    )

    def __init__(self, answer: Answer) -> None:
        self.offset, self.next_offset, self.earliest, self.latest, self.seed = map(
            answer.number, _POSITION_HEADERS
        )
        self.skipped = _skipped(answer.headers)
        # Where to go on, if there was more when this was read.
        self.more_at = self.next_offset if self.next_offset < self.latest else None
        # Whoever waits for one message at a time mostly gets one.
        self._single: Message | None = None
        found = read_value(answer.body, self.seed)
        if found is not None and found[0].base_offset + 1 == self.next_offset:
            head, self._single = found
            self._batches = [(head, memoryview(answer.body))]
        else:
            self._batches = [*_split(answer.body, self.seed, self.next_offset)]

    def __bool__(self) -> bool:
        return bool(self._batches)

    @property
    def batches(self) -> list[tuple[Head, memoryview]]:
        """The stored batches, verified. The first may begin before `offset`."""
        return self._batches

    def __iter__(self) -> Iterator[Message]:
        if self._single is not None:
            return iter(() if self._single.offset < self.offset else (self._single,))
        return self._messages()

    def _messages(self) -> Iterator[Message]:
        for head, batch in self._batches:
            single = decode_value(batch, head)
            messages = (
                decode_messages(batch, head, size_max=BODY_BYTES_MAX)
                if single is None
                else (single,)
            )
            if head.base_offset < self.offset:
                yield from dropwhile(self._is_before, messages)
            else:
                yield from messages

    def _is_before(self, message: Message) -> bool:
        return message.offset < self.offset

    def record_batches(self, columns: Sequence[str] | None = None) -> "Iterator[pa.RecordBatch]":
        """The messages as Arrow, a record batch for each stored batch; keys and values are not copied."""
        from ..codec.arrow import ARROW_COLUMNS, decode_arrow

        wanted = tuple(columns or ARROW_COLUMNS)
        for head, batch in self._batches:
            found = decode_arrow(batch, head, columns=wanted, size_max=BODY_BYTES_MAX)
            if head.base_offset < self.offset:
                found = found.slice(self._before(head, batch))
            yield found

    def _before(self, head: Head, batch: memoryview) -> int:
        """How many messages of a batch are not asked for."""
        from ..codec.arrow import decode_arrow, int64s_of

        offsets = decode_arrow(batch, head, columns=("offset",), size_max=BODY_BYTES_MAX).column(0)
        return int(int64s_of(offsets).searchsorted(self.offset))

    def arrow(self, columns: Sequence[str] | None = None) -> "pa.Table":
        """All of it as one Arrow table."""
        import pyarrow as pa

        from ..codec.arrow import ARROW_COLUMNS, FIELDS

        wanted = tuple(columns or ARROW_COLUMNS)
        schema = pa.schema([one for name in wanted for one in FIELDS if one.name == name])
        return pa.Table.from_batches(self.record_batches(wanted), schema=schema)


def _skipped(headers: Headers) -> Sequence[tuple[int, int]]:
    """The damaged ranges that the server skipped. ValueError if the header holds anything else."""
    written = headers.get(b"penstock-skipped")
    pairs = [one.split(b"-") for one in written.split(b",")] if written else []
    return [(int(first), int(following)) for first, following in pairs]


def more_at(headers: Headers) -> int | None:
    """Where an answer ends, if there is more behind it; its headers come before it."""
    written = [headers.get(name, b"") for name in (b"penstock-next-offset", b"penstock-latest")]
    if not all(one.isdigit() and len(one) <= _DIGITS_MAX for one in written):
        return None
    following, latest = map(int, written)
    return following if following < latest else None


def _split(data: bytes | memoryview, seed: int, end: int) -> Iterator[tuple[Head, memoryview]]:
    """The batches of an answer, which follow each other up to `end`; MalformedBatch if they do not."""
    view, position, following = memoryview(data), 0, None
    while position < len(data):
        head = verify(data, position, seed=seed)
        if following is not None and head.base_offset != following:
            raise MalformedBatch(f"offset {head.base_offset} after {following - 1}")
        yield head, view[position : position + head.length]
        position, following = position + head.length, head.next_offset
    if following is not None and following != end:
        raise MalformedBatch(f"the last offset is {following - 1}, not {end - 1}")


def fetch(asked: FetchRequest, *, is_checked: bool = True) -> Call[Fetched]:
    """Not `is_checked`: only we check what comes. If it is damaged, whoever asks again asks the server to look, too."""
    wait_s = duration_s(asked.timeout, "timeout")
    try:
        if asked.from_time is None and type(asked.offset) is int:
            # A reader asks for the same again and again, but for the offset.
            target = f"{_target(asked._replace(offset=None))}&offset={asked.offset}"
        else:
            target = _target(asked)
    except TypeError:
        # A list, or something else that cannot be looked up.
        raise Refused(f"a fetch is of numbers, times and text: {asked!r}"[:300]) from None
    headers = ACCEPT_BATCH if is_checked else ACCEPT_BATCH + CHECKED_HERE
    return Call("GET", target, Fetched, b"", headers, wait_s=wait_s)


@lru_cache(maxsize=1024, typed=True)
def _target(asked: FetchRequest) -> str:
    fields: dict[str, Any] = {
        "limit": asked.limit,
        "max_bytes": asked.max_bytes,
        "timeout": span(asked.timeout) if asked.timeout else None,
        "from_time": None if asked.from_time is None else moment(asked.from_time),
        "offset": asked.offset,
    }
    path = path_of("topics", asked.topic, "partitions", asked.partition, "messages")
    return with_query(path, fields)

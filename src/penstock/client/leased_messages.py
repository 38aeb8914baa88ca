"""Messages that are lent to us: in columns as they came, objects when they are touched."""

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

import msgspec

from ..codec.decode import lists_of, open_body
from ..codec.leased import Part, decode_leased
from ..model import Headers
from .wire import BODY_BYTES_MAX, Answer

if TYPE_CHECKING:
    import pyarrow as pa

    from .ack_batcher import AnswerBuffer


class LeasedPart:
    """Messages of one lease. `answers` is the buffer of the consumer that holds them.

    `unanswered` are offsets. It is None until a single message is answered: a part that is answered whole needs none.
    """

    __slots__ = ("_lists", "_part", "answers", "leased_at_s", "unanswered")

    def __init__(self, part: Part) -> None:
        self._part = part
        self._lists: list[Sequence[Any]] = []
        self.answers: AnswerBuffer | None = None
        self.unanswered: set[int] | None = None
        self.leased_at_s = 0.0

    @property
    def topic(self) -> str:
        return self._part.lent.topic

    @property
    def partition(self) -> int:
        return self._part.lent.partition

    @property
    def group(self) -> int:
        return self._part.lent.group

    @property
    def lease(self) -> int:
        return self._part.lent.lease

    @property
    def offsets(self) -> list[int]:
        return self._part.lent.offsets

    @property
    def place(self) -> str:
        """Its partition, as groups write it."""
        return f"{self.topic}/{self.partition}"

    def __len__(self) -> int:
        return len(self._part.lent.offsets)

    def receipts(self) -> list[str]:
        return self._part.lent.receipts()

    def last_error(self, offset: int) -> str | None:
        return self._part.lent.errors.get(offset)

    def columns(self) -> list[Sequence[Any]]:
        """What `Received` is made of, column by column."""
        if not self._lists:
            lent, head, batch = self._part
            body = open_body(batch, head, size_max=BODY_BYTES_MAX)
            # The offsets of the batch itself say nothing.
            self._lists = [*lists_of(body, head)[:-1], lent.offsets, lent.counts()]
        return self._lists

    def record_batch(self, columns: Sequence[str]) -> "pa.RecordBatch":
        import pyarrow as pa

        from ..codec.arrow import FIELDS, decode_arrow

        lent, head, batch = self._part
        found = decode_arrow(batch, head, columns=columns, size_max=BODY_BYTES_MAX)
        arrays = [
            pa.array(lent.offsets, pa.int64()) if name == "offset" else found.column(name)
            for name in columns
        ]
        schema = pa.schema([one for name in columns for one in FIELDS if one.name == name])
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


class Received(msgspec.Struct, frozen=True, gc=False):
    """A message that is lent to us, until it is answered or its time is up. `attempts` counts deliveries from 1.

    Times are nanoseconds since 1970.
    """

    value: bytes | None
    key: bytes | None
    headers: Headers
    priority: int
    timestamp: int
    expires_at: int | None
    idempotency_key: bytes | None
    schema_id: int | None
    offset: int
    attempts: int
    part: LeasedPart

    @property
    def topic(self) -> str:
        return self.part.topic

    @property
    def partition(self) -> int:
        return self.part.partition

    @property
    def receipt(self) -> str:
        part = self.part
        nonce = f"{part.group:x}.{part.lease:x}"
        return f"{part.topic}:{part.partition}:{self.offset}:{self.attempts}:{nonce}"

    @property
    def last_error(self) -> str | None:
        """What went wrong the last time, if it was delivered before."""
        return self.part.last_error(self.offset)


M = TypeVar("M", bound=Received)


class Polled(Sequence[M], Generic[M]):
    """What a poll brought: a sequence of messages, made when they are touched, or an Arrow table."""

    __slots__ = ("_kind", "changes", "parts")

    def __init__(self, parts: list[LeasedPart], kind: Callable[..., M], changes: int = 0) -> None:
        self.parts, self._kind, self.changes = parts, kind, changes

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def __bool__(self) -> bool:
        return bool(self.parts)

    def __iter__(self) -> Iterator[M]:
        for part in self.parts:
            yield from map(self._kind, *part.columns(), repeat(part))

    @overload
    def __getitem__(self, index: int) -> M: ...
    @overload
    def __getitem__(self, index: slice) -> list[M]: ...
    def __getitem__(self, index: int | slice) -> M | list[M]:
        if isinstance(index, slice):
            return list(self)[index]
        row = range(len(self))[index]
        for part in self.parts:
            if row < len(part):
                return self._kind(*(column[row] for column in part.columns()), part)
            row -= len(part)
        raise IndexError(index)

    def receipts(self) -> list[str]:
        return [one for part in self.parts for one in part.receipts()]

    def arrow(self, columns: Sequence[str] | None = None) -> "pa.Table":
        """All of it as one Arrow table; keys and values are not copied. Needs `penstock[arrow]`."""
        import pyarrow as pa

        from ..codec.arrow import ARROW_COLUMNS, FIELDS

        wanted = tuple(columns or ARROW_COLUMNS)
        schema = pa.schema([one for name in wanted for one in FIELDS if one.name == name])
        batches = [part.record_batch(wanted) for part in self.parts]
        return pa.Table.from_batches(batches, schema=schema)

    def __repr__(self) -> str:
        return f"<{len(self)} messages of {sorted({part.place for part in self.parts})}>"


def parts_of(answer: Answer) -> list[LeasedPart]:
    """The parts of an answer, each checked against its checksums."""
    return [LeasedPart(one) for one in decode_leased(answer.body)]


def read_polled(answer: Answer) -> Polled[Received]:
    return Polled(parts_of(answer), Received)

"""Leased messages: columns as they came, objects when they are touched."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from ..api.answers import Kind, nack_delay_ms
from ..api.arguments import type_name
from ..api.dead_letters import DEAD_LETTER_SUFFIX, split_headers
from ..api.units import Duration, duration_ms
from ..codec.decode import message_columns, open_body
from ..codec.leased import LeasedBatch, decode_leased
from ..errors import BadAnswer, MalformedBatch, Refused
from ..model import Headers, Provenance, Valued
from .fetch import arrow_table
from .replies import REPLY_BYTES_MAX

if TYPE_CHECKING:
    import pyarrow as pa

    from .ack_batcher import AnswerBuffer

_REASON_CHARACTERS_MAX = 4096


class LeasedPart:
    """Messages of one lease. `buffer` takes the answers of the consumer that holds them.

    `unanswered` are offsets. It is None until a single message is answered: a part that is answered whole needs none.
    """

    def __init__(self, part: LeasedBatch) -> None:
        self._part = part
        self._lists: list[Sequence[Any]] = []
        leased = part.lent
        self.topic, self.partition = leased.topic, leased.partition
        self.group, self.lease, self.offsets = leased.group, leased.lease, leased.offsets
        self.buffer: AnswerBuffer | None = None
        self.unanswered: set[int] | None = None
        self.leased_at_s = 0.0
        # By offset, of messages of a topic of dead letters.
        self._provenances: Mapping[int, Provenance | None] = {}

    @property
    def place(self) -> str:
        """The partition as groups write it, such as "orders/0"."""
        return f"{self.topic}/{self.partition}"

    @property
    def stored_bytes(self) -> int:
        """How many bytes the messages take as they came."""
        return len(self._part.batch)

    def attempts(self) -> list[int]:
        """How often each message was delivered."""
        return self._part.lent.counts()

    def __len__(self) -> int:
        return len(self.offsets)

    def is_unanswered(self, offset: int) -> bool:
        """Whether a message of this part has no answer. `offset` is one of the part's."""
        return self.unanswered is None or offset in self.unanswered

    def unanswered_offsets(self) -> list[int]:
        return self.offsets if self.unanswered is None else sorted(self.unanswered)

    def receipts(self) -> list[str]:
        return self._part.lent.receipts()

    def last_error(self, offset: int) -> str | None:
        return self._part.lent.errors.get(offset)

    def dead_letter(self, offset: int) -> Provenance | None:
        return self._provenances.get(offset)

    def columns(self) -> list[Sequence[Any]]:
        """The fields of `Received` but the last, column by column."""
        if not self._lists:
            leased, head, batch = self._part
            body = open_body(batch, head, size_max=REPLY_BYTES_MAX)
            # The batch's own offsets mean nothing here.
            columns = message_columns(body, head)._replace(offsets=self.offsets)
            if self.topic.endswith(DEAD_LETTER_SUFFIX):
                own, provenances = zip(*map(split_headers, columns.headers), strict=True)
                columns = columns._replace(headers=own)
                self._provenances = dict(zip(self.offsets, provenances, strict=True))
            self._lists = [*columns, leased.counts()]
        return self._lists

    def record_batch(self, columns: Sequence[str]) -> "pa.RecordBatch":
        import pyarrow as pa

        from ..codec.arrow import decode_arrow

        _, head, batch = self._part
        found = decode_arrow(batch, head, columns=columns, size_max=REPLY_BYTES_MAX)
        arrays = [
            pa.array(self.offsets, pa.int64()) if name == "offset" else found.column(name)
            for name in columns
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=found.schema)


class DetachedMessage(Valued, frozen=True, gc=False):
    """What pickle makes of a message that a client received: to read, and to answer by its `receipt`."""

    key: bytes | None
    headers: Headers
    priority: int
    timestamp: int
    expires_at: int | None
    idempotency_key: bytes | None
    schema_id: int | None
    offset: int
    attempts: int
    topic: str
    partition: int
    receipt: str
    last_error: str | None
    provenance: Provenance | None

    @property
    def dead_letter(self) -> Provenance | None:
        """Where it came from and why it died, if it is of a topic of dead letters."""
        return self.provenance


class Received(Valued, frozen=True, gc=False):
    """A message that is leased to this client until it is answered or its time is up.

    `attempts` counts deliveries from 1. Times are nanoseconds since 1970. In another process it is a `DetachedMessage`.
    """

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
        """The topic that the message lies in."""
        return self.part.topic

    @property
    def partition(self) -> int:
        """The partition of the topic; with `offset` the place of the message."""
        return self.part.partition

    @property
    def receipt(self) -> str:
        """What names this delivery in `ack`, `nack`, `reject` and `extend`, also from another process."""
        part = self.part
        nonce = f"{part.group:x}.{part.lease:x}"
        return f"{part.topic}:{part.partition}:{self.offset}:{self.attempts}:{nonce}"

    @property
    def dead_letter(self) -> Provenance | None:
        """Where it came from and why it died, if it is of a topic of dead letters."""
        return self.part.dead_letter(self.offset)

    @property
    def last_error(self) -> str | None:
        """Why the last attempt failed; None at the first one."""
        return self.part.last_error(self.offset)

    def __reduce__(self) -> tuple[type[DetachedMessage], tuple[Any, ...]]:
        names = DetachedMessage.__struct_fields__
        return DetachedMessage, tuple(
            getattr(self, "dead_letter" if name == "provenance" else name) for name in names
        )


class Delivered(Received, frozen=True, gc=False):
    """A message that a consumer delivered. The consumer sends the answers to many messages together.

    Every answer returns False, and does nothing, if the message was answered before, or if the consumer was closed.
    """

    def ack(self) -> bool:
        """Finish it."""
        return self._buffer.ack(self.part, self.offset)

    def nack(self, reason: str = "", *, delay: Duration | None = None) -> bool:
        """Failed: try again after the backoff, or after `delay`; a dead letter if that was the last attempt."""
        ms = nack_delay_ms(delay)
        return self._buffer.add(self.part, self.offset, Kind.NACK, shortened(reason), ms)

    def reject(self, reason: str = "") -> bool:
        """No attempt will ever succeed: a dead letter, at once."""
        return self._buffer.add(self.part, self.offset, Kind.REJECT, shortened(reason))

    def extend(self, timeout: Duration) -> bool:
        """Still working on it: the lease ends so long from now."""
        return self._buffer.add(self.part, self.offset, Kind.EXTEND, ms=duration_ms(timeout))

    def give_back(self) -> bool:
        """Not looked at: other members may have it at once, and no attempt counts."""
        return self._buffer.add(self.part, self.offset, Kind.RELEASE)

    @property
    def is_answered(self) -> bool:
        """Whether an answer to this delivery was given, sent or not, or would be too late."""
        return not self.part.is_unanswered(self.offset)

    @property
    def _buffer(self) -> "AnswerBuffer":
        found = self.part.buffer
        assert found is not None, "a consumer tracks every part that it delivers"
        return found


def reason_text(reason: object) -> str:
    """A reason that can be sent. The name of a file, say, may have letters that UTF-8 cannot hold."""
    if not isinstance(reason, str):
        raise Refused(
            f"a reason is text, not {type_name(reason)}; str(error) makes one of an error"
        )
    return reason if reason.isascii() else reason.encode(errors="backslashreplace").decode()


def shortened(reason: str) -> str:
    """A reason within the server's limit: an error message can be of any length."""
    return reason_text(reason)[:_REASON_CHARACTERS_MAX]


M = TypeVar("M", bound=Received)


class Polled(Sequence[M], Generic[M]):
    """The messages of a poll: a sequence of objects, made when they are touched, or an Arrow table."""

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
        """The receipts of all messages, in their order; no message is made for it."""
        return [one for part in self.parts for one in part.receipts()]

    def arrow(self, columns: Sequence[str] | None = None) -> "pa.Table":
        """All messages as one Arrow table; keys and values are not copied. Needs `penstock[arrow]`."""
        return arrow_table(columns, lambda wanted: [one.record_batch(wanted) for one in self.parts])

    def __reduce__(self) -> tuple[type[list[M]], tuple[list[M]]]:
        """In another process: a list of `DetachedMessage`."""
        return list, ([*self],)

    def __repr__(self) -> str:
        return f"<{len(self)} messages of {sorted({part.place for part in self.parts})}>"


def parts_of(data: memoryview, server: str) -> list[LeasedPart]:
    """The parts of a poll's reply. BadAnswer if a checksum does not match: it did when the server sent them."""
    try:
        return [LeasedPart(one) for one in decode_leased(data)]
    except MalformedBatch as error:
        raise BadAnswer(server, str(error)[:200], is_sent=True) from None

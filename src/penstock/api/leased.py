"""Leased messages, the reply of a poll: columns as the log has them; objects are made when they are touched."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby, repeat
from operator import attrgetter
from typing import Any, Self, overload

import msgspec

from ..model import Headers, MessageColumns
from .answers import Answer, Kind, LeaseAnswer
from .dead_letters import DEAD_LETTER_SUFFIX, split_headers
from .receipts import Place
from .received import Received


class LeasedPart(msgspec.Struct, frozen=True):
    """Messages of one lease, at least one of them: mostly those of one batch."""

    place: Place
    lease: int
    columns: MessageColumns
    # Of all of them, or of each.
    attempts: int | list[int]
    # Whether it is known that none of them has more than a value, a time and an offset.
    is_bare: bool = False
    # By offset: the reason of the last failure, of those that failed before.
    last_errors: Mapping[int, str] = {}
    # By offset: the id among the delayed messages of the partition, of those that were delayed.
    delay_ids: Mapping[int, int] = {}

    @property
    def count(self) -> int:
        return len(self.offsets)

    @property
    def values(self) -> Sequence[bytes | None]:
        return self.columns.values

    @property
    def keys(self) -> Sequence[bytes | None]:
        return self.columns.keys

    @property
    def headers(self) -> Sequence[Headers]:
        return self.columns.headers

    @property
    def offsets(self) -> Sequence[int]:
        return self.columns.offsets

    def each_attempts(self) -> Iterable[int]:
        attempts = self.attempts
        return repeat(attempts, self.count) if isinstance(attempts, int) else attempts

    def messages(self) -> Iterator[Received]:
        """Made as they are taken."""
        counts = self.each_attempts()
        values, keys, headers, priorities, timestamps, expires_at, ids, schemas, offsets = (
            self.columns
        )
        rest: tuple[Iterable[Any], ...] = ()
        if not self.is_bare:
            rest = (keys, headers, priorities, expires_at, ids, schemas)
            if self.place.topic.endswith(DEAD_LETTER_SUFFIX):
                own, provenances = zip(*map(split_headers, headers), strict=True)
                rest = (keys, own, priorities, expires_at, ids, schemas, provenances)
        lease, place = repeat(self.lease), repeat(self.place)
        return map(Received, values, offsets, timestamps, counts, lease, place, *rest)

    def content_bytes(self) -> int:
        """How large values and keys are together."""
        size = _size_of(self.columns.values)
        return size if self.is_bare else size + _size_of(self.columns.keys)

    def rows(self, start: int, stop: int) -> "LeasedPart":
        attempts = self.attempts
        return LeasedPart(
            self.place,
            self.lease,
            self.columns.rows(start, stop),
            attempts if isinstance(attempts, int) else attempts[start:stop],
            self.is_bare,
            self.last_errors,
            self.delay_ids,
        )


class LeasedMessages(Sequence[Received]):
    """What a poll leased, part by part. Indexing and iterating gives objects, which are made once."""

    __slots__ = ("_messages", "parts")

    def __init__(self, *parts: LeasedPart) -> None:
        self.parts = [*parts]
        self._messages: list[Received] | None = None

    def __iadd__(self, other: "LeasedMessages") -> Self:
        self.parts += other.parts
        self._messages = None
        return self

    def __len__(self) -> int:
        return sum([len(part.columns.offsets) for part in self.parts])

    def __bool__(self) -> bool:
        return bool(self.parts)

    def messages(self) -> list[Received]:
        if self._messages is None:
            made: list[Received] = []
            for part in self.parts:
                made += part.messages()
            self._messages = made
        return self._messages

    def __iter__(self) -> Iterator[Received]:
        return iter(self.messages())

    @overload
    def __getitem__(self, index: int) -> Received: ...
    @overload
    def __getitem__(self, index: slice) -> list[Received]: ...
    def __getitem__(self, index: int | slice) -> Received | list[Received]:
        return self.messages()[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self.messages() == list(other)

    __hash__ = None  # type: ignore[assignment]  # As lists have none.

    def __repr__(self) -> str:
        return f"LeasedMessages({self.messages()!r})"

    def leased(self) -> list[LeasedPart]:
        """The parts, neighbours of one lease as one. To join columns is expensive: a caller asks once."""
        by_lease = groupby(self.parts, attrgetter("place", "lease"))
        return [_joined([*same]) for _, same in by_lease]

    def release(self) -> Answer:
        """The command that gives all of them back, as if they had never been delivered."""
        return Answer(
            [
                LeaseAnswer(Kind.RELEASE, *part.place, part.lease, list(part.offsets))
                for part in self.leased()
            ]
        )

    def content_bytes(self) -> int:
        """How large values and keys are together."""
        return sum([part.content_bytes() for part in self.parts])

    def content_sizes(self) -> list[int]:
        """How large value and key of each are."""
        return [
            len(value or b"") + len(key or b"")
            for part in self.parts
            for value, key in zip(part.values, part.keys, strict=True)
        ]

    def cut(self, count: int) -> tuple["LeasedMessages", "LeasedMessages"]:
        """The first so many, and the others."""
        first, others = LeasedMessages(), LeasedMessages()
        for part in self.parts:
            taken = min(count, part.count)
            count -= taken
            if taken:
                first.parts.append(part.rows(0, taken))
            if taken < part.count:
                others.parts.append(part.rows(taken, part.count))
        return first, others


def joined_columns(found: Sequence[MessageColumns]) -> MessageColumns:
    """Messages of several batches as those of one."""
    columns: list[Any] = [list(chain.from_iterable(same)) for same in zip(*found, strict=True)]
    return MessageColumns(*columns)


def _bare_columns(found: Sequence[MessageColumns]) -> MessageColumns:
    """Bare messages of several batches as those of one: most columns have one value."""
    count = sum([len(columns.offsets) for columns in found])
    alike = found[0].each(lambda column: [column[0]] * count)
    return alike._replace(
        values=[one for columns in found for one in columns.values],
        timestamps=[one for columns in found for one in columns.timestamps],
        offsets=[one for columns in found for one in columns.offsets],
    )


def _joined(parts: list[LeasedPart]) -> LeasedPart:
    first = parts[0]
    if len(parts) == 1:
        return first
    is_bare = all(part.is_bare for part in parts)
    columns = (_bare_columns if is_bare else joined_columns)([part.columns for part in parts])
    errors = {offset: one for part in parts for offset, one in part.last_errors.items()}
    ids = {offset: one for part in parts for offset, one in part.delay_ids.items()}
    attempts: int | list[int] = first.attempts
    if not all(part.attempts == attempts and isinstance(part.attempts, int) for part in parts):
        attempts = [one for part in parts for one in part.each_attempts()]
    return LeasedPart(first.place, first.lease, columns, attempts, is_bare, errors, ids)


def _size_of(items: Sequence[bytes | None]) -> int:
    return sum(map(len, filter(None, items)))

"""What polls hand out: messages in columns as the log has them, objects when they are touched."""

from collections.abc import Iterator, Sequence
from itertools import chain, groupby, repeat
from operator import attrgetter
from typing import Any, Self, overload

import msgspec

from ..api.answers import Answer, Kind, LeaseAnswer
from ..api.receipts import Place
from .received import Received

# The columns that bare messages have: values, times and offsets.
_SAID = frozenset((0, 4, 8))


class Part(msgspec.Struct, frozen=True):
    """Messages of one lease, at least one of them: mostly those of one batch."""

    place: Place
    lease: int
    # In the order of the fields of Message, offsets last.
    columns: Sequence[Sequence[Any]]
    # Of all of them, or of each.
    attempts: int | list[int]
    # Whether it is known that none of them has more than a value, a time and an offset.
    is_bare: bool = False

    @property
    def count(self) -> int:
        return len(self.offsets)

    @property
    def values(self) -> Sequence[bytes | None]:
        return self.columns[0]

    @property
    def keys(self) -> Sequence[bytes | None]:
        return self.columns[1]

    @property
    def headers(self) -> Sequence[Any]:
        return self.columns[2]

    @property
    def offsets(self) -> Sequence[int]:
        return self.columns[-1]

    def messages(self) -> Iterator[Received]:
        """Made as they are taken."""
        attempts = self.attempts
        counts = repeat(attempts) if isinstance(attempts, int) else attempts
        values, keys, headers, priorities, timestamps, expires_at, ids, schemas, offsets = (
            self.columns
        )
        rest = () if self.is_bare else (keys, headers, priorities, expires_at, ids, schemas)
        lease, place = repeat(self.lease), repeat(self.place)
        return map(Received, values, offsets, timestamps, counts, lease, place, *rest)

    def content_bytes(self) -> int:
        """How large values and keys are together."""
        size = _size_of(self.values)
        return size if self.is_bare else size + _size_of(self.keys)

    def rows(self, start: int, stop: int) -> "Part":
        attempts = self.attempts
        return Part(
            self.place,
            self.lease,
            [column[start:stop] for column in self.columns],
            attempts if isinstance(attempts, int) else attempts[start:stop],
            self.is_bare,
        )


class Handed(Sequence[Received]):
    """What a poll found, part by part. Whoever looks at single messages gets objects, made once and for all."""

    __slots__ = ("_messages", "parts")

    def __init__(self, *parts: Part) -> None:
        self.parts = [*parts]
        self._messages: list[Received] | None = None

    def __iadd__(self, other: "Handed") -> Self:
        self.parts += other.parts
        self._messages = None
        return self

    def __len__(self) -> int:
        return sum([part.count for part in self.parts])

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
        return f"Handed({self.messages()!r})"

    def leased(self) -> list[Part]:
        """The parts, neighbours of one lease as one. Not before somebody asks: to join columns costs much."""
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

    def cut(self, count: int) -> tuple["Handed", "Handed"]:
        """The first so many, and the others."""
        first, others = Handed(), Handed()
        for part in self.parts:
            taken = min(count, part.count)
            count -= taken
            if taken:
                first.parts.append(part.rows(0, taken))
            if taken < part.count:
                others.parts.append(part.rows(taken, part.count))
        return first, others


def joined_columns(found: Sequence[Sequence[Sequence[Any]]]) -> list[list[Any]]:
    """Rows of several batches, column by column, as the rows of one."""
    return [list(chain.from_iterable(column)) for column in zip(*found, strict=True)]


def _bare_columns(found: Sequence[Sequence[Sequence[Any]]]) -> list[list[Any]]:
    """The same of bare ones: most columns say the same of each message."""
    count = sum([len(columns[-1]) for columns in found])
    return [
        list(chain.from_iterable(column)) if place in _SAID else [column[0][0]] * count
        for place, column in enumerate(zip(*found, strict=True))
    ]


def _joined(parts: list[Part]) -> Part:
    first = parts[0]
    if len(parts) == 1:
        return first
    is_bare = all(part.is_bare for part in parts)
    columns = (_bare_columns if is_bare else joined_columns)([part.columns for part in parts])
    if all(part.attempts == first.attempts and isinstance(part.attempts, int) for part in parts):
        return Part(first.place, first.lease, columns, first.attempts, is_bare)
    counts = [
        [part.attempts] * part.count if isinstance(part.attempts, int) else part.attempts
        for part in parts
    ]
    return Part(first.place, first.lease, columns, [*chain.from_iterable(counts)], is_bare)


def _size_of(items: Sequence[bytes | None]) -> int:
    return sum(map(len, filter(None, items)))

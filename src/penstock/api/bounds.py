"""Bounds of commands: what a field may hold at most. They stand in its type, beside its name.

    names: Annotated[Sequence[str], items(NAMES_MAX), DISTINCT]
    limit: Annotated[int, Within(1, PAGE_MAX, is_cut=True)] = 100

The binary port's decoder counts items before it makes any of them; for every port `within_bounds` says what a command
is carried out with. A text without a bound of its own has `TEXT_CHARACTERS_MAX`. A collection has to have one: without
it the command has no table, and nothing starts. What several fields hold together, a method `check_sums` of the
command looks at.
"""

import re
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from enum import Enum
from functools import cache
from operator import attrgetter
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from ..errors import Refused, TooLarge
from ..model import Buffer, Message

if TYPE_CHECKING:
    from .command import Command

C = TypeVar("C", bound="Command[Any]")

NAMES_MAX: Final = 10_000
"""Names of topics, prefixes, partitions, members: what is looked up one by one."""
MESSAGES_MAX: Final = 100_000
"""Bare values, or answers for messages, in one request."""
PUBLISH_MESSAGES_MAX: Final = 10_000
"""Messages with keys, headers and times of their own: each is decoded and given its partition by itself. More at once
go as bare values or as a batch."""
SCHEDULE_MESSAGES_MAX: Final = 1000
"""Messages that are to come at a time each. A request schedules all or none, in a log of its own for each partition."""
PAGE_MAX: Final = 10_000
"""Items on a page of a list."""
PACKED_BYTES_MAX: Final = 8 << 20
"""Of a command that carries no contents. To decode more holds all other requests up."""
HEADERS_MAX: Final = 10_000
PAGE_BYTES_MAX: Final = 16 << 20
"""Of the messages on a page: it ends with the first that is beyond, and goes on from there."""
POLL_BYTES_MAX: Final = PAGE_BYTES_MAX + (1 << 20)
"""Of the batches that are opened for a poll: there is more in them than values and keys."""
TEXT_CHARACTERS_MAX: Final = 4096
REQUEST_ID_CHARACTERS_MAX: Final = 128


class Within(NamedTuple):
    """A number's least and most; more than the most is cut down to it, or refused."""

    least: int
    most: int
    is_cut: bool = False


class Distinct(Enum):
    """Repeated items say nothing: the first of each is kept."""

    DISTINCT = "distinct"


DISTINCT: Final = Distinct.DISTINCT


def items(most: int, *, least: int = 0) -> msgspec.Meta:
    """How many items a collection has, or how many characters a text."""
    return msgspec.Meta(min_length=least or None, max_length=most)


Names = Annotated[tuple[str, ...], items(NAMES_MAX), DISTINCT]


class Unit(Enum):
    ITEMS = "items"
    CHARACTERS = "characters"
    NUMBER = ""


class Bound(NamedTuple):
    """The bound of one field. `field` is its path: `selection.offsets` is in a struct of the command."""

    field: str
    unit: Unit
    least: int
    most: int
    is_cut: bool = False
    is_distinct: bool = False

    def check(self, found: int) -> None:
        """Refused, TooLarge: there is so much in this field, and it is out of its bound."""
        if not self.least <= found <= self.most:
            raise self.refusal(found)

    def refusal(self, found: int) -> Refused:
        """Why a command with so much in this field is not carried out."""
        if found < self.least:
            text = f"{self.field} must be at least {self.least}, got {found}"
            return Refused(text, field=self.field)
        words = {Unit.ITEMS: " in one request", Unit.CHARACTERS: " in characters"}
        return TooLarge(self.field + words.get(self.unit, ""), found=found, limit=self.most)


_Checks = tuple[tuple[Callable[[Any], Any], int, int, Bound], ...]
"""How a field is read, its least and its most; in a plain tuple, because every request looks at all of them."""


class _Table(NamedTuple):
    """The bounds of one kind of command."""

    sizes: _Checks
    numbers: _Checks
    distinct: tuple[str, ...]
    check_sums: Callable[[Any], None] | None


def within_bounds(command: C) -> C:
    """The command with what is over a bound cut down, and without repeats. Refused, TooLarge: a field is out of its
    bound."""
    sizes, numbers, distinct, check_sums = _table(type(command))
    for read, least, most, bound in sizes:
        value = read(command)
        if value is None or value is UNSET:
            continue
        if not least <= len(value) <= most:
            raise bound.refusal(len(value))
    if check_sums is not None:
        check_sums(command)
    changes: dict[str, Any] = {}
    for read, least, most, bound in numbers:
        number = read(command)
        if number is not None and not least <= number <= most:
            if number < least or not bound.is_cut:
                raise bound.refusal(number)
            changes[bound.field] = most
    for name in distinct:
        given = getattr(command, name)
        if given and len(once := tuple(dict.fromkeys(given))) < len(given):
            changes[name] = once
    return replace(command, **changes) if changes else command


def bounds_of(kind: "type[Command[Any]]") -> list[Bound]:
    """Every bound of a kind of command. TypeError: a collection has none."""
    return [
        bound
        for field in msgspec.structs.fields(kind)
        for bound in _of_type(field.type, field.name, f"{kind.__name__}.{field.name}")
    ]


@cache
def _table(kind: "type[Command[Any]]") -> _Table:
    bounds = bounds_of(kind)
    return _Table(
        _checks(bound for bound in bounds if bound.unit is not Unit.NUMBER),
        _checks(bound for bound in bounds if bound.unit is Unit.NUMBER),
        tuple(one.field for one in bounds if one.is_distinct),
        getattr(kind, "check_sums", None),
    )


def _checks(bounds: Iterable[Bound]) -> _Checks:
    return tuple((_reader(bound.field), bound.least, bound.most, bound) for bound in bounds)


def _reader(path: str) -> Callable[[Any], Any]:
    """Reads a field; None if it was not said, or if the struct that has it was not."""
    outer, _, inner = path.rpartition(".")
    if outer:
        read = _reader(outer)
        return lambda command: getattr(read(command), inner, None)
    return attrgetter(path)


_COLLECTIONS = (Sequence, Mapping, Set)
_NO_META = msgspec.Meta()


def _of_type(kind: Any, path: str, where: str, meta: tuple[Any, ...] = ()) -> Iterator[Bound]:
    origin = get_origin(kind)
    if origin is Annotated:
        inner, *more = get_args(kind)
        yield from _of_type(inner, path, where, (*meta, *more))
    elif kind in (Buffer, Message) or kind is Any:
        # A batch and a message have the limits of the topic, and anything at all is in a mapping that has a bound.
        return
    elif origin in (Union, types.UnionType):
        for one in get_args(kind):
            yield from _of_type(one, path, where, meta)
    elif kind is str:
        size = next((one for one in meta if isinstance(one, msgspec.Meta)), _NO_META)
        most = size.max_length or TEXT_CHARACTERS_MAX
        yield Bound(path, Unit.CHARACTERS, size.min_length or 0, most)
    elif kind is int:
        yield from (
            Bound(path, Unit.NUMBER, one.least, one.most, one.is_cut)
            for one in meta
            if isinstance(one, Within)
        )
    elif origin is tuple and Ellipsis not in get_args(kind):
        return
    elif isinstance(origin, type) and issubclass(origin, _COLLECTIONS):
        size = next((one for one in meta if isinstance(one, msgspec.Meta)), _NO_META)
        if size.max_length is None:
            raise TypeError(f"{where} may hold any number of items: give its type items(...)")
        yield Bound(
            path,
            Unit.ITEMS,
            size.min_length or 0,
            size.max_length,
            is_distinct=DISTINCT in meta,
        )
    elif _is_struct(kind):
        hints = get_type_hints(kind, include_extras=True)
        for name in getattr(kind, "__struct_fields__", None) or kind._fields:
            yield from _of_type(hints[name], f"{path}.{name}", f"{where}.{name}")


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and (
        issubclass(kind, msgspec.Struct) or (issubclass(kind, tuple) and hasattr(kind, "_fields"))
    )


# A decoder says that a field is out of its bound, and where the field is, but not how much there was.
_SIZE_SAID = re.compile(r"Expected `(\w+)` of length (<|>)= (\d+) - at `\$(.*)`")
_STEP = re.compile(r"\.(\w+)|\[(\d+|\.\.\.)\]")


def size_refusal(said: str, packed: Buffer) -> Refused | None:
    """The refusal of a field that has too many items or too few, as msgspec's decoder of msgpack names it."""
    match = _SIZE_SAID.fullmatch(said)
    if match is None:
        return None
    kind, sign, number, path = match.groups()
    sizes = [*map(_length, _behind(packed, _STEP.findall(path)))]
    unit = Unit.CHARACTERS if kind == "str" else Unit.ITEMS
    if sign == ">":
        return Bound(path.lstrip("."), unit, int(number), sys.maxsize).refusal(min(sizes))
    return Bound(path.lstrip("."), unit, 0, int(number)).refusal(max(sizes))


def _behind(packed: Buffer, steps: list[tuple[str, str]]) -> Iterator[Buffer]:
    """What stands at a path in msgpack, or at each place where that leads, without making what is in it."""
    if not steps:
        yield packed
        return
    (name, index), *rest = steps
    if name:
        inside = [msgspec.msgpack.decode(packed, type=dict[str, msgspec.Raw])[name]]
    else:
        listed = msgspec.msgpack.decode(packed, type=list[msgspec.Raw])
        inside = listed if index == "..." else [listed[int(index)]]
    for packed_item in inside:
        yield from _behind(packed_item, rest)


def _length(packed: Buffer) -> int:
    """How many items or characters there are in a value of msgpack."""
    head = bytes(memoryview(packed)[:5])
    if 0x80 <= head[0] < 0xA0:  # A short map or array.
        return head[0] & 0x0F
    if 0xDC <= head[0] <= 0xDF:  # Longer ones, with two or four bytes for their length.
        return int.from_bytes(head[1 : 3 if head[0] in (0xDC, 0xDE) else 5], "big")
    value = msgspec.msgpack.decode(packed)
    return len(value) if isinstance(value, str | bytes) else 0

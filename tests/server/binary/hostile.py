"""Values that a hostile client could send where a command has a field: of the right type, and out of all bounds."""

import struct
from random import Random

import msgspec
from msgspec import inspect

from penstock.api.wire import CALLS

NUMBERS = (
    *(0,) * 8,
    *(1,) * 4,
    2,
    3,
    5,
    100,
    -1,
    -2,
    255,
    256,
    10**6,
    1 << 31,
    (1 << 31) - 1,
    1 << 32,
)
NUMBERS += ((1 << 62), (1 << 63) - 1, 1 << 63, (1 << 64) - 1, -(1 << 63), -(1 << 31), 30_000)
TEXTS = (
    *("orders",) * 12,
    "g",
    "g",
    "m",
    "",
    "a" * 300,
    "..",
    "a/b",
    "\x00",
    "é",
    "orders/0",
    "none",
)
BYTES = (b"", b"k", b"\x00" * 100, b"PLS1", b"x" * 70_000)
SETTINGS = ("retention_hours", "max_retries", "compression", "nothing", "ttl_ms", "cleanup")
_REQUEST = struct.Struct(">BIBI")


class Hostile:
    """Makes commands up. `names` are commands that it leaves out."""

    def __init__(self, seed: int, without: frozenset[bytes] = frozenset()) -> None:
        self.random = Random(seed)
        self._names = sorted(set(CALLS) - without)
        self._kinds = {name: inspect.type_info(CALLS[name].rest) for name in self._names}

    def body(self) -> bytes:
        """A command request whose lengths are right."""
        random = self.random
        name = random.choice(self._names)
        packed = msgspec.msgpack.encode(self.value(self._kinds[name]))
        parts = b""
        for _ in CALLS[name].parts:
            part = random.choice(BYTES)
            parts += struct.pack(">I", len(part)) + part
        head = _REQUEST.pack(random.choice((0, 1, 2)), 0, len(name), len(packed))
        return head + name + packed + parts

    def value(self, kind: inspect.Type, depth: int = 0) -> object:
        random = self.random
        match kind:
            case inspect.StructType():
                given = {
                    one.encode_name: self.value(one.type, depth + 1)
                    for one in kind.fields
                    if one.required or random.random() < 0.4
                }
                if kind.array_like:
                    return [self.value(one.type, depth + 1) for one in kind.fields]
                return given
            case inspect.NamedTupleType():
                return [self.value(one.type, depth + 1) for one in kind.fields]
            case inspect.DataclassType():
                return {one.encode_name: self.value(one.type, depth + 1) for one in kind.fields}
            case inspect.EnumType():
                return random.choice([*kind.cls]).value
            case inspect.IntType():
                low, high = kind.ge, kind.le
                found = random.choice(NUMBERS)
                if random.random() < 0.7:
                    found = max(low if low is not None else found, found)
                    found = min(high if high is not None else found, found)
                return found
            case inspect.StrType():
                return random.choice(TEXTS)
            case inspect.BytesType():
                return random.choice(BYTES)
            case inspect.BoolType():
                return random.random() < 0.5
            case inspect.FloatType():
                return random.choice((0.0, -1.5, float("inf"), float("nan"), 1e308))
            case inspect.NoneType() | inspect.CustomType():  # A custom one does not travel.
                return None
            case inspect.UnionType():
                return self.value(random.choice(kind.types), depth)
            case inspect.ListType() | inspect.VarTupleType() | inspect.FrozenSetType():
                return [
                    self.value(kind.item_type, depth + 1)
                    for _ in range(random.choice((0, 1, 1, 2, 3)))
                ]
            case inspect.CollectionType():
                return [
                    self.value(kind.item_type, depth + 1)
                    for _ in range(random.choice((0, 1, 1, 2, 3)))
                ]
            case inspect.TupleType():
                return [self.value(one, depth + 1) for one in kind.item_types]
            case inspect.DictType():
                names = (*SETTINGS, *TEXTS)
                return {
                    random.choice(names): self.value(kind.value_type, depth + 1) for _ in range(2)
                }
            case inspect.AnyType():
                return random.choice((None, *NUMBERS, *TEXTS, [], {}, 1.5, True, [[[1]]]))
        raise AssertionError(f"no value for {kind}")

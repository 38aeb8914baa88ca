"""Avro schemas: read, and compared by the rules of schema resolution (Avro 1.12, "Schema Resolution").

A reader takes unqualified names and aliases as equal, promotes numbers, and strings to bytes and back, and fills fields
that the writer does not have from their defaults.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from ..errors import InvalidSchema
from ..model import Buffer
from .avro_data import AvroWalk
from .avro_types import PRIMITIVES, Field, Type
from .avro_values import read_value
from .checking import Fault, Faults, PairCheck, read_json

_PROMOTIONS: Mapping[str, frozenset[str]] = {
    "long": frozenset({"int"}),
    "float": frozenset({"int", "long"}),
    "double": frozenset({"int", "long", "float"}),
    "bytes": frozenset({"string"}),
    "string": frozenset({"bytes"}),
}
_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_NAMED = frozenset({"record", "error", "enum", "fixed"})
_INT, _LONG = 1 << 31, 1 << 63
_NO_DEFAULT = object()
_SYMBOLS_A_STEP = 256


class AvroSchema:
    """An Avro schema with the named types of the schemas that it refers to."""

    def __init__(self, text: str, referenced: Sequence[tuple[str, str]] = ()) -> None:
        reader = _Reader()
        # One schema may be referred to by several names.
        for one in dict.fromkeys(text for _, text in referenced):
            reader.read(read_json(one), "")
        found = read_json(text)
        self.root = reader.read(found, "")
        self._walk = AvroWalk(self.root)
        self.canonical = msgspec.json.encode(found).decode()
        self.normalized = msgspec.json.encode(found, order="sorted").decode()

    def is_valid(self, payload: Buffer) -> bool:
        return self.fault_in(payload) is None

    def fault_in(self, payload: Buffer) -> Fault | None:
        return self._walk.fault(payload)

    def document_of(self, payload: Buffer) -> Any:
        return read_value(self.root, bytes(payload), 0)[0]

    def faults_reading(self, writer: "AvroSchema") -> Faults:
        """Why this schema cannot read what was written with the other one."""
        check = PairCheck()
        return check.run(partial(_faults, check, self.root, writer.root, ""))


class _Reader:
    """Reads types; knows the names that it has seen."""

    def __init__(self) -> None:
        self._named: dict[str, Type] = {}
        self._budget = PairCheck()

    def read(self, found: object, namespace: str) -> Type:
        """A type. InvalidSchema says what is wrong with it."""
        match found:
            case str():
                return self._by_name(found, namespace)
            case list():
                return self._union(found, namespace)
            case {"type": str(kind)} if kind in _NAMED and isinstance(found, dict):
                return self._new_name(kind, found, namespace)
            case {"type": "array", "items": items}:
                return Type("array", parts=(self.read(items, namespace),))
            case {"type": "map", "values": values}:
                return Type("map", parts=(self.read(values, namespace),))
            case {"type": str(inner)} if inner not in ("array", "map"):
                return self.read(inner, namespace)
        raise InvalidSchema(f"{_short(found)} is not an Avro type")

    def _by_name(self, name: str, namespace: str) -> Type:
        if name in PRIMITIVES:
            return Type(name)
        known = self._named.get(_full_name(name, namespace)) or self._named.get(name)
        if known is None:
            raise InvalidSchema(f"there is no type {name[:200]!r}")
        return known

    def _union(self, found: list[object], namespace: str) -> Type:
        branches = tuple(self.read(one, namespace) for one in found)
        kinds = [one.name or one.kind for one in branches]
        if "union" in kinds or len(set(kinds)) != len(kinds):
            raise InvalidSchema(f"a union has a union, or a type twice: {', '.join(kinds)[:200]}")
        return Type("union", parts=branches)

    def _new_name(self, kind: str, found: dict[str, Any], namespace: str) -> Type:
        name, outer = found.get("name"), found.get("namespace")
        if not isinstance(name, str) or not isinstance(outer, str | None):
            raise InvalidSchema(f"a {kind} has no name: {_short(found)}")
        full = _full_name(name, namespace if outer is None else outer)
        if not all(map(_NAME.fullmatch, full.split("."))):
            raise InvalidSchema(f"{full[:200]!r} is not an Avro name")
        if full in self._named or full in PRIMITIVES:
            raise InvalidSchema(f"{full} is defined twice")
        within = full.rpartition(".")[0]
        aliases = frozenset(_full_name(one, within) for one in _texts(found, "aliases"))
        made = self._named[full] = Type("record" if kind == "error" else kind, full, aliases)
        if kind == "enum":
            self._enum(made, found)
        elif kind == "fixed":
            size = found.get("size")
            if not isinstance(size, int) or isinstance(size, bool) or size < 0:
                raise InvalidSchema(f"fixed {full} has no size")
            made.size = size
        else:
            self._fields(made, found, within)
        return made

    def _enum(self, made: Type, found: dict[str, Any]) -> None:
        made.symbols = tuple(_texts(found, "symbols", is_required=True))
        if len(set(made.symbols)) != len(made.symbols) or not all(
            map(_NAME.fullmatch, made.symbols)
        ):
            raise InvalidSchema(f"enum {made.name} has a symbol twice, or one that is no name")
        made.default = found.get("default")
        if made.default is not None and made.default not in made.symbols:
            raise InvalidSchema(f"the default of enum {made.name} is not one of its symbols")

    def _fields(self, made: Type, found: dict[str, Any], namespace: str) -> None:
        fields = found.get("fields")
        if not isinstance(fields, list):
            raise InvalidSchema(f"record {made.name} has no fields")
        seen: set[str] = set()
        for one in fields:
            match one:
                case {"name": str(name), "type": inner} if _NAME.fullmatch(name):
                    pass
                case _:
                    raise InvalidSchema(f"{_short(one)} is not a field of record {made.name}")
            if name in seen:
                raise InvalidSchema(f"record {made.name} has field {name} twice")
            seen.add(name)
            read = self.read(inner, namespace)
            default = one.get("default", _NO_DEFAULT)
            if default is not _NO_DEFAULT and not self._fits(default, read):
                raise InvalidSchema(f"the default of {made.name}.{name} is not of its type")
            has_default = default is not _NO_DEFAULT
            made.fields.append(Field(name, read, tuple(_texts(one, "aliases")), has_default))

    def _fits(self, value: object, kind: Type) -> bool:
        """Whether JSON is a default of a type. Of a union it may be any branch's. InvalidSchema: too much to try."""
        self._budget.step()
        match kind.kind:
            case "null":
                return value is None
            case "boolean":
                return isinstance(value, bool)
            case "int" | "long":
                bound = _INT if kind.kind == "int" else _LONG
                is_number = isinstance(value, int) and not isinstance(value, bool)
                return is_number and -bound <= value < bound  # type: ignore[operator]  # A number.
            case "float" | "double":
                return isinstance(value, int | float) and not isinstance(value, bool)
            case "string" | "bytes" | "fixed":
                return isinstance(value, str)
            case "enum":
                return value in kind.symbols
            case "union":
                return any(self._fits(value, one) for one in kind.parts)
            case "array":
                inside = value if isinstance(value, list) else [_NO_DEFAULT]
                return all(self._fits(one, kind.parts[0]) for one in inside)
            case "map":
                inside = [*value.values()] if isinstance(value, dict) else [_NO_DEFAULT]
                return all(self._fits(one, kind.parts[0]) for one in inside)
        return isinstance(value, dict) and all(
            self._fits(value[one.name], one.type) if one.name in value else one.has_default
            for one in kind.fields
        )


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _texts(found: dict[str, Any], key: str, *, is_required: bool = False) -> Iterable[str]:
    listed = found.get(key, None if is_required else [])
    if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
        raise InvalidSchema(f"{key} is not a list of names: {_short(found)}")
    return listed


def _short(found: object) -> str:
    return repr(found)[:200]


def _faults(check: PairCheck, reader: Type, writer: Type, path: str) -> Faults:
    if reader.kind in PRIMITIVES and writer.kind in PRIMITIVES:
        return _compare(check, reader, writer, path)
    return check.pair((id(reader), id(writer)), partial(_compare, check, reader, writer, path))


def _compare(check: PairCheck, reader: Type, writer: Type, path: str) -> Faults:
    where = path or "/"
    if writer.kind == "union":
        return [
            fault
            for number, one in enumerate(writer.parts)
            for fault in _faults(check, reader, one, f"{path}/{number}")
        ]
    if reader.kind == "union":
        if any(not _faults(check, one, writer, path) for one in reader.parts):
            return []
        return [f"{where}: no branch of the union reads {writer.name or writer.kind}"]
    if reader.kind != writer.kind:
        if writer.kind in _PROMOTIONS.get(reader.kind, ()):
            return []
        return [f"{where}: {reader.kind} does not read {writer.kind}"]
    if reader.name and not _is_same_name(reader, writer):
        return [f"{where}: {reader.name} does not read {writer.name}"]
    match reader.kind:
        case "array" | "map":
            inner = "items" if reader.kind == "array" else "values"
            return _faults(check, reader.parts[0], writer.parts[0], f"{path}/{inner}")
        case "fixed" if reader.size != writer.size:
            return [f"{where}: {reader.size} bytes instead of {writer.size}"]
        case "enum":
            check.step((len(reader.symbols) + len(writer.symbols)) // _SYMBOLS_A_STEP)
            missing = set(writer.symbols).difference(reader.symbols)
            if missing and reader.default is None:
                return [f"{where}: without {', '.join(sorted(missing))}, and without a default"]
        case "record":
            return _compare_fields(check, reader, writer, path)
    return []


def _is_same_name(reader: Type, writer: Type) -> bool:
    same = reader.name.rpartition(".")[2] == writer.name.rpartition(".")[2]
    return same or writer.name in reader.aliases


def _compare_fields(check: PairCheck, reader: Type, writer: Type, path: str) -> Faults:
    written = {one.name: one for one in writer.fields}
    found: Faults = []
    for one in reader.fields:
        check.step()
        names = (one.name, *one.aliases)
        same = next((written[name] for name in names if name in written), None)
        if same is not None:
            found += _faults(check, one.type, same.type, f"{path}/{one.name}")
        elif not one.has_default:
            found.append(f"{path}/{one.name}: the field is new and has no default")
    return found

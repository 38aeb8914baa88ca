"""Avro's binary encoding read into values that JSON has.

`avro_data` has said before that the bytes are a value of the type, so nothing is checked here a second time.
"""

from struct import unpack_from
from typing import Any

from .avro_data import read_number
from .avro_types import Type

_FLOATS = {"float": ("<f", 4), "double": ("<d", 8)}


def read_value(kind: Type, data: bytes, at: int) -> tuple[Any, int]:
    """A value of a type, and where it ends. Bytes become text of one character each, as Avro's own JSON has them."""
    match kind.kind:
        case "null":
            return None, at
        case "boolean":
            return data[at] == 1, at + 1
        case "int" | "long":
            return read_number(data, at)
        case "float" | "double":
            form, size = _FLOATS[kind.kind]
            return unpack_from(form, data, at)[0], at + size
        case "bytes":
            size, at = read_number(data, at)
            return data[at : at + size].decode("latin-1"), at + size
        case "string":
            size, at = read_number(data, at)
            return data[at : at + size].decode(), at + size
        case "fixed":
            return data[at : at + kind.size].decode("latin-1"), at + kind.size
        case "enum":
            number, at = read_number(data, at)
            return kind.symbols[number], at
        case "union":
            number, at = read_number(data, at)
            return read_value(kind.parts[number], data, at)
        case "record":
            fields: dict[str, Any] = {}
            for one in kind.fields:
                fields[one.name], at = read_value(one.type, data, at)
            return fields, at
    return _read_blocks(kind, data, at)


def _read_blocks(kind: Type, data: bytes, at: int) -> tuple[Any, int]:
    """The items of an array, or of a map by their names, block by block until one has none."""
    items: list[Any] = []
    names: list[str] = []
    count, at = read_number(data, at)
    while count:
        if count < 0:
            count = -count
            _, at = read_number(data, at)
        for _ in range(count):
            if kind.kind == "map":
                size, at = read_number(data, at)
                names.append(data[at : at + size].decode())
                at += size
            item, at = read_value(kind.parts[0], data, at)
            items.append(item)
        count, at = read_number(data, at)
    return (dict(zip(names, items, strict=True)) if kind.kind == "map" else items), at

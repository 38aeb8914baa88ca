"""The columns of a lake, as its manifests hold them, and the rule by which they change.

A column may be added: files from before have null there. So may a field of a struct. A column may be left out: it stays
in the lake, and files from then on have null. A column whose type is another one is refused, because no reader could
read both.
Types have the names of Delta and Spark: `long`, `timestamp`, {"type": "struct", "fields": [...]}.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from ...errors import Refused
from ..typed import DATA

Kind = str | dict[str, Any]

_PLAIN: dict[str, pa.DataType] = {
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
RESERVED_FOLDERS: dict[str, Kind] = {"topic": "string", "date": "date", "hour": "string"}
_NAMES = {kind: name for name, kind in _PLAIN.items()}


class Column(msgspec.Struct, frozen=True):
    """One column: its name, its type, and whether it may be null."""

    name: str
    type: Kind
    nullable: bool = True


def kind_of(found: pa.DataType) -> Kind:
    """Returns the name of a type. Refused: a lake cannot hold it."""
    if pa.types.is_timestamp(found):
        return "timestamp" if found.tz else "timestamp_ntz"
    if found in _NAMES:
        return _NAMES[found]
    if pa.types.is_large_string(found):
        return "string"
    if pa.types.is_large_binary(found):
        return "binary"
    if pa.types.is_decimal(found):
        return f"decimal({found.precision},{found.scale})"
    if pa.types.is_struct(found):
        fields = [msgspec.to_builtins(one) for one in columns_of(list(found))]
        return {"type": "struct", "fields": fields}
    if pa.types.is_map(found):
        return {
            "type": "map",
            "keyType": kind_of(found.key_type),
            "valueType": kind_of(found.item_type),
            "valueContainsNull": found.item_field.nullable,
        }
    if pa.types.is_list(found) or pa.types.is_large_list(found):
        element = found.value_field
        return {
            "type": "array",
            "elementType": kind_of(element.type),
            "containsNull": element.nullable,
        }
    raise Refused(f"a lake cannot hold columns of type {found}")


def sql_type(kind: Kind) -> str:
    """Returns a type as SQL writes it: `array<struct<key:string,value:binary>>`."""
    if isinstance(kind, str):
        return kind
    if kind["type"] == "struct":
        fields = ",".join(f"{one['name']}:{sql_type(one['type'])}" for one in kind["fields"])
        return f"struct<{fields}>"
    if kind["type"] == "map":
        return f"map<{sql_type(kind['keyType'])},{sql_type(kind['valueType'])}>"
    return f"array<{sql_type(kind['elementType'])}>"


def arrow_of(kind: Kind) -> pa.DataType:
    """Returns the Arrow type of a name. Refused: there is no such type."""
    if isinstance(kind, str):
        if kind.startswith("decimal("):
            precision, scale = kind.removeprefix("decimal(").removesuffix(")").split(",")
            return pa.decimal128(int(precision), int(scale))
        if kind not in _PLAIN:
            raise Refused(f"a lake has no type {kind[:60]}")
        return _PLAIN[kind]
    if kind["type"] == "struct":
        fields = [msgspec.convert(one, Column) for one in kind["fields"]]
        return pa.struct([_field(one) for one in fields])
    if kind["type"] == "map":
        value = pa.field("value", arrow_of(kind["valueType"]), nullable=kind["valueContainsNull"])
        return pa.map_(arrow_of(kind["keyType"]), value)
    element = pa.field(
        "element", arrow_of(kind["elementType"]), nullable=kind.get("containsNull", True)
    )
    return pa.list_(element)


def _field(column: Column) -> pa.Field:
    return pa.field(column.name, arrow_of(column.type), nullable=column.nullable)


def columns_of(fields: pa.Schema | Sequence[pa.Field]) -> list[Column]:
    """Returns the columns of an Arrow schema. Refused: a lake cannot hold one."""
    return [Column(one.name, kind_of(one.type), one.nullable) for one in fields]


def folder_columns(columns: Sequence[Column], folders: Iterable[str]) -> list[Column]:
    """Returns the columns that are folders: of topic and time, and of a field of `data`, which has its type."""
    data = next((one.type for one in columns if one.name == DATA), None)
    fields = data["fields"] if isinstance(data, dict) else []
    kinds = {one["name"]: one["type"] for one in fields} | RESERVED_FOLDERS
    return [Column(name, kinds[name]) for name in folders]


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """Returns the Arrow schema of some columns."""
    return pa.schema([_field(one) for one in columns])


def merged(known: Sequence[Column], found: Sequence[Column]) -> list[Column]:
    """Returns the columns of a lake after a commit with some columns. Refused: one has another type."""
    if not known:
        return list(found)
    given = {one.name: one for one in found}
    kept: list[Column] = []
    for one in known:
        now = given.pop(one.name, None)
        if now is not None and not is_grown(one.type, now.type):
            raise Refused(
                f"column {one.name} of the lake is {_short(one.type)}, not {_short(now.type)}: "
                "cast it, give it another name, or use another lake"
            )
        is_nullable = one.nullable or now is None or now.nullable
        kept.append(Column(one.name, one.type if now is None else now.type, is_nullable))
    return [*kept, *(Column(one.name, one.type) for one in given.values())]


def is_grown(known: Kind, now: Kind) -> bool:
    """Whether a type is the same, or has more fields in its structs, which may be null."""
    if known == now or isinstance(known, str) or isinstance(now, str):
        return known == now
    if known["type"] != now["type"]:
        return False
    match known["type"]:
        case "array":
            return known["containsNull"] == now["containsNull"] and is_grown(
                known["elementType"], now["elementType"]
            )
        case "map":
            names = ("keyType", "valueContainsNull")
            is_same = all(known[name] == now[name] for name in names)
            return is_same and is_grown(known["valueType"], now["valueType"])
    fields = {one["name"]: one for one in now["fields"]}
    for one in known["fields"]:
        later = fields.pop(one["name"], None)
        if later is None or later["nullable"] != one["nullable"]:
            return False
        if not is_grown(one["type"], later["type"]):
            return False
    return all(one["nullable"] for one in fields.values())


def _short(kind: Kind) -> str:
    return kind if isinstance(kind, str) else str(kind["type"])


def with_columns(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Returns rows with the columns of a schema: those that they lack are null."""
    if batch.schema.equals(schema):
        return batch
    names = set(batch.schema.names)
    columns = [
        batch.column(one.name).cast(one.type)
        if one.name in names
        else pa.nulls(batch.num_rows, one.type)
        for one in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)

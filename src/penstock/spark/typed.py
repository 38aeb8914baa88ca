"""Values as typed columns: `data` by a schema of the registry, and `data_error` for a value that it does not describe.

The planned schema decides the type of `data`. Every message is read with the schema that it names, and Avro resolves it
to the planned one; a message without an id has to be JSON. What Spark has no type for becomes JSON as text: unions of
several types, types that contain themselves, objects without properties. A value that cannot be read stays in `value`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ..api.schemas import LATEST
from ..client import Client
from ..client.schema_codec import SchemaCodec, id_in
from ..codec.schema_id import VALUE_SCHEMA_ID, joined_all
from ..errors import NotFound, Refused

DATA, DATA_ERROR = "data", "data_error"
_ERROR_CHARACTERS_MAX = 300
NESTED_MAX = 32
_UNKNOWN_MAX = 10_000


class Shape(NamedTuple):
    """A type as Spark writes it and as Arrow has it; `convert`, if any, makes such a value of a decoded one."""

    ddl: str
    arrow: pa.DataType
    convert: Callable[[Any], Any] | None = None


def _json_text(value: object) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()


def _whole(value: Any) -> Any:
    # JSON may have any number here. Arrow would cut off what is behind the point.
    if isinstance(value, float) and not value.is_integer():
        raise ValueError(f"{value} is not a whole number")
    return value


_TEXT = JSON_TEXT = Shape("string", pa.string(), _json_text)
_AVRO_PRIMITIVES = {
    "boolean": Shape("boolean", pa.bool_()),
    "int": Shape("int", pa.int32(), _whole),
    "long": Shape("bigint", pa.int64(), _whole),
    "float": Shape("float", pa.float32()),
    "double": Shape("double", pa.float64()),
    "bytes": Shape("binary", pa.binary()),
    "string": Shape("string", pa.string()),
    "enum": Shape("string", pa.string()),
    "fixed": Shape("binary", pa.binary()),
}
_AVRO_LOGICAL = {
    "date": Shape("date", pa.date32()),
    "timestamp-millis": Shape("timestamp_ltz", pa.timestamp("us", tz="UTC")),
    "timestamp-micros": Shape("timestamp_ltz", pa.timestamp("us", tz="UTC")),
    "uuid": Shape("string", pa.string(), str),
}
_AVRO_AS_TEXT = frozenset(
    {"time-millis", "time-micros", "local-timestamp-millis", "local-timestamp-micros"}
)
_DECIMAL_DIGITS_MAX = 38
_JSON_PRIMITIVES = {
    "boolean": Shape("boolean", pa.bool_()),
    "integer": Shape("bigint", pa.int64(), _whole),
    "number": Shape("double", pa.float64()),
    "string": Shape("string", pa.string()),
}


def struct_of(fields: Sequence[tuple[str, Shape]]) -> Shape:
    if not fields or len({name.lower() for name, _ in fields}) < len(fields):
        return _TEXT  # Spark has neither empty structs nor names that differ in capitals only.
    ddl = ", ".join(f"`{name.replace('`', '``')}`: {one.ddl}" for name, one in fields)
    arrow = pa.struct([pa.field(name, one.arrow) for name, one in fields])
    converted = [(name, one.convert) for name, one in fields if one.convert is not None]

    def convert(value: Any) -> Any:
        found = {**value}
        for name, call in converted:
            if found.get(name) is not None:
                found[name] = call(found[name])
        return found

    return Shape(f"struct<{ddl}>", arrow, convert if converted else None)


def array_of(item: Shape) -> Shape:
    inner = item.convert

    def convert(value: Any) -> Any:
        # Both can be iterated over.
        if isinstance(value, str | dict):
            raise TypeError(f"{value!r:.100} is not an array")
        return [_converted(inner, one) for one in value]

    return Shape(f"array<{item.ddl}>", pa.list_(pa.field("element", item.arrow)), convert)


def map_of(item: Shape) -> Shape:
    inner = item.convert

    def convert(value: Any) -> Any:
        return [(key, _converted(inner, one)) for key, one in value.items()]

    return Shape(f"map<string, {item.ddl}>", pa.map_(pa.string(), item.arrow), convert)


def _converted(convert: Callable[[Any], Any] | None, value: Any) -> Any:
    return value if convert is None or value is None else convert(value)


def avro_shape(schema: Any, referenced: Iterable[Any] = ()) -> Shape:
    """The shape of an Avro schema, of JSON, and of those that it refers to."""
    from fastavro import parse_schema

    named: dict[str, Any] = {}
    for one in referenced:
        parse_schema(one, named)
    return _avro_shape(parse_schema(schema, named), named)


def _avro_shape(found: Any, named: Mapping[str, Any], depth: int = 0) -> Shape:
    """The shape of a parsed schema, in which names are whole; `named` has the types by name."""
    if depth > NESTED_MAX:
        return _TEXT
    match found:
        case list():
            real = [one for one in found if one != "null"]
            return _avro_shape(real[0], named, depth + 1) if len(real) == 1 else _TEXT
        case str() if found in _AVRO_PRIMITIVES:
            return _AVRO_PRIMITIVES[found]
        case str():
            known = named.get(found)
            return _TEXT if known is None else _avro_shape(known, named, depth + 1)
        case {"logicalType": str(logical)} if logical in _AVRO_LOGICAL:
            return _AVRO_LOGICAL[logical]
        case {"logicalType": "decimal", "precision": int(digits)} if digits <= _DECIMAL_DIGITS_MAX:
            scale = int(found.get("scale", 0))
            return Shape(f"decimal({digits},{scale})", pa.decimal128(digits, scale))
        case {"logicalType": str(logical)} if logical in _AVRO_AS_TEXT:
            return Shape("string", pa.string(), str)
        case {"type": "array", "items": items}:
            return array_of(_avro_shape(items, named, depth + 1))
        case {"type": "map", "values": values}:
            return map_of(_avro_shape(values, named, depth + 1))
        case {"type": "record" | "error", "name": str(name), "fields": list(fields)}:
            # Inside of itself it is text: Spark has no such type.
            within = {**named, name: None}
            return struct_of(
                [(str(one["name"]), _avro_shape(one["type"], within, depth + 1)) for one in fields]
            )
        case {"type": str(kind)} if kind in _AVRO_PRIMITIVES:
            return _AVRO_PRIMITIVES[kind]
        case {"type": inner}:
            return _avro_shape(inner, named, depth + 1)
    return _TEXT


def json_shape(found: Any, depth: int = 0) -> Shape:
    """The shape of a JSON Schema. References, alternatives and the like are text."""
    if not isinstance(found, dict) or depth > NESTED_MAX:
        return _TEXT
    kinds = found.get("type")
    kinds = [kinds] if isinstance(kinds, str) else kinds if isinstance(kinds, list) else []
    real = [one for one in kinds if one != "null"]
    if len(real) != 1:
        return _TEXT
    if real[0] in _JSON_PRIMITIVES:
        return _JSON_PRIMITIVES[real[0]]
    if real[0] == "array":
        return array_of(json_shape(found.get("items"), depth + 1))
    properties = found.get("properties")
    if real[0] != "object" or not isinstance(properties, dict):
        return _TEXT
    return struct_of([(name, json_shape(one, depth + 1)) for name, one in properties.items()])


def shape_of(codec: SchemaCodec) -> Shape:
    """The type of `data`; of Protobuf that of the first message of the file."""
    schema = codec.schema
    if schema.language == "PROTOBUF":
        from .typed_protobuf import protobuf_shape

        return protobuf_shape(codec.message_type())
    if schema.language == "JSON":
        return json_shape(msgspec.json.decode(schema.text))
    # One schema may be referred to by several names.
    others = dict.fromkeys(one.text for _, one in codec.referenced)
    return avro_shape(msgspec.json.decode(schema.text), map(msgspec.json.decode, others))


def _with_ids(batch: pa.RecordBatch) -> list[bytes | None]:
    """The values of a batch; where the id of a schema is in a header, with the id before them."""
    values: list[bytes | None] = batch.column("value").to_pylist()
    if "headers" not in batch.schema.names:
        return values
    headers = batch.column("headers")
    names = headers.flatten().field("key") if pa.types.is_list(headers.type) else None
    if names is None or not pc.any(pc.equal(names, VALUE_SCHEMA_ID)).as_py():
        return values
    pairs = [
        () if row is None else tuple((one["key"], one["value"]) for one in row)
        for row in headers.to_pylist()
    ]
    return [
        None if one is None else bytes(one) for one in joined_all(values, pairs, VALUE_SCHEMA_ID)
    ]


class TypedValues:
    """Decodes values. Made on the driver to learn the type, and on every executor to read."""

    def __init__(self, client: Client, planned: SchemaCodec) -> None:
        self._client, self._planned = client, planned
        # Ids that the broker does not know: it is asked once for each.
        self._unknown: dict[int | bytes | None, str] = {}
        self.shape = shape_of(planned)

    @classmethod
    def of_version(cls, client: Client, subject: str, version: int = LATEST) -> "TypedValues":
        """The one of a version of a subject. NotFound."""
        return cls(client, client.schema(subject, version))

    @classmethod
    def of_id(cls, client: Client, schema_id: int) -> "TypedValues":
        """The one of a schema that was planned with."""
        return cls(client, client.schema_of_id(schema_id))

    @property
    def schema_id(self) -> int:
        return self._planned.schema_id

    @property
    def ddl(self) -> str:
        return f"`{DATA}` {self.shape.ddl}, `{DATA_ERROR}` string"

    def columns(self, values: Iterable[bytes | None]) -> list[pa.Array]:
        """`data` and `data_error` of some values, in their order."""
        found = [self._decoded(one) for one in values]
        data = [one for one, _ in found]
        errors = [error for _, error in found]
        try:
            typed = pa.array(data, self.shape.arrow)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            typed = self._one_by_one(data, errors)
        return [typed, pa.array(errors, pa.string())]

    def _decoded(self, value: bytes | None) -> tuple[Any, str | None]:
        if value is None:
            return None, None
        schema_id = None
        try:
            schema_id = id_in(value)
            if schema_id in self._unknown:
                return None, self._unknown[schema_id]
            found = self._client.decode(value, reader=self._planned)
            return _converted(self.shape.convert, found), None
        except (Refused, TypeError, ValueError, AttributeError) as error:
            said = str(error)[:_ERROR_CHARACTERS_MAX]
            if isinstance(error, NotFound) and len(self._unknown) < _UNKNOWN_MAX:
                self._unknown[schema_id] = said
            return None, said

    def _one_by_one(self, data: list[Any], errors: list[str | None]) -> pa.Array:
        """Find the rows that are not of the type."""
        kind = self.shape.arrow
        for row, one in enumerate(data):
            try:
                pa.array([one], kind)
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                data[row], errors[row] = None, str(error)[:_ERROR_CHARACTERS_MAX]
        return pa.array(data, kind)

    def added_to(self, schema: pa.Schema) -> pa.Schema:
        """A schema with the two columns of ours behind its own."""
        return pa.schema(
            [*schema, pa.field(DATA, self.shape.arrow), pa.field(DATA_ERROR, pa.string())]
        )

    def added(
        self, batches: Iterable[pa.RecordBatch], columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """Record batches with some of their columns, and the two of ours behind them."""
        for batch in batches:
            typed = self.columns(_with_ids(batch))
            arrays = [*(batch.column(name) for name in columns), *typed]
            fields = pa.schema([batch.schema.field(name) for name in columns])
            yield pa.RecordBatch.from_arrays(arrays, schema=self.added_to(fields))

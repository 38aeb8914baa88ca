"""The types of Protobuf messages as Spark has them. Loaded only for a schema of that language.

A field that a message need not have is null while it is not set; others have their default, as Protobuf says. Enums are
the names of their values, `Timestamp` is a timestamp, wrappers are what they wrap. What Spark has no type for is JSON
as text: messages that contain themselves, `Struct`, `Any`, durations.
"""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.json_format import MessageToJson

from .typed import JSON_TEXT, NESTED_MAX, Shape, array_of, map_of, struct_of

_LONG, _INT = Shape("bigint", pa.int64()), Shape("int", pa.int32())
_SCALARS = {
    FieldDescriptor.TYPE_DOUBLE: Shape("double", pa.float64()),
    FieldDescriptor.TYPE_FLOAT: Shape("float", pa.float32()),
    FieldDescriptor.TYPE_INT64: _LONG,
    FieldDescriptor.TYPE_SINT64: _LONG,
    FieldDescriptor.TYPE_SFIXED64: _LONG,
    FieldDescriptor.TYPE_UINT64: Shape("decimal(20,0)", pa.decimal128(20, 0)),
    FieldDescriptor.TYPE_FIXED64: Shape("decimal(20,0)", pa.decimal128(20, 0)),
    FieldDescriptor.TYPE_INT32: _INT,
    FieldDescriptor.TYPE_SINT32: _INT,
    FieldDescriptor.TYPE_SFIXED32: _INT,
    FieldDescriptor.TYPE_UINT32: _LONG,
    FieldDescriptor.TYPE_FIXED32: _LONG,
    FieldDescriptor.TYPE_BOOL: Shape("boolean", pa.bool_()),
    FieldDescriptor.TYPE_STRING: Shape("string", pa.string()),
    FieldDescriptor.TYPE_BYTES: Shape("binary", pa.binary()),
}
_WRAPPERS = frozenset(
    f"google.protobuf.{one}Value"
    for one in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_AS_TEXT = frozenset(
    f"google.protobuf.{one}"
    for one in ("Any", "Duration", "FieldMask", "ListValue", "Struct", "Value")
)


def protobuf_shape(kind: Any) -> Shape:
    """The shape of a class of messages. A message of another version of its schema is read as one of this class."""
    descriptor = kind.DESCRIPTOR
    shape = _message_shape(descriptor, ())
    assert shape.convert is not None, "no message is a value as it stands"
    convert = shape.convert

    def convert_any(message: Any) -> Any:
        found = message.DESCRIPTOR.full_name
        if found != descriptor.full_name:
            raise ValueError(f"it is a {found}, and data is of {descriptor.full_name}")
        return convert(kind.FromString(message.SerializeToString()))

    return shape._replace(convert=convert_any)


def _message_shape(descriptor: Any, outer: tuple[str, ...]) -> Shape:
    name = descriptor.full_name
    if name == "google.protobuf.Timestamp":
        return Shape("timestamp_ltz", pa.timestamp("us", tz="UTC"), _microseconds)
    if name in _WRAPPERS:
        value = _SCALARS[descriptor.fields_by_name["value"].type]
        return value._replace(convert=lambda message: message.value)
    fields = (
        [] if name in _AS_TEXT or name in outer or len(outer) >= NESTED_MAX else descriptor.fields
    )
    shapes = [(one, _field_shape(one, (*outer, name))) for one in fields]
    bare = struct_of([(one.name, shape) for one, shape in shapes])
    if bare is JSON_TEXT:
        return Shape("string", pa.string(), _as_json)
    readers = [(one.name, _reader_of(one, shape)) for one, shape in shapes]

    def convert(message: Any) -> Any:
        return {name: read(message) for name, read in readers}

    return bare._replace(convert=convert)


def _microseconds(message: Any) -> int:
    return int(message.seconds * 1_000_000 + message.nanos // 1000)


def _as_json(message: Any) -> str:
    return str(MessageToJson(message, indent=None, preserving_proto_field_name=True))


def _field_shape(field: Any, outer: tuple[str, ...]) -> Shape:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return map_of(_one_shape(field.message_type.fields_by_name["value"], outer))
    one = _one_shape(field, outer)
    return array_of(one) if field.is_repeated else one


def _one_shape(field: Any, outer: tuple[str, ...]) -> Shape:
    if field.enum_type is not None:
        names = field.enum_type.values_by_number
        # A number that this version has no name for stays readable.
        return Shape(
            "string",
            pa.string(),
            lambda number: names[number].name if number in names else str(number),
        )
    if field.message_type is not None:
        return _message_shape(field.message_type, outer)
    return _SCALARS[field.type]


def _reader_of(field: Any, shape: Shape) -> Callable[[Any], Any]:
    """Reads a field of a message as a value of its shape."""
    name, convert = field.name, shape.convert
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return lambda message: convert({_key(k): v for k, v in getattr(message, name).items()})  # type: ignore[misc]  # A map has one.
    if field.is_repeated:
        return lambda message: convert(getattr(message, name))  # type: ignore[misc]  # An array has one.
    if convert is None:
        read: Callable[[Any], Any] = lambda message: getattr(message, name)  # noqa: E731 - chosen once for all messages
    else:
        read = lambda message: convert(getattr(message, name))  # noqa: E731 - chosen once for all messages
    if not field.has_presence:
        return read
    return lambda message: read(message) if message.HasField(name) else None


def _key(key: object) -> str:
    """The key of a map as text, booleans as JSON has them."""
    return str(key).lower() if isinstance(key, bool) else str(key)

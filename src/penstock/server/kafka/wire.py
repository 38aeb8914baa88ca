"""Kafka's messages as bytes, and back: each version of a message is compiled to functions once, when it is first used.

A message is a dict of its fields under their names in the tables, arrays are lists. A field that a version does not
have takes its default, so a handler never asks for the version. BadRequest is the one error for bytes that are no
message: cut short, lengths that lie, more items than a request may have.
"""

import struct
from collections.abc import Callable
from functools import cache
from typing import Any

from ...errors import BadRequest
from ...model import Buffer
from .schema import REQUESTS, RESPONSES, Field, Schema

Values = dict[str, Any]
Decode = Callable[["Reader"], Any]
Encode = Callable[["Writer", Any], None]

# Items of all arrays of a request together. Each becomes an object, so the bytes of a frame do not bound the memory.
ITEMS_MAX = 100_000
_VARINT_BYTES_MAX = 5
_NUMBERS = {
    "int8": struct.Struct(">b"),
    "int16": struct.Struct(">h"),
    "uint16": struct.Struct(">H"),
    "int32": struct.Struct(">i"),
    "uint32": struct.Struct(">I"),
    "int64": struct.Struct(">q"),
    "float64": struct.Struct(">d"),
    "bool": struct.Struct(">?"),
}
_I16, _I32 = _NUMBERS["int16"], _NUMBERS["int32"]
# Records of at least this size are handed on as they are, not copied into the bytes around them.
_PIECE_BYTES_MIN = 4096


class Reader:
    """Where in the bytes of a message decoding is."""

    __slots__ = ("data", "items", "position")

    def __init__(self, data: Buffer) -> None:
        self.data, self.position, self.items = memoryview(data), 0, 0

    def take(self, size: int) -> memoryview:
        """The next bytes. BadRequest: there are not so many."""
        start, end = self.position, self.position + size
        if size < 0 or end > len(self.data):
            raise BadRequest(f"{size} bytes at {start} of a message of {len(self.data)}")
        self.position = end
        return self.data[start:end]

    def uvarint(self) -> int:
        found = 0
        for place in range(_VARINT_BYTES_MAX):
            byte = self.take(1)[0]
            found |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                return found
        raise BadRequest("a length of more than five bytes")

    def count_items(self, count: int) -> int:
        """A count of items, if so many can be there: each takes at least a byte."""
        self.items += count
        if count > len(self.data) - self.position or self.items > ITEMS_MAX:
            raise BadRequest(f"an array of {count} items in a message of {len(self.data)} bytes")
        return count


class Writer:
    """The pieces of a message. Small ones are gathered, large records stay as they are."""

    __slots__ = ("_open", "pieces")

    def __init__(self) -> None:
        self._open = bytearray()
        self.pieces: list[Buffer] = [self._open]

    def add(self, data: Buffer) -> None:
        if len(data) < _PIECE_BYTES_MIN:
            self._open += data
        else:
            self._open = bytearray()
            self.pieces += (data, self._open)

    def uvarint(self, number: int) -> None:
        while number >= 0x80:
            self._open.append(number & 0x7F | 0x80)
            number >>= 7
        self._open.append(number)


def decode_request(key: int, version: int, data: Buffer) -> Values:
    """The request of an api in a version that the tables have; `data` follows the header."""
    return _decode(_decoder(REQUESTS[key], version), data)


def decode_response(key: int, version: int, data: Buffer) -> Values:
    return _decode(_decoder(RESPONSES[key], version), data)


def encode_request(key: int, version: int, values: Values) -> list[Buffer]:
    return _encode(_encoder(REQUESTS[key], version), values)


def encode_response(key: int, version: int, values: Values) -> list[Buffer]:
    """The bytes of a response after its header, in pieces. Fields that `values` leaves out take their defaults."""
    return _encode(_encoder(RESPONSES[key], version), values)


def _decode(decode: Decode, data: Buffer) -> Values:
    # Bytes behind the last field are ignored, as Kafka does: librdkafka's request for all topics has three.
    found: Values = decode(Reader(data))
    return found


def _encode(encode: Encode, values: Values) -> list[Buffer]:
    writer = Writer()
    encode(writer, values)
    return [piece for piece in writer.pieces if piece]


@cache
def _decoder(schema: Schema, version: int) -> Decode:
    return _struct_decoder(schema.fields, version, version >= schema.flexible)


@cache
def _encoder(schema: Schema, version: int) -> Encode:
    return _struct_encoder(schema.fields, version, version >= schema.flexible)


def _struct_decoder(fields: tuple[Field, ...], version: int, is_flexible: bool) -> Decode:
    plain = [
        (one.name, _field_decoder(one, version, is_flexible))
        for one in fields
        if one.first <= version <= one.last and one.tag < 0
    ]
    tagged = {
        one.tag: (one.name, _field_decoder(one, version, is_flexible))
        for one in fields
        if one.first <= version <= one.last and one.tag >= 0
    }
    there = {name for name, _ in plain}
    absent = [one for one in fields if one.name not in there]

    def decode(reader: Reader) -> Values:
        found = {name: decode_field(reader) for name, decode_field in plain}
        for one in absent:
            found.setdefault(one.name, one.default_value())
        if is_flexible:
            for _ in range(reader.count_items(reader.uvarint())):
                tag = reader.uvarint()
                inner = Reader(reader.take(reader.uvarint()))
                if tag in tagged:
                    name, decode_field = tagged[tag]
                    inner.items = reader.items
                    found[name] = decode_field(inner)
                    reader.items = inner.items
        return found

    return decode


def _field_decoder(field: Field, version: int, is_flexible: bool) -> Decode:
    kind, is_nullable = field.kind, version >= field.nullable
    inner = kind.removeprefix("[]")
    if inner == "struct":
        decode = _struct_decoder(field.fields, version, is_flexible)
        if is_nullable and inner == kind:
            decode = _nullable_decoder(decode)
    else:
        decode = _value_decoder(inner, is_flexible, is_nullable and inner == kind)
    return _array_decoder(decode, is_flexible, is_nullable) if inner != kind else decode


def _nullable_decoder(decode: Decode) -> Decode:
    """A struct behind a byte that is below zero if there is none."""
    return lambda reader: None if reader.take(1)[0] >= 0x80 else decode(reader)


def _length_decoder(is_compact: bool, number: struct.Struct) -> Decode:
    """Reads a length; -1 stands for null."""
    if is_compact:
        return lambda reader: reader.uvarint() - 1
    return lambda reader: number.unpack(reader.take(number.size))[0]


def _value_decoder(kind: str, is_flexible: bool, is_nullable: bool) -> Decode:
    if kind in _NUMBERS:
        number = _NUMBERS[kind]
        return lambda reader: number.unpack(reader.take(number.size))[0]
    if kind == "uuid":
        return lambda reader: bytes(reader.take(16))
    length = _length_decoder(is_flexible, _I16 if kind == "string" else _I32)

    def decode(reader: Reader) -> str | bytes | memoryview | None:
        size = length(reader)
        if size == -1 and is_nullable:
            return None
        found = reader.take(size)
        if kind == "records":
            return found
        if kind == "bytes":
            return bytes(found)
        try:
            return str(found, "utf-8")
        except UnicodeDecodeError:
            raise BadRequest("text that is not UTF-8") from None

    return decode


def _array_decoder(decode_item: Decode, is_flexible: bool, is_nullable: bool) -> Decode:
    length = _length_decoder(is_flexible, _I32)

    def decode(reader: Reader) -> list[Any] | None:
        count = length(reader)
        if count == -1 and is_nullable:
            return None
        if count < 0:
            raise BadRequest(f"an array of {count} items")
        return [decode_item(reader) for _ in range(reader.count_items(count))]

    return decode


def _struct_encoder(fields: tuple[Field, ...], version: int, is_flexible: bool) -> Encode:
    there = [one for one in fields if one.first <= version <= one.last]
    plain = [(one, _field_encoder(one, version, is_flexible)) for one in there if one.tag < 0]
    tagged = [
        (one, _field_encoder(one, version, is_flexible))
        for one in sorted(there, key=lambda one: one.tag)
        if one.tag >= 0
    ]
    known = {one.name for one in fields}

    def encode(writer: Writer, values: Values) -> None:
        assert values.keys() <= known, f"no such fields: {values.keys() - known}"
        for field, encode_field in plain:
            encode_field(
                writer, values[field.name] if field.name in values else field.default_value()
            )
        if is_flexible:
            _add_tagged(writer, values, tagged)

    return encode


def _add_tagged(writer: Writer, values: Values, tagged: list[tuple[Field, Encode]]) -> None:
    """Tagged fields that are not at their defaults, each with its size."""
    said = [
        (field, encode_field)
        for field, encode_field in tagged
        if field.name in values and values[field.name] != field.default_value()
    ]
    writer.uvarint(len(said))
    for field, encode_field in said:
        inner = Writer()
        encode_field(inner, values[field.name])
        data = b"".join(inner.pieces)
        writer.uvarint(field.tag)
        writer.uvarint(len(data))
        writer.add(data)


def _field_encoder(field: Field, version: int, is_flexible: bool) -> Encode:
    kind, is_nullable = field.kind, version >= field.nullable
    inner = kind.removeprefix("[]")
    if inner == "struct":
        encode = _struct_encoder(field.fields, version, is_flexible)
        if is_nullable and inner == kind:
            encode = _nullable_encoder(encode)
    else:
        encode = _value_encoder(inner, is_flexible, is_nullable and inner == kind)
    return _array_encoder(encode, is_flexible, is_nullable) if inner != kind else encode


def _nullable_encoder(encode: Encode) -> Encode:
    def encode_nullable(writer: Writer, value: Values | None) -> None:
        writer.add(b"\xff" if value is None else b"\x01")
        if value is not None:
            encode(writer, value)

    return encode_nullable


def _length_encoder(is_compact: bool, number: struct.Struct) -> Callable[[Writer, int], None]:
    if is_compact:
        return lambda writer, length: writer.uvarint(length + 1)
    return lambda writer, length: writer.add(number.pack(length))


def _value_encoder(kind: str, is_flexible: bool, is_nullable: bool) -> Encode:
    if kind in _NUMBERS:
        pack = _NUMBERS[kind].pack
        return lambda writer, value: writer.add(pack(value))
    if kind == "uuid":
        return lambda writer, value: writer.add(value)
    add_length = _length_encoder(is_flexible, _I16 if kind == "string" else _I32)

    def encode(writer: Writer, value: str | Buffer | None) -> None:
        if value is None and is_nullable:
            add_length(writer, -1)
            return
        # A version without null says the same with nothing.
        data = b"" if value is None else value.encode() if isinstance(value, str) else value
        add_length(writer, len(data))
        writer.add(data)

    return encode


def _array_encoder(encode_item: Encode, is_flexible: bool, is_nullable: bool) -> Encode:
    add_length = _length_encoder(is_flexible, _I32)

    def encode(writer: Writer, items: list[Any] | None) -> None:
        if items is None and is_nullable:
            add_length(writer, -1)
            return
        add_length(writer, len(items or ()))
        for item in items or ():
            encode_item(writer, item)

    return encode

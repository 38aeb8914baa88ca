"""Kafka's messages as bytes, and back: each version of a message is compiled to functions once, when it is first used.

A message is a dict of its fields under their names in the tables, arrays are lists; records to be sent may be a list of
pieces. A field that a version does not have takes its default, so a handler never asks for the version. BadRequest is
the one error for bytes that are no message: cut short, lengths that lie, more items than a request may have.
"""

import struct
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

from ...errors import BadRequest
from ...model import Buffer
from .schema import REQUESTS, RESPONSES, Field, Schema

Values = dict[str, Any]
Decode = Callable[["Reader"], Any]
Encode = Callable[["Writer", Any], None]

# Items of all arrays of a request together. Each becomes an object and is looked up, so the bytes of a frame
# bound neither the memory nor the time. A consumer may name all of its partitions at once.
ITEMS_MAX = 10_000
PARTITIONS_MAX = 20_000
_OF_PARTITIONS = frozenset({0, 1, 2, 8, 9, 21, 23, 24, 28, 68, 78, 79})


def items_max(key: int) -> int:
    """How many items of all arrays together a request of an api has."""
    return PARTITIONS_MAX if key in _OF_PARTITIONS else ITEMS_MAX


class TooManyItems(BadRequest):
    """There is more in a request than its api key may have."""


_VARINT_BYTES_MAX = 5
# Fields of fixed sizes. Those that follow each other are read and written by one call.
_FIXED = {
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "bool": "?",
    "uuid": "16s",
}
_I16, _I32 = struct.Struct(">h"), struct.Struct(">i")
# Records of at least this size are handed on as they are, not copied into the bytes around them.
_PIECE_BYTES_MIN = 4096


class Reader:
    """Where in the bytes of a message decoding is."""

    __slots__ = ("data", "items", "items_max", "position")

    def __init__(self, data: Buffer, items_max: int = ITEMS_MAX) -> None:
        self.data, self.position, self.items = memoryview(data), 0, 0
        self.items_max = items_max

    def take(self, size: int) -> memoryview:
        """The next bytes. BadRequest: there are not so many."""
        start, end = self.position, self.position + size
        if size < 0 or end > len(self.data):
            raise BadRequest(f"{size} bytes at {start} of a message of {len(self.data)}")
        self.position = end
        return self.data[start:end]

    def take_fixed(self, fields: struct.Struct) -> tuple[Any, ...]:
        """The next fields of fixed sizes. BadRequest: the message ends before they do."""
        start = self.position
        self.position = end = start + fields.size
        if end > len(self.data):
            raise BadRequest(f"{fields.size} bytes at {start} of a message of {len(self.data)}")
        return fields.unpack_from(self.data, start)

    def uvarint(self) -> int:
        found = 0
        for place in range(_VARINT_BYTES_MAX):
            if self.position >= len(self.data):
                raise BadRequest(f"a message of {len(self.data)} bytes ends inside a number")
            byte = self.data[self.position]
            self.position += 1
            found |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                return found
        raise BadRequest("a length of more than five bytes")

    def count_items(self, count: int) -> int:
        """A count of items, if so many can be there: each takes at least a byte. TooManyItems, before any is made."""
        self.items += count
        if count > len(self.data) - self.position:
            raise BadRequest(f"an array of {count} items in a message of {len(self.data)} bytes")
        if self.items > self.items_max:
            raise TooManyItems(f"{self.items} items in one request, the limit is {self.items_max}")
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


def decode_request(key: int, version: int, data: Buffer, items: int | None = None) -> Values:
    """The request of an api in a version that the tables have; `data` follows the header. BadRequest.

    TooManyItems: it has more than `items`, or than a request of the api may have.
    """
    # Bytes behind the last field are ignored, as Kafka does: librdkafka's request for all topics has three.
    reader = Reader(data, items_max(key) if items is None else items)
    found: Values = _request_decoder(key, version)(reader)
    return found


def encode_response(key: int, version: int, values: Values) -> list[Buffer]:
    """The bytes of a response after its header, in pieces. Fields that `values` leaves out take their defaults."""
    writer = Writer()
    _response_encoder(key, version)(writer, values)
    return [piece for piece in writer.pieces if piece]


# Kept by numbers: the hash of a schema is that of all its fields.
@cache
def _request_decoder(key: int, version: int) -> Decode:
    return decoder_of(REQUESTS[key], version)


@cache
def _response_encoder(key: int, version: int) -> Encode:
    return encoder_of(RESPONSES[key], version)


def decoder_of(schema: Schema, version: int) -> Decode:
    return _struct_decoder(schema.fields, version, version >= schema.flexible)


def encoder_of(schema: Schema, version: int) -> Encode:
    return _struct_encoder(schema.fields, version, version >= schema.flexible)


class _Step(NamedTuple):
    """Fields of a struct that follow each other: some of fixed sizes, then one of another kind, if there is one."""

    names: tuple[str, ...]
    fixed: struct.Struct
    defaults: tuple[Any, ...]
    last: Field | None


def _steps(fields: Sequence[Field]) -> list[_Step]:
    found: list[_Step] = []
    run: list[Field] = []
    for field in (*fields, None):
        if field is not None and field.kind in _FIXED:
            run.append(field)
        elif field is not None or run:
            names, defaults = [one.name for one in run], [one.default for one in run]
            fixed = struct.Struct(">" + "".join(_FIXED[one.kind] for one in run))
            found.append(_Step(tuple(names), fixed, tuple(defaults), field))
            run = []
    return found


def _fields_of(
    fields: tuple[Field, ...], version: int
) -> tuple[list[Field], list[Field], list[Field]]:
    """The ordinary fields of a version, the tagged ones in the order of their tags, and those it does not have."""
    there = [one for one in fields if one.first <= version <= one.last]
    tagged = sorted((one for one in there if one.tag >= 0), key=lambda one: one.tag)
    absent = [one for one in fields if one not in there]
    return [one for one in there if one.tag < 0], tagged, absent


def _struct_decoder(fields: tuple[Field, ...], version: int, is_flexible: bool) -> Decode:
    plain, tagged, absent = _fields_of(fields, version)
    steps = [
        (
            one.names,
            one.fixed,
            "" if one.last is None else one.last.name,
            None if one.last is None else _field_decoder(one.last, version, is_flexible),
        )
        for one in _steps(plain)
    ]
    by_tag = {one.tag: (one.name, _field_decoder(one, version, is_flexible)) for one in tagged}
    unsaid = [*tagged, *absent]
    constants = {one.name: one.default_value() for one in unsaid if not one.is_composite}
    composites = [one for one in unsaid if one.is_composite]

    def decode(reader: Reader) -> Values:
        found = constants.copy()
        for one in composites:
            found[one.name] = one.default_value()
        for names, fixed, name, decode_field in steps:
            if names:
                found.update(zip(names, reader.take_fixed(fixed), strict=True))
            if decode_field is not None:
                found[name] = decode_field(reader)
        if is_flexible and (count := reader.uvarint()):
            _take_tagged(reader, reader.count_items(count), by_tag, found)
        return found

    return decode


def _take_tagged(
    reader: Reader, count: int, by_tag: dict[int, tuple[str, Decode]], found: Values
) -> None:
    """Read tagged fields, each behind its size; those that are not known are passed over."""
    for _ in range(count):
        tag = reader.uvarint()
        inner = Reader(reader.take(reader.uvarint()), reader.items_max)
        if tag in by_tag:
            name, decode_field = by_tag[tag]
            inner.items = reader.items
            found[name] = decode_field(inner)
            reader.items = inner.items


def _field_decoder(field: Field, version: int, is_flexible: bool) -> Decode:
    kind, is_nullable = field.kind, version >= field.nullable
    inner = kind.removeprefix("[]")
    if inner == "struct":
        if inner != kind and not is_flexible:
            decode_all = _fixed_array_decoder(field, version, is_nullable)
            if decode_all is not None:
                return decode_all
        decode = _struct_decoder(field.fields, version, is_flexible)
        if is_nullable and inner == kind:
            decode = _nullable_decoder(decode)
    else:
        decode = _value_decoder(inner, is_flexible, is_nullable and inner == kind)
    return _array_decoder(decode, is_flexible, is_nullable) if inner != kind else decode


def _nullable_decoder(decode: Decode) -> Decode:
    """A struct behind a byte that is below zero if there is none."""
    return lambda reader: None if reader.take(1)[0] >= 0x80 else decode(reader)


def _value_decoder(kind: str, is_flexible: bool, is_nullable: bool) -> Decode:
    if kind in _FIXED:
        fixed = struct.Struct(">" + _FIXED[kind])
        return lambda reader: reader.take_fixed(fixed)[0]
    length = _I16 if kind == "string" else _I32

    def decode(reader: Reader) -> str | bytes | memoryview | None:
        size = reader.uvarint() - 1 if is_flexible else reader.take_fixed(length)[0]
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
    def decode(reader: Reader) -> list[Any] | None:
        count = reader.uvarint() - 1 if is_flexible else reader.take_fixed(_I32)[0]
        if count == -1 and is_nullable:
            return None
        if count < 0:
            raise BadRequest(f"an array of {count} items")
        return [decode_item(reader) for _ in range(reader.count_items(count))]

    return decode


def _fixed_array_decoder(field: Field, version: int, is_nullable: bool) -> Decode | None:
    """For an array of structs that have fields of fixed sizes only, all of which are read by one call; else None."""
    plain, tagged, absent = _fields_of(field.fields, version)
    steps = _steps(plain)
    unsaid = [*tagged, *absent]
    if len(steps) != 1 or steps[0].last is not None or any(one.is_composite for one in unsaid):
        return None
    names, fixed = steps[0].names, steps[0].fixed
    constants = {one.name: one.default_value() for one in unsaid}

    def decode(reader: Reader) -> list[Values] | None:
        count = reader.take_fixed(_I32)[0]
        if count == -1 and is_nullable:
            return None
        if count < 0:
            raise BadRequest(f"an array of {count} items")
        data = reader.take(reader.count_items(count) * fixed.size)
        return [
            {**constants, **dict(zip(names, values, strict=True))}
            for values in fixed.iter_unpack(data)
        ]

    return decode


def _struct_encoder(fields: tuple[Field, ...], version: int, is_flexible: bool) -> Encode:
    plain, tagged, _ = _fields_of(fields, version)
    steps = [
        (
            one.names,
            one.fixed.pack,
            one.defaults,
            one.last,
            None if one.last is None else _field_encoder(one.last, version, is_flexible),
        )
        for one in _steps(plain)
    ]
    with_tags = [(one, _field_encoder(one, version, is_flexible)) for one in tagged]
    known = {one.name for one in fields}

    def encode(writer: Writer, values: Values) -> None:
        assert values.keys() <= known, f"no such fields: {values.keys() - known}"
        for names, pack, defaults, field, encode_field in steps:
            if names:
                writer.add(pack(*map(values.get, names, defaults)))
            if field is not None and encode_field is not None:
                name = field.name
                encode_field(writer, values[name] if name in values else field.default_value())
        if with_tags:
            _add_tagged(writer, values, with_tags)
        elif is_flexible:
            writer.uvarint(0)

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
    if kind in _FIXED:
        pack = struct.Struct(">" + _FIXED[kind]).pack
        return lambda writer, value: writer.add(pack(value))
    add_length = _length_encoder(is_flexible, _I16 if kind == "string" else _I32)

    def encode(writer: Writer, value: str | Buffer | list[Buffer] | None) -> None:
        if value is None and is_nullable:
            add_length(writer, -1)
        elif isinstance(value, list):
            # Records in pieces.
            add_length(writer, sum(map(len, value)))
            for piece in value:
                writer.add(piece)
        else:
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

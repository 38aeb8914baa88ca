"""Values as bytes and back, by a schema of the registry, in Confluent's wire format. No I/O.

JSON takes anything that msgspec writes (dicts, dataclasses, structs) and gives dicts; Avro takes and gives what
fastavro does; Protobuf takes and gives messages. Whether JSON fits its schema is for the server to say.
"""

import io
import struct
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from ..api.arguments import several, text, whole_number
from ..api.schemas import LATEST, NewSchema, Reference, SchemaDescription
from ..codec.schema_id import (
    behind_schema_id,
    guid_header,
    has_schema_id,
    schema_id_of,
    with_schema_id,
)
from ..errors import Refused
from ..model import Buffer, Headers

Named = Sequence[tuple[str, SchemaDescription]]
"""What a schema refers to by the names that it has for them, what others refer to before these."""


VERSION_MAX = (1 << 31) - 1

# The libraries raise whatever they stumble over in a value, or in bytes, that the schema does not describe.
_MISFITS = (
    msgspec.MsgspecError,
    struct.error,
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)


class _Language(Protocol):
    def encode(self, value: Any) -> tuple[bytes, bytes]:
        """Which message of a file it is, of Protobuf alone, and the value."""
        ...

    def decode(self, content: bytes, reader: Any) -> Any: ...


class SchemaCodec:
    """A schema that values are written and read by."""

    def __init__(self, schema: SchemaDescription, referenced: Named = ()) -> None:
        self.schema, self.referenced = schema, referenced
        self._language: Any = _LANGUAGES[schema.language](schema, referenced)

    @property
    def schema_id(self) -> int:
        return self.schema.schema_id

    def encode(self, value: Any) -> bytes | None:
        """A value in the wire format; None, a tombstone, stays None. Refused if the schema has no such value."""
        if value is None:
            return None
        indexes, content = self._encoded(value)
        return with_schema_id(self.schema_id, indexes + content)

    def encode_apart(self, value: Any) -> tuple[bytes, bytes | None]:
        """What a header says of the schema, and a value without it. Refused if the schema has no such value."""
        head = guid_header(self.schema.guid)
        if value is None:
            return head, None
        indexes, content = self._encoded(value)
        return head + indexes, content

    def _encoded(self, value: Any) -> tuple[bytes, bytes]:
        try:
            found: tuple[bytes, bytes] = self._language.encode(value)
            return found
        except _MISFITS as error:
            raise Refused(
                f"schema {self.schema_id} has no such value: {error!r:.300}",
                schema_id=self.schema_id,
            ) from error

    def decode(self, content: bytes, reader: "SchemaCodec | None" = None) -> Any:
        """The value that a content of the wire format holds; of Avro as the reader's schema has it. Refused if none."""
        language = None if reader is None else reader._language
        as_reader = language if type(language) is type(self._language) else None
        try:
            return self._language.decode(bytes(behind_schema_id(content)), as_reader)
        except _MISFITS as error:
            raise Refused(
                f"the content does not fit schema {self.schema_id}: {error!r:.300}",
                schema_id=self.schema_id,
            ) from error

    def message_type(self) -> Any:
        """The class of the first message of a Protobuf file. Refused for another language."""
        if not isinstance(self._language, _Protobuf):
            raise Refused(f"schema {self.schema_id} is {self.schema.language}, not PROTOBUF")
        return self._language.message_class((0,))

    def __repr__(self) -> str:
        return f"<schema {self.schema_id}, {self.schema.language}>"


class Encoded(Protocol):
    """A message, whichever way it was got."""

    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Headers: ...


class SchemaClosure:
    """Gathers what a schema refers to, and what that refers to: ask for `needed` and `add` it, until there is none."""

    def __init__(self, schema: SchemaDescription) -> None:
        self._schema = schema
        self._found: dict[Reference, SchemaDescription] = {}

    def needed(self) -> Reference | None:
        known = (self._schema, *self._found.values())
        wanted = (one for schema in known for one in schema.references)
        return next((one for one in wanted if one not in self._found), None)

    def add(self, reference: Reference, schema: SchemaDescription) -> None:
        self._found[reference] = schema

    def in_order(self) -> Named:
        """Everything that was found, each behind what it refers to."""
        done: dict[Reference, SchemaDescription] = {}

        def visit(references: Sequence[Reference]) -> None:
            for one in references:
                if one not in done:
                    visit(self._found[one].references)
                    done[one] = self._found[one]

        visit(self._schema.references)
        return [(one.name, schema) for one, schema in done.items()]


def new_schema(schema: str, language: str, references: Iterable[tuple[str, str, int]]) -> NewSchema:
    """A schema to register. Refused if a part of it is of the wrong kind."""
    named = []
    found: Iterable[Any] = several("references", references)
    for one in found:
        if not isinstance(one, tuple) or len(one) != 3:
            raise Refused(f"a reference is a name, a subject and a version, not {one!r:.100}")
        name, subject, version = one
        number = whole_number("the version of a reference", version, LATEST, VERSION_MAX)
        named.append(Reference(text("a name", name), text("a subject", subject), number))
    return NewSchema(text("language", language), text("schema", schema), tuple(named))


def id_in(content: Buffer) -> int | bytes | None:
    """The id or the guid of the schema of a content; None if it names none. Refused if it ends within the id."""
    if not has_schema_id(content):
        return None
    found = schema_id_of(content)
    if found is None:
        raise Refused(
            f"{len(content)} bytes, of which the id of a schema would be 5, and a guid 17"
        )
    return found


def decode_plain(content: Buffer) -> Any:
    """A content without the id of a schema, which has to be JSON. Refused if it is not."""
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(
            f"the content is no JSON, and does not name a schema: {error!s:.200}"
        ) from None


class _Json:
    def __init__(self, _schema: SchemaDescription, _referenced: Named) -> None:
        pass

    def encode(self, value: Any) -> tuple[bytes, bytes]:
        return b"", msgspec.json.encode(value)

    def decode(self, content: bytes, _reader: Any) -> Any:
        return msgspec.json.decode(content)


class _Avro:
    def __init__(self, schema: SchemaDescription, referenced: Named) -> None:
        try:
            import fastavro
        except ImportError:
            raise Refused("Avro needs fastavro: pip install 'penstock[avro]'") from None
        self._write, self._read = fastavro.schemaless_writer, fastavro.schemaless_reader
        named: dict[str, Any] = {}
        # One schema may be referred to by several names.
        for other in dict.fromkeys(one.text for _, one in referenced):
            fastavro.parse_schema(msgspec.json.decode(other), named)
        self._schema = fastavro.parse_schema(msgspec.json.decode(schema.text), named)

    def encode(self, value: Any) -> tuple[bytes, bytes]:
        out = io.BytesIO()
        self._write(out, self._schema, value)
        return b"", out.getvalue()

    def decode(self, content: bytes, reader: "_Avro | None") -> Any:
        source = io.BytesIO(content)
        found = self._read(source, self._schema, None if reader is None else reader._schema)
        if source.tell() != len(content):
            raise ValueError(f"{len(content) - source.tell()} bytes follow the value")
        return found


class _Protobuf:
    def __init__(self, schema: SchemaDescription, referenced: Named) -> None:
        from google.protobuf.descriptor_pb2 import FileDescriptorProto
        from google.protobuf.descriptor_pool import DescriptorPool
        from google.protobuf.message import Error
        from google.protobuf.message_factory import GetMessageClass

        self._pool, self._class_of, self._error = DescriptorPool(), GetMessageClass, Error
        files = {
            name: FileDescriptorProto.FromString(b64decode(one.text)) for name, one in referenced
        }
        for name, one in files.items():
            one.name = name
        self._file = FileDescriptorProto.FromString(b64decode(schema.text))
        self._add(self._file, files, set())
        # The place of each message in the file, by its full name.
        self._indexes = dict(_places(self._file.package, self._file.message_type, ()))
        self._names = {place: name for name, place in self._indexes.items()}

    def _add(self, file: Any, files: Mapping[str, Any], seen: set[str]) -> None:
        """Add a file to the pool behind everything that it imports."""
        from importlib import import_module

        seen.add(file.name)
        for name in file.dependency:
            if name in seen:
                continue
            if name in files:
                self._add(files[name], files, seen)
            else:
                # One that comes with protobuf.
                short = name.removeprefix("google/protobuf/").removesuffix(".proto")
                module = import_module(f"google.protobuf.{short}_pb2")
                own = type(file).FromString(module.DESCRIPTOR.serialized_pb)
                self._add(own, files, seen)
        self._pool.AddSerializedFile(file.SerializeToString())

    def encode(self, value: Any) -> tuple[bytes, bytes]:
        place = self._indexes[value.DESCRIPTOR.full_name]
        head = b"\0" if place == (0,) else b"".join(map(_zigzag, (len(place), *place)))
        try:
            written: bytes = value.SerializeToString()
        except self._error as error:
            raise ValueError(str(error)) from None
        return head, written

    def message_class(self, place: tuple[int, ...]) -> Any:
        """The class of a message by its place in the file."""
        return self._class_of(self._pool.FindMessageTypeByName(self._names[place]))

    def decode(self, content: bytes, _reader: Any) -> Any:
        count, at = _unzigzag(content, 0)
        place = []
        for _ in range(count):
            index, at = _unzigzag(content, at)
            place.append(index)
        message = self.message_class(tuple(place) or (0,))()
        try:
            message.ParseFromString(content[at:])
        except self._error as error:
            raise ValueError(str(error)) from None
        return message


def _places(package: str, messages: Any, outer: tuple[int, ...]) -> Any:
    for index, one in enumerate(messages):
        name = f"{package}.{one.name}" if package else one.name
        place = (*outer, index)
        yield name, place
        yield from _places(name, one.nested_type, place)


def _zigzag(number: int) -> bytes:
    left, found = number << 1, bytearray()
    while left >= 0x80:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    found.append(left)
    return bytes(found)


def _unzigzag(content: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = content[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number >> 1, at


_LANGUAGES: Mapping[str, Callable[[SchemaDescription, Named], _Language]] = {
    "JSON": _Json,
    "AVRO": _Avro,
    "PROTOBUF": _Protobuf,
}

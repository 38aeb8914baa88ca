"""`.proto` text as a FileDescriptorProto, by a parser that comes with an extra (`pip install penstock[proto]`).

Names of types stay as they are written: protobuf finds out what they mean. Options are passed over, but for those that
decide whether a file is valid.
"""

from typing import Any, NoReturn

from ..errors import InvalidSchema

# The parser takes some 40 us for each byte.
_TEXT_BYTES_MAX = 32 * 1024
_SCALARS = {
    "double": 1,
    "float": 2,
    "int64": 3,
    "uint64": 4,
    "int32": 5,
    "fixed64": 6,
    "fixed32": 7,
    "bool": 8,
    "string": 9,
    "bytes": 12,
    "uint32": 13,
    "sfixed32": 15,
    "sfixed64": 16,
    "sint32": 17,
    "sint64": 18,
}
_MESSAGE = 11
_OPTIONAL, _REPEATED = 1, 3
_LABELS = {"OPTIONAL": _OPTIONAL, "REQUIRED": 2, "REPEATED": _REPEATED}
_FIELD_NUMBER_MAX = (1 << 29) - 1
_ENUM_NUMBER_MAX = (1 << 31) - 1
_SYNTAXES = {None: "proto2", "proto2": "proto2", "proto3": "proto3"}


def read_proto(text: str) -> Any:
    """A FileDescriptorProto. InvalidSchema for text that is none, or that has what is not supported."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    if len(text) > _TEXT_BYTES_MAX:
        raise InvalidSchema(f"text has {len(text)} characters, the limit is {_TEXT_BYTES_MAX}")
    parsed = _parse(text)
    if parsed.edition is not None or parsed.syntax not in _SYNTAXES:
        raise InvalidSchema("the syntax is neither proto2 nor proto3")
    made = FileDescriptorProto(syntax=_SYNTAXES[parsed.syntax])
    builder = _Builder(is_proto3=parsed.syntax == "proto3")
    for one in parsed.file_elements:
        match type(one).__name__:
            case "Package":
                made.package = one.name
            case "Import":
                made.dependency.append(one.name)
                if one.public:
                    made.public_dependency.append(len(made.dependency) - 1)
            case "Message":
                builder.message(made.message_type.add(), one)
            case "Enum":
                builder.enumeration(made.enum_type.add(), one)
            case "Service":
                builder.service(made.service.add(), one)
            case "Extension":
                raise InvalidSchema("extensions are not supported in text: send a descriptor")
    return made


def _parse(text: str) -> Any:
    try:
        from antlr4.error.ErrorListener import ErrorListener
        from proto_schema_parser.parser import Parser
    except ImportError:
        raise InvalidSchema(
            "text of .proto files takes a parser: pip install 'penstock[proto]', or send a base64 FileDescriptorProto"
        ) from None

    class Strict(ErrorListener):  # type: ignore[misc]  # The package has no types.
        def syntaxError(self, *found: Any) -> NoReturn:  # noqa: N802 - as the parser calls it
            _, _, line, column, said, _ = found
            raise InvalidSchema(f"line {line}, column {column}: {said[:200]}")

    def listen(to: Any) -> None:
        to.removeErrorListeners()
        to.addErrorListener(Strict())

    try:
        return Parser(setup_lexer=listen, setup_parser=listen).parse(text)
    except RecursionError:
        raise InvalidSchema("messages are nested too deeply") from None
    except (ValueError, AttributeError, TypeError) as error:
        raise InvalidSchema(f"the text cannot be read: {error}") from None


class _Builder:
    """Fills descriptors from what the parser found."""

    def __init__(self, *, is_proto3: bool) -> None:
        self._is_proto3 = is_proto3

    def message(self, made: Any, found: Any) -> None:
        made.name = found.name
        optional: list[Any] = []
        for one in found.elements:
            match type(one).__name__:
                case "Field":
                    field = made.field.add()
                    self._field(field, one)
                    if self._is_proto3 and _label(one) == "OPTIONAL":
                        optional.append(field)
                case "MapField":
                    self._map(made, one)
                case "OneOf":
                    made.oneof_decl.add().name = one.name
                    for inner in one.elements:
                        if type(inner).__name__ == "Field":
                            field = made.field.add()
                            self._field(field, inner)
                            field.oneof_index = len(made.oneof_decl) - 1
                case "Message":
                    self.message(made.nested_type.add(), one)
                case "Enum":
                    self.enumeration(made.enum_type.add(), one)
                case "Reserved":
                    made.reserved_name.extend(one.names)
                    for first, last in _ranges(one, _FIELD_NUMBER_MAX):
                        made.reserved_range.add(start=first, end=last + 1)
                case "ExtensionRange":
                    for first, last in _ranges(one, _FIELD_NUMBER_MAX):
                        made.extension_range.add(start=first, end=last + 1)
                case "Group" | "Extension":
                    raise InvalidSchema("groups and extensions are not supported in text")
        # As protoc does: each of them is in a oneof of its own, behind those of the text.
        for field in optional:
            field.proto3_optional = True
            made.oneof_decl.add().name = f"_{field.name}"
            field.oneof_index = len(made.oneof_decl) - 1

    def _field(self, made: Any, found: Any) -> None:
        made.name, made.number = found.name, found.number
        made.label = _LABELS[_label(found) or "OPTIONAL"]
        if found.type in _SCALARS:
            made.type = _SCALARS[found.type]
        else:
            made.type_name = found.type

    def _map(self, made: Any, found: Any) -> None:
        """Protobuf has no maps: they are lists of messages with a key and a value."""
        camel = "".join(word[:1].upper() + word[1:] for word in found.name.split("_"))
        entry = made.nested_type.add(name=f"{camel}Entry")
        entry.options.map_entry = True
        for number, (name, kind) in enumerate(
            (("key", found.key_type), ("value", found.value_type)), 1
        ):
            field = entry.field.add(name=name, number=number, label=_OPTIONAL)
            if kind in _SCALARS:
                field.type = _SCALARS[kind]
            else:
                field.type_name = kind
        made.field.add(
            name=found.name,
            number=found.number,
            label=_REPEATED,
            type=_MESSAGE,
            type_name=entry.name,
        )

    def enumeration(self, made: Any, found: Any) -> None:
        made.name = found.name
        for one in found.elements:
            match type(one).__name__:
                case "EnumValue":
                    made.value.add(name=one.name, number=one.number)
                case "Option" if one.name == "allow_alias":
                    made.options.allow_alias = bool(one.value)
                case "EnumReserved":
                    made.reserved_name.extend(one.names)
                    for first, last in _ranges(one, _ENUM_NUMBER_MAX):
                        made.reserved_range.add(start=first, end=last)

    def service(self, made: Any, found: Any) -> None:
        made.name = found.name
        for one in found.elements:
            if type(one).__name__ == "Method":
                made.method.add(
                    name=one.name,
                    input_type=one.input_type.type,
                    output_type=one.output_type.type,
                    client_streaming=one.input_type.stream,
                    server_streaming=one.output_type.stream,
                )


def _label(found: Any) -> str:
    return found.cardinality.value if found.cardinality is not None else ""


def _ranges(found: Any, number_max: int) -> list[tuple[int, int]]:
    """First and last number of each range."""
    read = []
    for one in found.ranges:
        first, _, last = one.partition(" to ")
        read.append((int(first), number_max if last == "max" else int(last or first)))
    return read

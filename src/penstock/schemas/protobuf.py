"""Protobuf schemas: read from a base64 FileDescriptorProto or from `.proto` text, and compared field by field.

What counts on the wire are numbers and types of fields. Names of fields may change; names of messages may not, because
clients find a message by its name. Types that are written alike (int32 and bool, string and bytes, ...) are compatible.
"""

import binascii
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import chain
from typing import Any

from ..errors import InvalidSchema
from ..model import Buffer
from .checking import FAULTS_MAX, Fault, Faults, PairCheck, require_size
from .protobuf_data import document_of, message_fault

# Numbers of types in a FieldDescriptorProto.
_FLOATING = {1: "double", 2: "float"}
_ALIKE = (
    {3: "int64", 4: "uint64", 5: "int32", 13: "uint32", 8: "bool", 14: "enum"},
    {17: "sint32", 18: "sint64"},
    {7: "fixed32", 15: "sfixed32"},
    {6: "fixed64", 16: "sfixed64"},
    {9: "string", 12: "bytes"},
    {11: "message"},
    {10: "group"},
)
_NAMES = {number: name for one in (_FLOATING, *_ALIKE) for number, name in one.items()}
_ENUM, _MESSAGE, _GROUP = 14, 11, 10
_MESSAGES = frozenset({_MESSAGE, _GROUP})
_REQUIRED, _REPEATED = 2, 3
_NUMERIC = frozenset(_NAMES) - {9, 12, 11, 10}
# Every installation of protobuf has these.
_WELL_KNOWN = "google/protobuf/"
_WELL_KNOWN_FILES = (
    "any",
    "api",
    "descriptor",
    "duration",
    "empty",
    "field_mask",
    "source_context",
    "struct",
    "timestamp",
    "type",
    "wrappers",
)
_TYPES_MAX = 2000


class ProtobufSchema:
    """A file of messages, with the files that it imports, by the names under which it does."""

    def __init__(self, text: str, referenced: Sequence[tuple[str, str]] = ()) -> None:
        files = [_read(one, name) for name, one in referenced]
        sent = _read(text, "")
        if not sent.message_type and not sent.enum_type:
            raise InvalidSchema("it has neither messages nor enums")
        self._pool, self.file = _resolved(sent, files)
        self.normalized = b64encode(_without_name(self.file)).decode()
        self.canonical = self.normalized if _is_base64(text) else text.strip()
        self.messages = dict(_messages(self.file.package, self.file.message_type))

    def is_valid(self, payload: Buffer) -> bool:
        return self.fault_in(payload) is None

    def fault_in(self, payload: Buffer) -> Fault | None:
        return message_fault(payload, self.file, self._pool)

    def document_of(self, payload: Buffer) -> Any:
        return document_of(payload, self.file, self._pool)

    @property
    def serialized(self) -> str:
        """The schema as Confluent's Python client sends and expects it."""
        return b64encode(self.file.SerializeToString(deterministic=True)).decode()

    def faults_reading(self, writer: "ProtobufSchema") -> Faults:
        """Why messages written with the other schema cannot be read with this one."""
        if self.file.package != writer.file.package:
            return [f"/: the package is {self.file.package}, and was {writer.file.package}"]
        check = PairCheck()
        faults: Faults = [
            f"/{name}: the message is gone" for name in writer.messages if name not in self.messages
        ]
        # Fields lead to messages of imported files, and those to others.
        waiting = [name for name in writer.messages if name in self.messages]
        seen = {*waiting}
        while waiting and len(faults) < FAULTS_MAX:
            check.step()
            name = waiting.pop(0)
            new, old = self._message(name), writer._message(name)
            if new is None or old is None:
                continue
            faults += _message_faults(check, name, new, old)
            imported = _shared_types(new, old) - seen
            seen |= imported
            waiting += sorted(imported)
        return faults[:FAULTS_MAX]

    def _message(self, name: str) -> Any:
        """A message of this file or of one that it imports; None for one that comes with protobuf, or is not there."""
        if name in self.messages:
            return self.messages[name]
        from google.protobuf.descriptor_pb2 import DescriptorProto

        try:
            descriptor = self._pool.FindMessageTypeByName(name)
        except KeyError:
            return None
        if descriptor.file.name.startswith(_WELL_KNOWN):
            return None
        message = DescriptorProto()
        descriptor.CopyToProto(message)
        return message


def _read(text: str, name: str) -> Any:
    """A FileDescriptorProto from base64, or from text. InvalidSchema if it is neither."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    require_size(text)
    if _is_base64(text):
        try:
            found = FileDescriptorProto.FromString(b64decode(text))
        except DecodeError as error:
            raise InvalidSchema(f"not a FileDescriptorProto: {error}") from None
    else:
        from .proto_text import read_proto

        found = read_proto(text)
    if name or not found.name:
        found.name = name or "default"
    return found


def _is_base64(text: str) -> bool:
    """Whether it is a descriptor: no text of a file is base64, as it has a brace or a semicolon."""
    try:
        b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _without_name(file: Any) -> bytes:
    """A client may call the file as it likes: that does not make another schema of it."""
    named = type(file)()
    named.CopyFrom(file)
    named.ClearField("name")
    named.ClearField("source_code_info")
    found: bytes = named.SerializeToString(deterministic=True)
    return found


def _resolved(file: Any, files: Sequence[Any]) -> tuple[Any, Any]:
    """A pool with a file, and the file with full names of types. InvalidSchema unless all of them are there, once."""
    from google.protobuf.descriptor_pool import DescriptorPool

    if sum(1 for _ in _messages("", file.message_type)) > _TYPES_MAX:
        raise InvalidSchema(f"it has more than {_TYPES_MAX} messages")
    known = {one.name: one for one in files}
    pool, seen = DescriptorPool(), {file.name}
    # Files that wait for what they import, the innermost last.
    waiting = [(file, iter(file.dependency))]
    try:
        while waiting:
            one, imports = waiting[-1]
            name = next((found for found in imports if found not in seen), None)
            if name is None:
                pool.AddSerializedFile(one.SerializeToString())
                waiting.pop()
            else:
                seen.add(name)
                imported = known[name] if name in known else _well_known(name, type(file))
                waiting.append((imported, iter(imported.dependency)))
        found = type(file)()
        pool.FindFileByName(file.name).CopyToProto(found)
    except (TypeError, KeyError) as error:
        raise InvalidSchema(str(error)) from None
    return pool, found


def _well_known(name: str, kind: Any) -> Any:
    """A file that comes with protobuf. InvalidSchema for any other one."""
    short = name.removeprefix(_WELL_KNOWN).removesuffix(".proto")
    if not name.startswith(_WELL_KNOWN) or short not in _WELL_KNOWN_FILES:
        raise InvalidSchema(f"it imports {name[:200]}, which is not one of its references")
    module = import_module(f"google.protobuf.{short}_pb2")
    return kind.FromString(module.DESCRIPTOR.serialized_pb)


def _messages(package: str, found: Any) -> Iterator[tuple[str, Any]]:
    """All messages by their full names, also those in messages."""
    waiting = [(package, one) for one in found]
    while waiting:
        within, message = waiting.pop()
        name = f"{within}.{message.name}" if within else message.name
        yield name, message
        waiting += [(name, one) for one in message.nested_type]


def _shared_types(new: Any, old: Any) -> set[str]:
    """Full names of the messages that a field of both is of."""
    types = {field.number: field.type_name for field in new.field if field.type in _MESSAGES}
    return {
        field.type_name.lstrip(".")
        for field in old.field
        if field.type in _MESSAGES and types.get(field.number) == field.type_name
    }


def _message_faults(check: PairCheck, name: str, new: Any, old: Any) -> Faults:
    fields = {field.number: field for field in new.field}
    numbers = {field.number for field in old.field}
    faults: Faults = []
    for was in old.field:
        check.step()
        now = fields.get(was.number)
        if now is not None:
            faults += _field_faults(f"/{name}/{now.name}", now, was)
        elif was.label == _REQUIRED:
            faults.append(f"/{name}/{was.name}: the required field {was.number} is gone")
    for number, now in fields.items():
        if number not in numbers and now.label == _REQUIRED:
            faults.append(f"/{name}/{now.name}: the required field {number} is new")
    return faults + _left_oneofs(name, new, old) + _merged_oneofs(name, new, old)


def _field_faults(path: str, now: Any, was: Any) -> Faults:
    alike = next((one for one in _ALIKE if was.type in one), {was.type: ""})
    if now.type not in alike:
        return [f"{path}: the type is {_NAMES[now.type]}, and was {_NAMES[was.type]}"]
    if now.type == was.type and now.type in _MESSAGES and now.type_name != was.type_name:
        return [f"{path}: the type is {now.type_name}, and was {was.type_name}"]
    if (now.label == _REPEATED) != (was.label == _REPEATED) and now.type in _NUMERIC:
        return [f"{path}: a number is repeated, and was not, or the other way round"]
    if now.label == _REQUIRED and was.label != _REQUIRED:
        return [f"{path}: it is required, and was not"]
    return []


def _is_in_oneof(field: Any) -> bool:
    return bool(field.HasField("oneof_index") and not field.proto3_optional)


def _oneof_of(message: Any, field: Any) -> str:
    """The name of the oneof that a field is in; empty for a field of none."""
    return message.oneof_decl[field.oneof_index].name if _is_in_oneof(field) else ""


def _left_oneofs(name: str, new: Any, old: Any) -> Faults:
    """Fields that left a oneof which is still there: under its name, or with another of its fields under a new one."""
    fields = {field.number: field for field in new.field}
    names = {oneof.name for oneof in new.oneof_decl}
    # Old oneofs of which a field is in some oneof now.
    kept = {
        _oneof_of(old, field)
        for field in old.field
        if field.number in fields and _is_in_oneof(fields[field.number])
    }
    faults: Faults = []
    for was in old.field:
        oneof, now = _oneof_of(old, was), fields.get(was.number)
        if not oneof:
            continue
        if now is None and oneof in names | kept:
            faults.append(f"/{name}/{was.name}: field {was.number} of a oneof is gone")
        elif now is not None and oneof in names and _oneof_of(new, now) != oneof:
            faults.append(f"/{name}/{was.name}: field {was.number} has left the oneof {oneof}")
    return faults


def _merged_oneofs(name: str, new: Any, old: Any) -> Faults:
    """Of several fields that were there together, and now exclude each other, all but one would be lost.

    Fields of one old oneof never were; those of two were, and so was a field of none with any other.
    """
    before = {field.number: field for field in old.field}
    # By new oneof: its fields that were there before, by what each was in: an old oneof, or none.
    merged: dict[str, dict[str | int, list[str]]] = {}
    for field in new.field:
        was = before.get(field.number)
        if was is not None and _is_in_oneof(field):
            origin = _oneof_of(old, was) or was.number
            merged.setdefault(_oneof_of(new, field), {}).setdefault(origin, []).append(field.name)
    return [
        f"/{name}: {', '.join(chain(*origins.values()))} cannot be together any more"
        for origins in merged.values()
        if len(origins) > 1
    ]

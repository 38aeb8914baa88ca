"""Random pairs of Protobuf files, an old one and what a developer might make of it, and messages of the old one."""

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from penstock.schemas.protobuf import ProtobufSchema

_SCALARS = ("int32", "int64", "bool", "sint32", "sint64", "fixed32", "double", "string", "bytes")
_ONEOFS = ("a", "b", "c")
_NUMBERS = range(1, 7)


@dataclass(frozen=True)
class Field:
    """`oneof` is empty for a field of none; a field of one is not repeated."""

    name: str
    type: str
    is_repeated: bool = False
    oneof: str = ""

    def text(self, number: int) -> str:
        return f"{'repeated ' if self.is_repeated else ''}{self.type} {self.name} = {number};"


@dataclass(frozen=True)
class File:
    """A message, and one of a file that it imports, both with their fields by number."""

    order: dict[int, Field] = field(default_factory=dict)
    line: dict[int, Field] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return (
            f'syntax = "proto3"; package shop; import "line.proto"; {_message("Order", self.order)}'
        )

    @property
    def imported(self) -> str:
        return f'syntax = "proto3"; package shop; {_message("Line", self.line)}'

    def schema(self) -> ProtobufSchema:
        return ProtobufSchema(self.text, [("line.proto", self.imported)])


def _message(name: str, fields: dict[int, Field]) -> str:
    parts = [member.text(number) for number, member in fields.items() if not member.oneof]
    for oneof in _ONEOFS:
        members = [
            member.text(number) for number, member in fields.items() if member.oneof == oneof
        ]
        if members:
            parts.append(f"oneof {oneof} {{ {' '.join(members)} }}")
    return f"message {name} {{ {' '.join(parts)} }}"


def random_pair(random: Random) -> tuple[File, File]:
    old = File(_fields(random, [*_SCALARS, "Line", "Line"]), _fields(random, _SCALARS))
    new = old
    for _ in range(random.randint(1, 3)):
        if random.random() < 0.6:
            new = replace(new, order=_changed(random, new.order, [*_SCALARS, "Line"]))
        else:
            new = replace(new, line=_changed(random, new.line, _SCALARS))
    return old, new


def _fields(random: Random, types: Any) -> dict[int, Field]:
    numbers = random.sample(_NUMBERS, random.randint(2, 5))
    return {number: _field(random, number, types) for number in sorted(numbers)}


def _field(random: Random, number: int, types: Any) -> Field:
    oneof = random.choice(_ONEOFS[:2]) if random.random() < 0.5 else ""
    is_repeated = not oneof and random.random() < 0.2
    return Field(f"f{number}", random.choice(types), is_repeated, oneof)


def _changed(random: Random, fields: dict[int, Field], types: Any) -> dict[int, Field]:
    changed = dict(fields)
    number = random.choice([*fields] or [1])
    was = changed.get(number)
    match random.choice(("add", "remove", "type", "move", "rename", "rename oneof", "merge")):
        case "remove" if len(changed) > 1:
            del changed[number]
        case "type" if was is not None:
            changed[number] = replace(was, type=random.choice(types))
        case "move" if was is not None and not was.is_repeated:
            changed[number] = replace(was, oneof=random.choice(("", *_ONEOFS)))
        case "rename" if was is not None:
            changed[number] = replace(was, name=f"g{number}")
        case "rename oneof":
            before, after = random.sample(_ONEOFS, 2)
            changed = {
                at: replace(member, oneof=after) if member.oneof == before else member
                for at, member in changed.items()
            }
        case "merge":
            changed = {
                at: replace(member, oneof="a") if member.oneof else member
                for at, member in changed.items()
            }
        case _:
            number = random.choice(_NUMBERS)
            changed.setdefault(number, _field(random, number, types))
    return dict(sorted(changed.items()))


def lost_value(random: Random, old: File, new: File) -> str:
    """A field of both whose value in some message of the old file is not there when it is read with the new one.

    Empty if there is none. Of a repeated field that is one no more the last value counts, as Protobuf has it.
    """
    writer, reader = (_class_of(file.schema()) for file in (old, new))
    for _ in range(8):
        message = writer()
        _fill(random, message)
        try:
            read = reader.FromString(message.SerializeToString())
        except DecodeError:
            return "the message"
        if lost := _first_lost(message, read):
            return lost
    return ""


def _class_of(schema: ProtobufSchema) -> Any:
    return GetMessageClass(schema._pool.FindMessageTypeByName("shop.Order"))


def _fill(random: Random, message: Any) -> None:
    """Set most fields to values that every type written alike can hold, none of them the default."""
    # In any order: of the fields of a oneof the last that is set counts.
    for descriptor in random.sample([*message.DESCRIPTOR.fields], len(message.DESCRIPTOR.fields)):
        if random.random() < 0.2:
            continue
        if descriptor.message_type is not None:
            target = getattr(message, descriptor.name)
            target = target.add() if descriptor.is_repeated else target
            target.SetInParent()
            _fill(random, target)
        else:
            value = {9: "x", 12: b"x", 8: True}.get(descriptor.type, 1)
            if descriptor.is_repeated:
                getattr(message, descriptor.name).append(value)
            else:
                setattr(message, descriptor.name, value)


def _first_lost(old: Any, new: Any) -> str:
    names = {descriptor.number: descriptor.name for descriptor in new.DESCRIPTOR.fields}
    for descriptor, value in old.ListFields():
        name = names.get(descriptor.number)
        if name is None:
            continue
        read = {other.name: there for other, there in new.ListFields()}.get(name)
        if read is None:
            return name
        was, now = _last(descriptor, value), _last(new.DESCRIPTOR.fields_by_name[name], read)
        if descriptor.message_type is not None and hasattr(now, "DESCRIPTOR"):
            if lost := _first_lost(was, now):
                return f"{name}.{lost}"
        elif _plain(was) != _plain(now):
            return name
    return ""


def _last(described: Any, value: Any) -> Any:
    return value[-1] if described.is_repeated else value


def _plain(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value

"""Types of Avro, as they were read."""

from dataclasses import dataclass, field

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})


@dataclass(eq=False, slots=True)
class Type:
    """A type, read. `parts` are the items of an array, the values of a map, or the branches of a union."""

    kind: str
    name: str = ""
    aliases: frozenset[str] = frozenset()
    fields: "list[Field]" = field(default_factory=list)
    symbols: tuple[str, ...] = ()
    default: str | None = None
    size: int = 0
    parts: "tuple[Type, ...]" = ()


@dataclass(eq=False, slots=True)
class Field:
    """A field of a record."""

    name: str
    type: Type
    aliases: tuple[str, ...]
    has_default: bool

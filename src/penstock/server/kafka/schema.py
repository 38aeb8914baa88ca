"""The tables of messages as values.

A line of a table is a message, or a field one space deeper than what it belongs to:

    Fetch 1 4-12 flexible=12                 name, api key, versions, first version with compact lengths and tags
     topics []struct                         name and type, in every version of the message
      topic_id uuid 13-17                    in some of them
      rack string 11-12 nullable=11 tag=0 default=null
"""

from typing import Any, NamedTuple

from .request_tables import REQUESTS as _REQUEST_TABLE
from .response_tables import RESPONSES as _RESPONSE_TABLE

_NEVER = 32767


class Field(NamedTuple):
    """A field of a message. `nullable` is the first version in which it may be null; `tag` is -1 for ordinary ones."""

    name: str
    kind: str
    first: int
    last: int
    nullable: int
    tag: int
    default: Any
    fields: tuple["Field", ...]

    @property
    def is_composite(self) -> bool:
        """Whether its default is made anew for each message, because a list or a dict can be changed."""
        return self.kind == "struct" or self.kind.startswith("[]")

    def default_value(self) -> Any:
        """What stands for the field where a version does not have it; a fresh value each time."""
        if self.kind == "struct":
            if self.nullable < _NEVER:
                return None
            return {one.name: one.default_value() for one in self.fields}
        return [] if self.kind.startswith("[]") and self.default is not None else self.default


class Schema(NamedTuple):
    """A message: the versions that the server speaks, and which of them are flexible."""

    name: str
    key: int
    first: int
    last: int
    flexible: int
    fields: tuple[Field, ...]


_ZERO: dict[str, Any] = {
    "bool": False,
    "string": "",
    "bytes": b"",
    "uuid": bytes(16),
    "float64": 0.0,
}


def read_table(table: str) -> dict[int, Schema]:
    """The messages of a table, by api key."""
    lines = [(len(line) - len(line.lstrip()), line.split()) for line in table.strip().splitlines()]
    found = {}
    for place, (depth, words) in enumerate(lines):
        if depth == 0:
            name, key, versions, flexible = words
            first, last = map(int, versions.split("-"))
            fields = _fields(lines, place + 1, 1, (first, last))
            found[int(key)] = Schema(
                name, int(key), first, last, int(flexible.partition("=")[2]), fields
            )
    return found


def _fields(
    lines: list[tuple[int, list[str]]], place: int, depth: int, versions: tuple[int, int]
) -> tuple[Field, ...]:
    found = []
    for at in range(place, len(lines)):
        if lines[at][0] < depth:
            break
        if lines[at][0] == depth:
            inner = _fields(lines, at + 1, depth + 1, versions)
            found.append(_field(lines[at][1], versions, inner))
    return tuple(found)


def _field(words: list[str], versions: tuple[int, int], inner: tuple[Field, ...]) -> Field:
    name, kind, *rest = words
    first, last = versions
    said = {}
    for word in rest:
        if "=" in word:
            option, _, value = word.partition("=")
            said[option] = value
        else:
            first, last = map(int, word.split("-"))
    default: Any = _ZERO.get(
        kind, () if kind.startswith("[]") else None if kind == "records" else 0
    )
    if "default" in said:
        text = said["default"]
        default = None if text == "null" else True if text == "true" else int(text)
    nullable, tag = int(said.get("nullable", _NEVER)), int(said.get("tag", -1))
    return Field(name, kind, first, last, nullable, tag, default, inner)


REQUESTS = read_table(_REQUEST_TABLE)
RESPONSES = read_table(_RESPONSE_TABLE)

"""Messages compared with schemas: which schema a message names, and whether it fits.

A message of Confluent's wire format begins with the id or the guid of its schema, which has to be one of its
subject's. A message without an id has to be JSON, and fits the latest schema.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..api.publish import Verdict
from ..codec.schema_id import behind_schema_id, has_schema_id, schema_id_of
from ..config import Validation
from ..errors import SchemaViolation
from ..model import Buffer
from .checking import Fault
from .languages import JSON, Schema
from .registry import Registry

# Of one subject: those that messages name are few, and schemas that were read take much memory.
_READ_MAX = 64

ReadSchema = Callable[[int], Schema]
"""Reads a schema of the registry by its id; KeyError if there is none. A node reads it itself, a driver waits for the
node's turn."""


class SubjectSchemas:
    """The schemas of a subject as they were at one time. Any thread may ask."""

    __slots__ = ("_guids", "_ids", "_latest", "_read", "name")

    def __init__(self, name: str, registry: Registry) -> None:
        self.name = name
        live = [one for one in registry.subjects.get(name, {}).values() if not one.is_deleted]
        self._ids = frozenset(one.schema_id for one in live)
        self._guids = {registry.schemas[one].fingerprint: one for one in self._ids}
        newest = max(live, key=lambda one: one.version, default=None)
        is_json = newest is not None and registry.schemas[newest.schema_id].language == JSON
        # The one for messages that name none.
        self._latest = newest.schema_id if newest is not None and is_json else None
        self._read: dict[int, Schema] = {}

    def __bool__(self) -> bool:
        return bool(self._ids)

    def is_valid(self, content: Buffer, read: ReadSchema) -> bool:
        """Whether a key or a value fits the schema that it names, or the latest."""
        if not has_schema_id(content):
            latest = self._latest
            return latest is not None and self._schema(latest, read).is_valid(content)
        schema_id = self._id_in(content)
        if schema_id is None or schema_id not in self._ids:
            return False
        return self._schema(schema_id, read).is_valid(behind_schema_id(content))

    def _id_in(self, content: Buffer) -> int | None:
        """The id that a content begins with, or that of its guid; None if it ends before, or no version has it."""
        found = schema_id_of(content)
        return self._guids.get(found) if isinstance(found, bytes) else found

    def fault_in(self, content: Buffer, read: ReadSchema) -> tuple[Fault, int | None]:
        """Why a key or a value does not fit, and the id of the schema that it does not fit."""
        if not self._ids:
            return ("", "the subject has no schema"), None
        has_id = has_schema_id(content)
        schema_id = self._id_in(content) if has_id else self._latest
        if schema_id is None:
            return (
                "",
                "it does not begin with the id of a schema (a zero byte and four more), and no header has one",
            ), None
        if schema_id not in self._ids:
            return ("", f"schema {schema_id} is not a version of the subject"), schema_id
        schema = self._schema(schema_id, read)
        found = schema.fault_in(behind_schema_id(content) if has_id else content)
        return found or ("", "it does not fit"), schema_id

    def _schema(self, schema_id: int, read: ReadSchema) -> Schema:
        found = self._read.get(schema_id)
        if found is None:
            found = read(schema_id)
            if len(self._read) >= _READ_MAX:
                self._read = {}
            self._read[schema_id] = found
        return found


class Binding(NamedTuple):
    """The schemas that the messages of a topic have to fit. A change of any makes a new one."""

    topic: str
    validation: Validation
    key: SubjectSchemas | None
    value: SubjectSchemas

    def names(self, subject: str) -> bool:
        """Whether a change of a subject makes another binding; also of the one that keys would have by its name."""
        key = f"{self.topic}-key" if self.key is None else self.key.name
        return subject in (key, self.value.name)


class Contents(NamedTuple):
    """Keys and values of messages. Keys None: none of them has one."""

    keys: Sequence[Buffer | None] | None
    values: Sequence[Buffer | None]


def verdict_on(
    binding: Binding, contents: Contents, read: ReadSchema, *, is_each_answered: bool
) -> Verdict:
    """Which messages do not fit. Nulls are not looked at: a null value is a tombstone, and a null key is none.

    Each of them is described if each gets an answer of its own and is refused; otherwise the first one alone.
    """
    is_each = is_each_answered and binding.validation is Validation.REJECT
    wrong: dict[int, SchemaViolation] = {}
    count = 0
    for part, subject, column in (
        ("key", binding.key, contents.keys),
        ("value", binding.value, contents.values),
    ):
        if subject is None or column is None:
            continue
        is_valid = subject.is_valid
        for index, content in enumerate(column):
            if content is None or is_valid(content, read):
                continue
            if index in wrong:
                continue
            count += 1
            if is_each or not wrong:
                fault, schema_id = subject.fault_in(content, read)
                found = SchemaViolation(
                    binding.topic, part, fault, subject=subject.name, schema_id=schema_id
                )
                found.fields["index"] = index
                wrong[index] = found
            if binding.validation is Validation.REJECT and not is_each:
                return Verdict(binding, wrong, count)
    return Verdict(binding, wrong, count)


def bind(
    topic: str, validation: Validation, subjects: tuple[str, str], registry: Registry
) -> Binding | None:
    """The binding of a topic to the subjects of its keys and values, or to those of its name; None if it has none."""
    if validation is Validation.NONE:
        return None
    key, value = subjects
    keys = SubjectSchemas(key or f"{topic}-key", registry)
    is_key_asked = bool(key) or bool(keys)
    values = SubjectSchemas(value or f"{topic}-value", registry)
    return Binding(topic, validation, keys if is_key_asked else None, values)

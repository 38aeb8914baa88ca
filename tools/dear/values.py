"""Values of a type that are as dear as they can be: the longest lists, of names that exist, or not, or of one name."""

import base64
from collections.abc import Mapping
from enum import Enum
from typing import Any

from msgspec import inspect

from dear.names import BIG, SCHEMA, SUBJECT, Names
from penstock.api.bounds import NAMES_MAX, TEXT_CHARACTERS_MAX

DEEP = 500
LARGE_BYTES = 10 << 20
ALL = (1 << 31) - 1
_SHORT_TEXT = "x"


class Form(Enum):
    """What a request is full of."""

    NAMES = "lists of names that exist"
    SAME = "lists of one name"
    ABSENT = "lists of names that do not exist"
    INNER = "one item whose lists are long"
    LARGE = "the largest texts and bytes"
    DEEP = "values in values"
    BEYOND = "more than the bounds allow"


def _pools(names: Names) -> Mapping[str, tuple[str, ...]]:
    """Names that exist, by the fields that hold them."""
    topics, groups = names.topics, names.groups
    transaction = (f"{names.session.producer_id}-{names.session.epoch}",)
    return {
        **dict.fromkeys(
            ("topic", "topics", "topic_names", "names", "subscribed_topic_names"), topics
        ),
        **dict.fromkeys(("within", "prefixes", "resource_name"), topics),
        **dict.fromkeys(("group", "groups", "group_id", "group_ids", "groups_names"), groups),
        **dict.fromkeys(("consumer_group", "coordinator_keys"), groups),
        "member": ("member",),
        "member_id": ("member",),
        "subject": (SUBJECT,),
        "query": tuple(f"query-{number}" for number in range(100)),
        "schedule": tuple(f"schedule-{number}" for number in range(100)),
        "transaction_id": transaction,
        "transaction": transaction,
    }


# Texts of which only some are understood, and others refused.
_WORDS: Mapping[str, str] = {
    "language": "AVRO",
    "schema_type": "AVRO",
    "schema": SCHEMA % 0,
    "text": SCHEMA % 0,
    "timezone": "UTC",
    "encoding": "base64",
    "start": "earliest",
    "to": "earliest",
    "acks": "all",
    "role": "readonly",
    "mode": "READWRITE",
    "compatibility": "NONE",
    "format": "",
    "cursor": "",
    **dict.fromkeys(("timeout", "visibility_timeout", "max_age"), "0s"),
    **dict.fromkeys(("delay", "ttl", "grace", "hold", "expires_in"), "1h"),
}
# Numbers of which the largest is the dearest; the broker cuts them down, or refuses.
_LARGEST = frozenset(
    {"limit", "bytes_max", "max_bytes", "groups_max", "max", "max_messages", "limit_with_lanes"}
)
_INTEGERS: Mapping[str, int] = {
    "version": 1,
    "schema_id": 1,
    "id": 1,
    "offset_end": ALL,
    "end": ALL,
    "hold_ms": 1000,
    "session_ms": 10_000,
    "timeout_ms": 60_000,
    "lifetime_ms": 3_600_000,
    "grace_ms": 3_600_000,
    "visibility_ms": 1000,
    "every_ms": 3_600_000,
    "generation": 1,
    "timestamp": 0,
    "priority": 2,
    "lease_ms": 1000,
}
_TRUE = frozenset(
    {"is_all", "details", "deleted", "normalize", "verbose", "opens_group", "is_dry_run"}
)
# Optional texts that choose among messages: one that no message has makes the broker look at all.
_FILTERS = frozenset({"key", "trace_id", "reason", "error", "header", "state"})


# Texts that are a message's, and as large as one may be.
_CONTENTS = frozenset({"value", "content", "base64"})
_OF_ONE = frozenset({Form.SAME, Form.INNER, Form.LARGE, Form.BEYOND})
# Lists in JSON that may be as long as those of messages.
_OF_MESSAGES = frozenset({"messages", "receipt_handles", "values", "delayed"})


class Maker:
    """Makes values of types in one form. `overrides` are values of fields by name, which come first."""

    def __init__(
        self,
        names: Names,
        form: Form,
        *,
        items: int,
        large: int = LARGE_BYTES,
        is_json: bool = False,
        overrides: Mapping[str, Any] | None = None,
    ) -> None:
        self.names, self.form, self.items, self.large = names, form, items, large
        self._is_json, self._overrides = is_json, overrides or {}
        self._pools = _pools(names)

    def fields(self, kind: inspect.StructType) -> dict[str, Any]:
        """Fields of a request, by the names under which they travel."""
        return self._fields(kind.fields, self.items, 0)

    def _fields(self, fields: tuple[inspect.Field, ...], count: int, index: int) -> dict[str, Any]:
        made = {}
        for field in fields:
            value = self._field(field, count, index)
            if value is not None or field.required:
                made[field.encode_name] = value
        return made

    def _field(self, field: inspect.Field, count: int, index: int) -> Any:
        if field.name in self._overrides:
            return self._overrides[field.name]
        return self._value(field.type, field.name, count, index)

    def _value(self, kind: inspect.Type, name: str, count: int, index: int) -> Any:
        match kind:
            case inspect.UnionType():
                return self._of_union(kind, name, count, index)
            case inspect.StructType(array_like=True):
                return [self._field(field, count, index) for field in kind.fields]
            case inspect.StructType():
                return self._fields(kind.fields, count, index)
            case inspect.DataclassType() | inspect.TypedDictType():
                return self._fields(kind.fields, count, index)
            case inspect.NamedTupleType():
                return [
                    self._overrides[field.name]
                    if field.name in self._overrides
                    else self._value(field.type, field.name, count, index)
                    for field in kind.fields
                ]
            case (
                inspect.ListType()
                | inspect.VarTupleType()
                | inspect.SetType()
                | inspect.FrozenSetType()
            ):
                return self._list(kind.item_type, name, count, kind.max_length)
            case inspect.TupleType():
                return [self._value(item, name, 1, index) for item in kind.item_types]
            case inspect.DictType():
                return self._mapping(kind, name, count, index)
        return self._scalar(kind, name, index)

    def _list(self, kind: inspect.Type, name: str, count: int, most: int | None) -> list[Any]:
        if self.form is Form.ABSENT and name in {"prefixes", "within"}:
            return []  # Of everything.
        if self.form is Form.LARGE:
            return [self._value(kind, name, 1, 0)]
        if self.form is Form.INNER and count == self.items and _has_fields(kind):
            # Its own lists are the long ones.
            return [self._value(kind, name, self.items - 1, 0)]
        count = self._most(name, count, most)
        first = self._value(kind, name, 1, 0)
        if self.form in {Form.SAME, Form.BEYOND}:
            return [first] * count
        return [first, *(self._value(kind, name, 1, place) for place in range(1, count))]

    def _most(self, name: str, count: int, most: int | None) -> int:
        """How many items a list may have. Those of JSON are bounded as the commands are that are made of them."""
        if self.form is Form.BEYOND:
            return 2 * max(count, NAMES_MAX) if count == self.items else count
        if most is None and self._is_json and name not in _OF_MESSAGES:
            most = NAMES_MAX
        return count if most is None else min(count, most)

    def _mapping(self, kind: inspect.DictType, name: str, count: int, index: int) -> dict[str, Any]:
        if isinstance(kind.value_type, inspect.AnyType):
            if self.form is Form.DEEP:
                deep: Any = []
                for _ in range(DEEP):
                    deep = [deep]
                return {"deep": deep}
            return {f"no-setting-{place}": place for place in range(count)}
        if isinstance(kind.value_type, inspect.DictType):
            topics = self.names.topics[:1] if self.form is Form.INNER else self.names.topics
            return {topic: self._mapping(kind.value_type, "", count, index) for topic in topics}
        if self.form is not Form.BEYOND:
            count = min(count, kind.max_length or NAMES_MAX)
        if self.form in {Form.NAMES, Form.SAME}:
            count = min(count, self.names.partitions) if name in {"", "offsets"} else count
        place_of = {"": "{}", "offsets": f"{BIG}/{{}}"}.get(name, "name-{}")
        return {
            place_of.format(place): self._value(kind.value_type, name, 1, place)
            for place in range(count)
        }

    def _of_union(self, kind: inspect.UnionType, name: str, count: int, index: int) -> Any:
        """Lists and structs are dearer than texts, and texts than nothing."""
        kinds = [option for option in kind.types if not isinstance(option, inspect.NoneType)]
        for wanted in (
            inspect.ListType,
            inspect.VarTupleType,
            inspect.FrozenSetType,
            inspect.DictType,
        ):
            for option in kinds:
                if isinstance(option, wanted):
                    return self._value(option, name, count, index)
        is_optional = len(kinds) < len(kind.types) or any(
            isinstance(option, inspect.CustomType) for option in kinds
        )
        plain = [option for option in kinds if not isinstance(option, inspect.CustomType)]
        if not is_optional and plain:
            return self._value(plain[0], name, count, index)
        texts = [
            option for option in plain if isinstance(option, inspect.StrType | inspect.BytesType)
        ]
        if texts and (
            name == "value"
            or (self.form is Form.ABSENT and name in _FILTERS)
            or (self.form is Form.LARGE and name not in self._pools and name not in _WORDS)
            or (self.form in {Form.SAME, Form.LARGE} and name in {"topic", "group"})
        ):
            return self._value(texts[0], name, count, index)
        return None

    def _scalar(self, kind: inspect.Type, name: str, index: int) -> Any:
        match kind:
            case inspect.StrType():
                return self._text(name, index, kind.max_length or TEXT_CHARACTERS_MAX)
            case inspect.BytesType() | inspect.MemoryViewType() | inspect.ByteArrayType():
                size = self.large if self.form is Form.LARGE else 10
                data = b"x" * size if self.form is Form.SAME else b"%0*d" % (size, index)
                return base64.b64encode(data).decode() if self._is_json else data
            case inspect.IntType() | inspect.FloatType():
                return self._number(kind, name, index)
            case inspect.BoolType():
                return name in _TRUE
            case inspect.EnumType():
                return next(iter(kind.cls)).value
            case inspect.LiteralType():
                return kind.values[0]
            case inspect.AnyType():
                return {}
        return None

    def _text(self, name: str, index: int, most: int) -> str:
        if name in _WORDS:
            return _WORDS[name]
        pool = self._pools.get(name)
        if pool is None:
            large = self.large if name in _CONTENTS else min(most, self.large)
            return "x" * large if self.form is Form.LARGE else _SHORT_TEXT
        if self.form is Form.ABSENT and name not in {"topic", "group", "subject"}:
            return f"absent-{index}"
        return pool[0] if self.form in _OF_ONE else pool[index % len(pool)]

    def _number(self, kind: inspect.Type, name: str, index: int) -> int:
        if name in _LARGEST:
            return ALL
        if name in {"partition", "number", "partitions"}:
            if self.form is Form.NAMES:
                return self.names.partition(index)
            return index % self.names.partitions if self.form is Form.INNER else 0
        if name == "producer_id":
            return self.names.session.producer_id
        if name == "epoch":
            return self.names.session.epoch
        if name in {"offsets", "attempts"}:
            return index
        return _INTEGERS.get(name, 0)


def _has_fields(kind: inspect.Type) -> bool:
    return isinstance(kind, inspect.StructType | inspect.NamedTupleType | inspect.DataclassType)

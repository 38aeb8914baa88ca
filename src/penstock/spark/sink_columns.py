"""The columns that the sink takes. The driver checks them before anything runs."""

from difflib import get_close_matches
from typing import NamedTuple

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    DayTimeIntervalType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from ..errors import Refused

_CONTENT = (BinaryType, StringType)
_WHOLE_NUMBER = (ByteType, ShortType, IntegerType, LongType)


class SinkColumn(NamedTuple):
    """`kinds` is None for headers, whose type has parts."""

    name: str
    says_kind: str
    kinds: tuple[type[DataType], ...] | None
    says: str


SINK_COLUMNS = (
    SinkColumn("value", "binary or string", _CONTENT, "has to be there; may be null"),
    SinkColumn("key", "binary or string", _CONTENT, "chooses the partition; may be null"),
    SinkColumn("topic", "string", (StringType,), "unless there is an option `topic`"),
    SinkColumn("partition", "int or bigint", _WHOLE_NUMBER, "null: that of the key"),
    SinkColumn(
        "headers",
        "array<struct<key: string, value: binary>>",
        None,
        "in their order; values may be strings",
    ),
    SinkColumn("timestamp", "timestamp", (TimestampType,), "null: when it is staged"),
    SinkColumn(
        "priority", "int or bigint", _WHOLE_NUMBER, "0 critical to 4 background; null: 2, normal"
    ),
    SinkColumn(
        "ttl",
        "interval day to second",
        (DayTimeIntervalType,),
        "time to live, from when it is staged; null: that of the topic",
    ),
)
_BY_NAME = {one.name: one for one in SINK_COLUMNS}
_NO_DELAYS = (
    "messages of a commit come with it and have no delay; publish delayed ones with penstock.client"
)
_REFUSED = {
    "delay": _NO_DELAYS,
    "deliver_at": _NO_DELAYS,
    "idempotency_key": "sinkId and sequence, or the checkpoint of a stream, make a repeat known",
}


def check_sink_columns(schema: StructType, *, has_topic: bool) -> None:
    """Refused names a column that is unknown, missing, there twice or of another type. `has_topic`: by an option."""
    names = schema.fieldNames()
    for field in schema.fields:
        name = field.name
        if name in _REFUSED:
            raise Refused(f"column {name} cannot be written: {_REFUSED[name]}")
        column = _BY_NAME.get(name)
        if column is None:
            near = get_close_matches(name.lower(), _BY_NAME, n=1)
            meant = f"; did you mean {near[0]}?" if near else "."
            raise Refused(f"unknown column {name!r}{meant} There are: {', '.join(_BY_NAME)}")
        if names.count(name) > 1:
            raise Refused(f"column {name} is there twice")
        if not _is_of_kind(field.dataType, column):
            found = field.dataType.simpleString()
            raise Refused(f"column {name} must be {column.says_kind}, and is {found[:200]}")
    if "value" not in names:
        raise Refused(f"a column value is needed; there are {', '.join(names)[:200] or 'none'}")
    if not has_topic and "topic" not in names:
        raise Refused("an option topic or a column topic is needed")


def _is_of_kind(found: DataType, column: SinkColumn) -> bool:
    if column.kinds is not None:
        return isinstance(found, column.kinds)
    if not isinstance(found, ArrayType) or not isinstance(found.elementType, StructType):
        return False
    pair = found.elementType
    return (
        pair.fieldNames() == ["key", "value"]
        and isinstance(pair["key"].dataType, StringType)
        and isinstance(pair["value"].dataType, _CONTENT)
    )

"""The columns of the source, and the column of the codec that each is made from."""

import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import NamedTuple

from ..errors import Refused


class SourceColumn(NamedTuple):
    """`kind` is its type as Spark writes it; `stored` is the column of the codec that it comes from, or None."""

    name: str
    kind: str
    stored: str | None
    says: str


HEADERS_KIND = "array<struct<key: string, value: binary>>"
DEAD_LETTER_FIELDS = {
    "original_topic": "string",
    "original_partition": "int",
    "original_offset": "bigint",
    "original_timestamp": "timestamp",
    "delivery_attempts": "int",
    "first_delivery": "timestamp",
    "last_delivery": "timestamp",
    "last_consumer": "string",
    "group": "string",
    "last_error": "string",
    "dlq_timestamp": "timestamp",
    "dlq_reason": "string",
}
"""The fields of a dead letter's provenance, and their types as Spark writes them."""

DEAD_LETTER_KIND = (
    f"struct<{', '.join(f'{name}: {kind}' for name, kind in DEAD_LETTER_FIELDS.items())}>"
)
COLUMNS = (
    SourceColumn("key", "binary", "key", "as published; may be null"),
    SourceColumn("value", "binary", "value", "as published; may be null"),
    SourceColumn("topic", "string", None, ""),
    SourceColumn("partition", "int", None, ""),
    SourceColumn("offset", "bigint", "offset", ""),
    SourceColumn(
        "timestamp", "timestamp", "timestamp", "given by the producer, or when it was stored"
    ),
    SourceColumn("timestampType", "int", None, "0, as in Kafka for such a timestamp"),
    SourceColumn("headers", HEADERS_KIND, "headers", "only if asked for"),
    SourceColumn("priority", "int", "priority", "0 critical to 4 background"),
    SourceColumn("expires_at", "timestamp", "expires_at", "end of its time to live, or null"),
    SourceColumn("delay_id", "bigint", None, "its offset among the delayed messages, or null"),
    SourceColumn("schema_id", "bigint", "schema_id", "or null"),
    SourceColumn("trace_id", "string", None, "from the header `traceparent`, or null"),
    SourceColumn(
        "dead_letter", DEAD_LETTER_KIND, None, "of a dead letter; else null; only if asked for"
    ),
)
BY_NAME = {one.name: one for one in COLUMNS}
ASKED_FOR = frozenset({"headers", "dead_letter"})
"""Columns that are read only if an option names them."""
DEFAULT_COLUMNS = tuple(one.name for one in COLUMNS if one.name not in ASKED_FOR)


def check_columns(asked: Sequence[str], *, has_headers: bool) -> tuple[str, ...]:
    """Returns the columns to read, in the order asked for. Refused: one is unknown, or named twice."""
    if not asked:
        usual = {*DEFAULT_COLUMNS, "headers"} if has_headers else {*DEFAULT_COLUMNS}
        return tuple(one.name for one in COLUMNS if one.name in usual)
    for name in asked:
        if name not in BY_NAME:
            near = get_close_matches(name, BY_NAME, n=1)
            meant = f"; did you mean {near[0]}?" if near else ""
            raise Refused(f"unknown column {name!r}{meant} There are: {', '.join(BY_NAME)}")
        if asked.count(name) > 1:
            raise Refused(f"column {name} is asked for twice")
    wanted = tuple(asked)
    return (*wanted, "headers") if has_headers and "headers" not in wanted else wanted


def ddl(columns: Sequence[str]) -> str:
    """Returns the schema of some columns for Spark, whose settings say which type a plain `timestamp` is."""
    kinds = {
        name: re.sub(r"\btimestamp\b(?!:)", "timestamp_ltz", BY_NAME[name].kind) for name in columns
    }
    return ", ".join(f"`{name}` {kind}" for name, kind in kinds.items())

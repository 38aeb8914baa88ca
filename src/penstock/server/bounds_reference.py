"""The part of docs/configuration.md that says what a request may hold, from the types of commands."""

from typing import Any

from ..api.bounds import (
    PACKED_BYTES_MAX,
    PAGE_BYTES_MAX,
    TEXT_CHARACTERS_MAX,
    Bound,
    Unit,
    bounds_of,
)
from ..api.command import Command
from ..api.wire import CALLS
from .kafka.wire import ITEMS_MAX, PARTITIONS_MAX

_HEAD = f"""## Bounds of requests

What a request may cost is bounded before it is paid, on every port and whatever the settings are. A request beyond a
bound changes nothing: it is answered `TOO_LARGE` with what was too large, how much was found and the limit (413 over
HTTP), or `INVALID_ARGUMENT` below a least. A number that is *cut* is no error: the most is taken in its place. A name
that is there twice counts twice, and is looked at once.

A text that is not in the table has {TEXT_CHARACTERS_MAX} characters at most. The fields of a command of the binary port
have {PACKED_BYTES_MAX >> 20} MiB together, unless they hold contents of messages: those have the limits of `limits` and
`binary.frame_bytes_max`. A body of JSON has {PACKED_BYTES_MAX >> 20} MiB at most; more messages at once go as
`application/x-ndjson`, which is read some lines at a time, or as batches.

A page of dead letters or of delayed messages ends when its contents pass {PAGE_BYTES_MAX >> 20} MiB, whatever its
`limit`, and the next one goes on from there.

A request of Kafka's protocol has {ITEMS_MAX} items in all its arrays together, or {PARTITIONS_MAX} where it names
partitions. Beyond that it is answered `INVALID_REQUEST` where its response has room for an error, and otherwise ends
the connection, which the log says.

| command | field | at most | beyond |
|---|---|---|---|"""


def bounds_reference() -> list[str]:
    """Returns the lines of the section."""
    lines = [_HEAD]
    for kind in sorted((call.kind for call in CALLS.values()), key=lambda kind: kind.__name__):
        lines += [_row(kind, bound) for bound in bounds_of(kind) if not _is_usual(bound)]
    return [*lines, ""]


def _is_usual(bound: Bound) -> bool:
    return bound.unit is Unit.CHARACTERS and bound.most == TEXT_CHARACTERS_MAX


def _row(kind: type[Command[Any]], bound: Bound) -> str:
    beyond = "cut" if bound.is_cut else "refused"
    most = f"{bound.most} {bound.unit.value}".rstrip()
    if bound.is_distinct:
        most += ", each looked at once"
    return f"| `{kind.__name__}` | `{bound.field}` | {most} | {beyond} |"

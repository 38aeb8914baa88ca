"""Messages as lists, for an encoder."""

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import msgspec
import numpy.typing as npt

from ..model import Headers, Message, MessageColumns, Priority

Ints = Sequence[int] | npt.NDArray[Any]


class Columns(msgspec.Struct, frozen=True, kw_only=True):
    """Message i is the i-th item of every list. A single value stands for a list of equal ones.

    `due_at` and `delay_keys` are for batches of a delay log, `delay_ids` (as distances from the head's origin sequence)
    for those that come out of it. Offsets are given by the log.
    """

    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None = None
    timestamps: Ints | int = 0
    headers: Sequence[Headers] | None = None
    priorities: Ints | int = Priority.NORMAL
    expires_at: Sequence[int | None] | int | None = None
    idempotency_keys: Sequence[bytes | None] | None = None
    schema_ids: Sequence[int | None] | int | None = None
    due_at: Ints | int | None = None
    delay_keys: Sequence[bytes | None] | None = None
    delay_ids: Ints | None = None


_FIELDS = attrgetter(*Message.__struct_fields__)


def columns_of(messages: Sequence[Message]) -> Columns:
    """Returns messages as columns, without those that have only defaults. Offsets are ignored."""
    if not messages:
        return Columns(values=())
    return without_empty(MessageColumns(*zip(*map(_FIELDS, messages), strict=True)))


def without_empty(columns: MessageColumns) -> Columns:
    """Returns columns for an encoder, without those that have only defaults. Offsets are ignored."""
    values, keys, headers, priorities, timestamps, expires_at, idempotency_keys, schema_ids, _ = (
        columns
    )
    count = len(values)
    return Columns(
        values=values,
        keys=None if keys.count(None) == count else keys,
        timestamps=one_or_all(timestamps),
        # Those that came over the network are lists.
        headers=None if headers.count(()) + headers.count([]) == count else headers,
        priorities=one_or_all(priorities),
        expires_at=None if expires_at.count(None) == count else expires_at,
        idempotency_keys=None if idempotency_keys.count(None) == count else idempotency_keys,
        schema_ids=None if schema_ids.count(None) == count else schema_ids,
    )


def one_or_all(numbers: Sequence[int]) -> Sequence[int] | int:
    """Returns a single number if all are equal, which saves an array."""
    first = numbers[0] if numbers else None
    return first if isinstance(first, int) and numbers.count(first) == len(numbers) else numbers

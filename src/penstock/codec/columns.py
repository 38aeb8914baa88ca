"""Messages as lists, for an encoder."""

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
import numpy.typing as npt

from ..model import Headers, Message, MessageColumns, Priority

Item = TypeVar("Item")
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


def columns_of(messages: Sequence[Message]) -> Columns:
    """Message objects as columns, those that say nothing left out. Offsets are ignored."""
    return without_empty(
        MessageColumns(
            [message.value for message in messages],
            [message.key for message in messages],
            [message.headers for message in messages],
            [message.priority for message in messages],
            [message.timestamp for message in messages],
            [message.expires_at for message in messages],
            [message.idempotency_key for message in messages],
            [message.schema_id for message in messages],
            (),
        )
    )


def without_empty(columns: MessageColumns) -> Columns:
    """Columns for an encoder, those that say nothing left out. Offsets are ignored."""
    return Columns(
        values=columns.values,
        keys=_collapsed(columns.keys, None),
        timestamps=_one_or_all(columns.timestamps),
        headers=_collapsed(columns.headers, ()),
        priorities=_one_or_all(columns.priorities),
        expires_at=_collapsed(columns.expires_at, None),
        idempotency_keys=_collapsed(columns.idempotency_keys, None),
        schema_ids=_collapsed(columns.schema_ids, None),
    )


def _collapsed(items: Sequence[Item], nothing: Item) -> Sequence[Item] | None:
    """None if no message has anything in this column."""
    return None if items.count(nothing) == len(items) else items


def _one_or_all(numbers: Sequence[int]) -> Sequence[int] | int:
    """A single number if all are equal, which saves making arrays of them."""
    first = numbers[0] if numbers else None
    return first if isinstance(first, int) and numbers.count(first) == len(numbers) else numbers

"""A batch as Python lists: what an encoder is given and what a decoder gives back."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy.typing as npt

from ..model import Headers, Priority

Ints = Sequence[int] | npt.NDArray[Any]


class Columns(msgspec.Struct, frozen=True, kw_only=True):
    """Message i is the i-th item of every list. A single value stands for a list of equal ones.

    `offsets` is filled by decoding; an encoder takes none, because the log gives them. `due_at` and `delay_keys` are
    for batches of a delay log, `delay_ids` (as distances from the head's origin sequence) for those that come out of
    it; a decoder leaves the three alone.
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
    offsets: Sequence[int] | None = None

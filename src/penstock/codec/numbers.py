"""A column of numbers: one value for all messages, or an array of the narrowest width that holds them."""

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import Refused

Array = npt.NDArray[np.unsignedinteger]
Numbers = int | Array
"""A constant, or one unsigned number a message."""

ABSENT = 0
CONSTANT = 1
FORM_U32 = 4
FORM_U64 = 5
WIDTHS: dict[int, np.dtype[np.unsignedinteger]] = {
    2: np.dtype("<u1"),
    3: np.dtype("<u2"),
    4: np.dtype("<u4"),
    5: np.dtype("<u8"),
}
CONSTANT_NUMBER = struct.Struct("<Q")
# Up to so many numbers Python adds up faster than numpy begins to.
_FEW = 32
I64_MIN, I64_MAX = -(1 << 63), (1 << 63) - 1


def narrow(numbers: Numbers) -> Numbers:
    """Returns the numbers, as a constant if they are all equal."""
    if isinstance(numbers, int):
        return numbers
    first = int(numbers[0])
    return first if bool((numbers == first).all()) else numbers


def largest_of(numbers: Numbers) -> int:
    return numbers if isinstance(numbers, int) else int(numbers.max())


def smallest_of(numbers: Numbers) -> int:
    return numbers if isinstance(numbers, int) else int(numbers.min())


def write_array(numbers: Array) -> tuple[int, bytes]:
    """Returns form and bytes of a column that is no constant."""
    form = _form_for(int(numbers.max()))
    return form, numbers.astype(WIDTHS[form], copy=False).tobytes()


def _form_for(largest: int) -> int:
    if largest < 1 << 8:
        return 2
    if largest < 1 << 16:
        return 3
    return FORM_U32 if largest < 1 << 32 else FORM_U64


def as_array(numbers: Numbers, count: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Returns one number a message. A u64 taken as i64 wraps, as a distance of timestamps needs it."""
    if isinstance(numbers, int):
        # Through u64, because a constant above 2^63 would not convert to i64 by itself.
        return np.full(count, numbers, dtype=np.uint64).astype(dtype)
    return numbers.astype(dtype, copy=False)


def moved(numbers: Numbers, count: int, base: int) -> npt.NDArray[np.int64]:
    """Returns a new array with `base` plus each number."""
    if isinstance(numbers, int):
        # The sum fits into i64, which the number alone may not.
        return np.full(count, base + numbers, dtype=np.int64)
    if numbers.dtype.itemsize < 8:
        return np.add(numbers, np.int64(base))
    # A distance between two i64 may need all of a u64; their sum wraps back into i64.
    sums = numbers.astype(np.int64)
    sums += np.int64(base)
    return sums


def total(numbers: Numbers, count: int) -> int:
    """Returns the sum over all messages, in Python's integers where it could overflow."""
    if isinstance(numbers, int):
        return numbers * count
    if len(numbers) <= _FEW:
        return sum(numbers.tolist())
    return int(numbers.sum(dtype=np.uint64))


def starts_of(numbers: Numbers, count: int) -> npt.NDArray[np.int64]:
    """Returns the running sum: item i starts at [i] and ends at [i + 1]."""
    if isinstance(numbers, int):
        return np.arange(count + 1, dtype=np.int64) * numbers
    starts = np.zeros(count + 1, dtype=np.int64)
    np.add.accumulate(numbers, out=starts[1:], dtype=np.int64)
    return starts


def int64_array(numbers: Sequence[int] | npt.NDArray[Any], what: str) -> npt.NDArray[np.int64]:
    """Returns Python ints as an array, in half the time of `np.array`. Refused: one does not fit."""
    if isinstance(numbers, np.ndarray):
        if numbers.dtype.kind not in "iu" or numbers.ndim != 1:
            raise Refused(f"{what} must be a list of integers, got an array of {numbers.dtype}")
        if numbers.dtype == np.uint64 and len(numbers) and int(numbers.max()) > I64_MAX:
            raise Refused(f"{what} must be integers of 64 bits, got {int(numbers.max())}")
        return numbers.astype(np.int64, copy=False)
    try:
        return np.frombuffer(struct.pack(f"<{len(numbers)}q", *numbers), dtype="<i8")
    except struct.error as error:
        raise Refused(f"{what} must be integers of 64 bits: {error}") from None

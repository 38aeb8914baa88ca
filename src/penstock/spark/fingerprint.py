"""What the rows of a commit hold, in a form that two runs can compare. The hashes are made in `row_hashes`.

It tells an honest repeat of a commit from other rows under the same number. It is no proof against forgers.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Self

_SUM_BITS = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Rows, and the sum of their hashes."""

    rows: int = 0
    total: int = 0

    def __add__(self, other: Self) -> "Fingerprint":
        return Fingerprint(self.rows + other.rows, (self.total + other.total) & _SUM_BITS)

    def __str__(self) -> str:
        return f"{self.rows} rows, {self.total:016x}"


class Then(Enum):
    """What becomes of rows whose sequence is over."""

    REFUSE = "refuse"
    SKIP = "skip"

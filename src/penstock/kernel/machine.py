"""The one way state changes."""

from collections.abc import Iterable
from typing import Protocol, TypeVar

Record = TypeVar("Record")


class Machine(Protocol[Record]):
    """State that is the sum of its records.

    `apply` can neither fail nor decide: the same records in the same order give the same state on a
    restart, on a follower and in a test.
    """

    def apply(self, record: Record) -> None: ...

    def snapshot(self) -> Iterable[Record]:
        """Records that rebuild the present state when applied to an empty machine."""
        ...

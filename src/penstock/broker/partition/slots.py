"""The partitions of a topic. A faulty one, whose files are damaged or missing, refuses every command."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, overload

from ...errors import PartitionFaulty, PenstockError
from .partition import Partition


class Fault(NamedTuple):
    """Why a partition cannot be used, in place of the partition. `cause` is what opening or syncing it raised."""

    topic: str
    number: int
    path: str
    reason: str
    cause: PenstockError

    def error(self) -> PartitionFaulty:
        return PartitionFaulty(self.topic, self.number, self.path, self.reason)


def fault_of(topic: str, number: int, directory: str, cause: PenstockError) -> Fault:
    """What to put in the place of a partition. The path is the one that the error names, if it names any."""
    path = cause.fields.get("path", directory)
    reason = cause.fields.get("reason", str(cause))
    return Fault(topic, number, str(path), str(reason), cause.fresh())


class Partitions(Sequence[Partition]):
    """All partitions of a topic by number. The length counts all, iteration gives those that serve.

    To ask for a faulty one by its number raises PartitionFaulty; IndexError: there is none of that number.
    """

    __slots__ = ("serving", "slots")

    def __init__(self, slots: Sequence[Partition | Fault] = ()) -> None:
        self.slots: list[Partition | Fault] = []
        self.serving: list[Partition] = []
        self.extend(slots)

    def __len__(self) -> int:
        return len(self.slots)

    def __iter__(self) -> Iterator[Partition]:
        return iter(self.serving)

    @overload
    def __getitem__(self, number: int) -> Partition: ...

    @overload
    def __getitem__(self, number: slice) -> list[Partition]: ...

    def __getitem__(self, number: int | slice) -> Partition | list[Partition]:
        found = self.slots[number]
        if isinstance(found, list):
            return [one for one in found if isinstance(one, Partition)]
        if isinstance(found, Fault):
            raise found.error()
        return found

    def extend(self, slots: Sequence[Partition | Fault]) -> None:
        self.slots.extend(slots)
        self.serving = [one for one in self.slots if isinstance(one, Partition)]

    def fail(self, fault: Fault) -> None:
        """Put a fault in the place of a partition."""
        self.slots[fault.number] = fault
        self.extend(())

    @property
    def faults(self) -> list[Fault]:
        if len(self.serving) == len(self.slots):
            return []
        return [one for one in self.slots if isinstance(one, Fault)]

    def require_serving(self) -> None:
        """PartitionFaulty if none serves: what is not found may be in one of them."""
        if not self.serving and self.slots:
            fault = self.faults[0]
            raise fault.error()

    def serving_at(self, number: int) -> Partition | None:
        """The partition of this number; None if there is none, or if it is faulty."""
        found = self.slots[number] if 0 <= number < len(self.slots) else None
        return found if isinstance(found, Partition) else None

"""What commands have recorded, for the driver, which acts on it: when to tick next, and whether to sync soon.

Partitions note what they record; a command never says itself what is to be done about it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .partition import Now, Partition


class Due(NamedTuple):
    """When something of what was recorded is due, and whether dead letters wait for a sync to go on."""

    due_ns: float
    has_letters: bool


class Changes:
    """Groups of partitions for which something was recorded since the driver last asked. Belongs to a node."""

    __slots__ = ("touched",)

    def __init__(self) -> None:
        self.touched: set[tuple[Partition, int]] = set()

    def take(self, now: "Callable[[], Now]") -> Due:
        """What follows from what was recorded; from here on it counts as known."""
        touched, self.touched = self.touched, set()
        due_ns, has_letters = float("inf"), False
        for partition, group in touched:
            machine = partition.machine
            delivery = machine.groups.get(group)
            if delivery is not None:
                due_ns = min(due_ns, delivery.next_due_ns())
            delayed_ns = machine.delays.next_ns()
            if delayed_ns is not None:
                at = now()
                due_ns = min(due_ns, at.monotonic_ns + max(0, delayed_ns - at.wall_ns))
            has_letters = has_letters or bool(machine.outbox.pending)
        return Due(due_ns, has_letters)

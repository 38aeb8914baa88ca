"""What commands have recorded, for the driver: when to tick next, which readers to wake, whether to sync soon.

Partitions note what they append and record; a handler never says itself what is to be done about it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from ..errors import PenstockError

if TYPE_CHECKING:
    from .partition import Now, Partition, Position

R = TypeVar("R")
NEVER_NS = float("inf")

Handler = Callable[[Any, Any, Any], Any]
"""Given a node, a command and the time: the reply, or raises."""


class Mark(NamedTuple):
    """How far a partition has to be durable before a reply may leave."""

    partition: "Partition"
    position: "Position"


class Done(NamedTuple, Generic[R]):
    """What came of a command, for the driver, which alone acts on it.

    The reply may leave when every mark is reached at the level that was asked for.
    """

    reply: R | PenstockError
    marks: tuple[Mark, ...] = ()
    # When something of what was recorded is due, on the monotonic clock.
    due_ns: float = NEVER_NS
    # Topics in which consumers may find something now.
    wakes: frozenset[str] = frozenset()
    # Letters to other partitions wait for a sync to go on.
    has_letters: bool = False

    def outcome(self) -> R:
        """The reply, or raises what the command was refused with."""
        if isinstance(self.reply, PenstockError):
            raise self.reply
        return self.reply


class Changes:
    """Groups of partitions for which something was recorded since the last `done`. Belongs to a node."""

    __slots__ = ("touched",)

    def __init__(self) -> None:
        self.touched: set[tuple[Partition, int]] = set()

    def done(self, reply: R | PenstockError, now: "Now") -> Done[R]:
        """A reply with everything that follows from what was recorded; from here on that counts as known."""
        if not self.touched:
            return Done(reply)
        touched, self.touched = self.touched, set()
        due_ns, has_letters = NEVER_NS, False
        partitions: set[Partition] = set()
        for partition, group in touched:
            partitions.add(partition)
            machine = partition.machine
            delivery = machine.groups.get(group)
            if delivery is not None:
                due_ns = min(due_ns, delivery.next_due_ns())
            delayed_ns = machine.delays.next_ns()
            if delayed_ns is not None:
                due_ns = min(due_ns, now.monotonic_ns + max(0, delayed_ns - now.wall_ns))
            has_letters = has_letters or bool(machine.outbox.pending)
        marks = tuple(Mark(one, one.position) for one in partitions)
        return Done(reply, marks, due_ns, frozenset(one.topic for one in partitions), has_letters)

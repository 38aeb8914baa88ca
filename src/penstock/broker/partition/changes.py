"""What commands have recorded, for the driver: when to tick next, which readers to wake, what to sync.

Partitions note what they append and record; a handler never says itself what is to be done about it. Most of thousands
of partitions are idle, and nothing that is done for each command or sync looks at those.
"""

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from ...errors import PenstockError
from .agenda import NEVER_NS, NOT_IN_USE, Agenda
from .replay_budget import ReplayBudget

if TYPE_CHECKING:
    from ..walks import Walk
    from .partition import Now, Partition

R = TypeVar("R")

Handler = Callable[[Any, Any, Any], Any]
"""Given a node, a command and the time: the reply, or raises. That of a command that walks: its `Slices`."""


class Done(msgspec.Struct, Generic[R], frozen=True):
    """What came of a command, for the driver, which alone acts on it."""

    reply: R | PenstockError
    # Where something was recorded or has become ready, each once: a partition and the number of a group in it, 0 for
    # what concerns all of its groups, as messages that were appended do.
    touched: Collection[tuple["Partition", int]] = ()
    # When something of what was recorded is due, on the monotonic clock.
    due_ns: float = NEVER_NS
    # Letters to other partitions wait for a sync to go on.
    has_letters: bool = False
    # Members of assigned groups, by group and name, whose assignment changed, or that are members no more.
    members: Collection[tuple[str, str]] = ()
    # Members that hold fewer messages than before: topic, group and member.
    loads: Collection[tuple[str, str, str]] = ()
    # Topics that were opened or made, have more partitions or other settings, have lost one to a fault, or are gone.
    topics: Collection[str] = ()
    # Groups whose members assign, in which a member that waits may have its answer, or that are gone.
    groups: Collection[str] = ()
    # The command has more to look at than its budget allowed, and no reply yet: `Node.go_on`.
    more: "Walk[R] | None" = None

    def outcome(self) -> R:
        """The reply, or raises what the command was refused with."""
        assert self.more is None, "a walk that is not over has no reply"
        if isinstance(self.reply, PenstockError):
            raise self.reply.fresh()
        return self.reply


class Changes:
    """What was recorded since the last `done`: for which groups of partitions, and for which members. Of a node.

    And the partitions that may have something to sync or letters to send, in the order in which that came.
    """

    __slots__ = (
        "agenda",
        "due_ns",
        "ended",
        "groups",
        "loads",
        "members",
        "replay",
        "sending",
        "topics",
        "touched",
        "unsynced",
    )

    def __init__(self) -> None:
        # Groups of a partition in which something was recorded or has become ready; 0 for messages appended. In their
        # order, because what is due at one time comes in that order.
        self.touched: dict[tuple[Partition, int], None] = {}
        self.members: set[tuple[str, str]] = set()
        # As in `Done`.
        self.loads: set[tuple[str, str, str]] = set()
        self.topics: set[str] = set()
        self.groups: set[str] = set()
        # Producers, by id, and names of commits: what was decided about them is applied everywhere, durably.
        self.ended: set[int | str] = set()
        # When something of the members that were concerned is due.
        self.due_ns = NEVER_NS
        self.agenda, self.replay = Agenda(), ReplayBudget()
        self.unsynced: dict[Partition, None] = {}
        self.sending: dict[Partition, None] = {}

    def __bool__(self) -> bool:
        told = self.touched or self.members or self.loads or self.topics or self.groups
        return bool(told) or self.due_ns < NEVER_NS

    def to_sync(self) -> list["Partition"]:
        """The partitions that have something to sync."""
        found = [one for one in self.unsynced if one.is_dirty]
        self.unsynced = dict.fromkeys(found)
        return found

    def to_send(self) -> list["Partition"]:
        """The partitions that have letters for others."""
        found = [one for one in self.sending if one.machine.outbox.pending]
        self.sending = dict.fromkeys(found)
        return found

    def enrol(self, partition: "Partition") -> None:
        """It is used from now on. As its files or another node have left it, there may be something to do."""
        self.agenda.enrol(partition)
        self.replay.note(partition)
        self.unsynced[partition] = self.sending[partition] = None

    def forget(self, *partitions: "Partition") -> None:
        """They are used no more."""
        self.agenda.forget(*partitions)
        for partition in partitions:
            self.replay.forget(partition)
            self.unsynced.pop(partition, None)
            self.sending.pop(partition, None)

    def done(self, reply: R | PenstockError, now: "Now", more: "Walk[R] | None" = None) -> Done[R]:
        """A reply with everything that follows from what was recorded; from here on that counts as known."""
        if not self:
            return Done(reply, more=more) if more is not None else Done(reply)
        touched, self.touched = self.touched, {}
        due_ns, self.due_ns = self.due_ns, NEVER_NS
        has_letters = False
        partitions: set[Partition] = set()
        dues = self.agenda.dues
        for partition, group in touched:
            machine = partition.machine
            delivery = machine.groups.get(group)
            next_ns = NEVER_NS
            if delivery is not None:
                next_ns = delivery.next_due_ns()
                if delivery.leases.lowered:
                    self.note_loads(partition, group)
            if partition not in partitions:
                partitions.add(partition)
                if machine.outbox.pending:
                    has_letters = True
                due_ns = min(
                    due_ns, machine.coordinator.next_due_ns, machine.commit_names.next_due_ns
                )
                if machine.delays.pending or machine.schedules.by_number:
                    next_ns = min(next_ns, partition.next_firing_ns(now))
            due_ns = min(due_ns, next_ns)
            if next_ns < dues.get(partition, NOT_IN_USE):
                self.agenda.expect(partition, next_ns)
        if not (self.members or self.loads or self.topics or self.groups):
            return Done(reply, touched, due_ns, has_letters, more=more)
        members, self.members = self.members, set()
        loads, self.loads = self.loads, set()
        topics, self.topics = self.topics, set()
        groups, self.groups = self.groups, set()
        return Done(reply, touched, due_ns, has_letters, members, loads, topics, groups, more)

    def note_loads(self, partition: "Partition", group: int) -> None:
        """Members of a group hold fewer messages of a partition than when this was called last."""
        leases, name = partition.machine.groups[group].leases, partition.machine.names[group]
        self.loads.update([(partition.topic, name, member) for member in leases.lowered])
        leases.lowered.clear()

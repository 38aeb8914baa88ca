"""The members of one group and what each of them owns. Only `apply` changes it.

`owners` is the member that may read a partition: one at any time, or none. `target` is the member that should have it.
Where the two differ the owner is asked to release the partition, and `asked` has the deadline.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..api.groups import Rebalance
from ..api.members import Assignor
from ..model import TopicPartition
from .records import (
    GroupRecord,
    MemberJoined,
    MemberRemoved,
    MemberSeen,
    PartitionsGiven,
    PartitionsReleased,
    ReleaseAsked,
    ReleaseWithdrawn,
    TargetSet,
)

_MS = 1_000_000
_REBALANCES_KEPT = 20
REVOCATION_MS = 60_000


@dataclass(slots=True)
class Member:
    """`joined` is the generation at which it came; `changes` counts changes of its partitions, which wake it."""

    id: str
    client: str
    topics: frozenset[str]
    session_ms: int
    joined: int
    seen_ns: int
    changes: int = 0
    waits: int = 0
    owned: set[TopicPartition] = field(default_factory=set)

    @property
    def deadline_ns(self) -> float:
        """When its session is over. Never while it waits for messages: then its connection shows that it is alive."""
        return float("inf") if self.waits else self.seen_ns + self.session_ms * _MS


@dataclass(slots=True)
class KeptRebalance(Rebalance):
    """A rebalance with what its members read then: who does not reach any of that is not told of them."""

    topics: Mapping[str, frozenset[str]] = field(default_factory=dict)


class Membership:
    """Sum of its records. `generation` grows with each new target."""

    def __init__(self, group: str, generation: int = 0) -> None:
        self.group, self.generation = group, generation
        self.assignor = Assignor.STICKY
        self.members: dict[str, Member] = {}
        self.owners: dict[TopicPartition, str] = {}
        self.target: Mapping[TopicPartition, str] = {}
        self.asked: dict[TopicPartition, int] = {}
        self.rebalances: deque[KeptRebalance] = deque(maxlen=_REBALANCES_KEPT)
        # What members read that left since the last rebalance.
        self._left: dict[str, frozenset[str]] = {}
        self.now_ns = 0
        # How long an owner may take to release; set by the broker.
        self.revocation_ms = REVOCATION_MS

    @property
    def state(self) -> str:
        if not self.members:
            return "empty"
        return "rebalancing" if self.asked else "stable"

    def readable(self, member: str) -> list[TopicPartition]:
        """Returns the partitions that a member may read: its own, without those that it shall release."""
        return sorted(one for one in self.members[member].owned if one not in self.asked)

    def to_release(self, member: str) -> list[TopicPartition]:
        return sorted(one for one in self.members[member].owned if one in self.asked)

    def next_due_ns(self) -> float:
        """Returns when a session is over or a deadline passes next, or infinity."""
        sessions = min((one.deadline_ns for one in self.members.values()), default=float("inf"))
        return min(sessions, min(self.asked.values(), default=float("inf")))

    def apply(self, record: GroupRecord) -> None:
        match record:
            case MemberJoined():
                self._joined(record)
            case MemberSeen():
                self._seen(record)
            case MemberRemoved(member):
                gone = self.members.pop(member)
                self._left[member] = gone.topics
                for partition in gone.owned:
                    self._vacate(partition)
            case TargetSet():
                self._targeted(record)
            case ReleaseAsked(member, partitions, deadline_ns):
                self.asked.update(dict.fromkeys(partitions, deadline_ns))
                self.members[member].changes += 1
            case ReleaseWithdrawn(member, partitions):
                for partition in partitions:
                    del self.asked[partition]
                self.members[member].changes += 1
            case PartitionsReleased():
                self._released(record)
            case PartitionsGiven(member, partitions):
                self.owners.update(dict.fromkeys(partitions, member))
                self.members[member].owned.update(partitions)
                self.members[member].changes += 1

    def _seen(self, record: MemberSeen) -> None:
        member = self.members[record.member]
        member.seen_ns = max(member.seen_ns, record.at_ns)
        member.waits = max(0, member.waits + record.waits)

    def _joined(self, record: MemberJoined) -> None:
        former = self.members.get(record.member)
        member = Member(
            record.member,
            record.client,
            record.topics,
            record.session_ms,
            record.generation,
            record.at_ns,
        )
        if former is not None:
            member.owned, member.changes = former.owned, former.changes + 1
        self.members[record.member] = member

    def _targeted(self, record: TargetSet) -> None:
        self.generation, self.assignor = record.generation, record.assignor
        self.target, self.now_ns = record.target, max(self.now_ns, record.at_ns)
        topics = {
            name: self.members[name].topics if name in self.members else self._left[name]
            for name in record.members
        }
        self._left.clear()
        self.rebalances.append(
            KeptRebalance(
                record.generation,
                record.cause,
                record.members,
                record.wall_ns,
                record.at_ns,
                record.passed,
                topics=topics,
            )
        )
        self._note_settled()

    def _released(self, record: PartitionsReleased) -> None:
        member = self.members[record.member]
        member.owned.difference_update(record.partitions)
        for partition in record.partitions:
            self._vacate(partition)
        self.now_ns = max(self.now_ns, record.at_ns)
        if record.is_forced:
            member.changes += 1
            if self.rebalances:
                self.rebalances[-1].forced += len(record.partitions)
        self._note_settled()

    def _vacate(self, partition: TopicPartition) -> None:
        del self.owners[partition]
        self.asked.pop(partition, None)

    def _note_settled(self) -> None:
        for one in () if self.asked else reversed(self.rebalances):
            if one.took_ms is not None:
                return
            one.took_ms = max(0, self.now_ns - one.began_ns) // _MS

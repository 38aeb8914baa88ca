"""A group of Kafka's classic protocol: the members assign the partitions themselves, the broker gathers and relays.

A round begins when a member joins or leaves. In the *join phase* the group waits until every member has joined again,
or until the slowest has had its time; then it has a new generation, a leader and a protocol that all members speak. In
the *sync phase* it waits for what the leader assigned to each of them. Then it is stable.

Nothing here is journaled: after a restart every member is unknown, and joins again. What a group has committed is in
the partitions.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from ..errors import Refused, StaleGeneration, UnknownMember

# Consumers of a program start within this time of each other, mostly: one round for all of them.
FIRST_JOIN_NS = 250_000_000
# A round tells every member about every other one.
MEMBERS_MAX = 1000
_MS = 1_000_000
_NEVER = float("inf")

Protocols = tuple[tuple[str, bytes], ...]
"""Names of the assignors that a member knows, best first, each with what the member says of itself."""


class RebalanceInProgress(Refused):
    """The members are about to assign anew: join again."""

    code = "REBALANCE_IN_PROGRESS"

    def __init__(self, group: str) -> None:
        super().__init__(f"group {group} is about to be assigned anew: join again", group=group)


class ProtocolConflict(Refused):
    """The members have no protocol in common."""

    code = "PROTOCOL_CONFLICT"

    def __init__(self, group: str, reason: str) -> None:
        super().__init__(f"group {group}: {reason}", group=group, reason=reason)


class FencedMember(Refused):
    """Another process has taken the place of the member."""

    code = "FENCED_MEMBER"

    def __init__(self, group: str, instance: str) -> None:
        super().__init__(
            f"another process is {instance} in group {group} now", group=group, instance=instance
        )


class ClassicState(Enum):
    """Where a group is in its round, under Kafka's names."""

    EMPTY = "Empty"
    JOINING = "PreparingRebalance"
    SYNCING = "CompletingRebalance"
    STABLE = "Stable"


@dataclass(slots=True)
class ClassicMember:
    """A member; `instance` names one that keeps its place over a restart of its process, or is empty."""

    id: str
    instance: str
    client: str
    host: str
    session_ms: int
    rebalance_ms: int
    protocols: Protocols
    topics: frozenset[str] = frozenset()
    assignment: bytes = b""
    # It waits for the end of the join phase; for the leader's assignment. Meanwhile it need not say that it is alive.
    is_joining: bool = False
    is_syncing: bool = False
    deadline_ns: float = 0

    def silence_ns(self, now_ns: int) -> int:
        """How long nothing was heard of it. While it waits its connection shows that it is alive."""
        is_waiting = self.is_joining or self.is_syncing
        return 0 if is_waiting else int(now_ns - self.deadline_ns) + self.session_ms * _MS

    def metadata(self, protocol: str) -> bytes:
        return next((said for name, said in self.protocols if name == protocol), b"")


@dataclass(slots=True)
class ClassicGroup:
    """One group. `changes` grows whenever a member that waits may have its answer."""

    name: str
    generation: int = 0
    state: ClassicState = ClassicState.EMPTY
    protocol_type: str = ""
    protocol: str = ""
    leader: str = ""
    members: dict[str, ClassicMember] = field(default_factory=dict)
    # Ids that were given to clients which have to come back with them, until when.
    promised: dict[str, float] = field(default_factory=dict)
    phase_ends_ns: float = _NEVER
    changes: int = 0
    # How many of the changes the driver was told of.
    changes_told: int = 0

    def promise(self, member: str, session_ms: int, now_ns: int) -> None:
        """Give an id to a client that has to join once more with it; one that does not come back is forgotten."""
        self._require_room()
        self.promised[member] = now_ns + session_ms * _MS

    def join(self, joining: ClassicMember, protocol_type: str, now_ns: int) -> None:
        """A member joins, for the first time or again. `is_joining` of it says whether it has to wait.

        ProtocolConflict: it and the others have no protocol in common. UnknownMember: an id that was not given here.
        """
        self._check_protocols(joining, protocol_type)
        known = self._known(joining)
        if known is None:
            self._require_room()
        # In its old place: the leader stays the leader, also under a new id.
        was = joining.id if known is None else known.id
        is_same = known is not None and known.protocols == joining.protocols
        if known is not None:
            joining.assignment = known.assignment
            if self.leader == was:
                self.leader = joining.id
            self.members = {
                (joining.id if id_ == was else id_): one for id_, one in self.members.items()
            }
        self.promised.pop(joining.id, None)
        self.members[joining.id] = joining
        self.protocol_type = protocol_type
        joining.deadline_ns = now_ns + joining.session_ms * _MS
        is_settled = self.state in (ClassicState.SYNCING, ClassicState.STABLE)
        if is_same and is_settled and self.leader != joining.id:
            return  # A repeated request, or a process that was started again: nothing has changed for the others.
        joining.is_joining = True
        if self.state is not ClassicState.JOINING:
            self._begin_join(now_ns)
        self._end_join_if_complete(now_ns)

    def _known(self, joining: ClassicMember) -> ClassicMember | None:
        known = self.members.get(joining.id)
        if known is None and joining.instance:
            known = self.of_instance(joining.instance)
        return known

    def of_instance(self, instance: str) -> ClassicMember | None:
        return next((one for one in self.members.values() if one.instance == instance), None)

    def _require_room(self) -> None:
        if len(self.members) + len(self.promised) >= MEMBERS_MAX:
            raise Refused(f"group {self.name} has {MEMBERS_MAX} members, and no room for more")

    def _check_protocols(self, joining: ClassicMember, protocol_type: str) -> None:
        others = [one for one in self.members.values() if one.id != joining.id]
        if joining.instance:
            others = [one for one in others if one.instance != joining.instance]
        if not protocol_type or not joining.protocols:
            raise ProtocolConflict(self.name, "a member has to name a protocol")
        if others and protocol_type != self.protocol_type:
            raise ProtocolConflict(self.name, f"its members speak {self.protocol_type}")
        if not _shared([*others, joining]):
            raise ProtocolConflict(self.name, "no assignor is known to all members")

    def _begin_join(self, now_ns: int) -> None:
        is_first = self.state is ClassicState.EMPTY
        self.state = ClassicState.JOINING
        longest_ms = max(one.rebalance_ms for one in self.members.values())
        self.phase_ends_ns = now_ns + (FIRST_JOIN_NS if is_first else longest_ms * _MS)
        for one in self.members.values():
            one.is_syncing = False
        self.changes += 1

    def _end_join_if_complete(self, now_ns: int) -> None:
        is_first = self.generation == 0 or not self.leader
        if not is_first and all(one.is_joining for one in self.members.values()):
            self._end_join(now_ns)

    def _end_join(self, now_ns: int) -> None:
        """A new generation of those that have joined; the others are members no more."""
        self.members = {one.id: one for one in self.members.values() if one.is_joining}
        self.generation += 1
        self.changes += 1
        if not self.members:
            self._empty()
            return
        self.protocol = _elected(self.members.values())
        if self.leader not in self.members:
            self.leader = next(iter(self.members))
        for one in self.members.values():
            one.is_joining, one.assignment = False, b""
            one.deadline_ns = now_ns + one.session_ms * _MS
        self.state = ClassicState.SYNCING
        longest_ms = max(one.rebalance_ms for one in self.members.values())
        self.phase_ends_ns = now_ns + longest_ms * _MS

    def _empty(self) -> None:
        self.state, self.phase_ends_ns = ClassicState.EMPTY, _NEVER
        self.leader = self.protocol = self.protocol_type = ""

    def require(self, member: str, instance: str, generation: int | None = None) -> ClassicMember:
        """The member. FencedMember: another process has taken its place; UnknownMember; StaleGeneration."""
        if instance:
            holder = self.of_instance(instance)
            if holder is not None and holder.id != member:
                raise FencedMember(self.name, instance)
        known = self.members.get(member)
        if known is None:
            raise UnknownMember(self.name, member)
        if generation is not None and generation != self.generation:
            raise StaleGeneration(self.name, asked=generation, current=self.generation)
        return known

    def sync(
        self, known: ClassicMember, assignments: Mapping[str, bytes], now_ns: int
    ) -> bytes | None:
        """What the leader assigned to a member; None while it has not. The leader brings the assignments.

        RebalanceInProgress: the round is over before it was complete, and all have to join again.
        """
        known.deadline_ns = now_ns + known.session_ms * _MS
        if self.state is ClassicState.JOINING:
            raise RebalanceInProgress(self.name)
        if self.state is ClassicState.SYNCING:
            if known.id != self.leader:
                known.is_syncing = True
                return None
            for one in self.members.values():
                one.assignment = assignments.get(one.id, b"")
                one.is_syncing = False
                one.deadline_ns = now_ns + one.session_ms * _MS
            self.state, self.phase_ends_ns = ClassicState.STABLE, _NEVER
            self.changes += 1
        return known.assignment

    def heartbeat(self, known: ClassicMember, now_ns: int) -> None:
        """RebalanceInProgress: the member has to join again."""
        known.deadline_ns = now_ns + known.session_ms * _MS
        if self.state is ClassicState.JOINING:
            raise RebalanceInProgress(self.name)

    def leave(self, member: str, now_ns: int) -> None:
        self._remove([member], now_ns)

    def tick(self, now_ns: int) -> None:
        """Miss members that were not heard of, and end a phase whose time is up."""
        self.promised = {one: due for one, due in self.promised.items() if due > now_ns}
        late = [one.id for one in self.members.values() if _due(one) <= now_ns]
        if late:
            self._remove(late, now_ns)
        if self.phase_ends_ns > now_ns:
            return
        if self.state is ClassicState.JOINING:
            self._end_join(now_ns)
        elif self.state is ClassicState.SYNCING:
            self._remove([one.id for one in self.members.values() if not one.is_syncing], now_ns)

    def _remove(self, gone: Iterable[str], now_ns: int) -> None:
        for member in gone:
            self.members.pop(member, None)
        self.changes += 1
        if not self.members:
            self.generation += 1
            self._empty()
        elif self.state is ClassicState.JOINING:
            self._end_join_if_complete(now_ns)
        else:
            self._begin_join(now_ns)

    def next_due_ns(self) -> float:
        due = min(map(_due, self.members.values()), default=_NEVER)
        return min(due, self.phase_ends_ns, *self.promised.values(), _NEVER)


def _due(member: ClassicMember) -> float:
    return _NEVER if member.is_joining or member.is_syncing else member.deadline_ns


def _shared(members: Iterable[ClassicMember]) -> set[str]:
    """Protocols that every member knows."""
    known = [{name for name, _ in one.protocols} for one in members]
    return set.intersection(*known)


def _elected(members: Iterable[ClassicMember]) -> str:
    """Of the protocols that all members know, the one that most of them name first."""
    everyone = [*members]
    shared = _shared(everyone)
    votes = Counter(next(name for name, _ in one.protocols if name in shared) for one in everyone)
    most = max(votes.values())
    return min(name for name, count in votes.items() if count == most)

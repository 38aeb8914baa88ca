"""The groups of a node whose members assign partitions themselves. In memory: after a restart all join again."""

from collections.abc import Iterable
from contextlib import suppress

from ..api.classic import (
    AwaitJoin,
    ClassicGroupFacts,
    ClassicMemberFacts,
    HeartbeatClassic,
    JoinClassic,
    JoinedClassic,
    JoinedMember,
    JoinTicket,
    LeaveClassic,
    Pending,
    SyncClassic,
)
from ..api.groups import CLASSIC
from ..errors import (
    GroupBusy,
    InvalidName,
    ModeConflict,
    Refused,
    TooLarge,
    TooManyGroups,
    UnknownMember,
)
from ..groups.classic import ClassicGroup, ClassicMember, ClassicState, ProtocolConflict
from ..kernel import OwnerCounts
from ..model import check_name
from .catalogue import Catalogue
from .groups import check_group
from .partition import Now
from .shares import GROUPS

_MEMBER = "member"
_MEMBER_BITS = 128
# What a member says of itself, and what a leader assigns to each: they stay in memory as long as the member does.
_METADATA_BYTES_MAX = 256 << 10
_SESSION_MS_MIN = 100
_SESSION_MS_MAX = 1_800_000
_NEVER = float("inf")


class ClassicGroups:
    """Those that have members. One that is empty lives on in the offsets that it committed."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self.groups: dict[str, ClassicGroup] = {}
        # The keys that made them.
        self._owners: dict[str, str] = {}
        self._counts = OwnerCounts()
        # Where a group goes on that comes again: a generation is never met twice in one life of the node.
        self._generation = 0
        # Likewise: a member that waits for another change of its group takes no other group of the name for its own.
        self._changes = 0

    def join(self, command: JoinClassic, now: Now) -> JoinTicket:
        name = check_group(command.group)
        if not _SESSION_MS_MIN <= command.session_ms <= _SESSION_MS_MAX:
            raise Refused(f"a session timeout is in {_SESSION_MS_MIN}..{_SESSION_MS_MAX} ms")
        _check_size(sum(len(said) for _, said in command.protocols))
        group = self._group(name)
        group.tick(now.monotonic_ns)
        # The join may be refused, and members may have been missed.
        self._keep(group)
        member = command.member
        if not member:
            member = self._new_id(command)
            if command.needs_id and not command.instance:
                group.promise(member, command.session_ms, now.monotonic_ns)
                self._keep(group)
                return JoinTicket(member, False)
        elif member not in group.promised:
            group.require(member, command.instance)
        joining = ClassicMember(
            member,
            command.instance,
            command.client,
            command.host,
            command.session_ms,
            min(max(command.rebalance_ms, _SESSION_MS_MIN), _SESSION_MS_MAX),
            command.protocols,
            frozenset(command.topic_names),
        )
        group.join(joining, command.protocol_type, now.monotonic_ns)
        self._keep(group)
        return JoinTicket(member, True)

    def _new_id(self, command: JoinClassic) -> str:
        prefix = _MEMBER
        with suppress(InvalidName):
            prefix = check_name(command.instance or command.client, _MEMBER)
        return f"{prefix}-{self._catalogue.entropy.getrandbits(_MEMBER_BITS):032x}"

    def _group(self, name: str) -> ClassicGroup:
        found = self.groups.get(name)
        if found is not None:
            return found
        limits = self._catalogue.limits
        if len(self.groups) >= limits.groups_max:
            raise TooManyGroups(
                name, "all topics together", limit=limits.groups_max, setting="limits.groups_max"
            )
        GROUPS.require_room(limits, self._catalogue.principal, (self._counts,), in_all=0)
        return ClassicGroup(
            name, self._generation, changes=self._changes, changes_told=self._changes
        )

    def _keep(self, group: ClassicGroup) -> None:
        """Keep a group that has members or waits for some, forget another; have the driver wake members that wait, and
        tick in time.
        """
        changes = self._catalogue.changes
        if group.changes != group.changes_told:
            group.changes_told = group.changes
            changes.groups.add(group.name)
        if group.members or group.promised:
            if group.name not in self.groups:
                owner = self._owners[group.name] = self._catalogue.principal.key_id
                self._counts.add(owner)
            self.groups[group.name] = group
            changes.due_ns = min(changes.due_ns, group.next_due_ns())
        elif self.groups.pop(group.name, None) is not None:
            changes.groups.add(group.name)
            self._counts.remove(self._owners.pop(group.name))
            self._generation = max(self._generation, group.generation)
            self._changes = max(self._changes, group.changes)

    def _of(self, name: str, member: str) -> ClassicGroup:
        group = self.groups.get(name)
        if group is None:
            raise UnknownMember(name, member)
        return group

    def await_join(self, command: AwaitJoin) -> JoinedClassic | Pending:
        group = self._of(command.group, command.member)
        known = group.require(command.member, "")
        if known.is_joining:
            return Pending(group.changes)
        members: tuple[JoinedMember, ...] = ()
        if group.leader == known.id:
            members = tuple(
                JoinedMember(one.id, one.instance, one.metadata(group.protocol))
                for one in group.members.values()
            )
        return JoinedClassic(
            group.generation, group.protocol_type, group.protocol, group.leader, members
        )

    def sync(self, command: SyncClassic, now: Now) -> bytes | Pending:
        group = self._of(command.group, command.member)
        known = group.require(command.member, command.instance, command.generation)
        if command.protocol_type not in (None, group.protocol_type) or command.protocol not in (
            None,
            group.protocol,
        ):
            raise ProtocolConflict(group.name, f"it speaks {group.protocol}")
        _check_size(max(map(len, command.assignments.values()), default=0))
        found = group.sync(known, command.assignments, now.monotonic_ns)
        self._keep(group)
        return Pending(group.changes) if found is None else found

    def heartbeat(self, command: HeartbeatClassic, now: Now) -> None:
        group = self._of(command.group, command.member)
        known = group.require(command.member, command.instance, command.generation)
        try:
            group.heartbeat(known, now.monotonic_ns)
        finally:
            self._keep(group)

    def leave(self, command: LeaveClassic, now: Now) -> None:
        group = self._of(command.group, command.member)
        member = command.member
        if member in group.promised:
            del group.promised[member]
        else:
            if not member and (holder := group.of_instance(command.instance)) is not None:
                member = holder.id
            group.require(member, command.instance)
            group.leave(member, now.monotonic_ns)
        self._keep(group)

    def require_commit(self, group_name: str, member: str, generation: int, instance: str) -> None:
        """Refuse a commit to a group with members, unless a member makes it in the present generation.

        A member that has to join again may still commit what it did before.
        """
        group = self.groups.get(group_name)
        if group is None or not group.members:
            if member:
                raise UnknownMember(group_name, member)
            return
        group.require(member, instance, generation)

    def tick(self, now: Now) -> None:
        for group in [*self.groups.values()]:
            if group.next_due_ns() <= now.monotonic_ns:
                group.tick(now.monotonic_ns)
                self._keep(group)

    def next_due_ns(self) -> float:
        return min((one.next_due_ns() for one in self.groups.values()), default=_NEVER)

    def changes_of(self, group: str) -> int:
        """How often a group has changed; -1 for one that is not there."""
        found = self.groups.get(group)
        return -1 if found is None else found.changes

    def busy_groups(self) -> list[str]:
        return [name for name, one in self.groups.items() if one.members]

    def topics_of(self, group: str, member: str) -> frozenset[str]:
        """The topics that a member said it reads; none if there is no such member."""
        found = self.groups.get(group)
        known = None if found is None else found.members.get(member)
        return frozenset() if known is None else known.topics

    def require_no_reader(self, group: str, topics: Iterable[str], *, asked: str) -> None:
        """ModeConflict: a member reads one of these topics."""
        found = self.groups.get(group)
        members = () if found is None else found.members.values()
        for topic in topics:
            if any(topic in one.topics for one in members):
                raise ModeConflict(group, topic, asked=asked, mode=CLASSIC)

    def require_empty(self, group: str) -> None:
        found = self.groups.get(group)
        if found is not None and found.members:
            raise GroupBusy(group, in_flight=0, members=len(found.members))

    def facts(self, name: str) -> ClassicGroupFacts:
        group = self.groups.get(name)
        if group is None:
            return ClassicGroupFacts(name, ClassicState.EMPTY.value, "", "", ())
        return ClassicGroupFacts(
            name,
            group.state.value,
            group.protocol_type,
            group.protocol,
            tuple(
                ClassicMemberFacts(
                    one.id,
                    one.instance,
                    one.client,
                    one.host,
                    one.metadata(group.protocol),
                    one.assignment,
                )
                for one in group.members.values()
            ),
        )


def _check_size(found: int) -> None:
    if found > _METADATA_BYTES_MAX:
        raise TooLarge("metadata of a member in bytes", found=found, limit=_METADATA_BYTES_MAX)

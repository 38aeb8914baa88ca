"""Checks which member owns which partition of an assigned group.

A member owns a partition until it releases it, leaves, is replaced, is silent for its session timeout, or takes too
long to release. Until then no other member may own it.
"""

from typing import NamedTuple

from ..broker.node import Node
from ..groups import Membership
from ..model import TopicPartition
from .books import Books
from .event import Event
from .schedule import MS
from .violation import Checker, Violation

SESSION_MS = 2000
REVOCATION_MS = 3000


class MemberCall(NamedTuple):
    """A call that a member makes now under its present generation."""

    member: str
    what: str


NO_CALL = MemberCall("", "")
# By these calls a member gives partitions up.
_RELEASES = frozenset({"release", "leave", "join"})


class OwnerBook:
    """`calling` is set by members around their calls; `owners` is the owner of each partition, by group."""

    def __init__(self, books: Books, *, has_room: bool) -> None:
        # On a full disk the leases of a former owner last until their deadline.
        self._books, self._has_room = books, has_room
        self.calling = NO_CALL
        self.owners: dict[str, dict[TopicPartition, str]] = {}
        self._seen: dict[tuple[str, str], int] = {}
        self._asked: dict[tuple[str, TopicPartition], int] = {}

    def restarted(self) -> None:
        """Forget all members: after a start the groups are empty."""
        self.owners.clear()
        self._seen.clear()
        self._asked.clear()
        for book in self._books.by_partition.values():
            for group in book.groups.values():
                group.taken.clear()

    def seen(self, group: str, member: str, event: Event) -> None:
        """Take note that the node accepted a call of a member."""
        self._seen[group, member] = event.time.true_ns

    def follow(self, node: Node, event: Event) -> None:
        """Compare owners after an event. Violation: a member lost a partition that it had not given up."""
        for group, membership in node.assigned.groups.items():
            owned = _owned(membership)
            for partition, member in self.owners.get(group, {}).items():
                if owned.get(partition) != member:
                    self._require_over(group, partition, member, event)
            self.owners[group] = owned
            self._note_asked(group, membership, event)
            self._judge_taken(node, group)
        self.calling = NO_CALL

    def _require_over(
        self, group: str, partition: TopicPartition, member: str, event: Event
    ) -> None:
        now_ns = event.time.true_ns
        if self.calling.member == member and self.calling.what in _RELEASES:
            return
        if now_ns - self._seen[group, member] >= SESSION_MS * MS:
            return
        if now_ns - self._asked.get((group, partition), now_ns) >= REVOCATION_MS * MS:
            return
        raise Violation(Checker.OWNED_ONCE, f"{partition} was taken from its owner {member}")

    def _note_asked(self, group: str, membership: Membership, event: Event) -> None:
        for key in [one for one in self._asked if one[0] == group]:
            if key[1] not in membership.asked:
                del self._asked[key]
        for partition in membership.asked:
            self._asked.setdefault((group, partition), event.time.true_ns)

    def _judge_taken(self, node: Node, group: str) -> None:
        """Violation: messages were taken from an owner that did not join anew, or a former owner holds some."""
        for partition, owner in self.owners[group].items():
            if node.topic(partition.topic).partitions.serving_at(partition.number) is None:
                # A faulty one records nothing: what a former owner held ends at a join after its repair.
                continue
            book = self._books.by_partition[partition]
            for one in book.groups.values():
                if one.name != group:
                    continue
                if owner in one.taken and self.calling != MemberCall(owner, "join"):
                    story = f"{partition}: {owner} owns it, and its messages were taken"
                    raise Violation(Checker.LEASE_EXCLUSIVE, story)
                one.taken.clear()
                holders = {one.entries[offset].member for offset in one.leased}
                if self._has_room and holders - {owner}:
                    story = f"{partition} belongs to {owner}, and {sorted(holders)} hold messages"
                    raise Violation(Checker.LEASE_EXCLUSIVE, story)


def _owned(membership: Membership) -> dict[TopicPartition, str]:
    owned: dict[TopicPartition, str] = {}
    for member in membership.members.values():
        for partition in member.owned:
            other = owned.setdefault(partition, member.id)
            if other != member.id:
                story = f"{partition} belongs to {other} and to {member.id}"
                raise Violation(Checker.OWNED_ONCE, story)
    if owned != membership.owners:
        story = f"members own {owned}, the group says {membership.owners}"
        raise Violation(Checker.OWNED_ONCE, story)
    return owned

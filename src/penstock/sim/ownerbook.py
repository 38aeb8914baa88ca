"""Who may read which partition of an assigned group, judged from outside.

A right that was given stays until its owner released it, left or was replaced, was silent for its session timeout, or
took too long to release. Until then nobody else may have it.
"""

from typing import NamedTuple

from ..broker.node import Node
from ..groups import Membership
from ..model import TopicPartition
from .books import Books
from .scene import Scene
from .schedule import MS
from .violation import Checker, Violation

SESSION_MS = 2000
REVOCATION_MS = 3000


class Call(NamedTuple):
    """Something that a member itself asks for now, as who it is now: not as a zombie."""

    member: str
    what: str


NOBODY = Call("", "")
# With these a member gives its rights up by itself.
_GIVING_UP = frozenset({"release", "leave", "join"})


class OwnerBook:
    """`calling` is set by members around their calls; `rights` is who has which partition."""

    def __init__(self, books: Books, *, has_room: bool) -> None:
        # On a full disk the leases of a former owner last until their deadline.
        self._books, self._has_room = books, has_room
        self.calling = NOBODY
        self.rights: dict[str, dict[TopicPartition, str]] = {}
        self._seen: dict[tuple[str, str], int] = {}
        self._asked: dict[tuple[str, TopicPartition], int] = {}

    def restarted(self) -> None:
        """Nobody is a member any more."""
        self.rights.clear()
        self._seen.clear()
        self._asked.clear()
        for book in self._books.by_place.values():
            for group in book.groups.values():
                group.taken.clear()

    def seen(self, group: str, member: str, scene: Scene) -> None:
        """A call of a member was taken."""
        self._seen[group, member] = scene.moment.true_ns

    def follow(self, node: Node, scene: Scene) -> None:
        """After each event: every right that is gone was given up, or was over."""
        for group, membership in node.assigned.groups.items():
            owned = _owned(membership)
            for partition, member in self.rights.get(group, {}).items():
                if owned.get(partition) != member:
                    self._require_over(group, partition, member, scene)
            self.rights[group] = owned
            self._note_asked(group, membership, scene)
            self._judge_taken(group)
        self.calling = NOBODY

    def _require_over(
        self, group: str, partition: TopicPartition, member: str, scene: Scene
    ) -> None:
        now_ns = scene.moment.true_ns
        if self.calling.member == member and self.calling.what in _GIVING_UP:
            return
        if now_ns - self._seen[group, member] >= SESSION_MS * MS:
            return
        if now_ns - self._asked.get((group, partition), now_ns) >= REVOCATION_MS * MS:
            return
        raise Violation(Checker.OWNED_ONCE, f"{partition} was taken from {member}, who has it")

    def _note_asked(self, group: str, membership: Membership, scene: Scene) -> None:
        for place in [one for one in self._asked if one[0] == group]:
            if place[1] not in membership.asked:
                del self._asked[place]
        for partition in membership.asked:
            self._asked.setdefault((group, partition), scene.moment.true_ns)

    def _judge_taken(self, group: str) -> None:
        """Messages are taken only from those who own their partition no more, or who began anew."""
        for partition, owner in self.rights[group].items():
            book = self._books.by_place[partition]
            for one in book.groups.values():
                if one.name != group:
                    continue
                if owner in one.taken and self.calling != Call(owner, "join"):
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

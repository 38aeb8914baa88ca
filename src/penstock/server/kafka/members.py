"""What the server remembers of members of Kafka clients between their requests, whatever connection these come on."""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

from ..binary.shared_groups import SharedMember

Partition = tuple[bytes, int]
"""Kafka's id of a topic, which no other topic ever has, and the number of a partition."""

NONE_SENT = -1
# A few KB each. The one that was longest silent goes; its client begins anew when it is told that it is not known.
_MEMBERS_MAX = 10_000


@dataclass(slots=True)
class ShareSession:
    """The partitions that a member fetches, and what it holds of them: lease and number of the group, by offset."""

    partitions: set[Partition] = field(default_factory=set)
    held: dict[Partition, dict[int, tuple[int, int]]] = field(default_factory=dict)

    @property
    def topics(self) -> set[bytes]:
        return {topic for topic, _ in self.partitions} | {topic for topic, _ in self.held}


@dataclass(slots=True)
class KafkaMember:
    """A member of a group that the broker assigns, or of a share group."""

    # What it subscribed to, and which of its assignments it was sent.
    topics: tuple[str, ...] = ()
    sent: int = NONE_SENT
    host: str = ""
    share: ShareSession | None = None


class KafkaMembers:
    """By the name of the principal, the group and the member. Belongs to one event loop."""

    def __init__(self, members_max: int = _MEMBERS_MAX) -> None:
        self._members: OrderedDict[tuple[str, str, str], KafkaMember] = OrderedDict()
        self._members_max = members_max

    def find(self, principal: str, group: str, member: str) -> KafkaMember | None:
        found = self._members.get((principal, group, member))
        if found is not None:
            self._members.move_to_end((principal, group, member))
        return found

    def keep(self, principal: str, group: str, member: str) -> KafkaMember:
        """A member that is there, or a new one."""
        found = self.find(principal, group, member)
        if found is None:
            found = self._members[principal, group, member] = KafkaMember()
            if len(self._members) > self._members_max:
                self._members.popitem(last=False)
        return found

    def forget(self, principal: str, group: str, member: str) -> None:
        self._members.pop((principal, group, member), None)

    def forget_missed(self, missed: Iterable[SharedMember]) -> None:
        """Forget members of shared groups that were not heard of in time."""
        gone = {(one.group, one.name) for one in missed}
        for key in [key for key in self._members if key[1:] in gone]:
            del self._members[key]

    def of_group(self, group: str) -> dict[str, KafkaMember]:
        return {name: found for (_, other, name), found in self._members.items() if other == group}

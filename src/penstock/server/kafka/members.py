"""What the server remembers of members of Kafka clients between their requests, whatever connection these come on."""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import takewhile
from time import monotonic

from ...api.principals import Principal
from ...broker.shares import MEMBERS
from ...config import LimitsConfig
from ...errors import ShareFull
from ...kernel import OwnerCounts
from ..binary.shared_groups import SharedMember

Partition = tuple[bytes, int]
"""Kafka's id of a topic, which no other topic ever has, and the number of a partition."""

NONE_SENT = -1
# Longer than the sessions of their groups. The client of one that is forgotten begins anew when it is told so.
_SILENT_S = 600.0


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
    # When a request of it came last.
    seen_at: float = 0.0


_NONE: OrderedDict[tuple[str, str], KafkaMember] = OrderedDict()


class KafkaMembers:
    """By the key of the principal, the group and the member. Belongs to one event loop.

    A key has a share of them (`broker/shares.py`). One that is full makes room by members that were silent for longer
    than any session lasts, and then refuses: no member of another key goes.
    """

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self._now = now
        # Those that were silent longest first.
        self._members: dict[str, OrderedDict[tuple[str, str], KafkaMember]] = {}
        self._counts = OwnerCounts()

    def find(self, principal: Principal, group: str, member: str) -> KafkaMember | None:
        of_key = self._members.get(principal.key_id, _NONE)
        known = of_key.get((group, member))
        if known is not None:
            known.seen_at = self._now()
            of_key.move_to_end((group, member))
        return known

    def keep(
        self, principal: Principal, group: str, member: str, limits: LimitsConfig
    ) -> KafkaMember:
        """A member that is there, or a new one. ShareFull."""
        known = self.find(principal, group, member)
        if known is None:
            try:
                MEMBERS.require_room(limits, principal, (self._counts,))
            except ShareFull:
                self._forget_silent()
                MEMBERS.require_room(limits, principal, (self._counts,))
            known = KafkaMember(seen_at=self._now())
            self._members.setdefault(principal.key_id, OrderedDict())[group, member] = known
            self._counts.add(principal.key_id)
        return known

    def _forget_silent(self) -> None:
        until = self._now() - _SILENT_S
        for key_id, of_key in [*self._members.items()]:
            silent = [*takewhile(lambda place: of_key[place].seen_at < until, of_key)]  # noqa: B023 - used at once
            for place in silent:
                self._remove(key_id, place)

    def _remove(self, key_id: str, place: tuple[str, str]) -> None:
        of_key = self._members.get(key_id, _NONE)
        if of_key.pop(place, None) is not None:
            self._counts.remove(key_id)
            if not of_key:
                del self._members[key_id]

    def forget(self, principal: Principal, group: str, member: str) -> None:
        self._remove(principal.key_id, (group, member))

    def forget_missed(self, missed: Iterable[SharedMember]) -> None:
        """Forget members of shared groups that were not heard of in time."""
        for member in missed:
            self._remove(member.owner, (member.group, member.name))

    def of_group(self, group: str) -> dict[str, KafkaMember]:
        return {
            name: known
            for of_key in self._members.values()
            for (other, name), known in of_key.items()
            if other == group
        }

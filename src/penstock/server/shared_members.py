"""Members of shared groups: any of them gets any message, so all that is kept is their names.

In memory, like the members of assigned groups: after a restart they join again, and what they hold goes on.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from secrets import randbelow, token_hex

from ..api.answers import ReleaseMember
from ..api.principals import NO_KEY, Principal
from ..broker.shares import MEMBERS
from ..config import LimitsConfig
from ..errors import AlreadyExists, UnknownMember
from ..kernel import OwnerCounts
from ..model import check_name

_GENERATION_MAX = 1 << 40


@dataclass(slots=True)
class SharedMember:
    """A member that joined; missed when `until` has come and it has no open poll."""

    group: str
    name: str
    client: str
    topics: Sequence[str]
    session_s: float
    until: float
    polls: int = 0
    host: str = ""
    # Above 0 it works in rounds; commands with another number are from a former member of its name.
    generation: int = 0
    # The id of the key that it joined with.
    owner: str = NO_KEY

    def release(self, topic: str) -> ReleaseMember:
        """Returns what makes the messages of a topic ready again when the member goes away."""
        return ReleaseMember(topic, self.group, self.name, is_unseen=self.generation > 0)


class SharedMembers:
    """All of them, by group and name. A key has a share of them (`broker/shares.py`)."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._members: dict[tuple[str, str], SharedMember] = {}
        self._counts = OwnerCounts()
        self._watchers: list[Callable[[Sequence[SharedMember]], None]] = []

    def watch(self, forget: Callable[[Sequence[SharedMember]], None]) -> None:
        """Have `forget` called with the members of each `take_missed`."""
        self._watchers.append(forget)

    def join(
        self,
        group: str,
        name: str,
        client: str,
        topics: Sequence[str],
        session_s: float,
        *,
        by: Principal,
        limits: LimitsConfig,
        in_rounds: bool = False,
    ) -> SharedMember:
        """Add a member. AlreadyExists: the name is that of one that works in rounds, and lives. ShareFull."""
        check_name(client, "client")
        name = check_name(name or f"{client}-{token_hex(4)}", "member")
        self.require_free(group, name)
        member = SharedMember(group, name, client, topics, session_s, self._now() + session_s)
        # Also after a restart no member has the number of one before.
        member.generation = 1 + randbelow(_GENERATION_MAX) if in_rounds else 0
        member.owner = by.key_id
        former = self._members.get((group, name))
        is_own = former is not None and former.owner == member.owner
        MEMBERS.require_room(
            limits, by, (self._counts,), of_key=int(not is_own), in_all=int(former is None)
        )
        if former is not None:
            self._remove(former)
        self._members[group, name] = member
        self._counts.add(member.owner)
        return member

    def _remove(self, member: SharedMember) -> None:
        del self._members[member.group, member.name]
        self._counts.remove(member.owner)

    def require_free(self, group: str, name: str) -> None:
        """AlreadyExists: the name is that of a member that works in rounds, and lives."""
        known = self._members.get((group, name))
        if known is not None and known.generation and not self._is_missed(known):
            raise AlreadyExists("member", name)

    def _is_missed(self, member: SharedMember) -> bool:
        return member.until <= self._now() and not member.polls

    def get(self, group: str, name: str) -> SharedMember | None:
        return self._members.get((group, name))

    def find(self, group: str, name: str) -> SharedMember | None:
        """The member, if it is there; asking is a sign of life."""
        member = self._members.get((group, name))
        if member is not None:
            member.until = self._now() + member.session_s
        return member

    def leave(self, group: str, name: str) -> SharedMember:
        member = self._members.get((group, name))
        if member is None:
            raise UnknownMember(group, name[:60])
        self._remove(member)
        return member

    def take_missed(self) -> list[SharedMember]:
        """Members that were not heard of in time; they are members no more."""
        missed = [one for one in self._members.values() if self._is_missed(one)]
        for member in missed:
            self._remove(member)
        if missed:
            for forget in self._watchers:
                forget(missed)
        return missed

"""Which members of shared groups have polled of late, also those that hold nothing.

In memory, for people to look at: no decision depends on it, and after a restart members appear with their next poll.
"""

from collections.abc import Callable
from typing import NamedTuple

from ..api.consume import Poll
from ..api.groups import PollerFacts
from .partition import Now

# A member that died without leaving is shown for so long, with the time of its last poll.
_SHOWN_NS = 600_000_000_000
_POLLERS_MAX = 10_000


class _LastPoll(NamedTuple):
    at_ns: int
    host: str


class Pollers:
    """The last poll of every member, by group, member and topic; the one that polled last is the last of its group."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[tuple[str, str], _LastPoll]] = {}

    def note(self, poll: Poll, now: Now) -> None:
        """A member polls. Of very many, the one that has not polled for longest is forgotten."""
        members = self._groups.setdefault(poll.group, {})
        key = poll.member, poll.topic
        members.pop(key, None)
        members[key] = _LastPoll(now.wall_ns, poll.host)
        if len(members) > _POLLERS_MAX:
            del members[next(iter(members))]

    def forget(self, topic: str, group: str, member: str) -> None:
        """A member has left."""
        members = self._groups.get(group, {})
        members.pop((member, topic), None)
        if not members:
            self._groups.pop(group, None)

    def forget_group(self, group: str) -> None:
        self._groups.pop(group, None)

    def of_group(
        self, group: str, covers: Callable[[str], bool], now: Now
    ) -> tuple[PollerFacts, ...]:
        """The members that polled topics which `covers` takes within the last ten minutes, by name."""
        found: dict[str, PollerFacts] = {}
        for (member, topic), (at_ns, host) in self._groups.get(group, {}).items():
            if now.wall_ns - at_ns > _SHOWN_NS or not covers(topic):
                continue
            known = found.get(member)
            topics = (topic,) if known is None else (*known.topics, topic)
            # In the order of their polls, so that the last one is the latest.
            found[member] = PollerFacts(member, tuple(sorted(topics)), host, at_ns)
        return tuple(found[name] for name in sorted(found))

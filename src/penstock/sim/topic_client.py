"""A client of a cluster that makes topics of several partitions, has them grow and deletes them, all in pieces."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from ..api.health import EventKind
from ..api.principals import LOCAL
from ..api.topics import AddPartitions, CreateTopic, DeleteTopic
from ..broker.walks import Walk
from ..log.layout import SETTINGS
from .schedule import MS
from .violation import Checker, Violation

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..api.command import Command
    from .cluster import ClusterWorld
    from .cluster_member import Member

_EVERY_MS = 400
_PREFIX = "many-"
_PARTITIONS_MAX = 7


@dataclass(slots=True)
class TopicClient:
    """`promised`: how many partitions a topic has at least, by name; `gone`: topics that are deleted for good.

    `leaving`: it has begun to delete them, and they may be there or not.
    """

    world: ClusterWorld
    # Its own, so that all else goes on as it would without it.
    entropy: Random
    promised: dict[str, int] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    leaving: set[str] = field(default_factory=set)
    _made: int = 0

    def wake(self) -> None:
        if self.world.is_calm:
            return
        entropy = self.entropy
        self.world.schedule.after(entropy.randint(1, _EVERY_MS * MS), self.wake)
        for member in self.world.leaders():
            assert member.node is not None
            names = [one for one in self.promised if one in member.node.open]
            lot = entropy.randint(0, 5)
            if not names or lot < 2:
                self._made += 1
                name, total = f"{_PREFIX}{self._made}", entropy.randint(1, _PARTITIONS_MAX)
                self._ask(member, CreateTopic(name, total), partial(self._grew, name, total))
                continue
            name = names[entropy.randint(0, len(names) - 1)]
            if lot < 4:
                total = len(member.node.open[name].partitions) + entropy.randint(1, 5)
                self._ask(member, AddPartitions(name, total), partial(self._grew, name, total))
            else:
                del self.promised[name]
                self.leaving.add(name)
                self._ask(member, DeleteTopic(name), partial(self._went, name))

    def _ask(
        self, member: Member, command: Command[Any], answered: Callable[[object], None]
    ) -> None:
        if member.leader is None or not member.leader.has_quorum:
            return
        walk = Walk(command, LOCAL)
        member.walk_later(lambda: member.walk(walk, answered))
        if self.entropy.randint(0, 3) == 0:
            # Its client does not wait.
            member.walk_later(walk.close, 60)

    def _grew(self, name: str, total: int, _reply: object) -> None:
        if name not in self.leaving:
            self.promised[name] = max(total, self.promised.get(name, 0))

    def _went(self, name: str, _reply: object) -> None:
        self.gone.add(name)

    def forget(self) -> None:
        """A leader was forced: nothing that was promised before counts."""
        self.promised.clear()
        self.gone.clear()

    def check(self, member: Member) -> None:
        """Violation: a leader lacks partitions that were promised, or has what was deleted."""
        assert member.node is not None
        opened = member.node.open
        aside = [one for one in member.node.recovery if one.kind is EventKind.SET_ASIDE]
        if aside:
            raise Violation(Checker.RECOVERY, f"{aside[0].path} is set aside: {aside[0].reason}")
        for name, total in self.promised.items():
            found = len(opened[name].partitions) if name in opened else 0
            if found < total:
                raise Violation(Checker.NO_ACKED_LOSS, f"{name} has {found} of {total} partitions")
        if back := sorted(self.gone & opened.keys()):
            raise Violation(Checker.NO_PHANTOM, f"{back} were deleted, and are there")

    def check_files(self, leading: Member) -> None:
        """Violation: a node has files of topics that its leader does not know, or not all that it does."""
        assert leading.node is not None
        known = {
            facts.partition_directory(number)
            for facts in leading.node.topics.by_id.values()
            for number in range(facts.partitions)
        }
        beside = {path.rpartition("/")[0] for path in known}
        for member in self.world.members.values():
            topics = [f"topics/default/{one}" for one in member.disk.list("topics/default")]
            found = {
                f"{topic}/{name}"
                for topic in topics
                for name in member.disk.list(topic)
                if topic not in beside or not name.startswith(SETTINGS)
            }
            if found != known:
                story = f"node {member.number}: {sorted(found ^ known)} are there or are missing"
                raise Violation(Checker.RECOVERY, story)

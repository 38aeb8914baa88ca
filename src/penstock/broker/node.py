"""A broker without a clock or a network: topics, their partitions, and what passes between them.

The only router. A shell calls it with the time, performs the plans that it is given, and calls `pump` after each sync.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from ..api.command import Command
from ..api.members import MemberCommand
from ..api.principals import LOCAL, Principal
from ..config import CACHE_BYTES, LimitsConfig, NodeConfig, TopicConfig
from ..errors import (
    DamagedFile,
    Fatal,
    FileMissing,
    NoSpace,
    NotFound,
    PartitionFaulty,
    PenstockError,
    Unavailable,
)
from ..log.reign import ALONE, Reign
from ..ports import Disk, Entropy, Zones
from ..schemas.validation import Binding
from .admission import DiskGuard
from .authorise import authorise_command, authorise_member
from .catalogue import Catalogue, Topic
from .classic_groups import ClassicGroups
from .commits import NamedCommits
from .handlers import HANDLERS, LARGE
from .keys import key_ended
from .memberships import Memberships
from .partition import Now, Partition, consumption, firing, forwarding, occurrences
from .partition.changes import Done
from .partition.damage import DamageLedger
from .partition.dead_letters import dead_letter_topic
from .partition.outbox import DECISIONS, Burial, Letter
from .poll_replay import PollReplay
from .pollers import Pollers
from .progress import OpeningProgress
from .staging_quota import StagingQuota
from .sweeps import Sweeps
from .transactions import Transactions
from .validation import ViolationLedger, bind_topic
from .walks import ALL_ENTRIES, Pieces, Walk

__all__ = ["Node", "Now", "Observer", "Topic"]

_LIMITS = LimitsConfig()
_CONFIG = NodeConfig()
# So much may the wall clock go on faster or slower than the other one before what is due by it is looked at again.
_SKEW_NS_MAX = 1_000_000
R = TypeVar("R")

Observer = Callable[[Command[Any], object], None]
"""Told of every command and its reply, or the error that it was refused with."""


class Node(Catalogue):
    """All topics of one data directory, and every command on them."""

    def __init__(
        self,
        disk: Disk,
        *,
        now: Now,
        entropy: Entropy,
        limits: LimitsConfig = _LIMITS,
        config: NodeConfig = _CONFIG,
        min_free_bytes: int = 0,
        damage: DamageLedger | None = None,
        cache_bytes: int = CACHE_BYTES,
        usual_sweep_times: int = 1,
        is_firing: bool = True,
        is_resuming: bool = True,
        observer: Observer | None = None,
        violations: ViolationLedger | None = None,
        zones: Zones | None = None,
        reign: Reign = ALONE,
        progress: OpeningProgress | None = None,
    ) -> None:
        """Not `is_firing`: delayed and recurring messages come by `FireDelayed` only, and not by a tick.

        Not `is_resuming`: the caller applies what transactions decided, before it serves anything.
        """
        super().__init__(
            disk,
            now=now,
            entropy=entropy,
            limits=limits,
            damage=damage,
            cache_bytes=cache_bytes,
            zones=zones,
            reign=reign,
            progress=progress,
        )
        self._observer, self.config = observer, config
        self.violations = violations or ViolationLedger()
        # Topics that ask for schemas. Drivers look without their lock, so an entry is replaced and never changed.
        self.bindings: dict[str, Binding] = {}
        self.sweeps = Sweeps(usual_times=usual_sweep_times)
        for name, topic in self.open.items():
            self.sweeps.plan(name, topic.facts.config, now.monotonic_ns)
            bind_topic(self, name)
        self.guard = DiskGuard(disk, min_free_bytes=min_free_bytes)
        self._is_firing = is_firing
        # The two clocks as last seen together: delays are due on one of them and waited for on the other.
        self._seen = now
        self._skew_ns = now.wall_ns - now.monotonic_ns
        self.assigned = Memberships(self, config)
        self.classic = ClassicGroups(self)
        self.replays = PollReplay(self.partition)
        self.pollers = Pollers()
        self.transactions, self.commits = Transactions(self), NamedCommits(self)
        self.staging_quota = StagingQuota(self)
        # Before anything is served: a group must not be told of what was before a decision that was made.
        if is_resuming:
            self.transactions.resume(now)
        self._expect(self.partitions(), now)

    def execute(
        self,
        command: Command[R],
        principal: Principal,
        now: Now,
        *,
        entries: int = ALL_ENTRIES,
    ) -> Done[R]:
        """Carry out a command, if the principal may: the only way in. What it refuses is the error in `Done.reply`.

        A walk that has more than so many entries to look at is in `Done.more`.
        """
        if command.is_walk:
            return self.go_on(Walk(command, principal), now, entries)
        reply: R | PenstockError
        try:
            reply = self.carry_out(command, principal, now)
        except Fatal:
            raise
        except PenstockError as error:
            reply = error.fresh()
        return self.changes.done(reply, now)

    def go_on(self, walk: Walk[R], now: Now, entries: int) -> Done[R]:
        """Carry out a slice of a walk, which is over unless it is in `Done.more`.

        Its right is asked again. Refused with Unauthenticated if the key of its client has ended, and with Unavailable
        if it was begun by a node that was replaced since.
        """
        reply: R | PenstockError
        try:
            reply = self.carry_out(walk.command, walk.principal, now, walk=walk, entries=entries)
        except PenstockError as error:
            walk.close()
            if isinstance(error, Fatal):
                raise
            reply = error.fresh()
        return self.changes.done(reply, now, None if walk.is_over else walk)

    def carry_out(
        self,
        command: Command[R],
        principal: Principal,
        now: Now,
        *,
        walk: Walk[R] | None = None,
        entries: int = ALL_ENTRIES,
    ) -> R:
        """The reply to a command that the driver gives while another one is under way, or raises why it is refused.

        What it records is in the `Done` of the other one. A walk goes on to its end, unless a budget is given.
        """
        if walk is None and command.is_walk:
            walk = Walk(command, principal)
        if abs(now.wall_ns - now.monotonic_ns - self._skew_ns) > _SKEW_NS_MAX:
            self._see(now)
        self._seen = now
        try:
            if principal is not LOCAL:
                authorise_command(principal, command)
                if principal.prefixes and isinstance(command, MemberCommand):
                    group, member = command.group, command.member
                    topics = self.assigned.topics_of(group, member)
                    topics |= self.classic.topics_of(group, member)
                    authorise_member(principal, member, topics)
            self.principal = principal
            handler = HANDLERS[type(command)]
            if walk is not None and command.may_be_large:
                handler = LARGE[type(command)]
            reply: R = (
                handler(self, command, now)
                if walk is None
                else self._advance(walk, partial(handler, self, command, now), now, entries)
            )
        except PenstockError as error:
            if isinstance(error, FileMissing | DamagedFile):
                self._fail_unwritable(error)
            if self._observer is not None:
                self._observer(command, error)
            raise
        if self._observer is not None and (walk is None or walk.is_over):
            self._observer(command, reply)
        return reply

    def _fail_unwritable(self, error: PenstockError) -> None:
        """Use no more whose newest file was to be appended to for the first time, and is not there."""
        for partition in [*self.changes.unsynced]:
            newest = (log.segments[-1] for log in (partition.messages, partition.journal.log))
            if any(segment.path == error.fields["path"] for segment in newest):
                self.fail(partition, error)

    def _advance(
        self, walk: Walk[Any], begin: Callable[[], Pieces[Any]], now: Now, entries: int
    ) -> Any:
        if walk.owner not in (None, self):
            raise Unavailable("the node was opened again while it looked; try again")
        walk.owner = self
        credential = walk.credential
        if credential is not None and self.keys.left_ns(credential, now.wall_ns) == 0:
            raise key_ended()
        return walk.advance(begin, now, entries)

    def topic_changed(self, name: str, now: Now) -> None:
        """Take note of a topic that is new, has more partitions, or is gone. Members that read it, or one of its name
        that was deleted before, share its partitions out from here on, group by group.
        """
        if name in self.open:
            self.sweeps.plan(name, self.open[name].facts.config, now.monotonic_ns)
        bind_topic(self, name)
        if self.assigned.groups:
            self.works.rebalance(name, self.assigned.topic_changed(name), now)

    def has_members(self, group: str) -> bool:
        """Whether a group has members, whichever way its partitions are assigned."""
        classic = self.classic.groups.get(group)
        return bool(self.assigned.membership(group).members or (classic and classic.members))

    def tick(self, now: Now, *, partitions_max: int = ALL_ENTRIES) -> None:
        """Let time pass everywhere: retries become ready, unanswered leases come back, delays are over.

        So many partitions in which something is due have their turn now. The others are due still.
        """
        if not self.reign.is_begun and not self.reign.is_shared:
            # The disk was full when it opened.
            self.begin_reign(now)
        due = self._take_due(now, partitions_max)
        machines = (self.assigned, self.classic, self.transactions, self.commits)
        steps: list[Callable[[], int | None]] = [
            *(partial(_expire, one, now) for one in due),
            *(partial(one.tick, now) for one in machines),
            *(partial(self._fire, one, now) for one in due),
        ]
        try:
            _take_all(steps)
        finally:
            self._expect(due, now)

    def fire(self, now: Now) -> int:
        """Deliver delayed and recurring messages that are due, so many as are good to do at once; returns how many."""
        due = self._take_due(now)
        try:
            return _take_all(partial(self._fire, one, now) for one in due)
        finally:
            self._expect(due, now)

    def _fire(self, partition: Partition, now: Now) -> int:
        if not self._is_firing:
            return 0
        machine = partition.machine
        delayed = firing.fire(partition, now) if machine.delays.pending else 0
        return delayed + (occurrences.fire(partition, now) if machine.schedules.by_number else 0)

    def _take_due(self, now: Now, partitions_max: int = ALL_ENTRIES) -> list[Partition]:
        """The partitions in which something may be due. Each has to be expected anew."""
        self._see(now)
        self._note_touched()
        return self.changes.agenda.take(now.monotonic_ns, partitions_max)

    def _see(self, now: Now) -> None:
        """Take note of the time. If the wall clock was set, what is due by it may be due sooner."""
        self._seen = now
        skew_ns = now.wall_ns - now.monotonic_ns
        if abs(skew_ns - self._skew_ns) > _SKEW_NS_MAX:
            if self._is_firing:
                # Nothing else is due by the wall clock, and few partitions have any of it.
                for partition in self.partitions():
                    machine = partition.machine
                    if machine.delays.pending or machine.schedules.by_number:
                        self.changes.agenda.expect(partition, partition.next_firing_ns(now))
            # Known last, because a Ctrl-C may come in between.
            self._skew_ns = skew_ns

    def _note_touched(self) -> None:
        """Expect what was recorded since the last command, by a tick or a sync."""
        self._expect([one for one, _ in self.changes.touched], self._seen)

    def _expect(self, partitions: Iterable[Partition], now: Now) -> None:
        for one in partitions:
            self.changes.agenda.expect(one, one.next_due_ns(now, is_firing=self._is_firing))

    def next_due_ns(self) -> float:
        """When `tick` should be called next, or infinity."""
        self._note_touched()
        members_ns = min(self.assigned.next_due_ns(), self.classic.next_due_ns())
        transactions_ns = min(self.transactions.next_due_ns(), self.commits.next_due_ns())
        return min(self.changes.agenda.next_ns(), members_ns, transactions_ns)

    def pump(self, now: Now) -> bool:
        """Decide commits whose stagings are durable, and move letters one step on their way.

        True if there is something to sync now.
        """
        self._see(now)
        has_moved = False
        if not self.reign.is_begun:
            return False
        with suppress(NoSpace):
            has_moved = self.transactions.decide_staged(now)
            has_moved = self.commits.decide_staged(now) or has_moved
        for source in self.changes.to_send():
            # Without room they stay where they are, and go when there is some again.
            with suppress(NoSpace):
                has_moved = self.forward(source, now) or has_moved
        return has_moved

    def forward(self, source: Partition, now: Now) -> bool:
        """Move the letters of one partition one step on their way. True: something moved."""
        return forwarding.step(source, partial(self._destination, source, now), now)

    def _destination(self, source: Partition, now: Now, letter: Letter) -> Partition | None:
        if isinstance(letter, Burial):
            return self._dead_letter_partition(source, now)
        if isinstance(letter, DECISIONS):
            return self.partition_of(letter.topic_id, letter.partition)
        with suppress(NotFound):
            return self.partition(letter.topic, letter.partition)
        return None

    def _dead_letter_partition(self, source: Partition, now: Now) -> Partition:
        """PartitionFaulty: it is being made. Letters wait for it as for one that is faulty."""
        name, count = dead_letter_topic(source.topic), len(self.topic(source.topic).partitions)
        topic = self.open.get(name)
        if topic is None or len(topic.partitions) <= source.number:
            making = self.works.makings.get(name)
            if making is None and topic is None:
                on_damage = source.config.on_damage
                hours = self.config.dead_letter_retention_hours
                config = TopicConfig(retention_hours=hours, on_damage=on_damage)
                making = self.create_topic(name, count, config, now)
            elif making is None:
                making = self.works.grow(name, count, now)
            if not making.walks and count <= self.works.piece:
                making.run(now)
                making.check()
            else:
                self.works.expect(now)
                raise PartitionFaulty(name, source.number, name, "the topic is being made")
        return self.partition(name, source.number)


def _expire(partition: Partition, now: Now) -> None:
    for delivery in [*partition.machine.groups.values()]:
        if delivery.next_due_ns() <= now.monotonic_ns:
            consumption.expire(partition, delivery, now)


def _take_all(steps: Iterable[Callable[[], int | None]]) -> int:
    """Take steps that do not need each other; the sum of what they return. What the first was refused with is raised
    when all had their turn: a partition without room, or without its files, holds up no other.
    """
    total, refusal = 0, None
    for step in steps:
        try:
            total += step() or 0
        except Fatal:
            raise
        except PenstockError as error:
            refusal = refusal or error.fresh()
    if refusal is not None:
        raise refusal.fresh()
    return total

"""A broker without a clock or a network: topics, their partitions, and what passes between them.

The only router. A shell calls it with the time, performs the plans that it is given, and calls `pump` after each sync.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar

from ..api.command import Command
from ..api.principals import Principal
from ..api.start import EARLIEST, Start
from ..codec.edit import expiring
from ..codec.head import NO_MARKS, read_head
from ..config import CACHE_BYTES, OFF, Cleanup, LimitsConfig, TopicConfig
from ..errors import (
    DamagedBatch,
    DamagedFile,
    Fatal,
    FileMissing,
    NoSpace,
    NotFound,
    PenstockError,
)
from ..model import Buffer, Message
from ..ports import Disk, Entropy
from . import consumption, delaying, firing, forwarding, groups
from .admission import DiskGuard
from .authorise import authorise_command
from .backlog import is_limited, require_room
from .batches import checked_batch
from .catalogue import Catalogue, Topic
from .changes import Done
from .clearing import clear_delayed
from .damage import DamageLedger
from .dead_letters import dead_letter_topic
from .delaying import Delayed
from .group_limits import require_group_room
from .handlers import HANDLERS
from .memberships import Memberships
from .outbox import Burial, Letter
from .partition import Now, Partition, Published
from .poll_replay import PollReplay
from .publishing import Answer, publish, publish_each
from .runs import PublishedRun
from .slots import Fault
from .sweeping import Sweep, Sweeps
from .topics import PARTITIONS_DEFAULT

__all__ = ["Node", "Now", "Topic"]

_DEAD_LETTER_HOURS = 336
_LIMITS = LimitsConfig()
_MS = 1_000_000
R = TypeVar("R")


class PartitionFacts(NamedTuple):
    """Size of a partition: first offset kept, next offset to be written, messages between them, bytes on disk.

    `fault` says why a partition cannot be used; then nothing else is known of it.
    """

    number: int
    earliest: int
    latest: int
    messages: int
    size_bytes: int
    fault: str = ""


class Swept(NamedTuple):
    """What a sweep did to a topic."""

    segments_removed: int
    bytes_freed: int
    groups_forgotten: tuple[str, ...]


class Node(Catalogue):
    """All topics of one data directory, and every command on them."""

    def __init__(
        self,
        disk: Disk,
        *,
        now: Now,
        entropy: Entropy,
        limits: LimitsConfig = _LIMITS,
        min_free_bytes: int = 0,
        damage: DamageLedger | None = None,
        cache_bytes: int = CACHE_BYTES,
        usual_sweep_times: int = 1,
    ) -> None:
        super().__init__(
            disk, now=now, entropy=entropy, limits=limits, damage=damage, cache_bytes=cache_bytes
        )
        self.sweeps = Sweeps(usual_times=usual_sweep_times)
        for name, topic in self.open.items():
            self.sweeps.plan(name, topic.facts.config, now.monotonic_ns)
        self.guard = DiskGuard(disk, min_free_bytes=min_free_bytes)
        # The two clocks as last seen together: delays are due on one of them and waited for on the other.
        self._seen = now
        self.assigned = Memberships(self)
        self.replays = PollReplay(self.partition)

    def execute(self, command: Command[R], principal: Principal, now: Now) -> Done[R]:
        """Carry out a command, if the principal may: the only way in. What it refuses is the error in `Done.reply`."""
        reply: R | PenstockError
        try:
            authorise_command(principal, command)
            reply = HANDLERS[type(command)](self, command, now)
        except Fatal:
            raise
        except PenstockError as error:
            reply = error
        return self.changes.done(reply, now)

    def topic_names(self) -> list[str]:
        return sorted(self.open)

    def describe(self, topic: str) -> list[PartitionFacts]:
        """Every partition of a topic."""
        return [_facts_of(one) for one in self.topic(topic).partitions.slots]

    def publish(
        self, topic: str, messages: Sequence[Message], now: Now, *, partition: int | None = None
    ) -> list[Published]:
        """Store all messages, or say why none was. PartlyPublished: the disk filled up in the middle."""
        target = self.topic(topic)
        self.guard.admit(messages, now)
        return publish(target.partitions, target.router, messages, now, to_partition=partition)

    def publish_delayed(
        self, topic: str, delayed: Sequence[Delayed], now: Now, *, partition: int | None = None
    ) -> list[Published]:
        """The same for messages that are to come at a time each. Their offsets are those of the delay log."""
        target = self.topic(topic)
        self.guard.admit([one.message for one in delayed], now)
        self._seen = now
        return delaying.publish_delayed(
            target.partitions, target.router, delayed, now, to_partition=partition
        )

    def publish_each(
        self, topic: str, messages: Sequence[Message], now: Now, *, partition: int | None = None
    ) -> list[Answer]:
        """Store what can be stored; an answer or an error for each message."""
        target = self.topic(topic)
        try:
            self.guard.admit(messages, now)
        except NoSpace as error:
            return [error] * len(messages)
        return publish_each(target.partitions, target.router, messages, now, to_partition=partition)

    def append_batch(
        self, topic: str, partition: int, batch: Buffer, now: Now
    ) -> Sequence[Published]:
        """Store a batch that a client encoded, whole; with a producer's marks a repeat gets the first result."""
        target = self.partition(topic, partition)
        head, messages = checked_batch(batch, self.limits)
        self.guard.admit_bytes(head.length, now)
        if messages is not None and head.marks == NO_MARKS:
            return self.publish(topic, messages, now, partition=partition)
        ttl_ms = target.config.ttl_ms
        if ttl_ms != OFF:
            batch = expiring(
                batch, head, now.wall_ns + ttl_ms * _MS, size_max=self.limits.batch_bytes_max
            )
            head = read_head(batch)
        # One that is there already adds nothing, and whoever asks again because its answer was lost has to hear that.
        if is_limited(target) and target.machine.producers.repeat_of(head) is None:
            require_room(target, head.message_count, head.length, is_callers_choice=False)
        first = target.append_batch(batch, head, now)
        return PublishedRun(first, head.message_count)

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = PARTITIONS_DEFAULT,
        config: TopicConfig | None = None,
        now: Now,
    ) -> Topic:
        """A new topic. Members that read one of this name before it was deleted read it, too."""
        topic = super().create_topic(name, partitions=partitions, config=config, now=now)
        self.sweeps.plan(name, topic.facts.config, now.monotonic_ns)
        self.assigned.topic_changed(name, now)
        return topic

    def configure_topic(self, name: str, changes: dict[str, Any], now: Now) -> Topic:
        """Change settings; they hold from the next command on."""
        topic = super().configure_topic(name, changes, now)
        self.sweeps.plan(name, topic.facts.config, now.monotonic_ns)
        return topic

    def add_partitions(self, name: str, total: int, now: Now) -> Topic:
        """More partitions; assigned groups share them out at once."""
        topic = super().add_partitions(name, total, now)
        self.assigned.topic_changed(name, now)
        return topic

    def delete_topic(self, name: str, now: Now) -> None:
        super().delete_topic(name, now)
        self.assigned.topic_changed(name, now)

    def open_group(self, topic: str, group: str, now: Now, *, start: Start = EARLIEST) -> None:
        """Make sure that a group exists on every partition of a topic; a new one begins at `start`.

        TooManyGroups: there is no room for a new one.
        """
        self.open_group_on([topic], group, now, start=start)

    def open_group_on(
        self, topics: Collection[str], group: str, now: Now, *, start: Start = EARLIEST
    ) -> None:
        """The same on several topics; if one of them has no room, none is touched."""
        require_group_room(self, topics, groups.check_group(group))
        for topic in topics:
            groups.open_everywhere(self.topic(topic).partitions, group, start, now)

    def close_group(self, topic: str, group: str, now: Now) -> None:
        """Forget a group of a topic: its progress, leases and attempts. GroupBusy: it has members."""
        self.assigned.require_empty(group, topic)
        for partition, _ in groups.existing(
            self.topic(topic).partitions, groups.check_group(group)
        ):
            partition.close_group(group, now)
        self.assigned.forget([group])

    def group_names(self) -> dict[str, list[str]]:
        """Every group with the topics that it reads."""
        found: dict[str, set[str]] = {}
        for partition in self.partitions():
            for name, _ in partition.user_groups():
                found.setdefault(name, set()).add(partition.topic)
        return {name: sorted(topics) for name, topics in sorted(found.items())}

    def lag(self, group: str, now: Now) -> list[groups.PartitionLag]:
        """How far a group is behind, on every partition of every topic that it reads."""
        found = groups.existing(self.partitions(), group)
        return [groups.lag_of(partition, delivery, now) for partition, delivery in found]

    def lanes(self, topic: str, group: str, now: Now) -> list[consumption.PartitionLanes]:
        """What waits in each priority lane, and how it is served."""
        found = groups.existing(self.topic(topic).partitions, group)
        return [consumption.lane_stats(partition, delivery, now) for partition, delivery in found]

    def in_flight(self, group: str) -> list[groups.InFlight]:
        """What the members of a group hold."""
        found = groups.existing(self.partitions(), group)
        return [one for place in found for one in groups.in_flight(*place)]

    def plan_reset(self, topic: str, group: str, to: Start) -> list[groups.Move]:
        """What `reset_group` would do."""
        return groups.plan_reset(self.topic(topic).partitions, group, to)

    def reset_group(
        self, topic: str, group: str, to: Start, now: Now, *, is_forced: bool = False
    ) -> list[groups.Move]:
        """Start a group again from another place. GroupBusy while it has members or they hold messages, unless forced.

        One that was empty may then be read in another mode.
        """
        self.check_reset(topic, group, to, now, is_forced=is_forced)
        partitions = self.topic(topic).partitions
        is_empty = not self.assigned.members_of(group, topic)
        return groups.reset(partitions, group, to, now, is_forced=is_forced, is_mode_open=is_empty)

    def check_reset(
        self, topic: str, group: str, to: Start, now: Now, *, is_forced: bool = False
    ) -> None:
        """Refuse what `reset_group` would refuse."""
        partitions = self.topic(topic).partitions
        if not is_forced:
            self.assigned.require_empty(group, topic)
        groups.check_reset(partitions, group, to, now, is_forced=is_forced)

    def commit(self, topic: str, partition: int, group: str, offset: int, now: Now) -> bool:
        """Finish everything below an offset for a group. False: it was finished already.

        NotOwner: the partition is assigned to a member, which has to do that itself.
        """
        self.assigned.require_unowned(group, topic, partition)
        target = self.partition(topic, partition)
        return groups.commit(target, target.group(group), offset, now)

    def tick(self, now: Now) -> None:
        """Let time pass everywhere: retries become ready, unanswered leases come back, delays are over."""
        for partition in self.partitions():
            for delivery in [*partition.machine.groups.values()]:
                if delivery.next_due_ns() <= now.monotonic_ns:
                    consumption.expire(partition, delivery, now)
        self.assigned.tick(now)
        self._seen = now
        self.fire(now)

    def fire(self, now: Now) -> int:
        """Deliver delayed messages that are due, so many as are good to do at once; returns how many."""
        waiting = [one for one in self.partitions() if one.machine.delays.pending]
        return sum(firing.fire(partition, now) for partition in waiting)

    def has_due(self, now: Now) -> bool:
        """Whether `tick` is going to append to a message log."""
        return any(one.machine.delays.is_due(now.wall_ns) for one in self.partitions())

    def next_due_ns(self) -> float:
        """When `tick` should be called next, or infinity."""
        delayed = (delaying.next_due_ns(one, self._seen) for one in self.partitions())
        delayed_ns = min(delayed, default=float("inf"))
        due = (
            delivery.next_due_ns()
            for partition in self.partitions()
            for delivery in partition.machine.groups.values()
        )
        return min(min(due, default=float("inf")), self.assigned.next_due_ns(), delayed_ns)

    def pump(self, now: Now) -> bool:
        """Move letters one step on their way. True if there is something to sync now."""
        has_moved = False
        for source in [*self.partitions()]:
            if source.machine.outbox.pending:
                # Without room they stay where they are, and go when there is some again.
                with suppress(NoSpace):
                    resolve = partial(self._destination, source, now)
                    has_moved = forwarding.step(source, resolve, now) or has_moved
        return has_moved

    def _destination(self, source: Partition, now: Now, letter: Letter) -> Partition | None:
        if isinstance(letter, Burial):
            return self._dead_letter_partition(source, now)
        with suppress(NotFound):
            return self.partition(letter.topic, letter.partition)
        return None

    def _dead_letter_partition(self, source: Partition, now: Now) -> Partition:
        name, count = dead_letter_topic(source.topic), len(self.topic(source.topic).partitions)
        if name not in self.open:
            on_damage = source.config.on_damage
            config = TopicConfig(retention_hours=_DEAD_LETTER_HOURS, on_damage=on_damage)
            self.create_topic(name, partitions=count, config=config, now=now)
        if len(self.topic(name).partitions) <= source.number:
            self.add_partitions(name, count, now)
        return self.partition(name, source.number)

    def retain(self, now: Now, topic: str | None = None) -> dict[str, Swept]:
        """Remove what is old, compact what is to be compacted, forget idle groups: of one topic, or of all.

        NoSpace: what could be done without is done.
        """
        chosen = self.open if topic is None else {topic: self.topic(topic)}
        swept, refused = self._sweep_each(dict.fromkeys(chosen, (*Sweep,)), now)
        if refused:
            raise next(iter(refused.values()))
        return swept

    def _sweep_each(
        self, wanted: Mapping[str, Sequence[Sweep]], now: Now
    ) -> tuple[dict[str, Swept], dict[str, NoSpace]]:
        """Sweep topics. One that has no room to be swept does not keep the others from giving some back."""
        swept: dict[str, Swept] = {}
        refused: dict[str, NoSpace] = {}
        for name, sweeps in wanted.items():
            try:
                swept[name] = self._sweep(self.open[name], sweeps, now)
            except NoSpace as error:
                refused[name] = error
        self._note_swept(swept, now)
        return swept, refused

    def _note_swept(self, swept: dict[str, Swept], now: Now) -> None:
        """Have meta know where the logs begin whose first segments went."""
        moved = [name for name, one in swept.items() if one.segments_removed]
        self.note_ends([one for name in moved for one in self.open[name].partitions], now)

    def retain_due(self, now: Now) -> None:
        """The same for the topics whose time has come; `sweeps.next_ns` is when the next will have. NoSpace: as above,
        and what was refused is still due."""
        configs = {name: topic.facts.config for name, topic in self.open.items()}
        due: dict[str, list[Sweep]] = {}
        for name, sweep in self.sweeps.take_due(configs, now.monotonic_ns):
            due.setdefault(name, []).append(sweep)
        _, refused = self._sweep_each(due, now)
        for name in refused:
            self.sweeps.put_back(name, due[name], now.monotonic_ns)
        if refused:
            raise next(iter(refused.values()))

    def _sweep(self, topic: Topic, sweeps: Sequence[Sweep], now: Now) -> Swept:
        forgotten: list[str] = []
        if Sweep.RETENTION in sweeps:
            busy = self.assigned.busy_groups()
            # A group may have been active on the partitions that cannot be asked.
            if not topic.partitions.faults:
                forgotten = groups.expire_idle(topic.partitions, now, busy=busy)
            self.assigned.forget(forgotten)
        segments = freed = 0
        refusal: NoSpace | None = None
        for partition in [*topic.partitions]:
            try:
                removed, bytes_freed = self._sweep_partition(partition, sweeps, now)
            except (FileMissing, DamagedFile) as error:
                self.fail(partition, error)
                continue
            except NoSpace as error:
                refusal = refusal or error
                continue
            segments += removed
            freed += bytes_freed
        if refusal is not None:
            raise refusal
        return Swept(segments, freed, tuple(forgotten))

    def _sweep_partition(
        self, partition: Partition, sweeps: Sequence[Sweep], now: Now
    ) -> tuple[int, int]:
        """How many segments were removed or written anew, and how many bytes that freed."""
        is_compacted = partition.config.cleanup is Cleanup.COMPACT
        segments = freed = 0
        if Sweep.RETENTION in sweeps:
            cleared = clear_delayed(partition, now)
            segments, freed = cleared.segments_rewritten, cleared.bytes_freed
        # The ledger has it. A damaged segment stays as it is, and the others have their turn.
        with suppress(DamagedBatch):
            if is_compacted and Sweep.COMPACTION in sweeps:
                compacted = partition.compact(now)
                segments += compacted.segments_rewritten
                freed += compacted.bytes_freed
            elif not is_compacted and Sweep.RETENTION in sweeps:
                kept = partition.retain(now)
                segments += kept.segments_removed
                freed += kept.bytes_freed
        return segments, freed


def _facts_of(slot: Partition | Fault) -> PartitionFacts:
    if isinstance(slot, Fault):
        return PartitionFacts(slot.number, 0, 0, 0, 0, f"{slot.path}: {slot.reason}")
    log = slot.messages
    messages = log.end_offset - log.start_offset
    return PartitionFacts(slot.number, log.start_offset, log.end_offset, messages, log.size)

"""A broker without a clock or a network: topics, their partitions, and what passes between them.

The only router. A shell calls it with the time, performs the plans that it is given, and calls `pump` after each sync.
"""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from ..api.command import Command
from ..api.members import MemberCommand
from ..api.principals import Principal
from ..api.start import Start
from ..codec.edit import expiring
from ..codec.head import NO_MARKS
from ..config import CACHE_BYTES, OFF, LimitsConfig, TopicConfig
from ..errors import (
    Fatal,
    NoSpace,
    NotFound,
    PenstockError,
)
from ..model import Buffer, Message
from ..ports import Disk, Entropy
from . import consumption, delaying, firing, forwarding
from .admission import DiskGuard
from .authorise import authorise_command, authorise_member
from .backlog import is_limited, require_room
from .batches import checked_batch
from .catalogue import Catalogue, Topic
from .changes import Done
from .damage import DamageLedger
from .dead_letters import dead_letter_topic
from .delaying import Delayed
from .fetching import FETCH_BYTES_DEFAULT, Fetched, MessagesRead, fetch, read_messages
from .handlers import HANDLERS
from .memberships import Memberships
from .outbox import Burial, Letter
from .partition import Now, Partition, Published
from .poll_replay import PollReplay
from .publishing import Answer, publish, publish_each
from .runs import PublishedRun
from .sweeping import Sweeps

__all__ = ["Node", "Now", "Topic"]

_DEAD_LETTER_HOURS = 336
_LIMITS = LimitsConfig()
_MS = 1_000_000
R = TypeVar("R")


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
            reply = self.carry_out(command, principal, now)
        except Fatal:
            raise
        except PenstockError as error:
            reply = error
        return self.changes.done(reply, now)

    def carry_out(self, command: Command[R], principal: Principal, now: Now) -> R:
        """The reply to a command that the driver gives while another one is under way, or raises why it is refused.

        What it records is in the `Done` of the other one.
        """
        authorise_command(principal, command)
        if principal.prefixes and isinstance(command, MemberCommand):
            topics = self.assigned.topics_of(command.group, command.member)
            authorise_member(principal, command.member, topics)
        reply: R = HANDLERS[type(command)](self, command, now)
        return reply

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
        encoded, messages = checked_batch(batch, self.limits)
        head = encoded.head
        self.guard.admit_bytes(head.length, now)
        if messages is not None and head.marks == NO_MARKS:
            return self.publish(topic, messages, now, partition=partition)
        ttl_ms = target.config.ttl_ms
        if ttl_ms != OFF:
            expires_at = now.wall_ns + ttl_ms * _MS
            encoded = expiring(encoded, expires_at, size_max=self.limits.batch_bytes_max)
            head = encoded.head
        # One that is there already adds nothing, and whoever asks again because its answer was lost has to hear that.
        if is_limited(target) and target.machine.producers.repeat_of(head) is None:
            require_room(target, head.message_count, head.length, is_callers_choice=False)
        first = target.append(encoded, now)
        return PublishedRun(first, head.message_count)

    def fetch(
        self,
        topic: str,
        partition: int,
        start: Start,
        *,
        bytes_max: int = FETCH_BYTES_DEFAULT,
        limit: int | None = None,
        is_checked: bool = True,
    ) -> Fetched:
        """Whole batches from an offset or a time on. Not `is_checked`: whoever gets them checks them."""
        found = self.partition(topic, partition)
        return fetch(found, start, bytes_max=bytes_max, limit=limit, is_checked=is_checked)

    def read(
        self,
        topic: str,
        partition: int,
        start: Start,
        *,
        limit: int,
        bytes_max: int = FETCH_BYTES_DEFAULT,
    ) -> MessagesRead:
        """Messages from an offset or a time on."""
        found = self.partition(topic, partition)
        return read_messages(found, start, limit=limit, bytes_max=bytes_max)

    def topic_changed(self, name: str, now: Now) -> None:
        """Take note of a topic that is new, has more partitions, or is gone. Members that read it, or one of its name
        that was deleted before, share its partitions out at once.
        """
        if name in self.open:
            self.sweeps.plan(name, self.open[name].facts.config, now.monotonic_ns)
        self.assigned.topic_changed(name, now)

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
            self.create_topic(name, count, config, now)
        if len(self.topic(name).partitions) <= source.number:
            self.add_partitions(name, count, now)
        return self.partition(name, source.number)

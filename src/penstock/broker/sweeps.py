"""Sweeps of topics: by retention, and, where they are compacted, by compaction; and when each is due.

Nothing of the times is journaled: a start counts from its own time.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from ..api.topics import SweepDue, Swept
from ..config import Cleanup, TopicConfig
from ..errors import DamagedBatch, DamagedFile, FileMissing, NoSpace
from . import groups
from .partition import Now, Partition
from .partition.cleanup import clear_delayed, clear_staged
from .partition.removal import compact_steps, retain
from .walks import Slices, is_open, names_on, partitions_in

if TYPE_CHECKING:
    from .catalogue import Topic
    from .node import Node

_MS = 1_000_000
_LONG_AGO_NS = -(1 << 63)
# A full disk: what could not be swept is tried again after this long, and then twice as long each time, up to a minute:
# each try makes snapshots, and no other command has its turn meanwhile.
_RETRY_NS = 1_000_000_000
_RETRY_NS_MAX = 60 * _RETRY_NS
_USUAL = TopicConfig()
# What has written, synced or removed files was enough for a slice, whatever its budget.
_WHOLE_SLICE = 1 << 20


class Sweep(Enum):
    """What is done to a topic now and then."""

    RETENTION = "retention"
    COMPACTION = "compaction"


class Due(NamedTuple):
    """A sweep whose time has come."""

    topic: str
    sweep: Sweep


class Sweeps:
    """The times of all topics, monotonic. `next_ns` is the earliest; infinity while there is no topic.

    `usual_times`: topics that leave an interval as it is have one that is so many times as long. Tests that let a
    year pass have no use for a hundred thousand sweeps.
    """

    def __init__(self, *, usual_times: int) -> None:
        self.next_ns = float("inf")
        self._usual_times = usual_times
        self._retry_ns = _RETRY_NS
        self._last_ns: dict[Due, int] = {}

    def plan(self, topic: str, config: TopicConfig, now_ns: int) -> None:
        """Take note of a topic that is new, or has new settings."""
        for sweep, interval_ns in self._intervals(config):
            last_ns = self._last_ns.setdefault(Due(topic, sweep), now_ns)
            self.next_ns = min(self.next_ns, last_ns + interval_ns)

    def take_due(self, configs: Mapping[str, TopicConfig], now_ns: int) -> list[Due]:
        """The sweeps whose time has come; their next time counts from now."""
        found: list[Due] = []
        last_ns, self._last_ns, self.next_ns = self._last_ns, {}, float("inf")
        for topic, config in configs.items():
            for sweep, interval_ns in self._intervals(config):
                due = Due(topic, sweep)
                begun_ns = last_ns.get(due, now_ns)
                if begun_ns + interval_ns <= now_ns:
                    found.append(due)
                    begun_ns = now_ns
                self._last_ns[due] = begun_ns
                self.next_ns = min(self.next_ns, begun_ns + interval_ns)
        return found

    def put_back(self, refused: Sequence[Due], now_ns: int) -> None:
        """Of the sweeps that were taken these could not be done, and are due again in a while."""
        if not refused:
            self._retry_ns = _RETRY_NS
            return
        for one in refused:
            self._last_ns[one] = _LONG_AGO_NS
        self.next_ns = min(self.next_ns, now_ns + self._retry_ns)
        self._retry_ns = min(2 * self._retry_ns, _RETRY_NS_MAX)

    def _intervals(self, config: TopicConfig) -> Iterator[tuple[Sweep, int]]:
        yield Sweep.RETENTION, self._ns(config.retention_check_ms, _USUAL.retention_check_ms)
        if config.cleanup is Cleanup.COMPACT:
            yield Sweep.COMPACTION, self._ns(config.compaction_check_ms, _USUAL.compaction_check_ms)

    def _ns(self, interval_ms: int, usual_ms: int) -> int:
        return interval_ms * _MS * (self._usual_times if interval_ms == usual_ms else 1)


def sweep_due(node: "Node", _command: SweepDue, now: Now) -> Slices[None]:
    """Sweep the topics whose time has come; `node.sweeps.next_ns` is when the next will have.

    NoSpace: what could be swept without is swept, and what was refused is due again in a while.
    """
    configs = {name: topic.facts.config for name, topic in node.open.items()}
    taken = node.sweeps.take_due(configs, now.monotonic_ns)
    due: dict[str, list[Sweep]] = {}
    for name, sweep in taken:
        due.setdefault(name, []).append(sweep)
    now = yield 1
    _, refused = yield from sweep_topics(node, due)
    if taken:
        again = [one for one in taken if one.topic in refused and one.topic in node.open]
        node.sweeps.put_back(again, now.monotonic_ns)
    if refused:
        raise next(iter(refused.values())).fresh()


def sweep_topics(
    node: "Node", wanted: Mapping[str, Sequence[Sweep]], *, older_than_ns: int | None = None
) -> Slices[tuple[dict[str, Swept], dict[str, NoSpace]]]:
    """What was done to each topic, and why there was no room to sweep the others, which are swept as far as it goes.

    One that has no room does not keep the next one from giving some back.
    """
    swept: dict[str, Swept] = {}
    refused: dict[str, NoSpace] = {}
    for name, sweeps in wanted.items():
        now = yield 1
        topic = node.open.get(name)
        if topic is None:
            continue
        sweeping = _TopicSweep(node, topic, sweeps, older_than_ns)
        yield from sweeping.run(now)
        if sweeping.refusal is not None:
            refused[name] = sweeping.refusal
        elif sweeping.is_current():
            swept[name] = sweeping.swept()
        if (sweeping.refusal or sweeping.segments) and sweeping.is_current():
            # Have meta know where the logs begin whose first segments went, perhaps before there was no room.
            known = node.topics.ends
            moved = [
                partition
                for partition in topic.partitions
                if known.get((partition.identity.topic_id, partition.number)) != partition.ends()
            ]
            now = yield _WHOLE_SLICE
            node.note_ends([partition for partition in moved if is_open(node, partition)], now)
    return swept, refused


class _TopicSweep:
    """The sweep of one topic, partition by partition."""

    def __init__(
        self, node: "Node", topic: "Topic", sweeps: Sequence[Sweep], older_than_ns: int | None
    ) -> None:
        self._node, self._topic = node, topic
        self._sweeps, self._older_than_ns = sweeps, older_than_ns
        self._forgotten: list[str] = []
        self.segments = self._freed = 0
        self.refusal: NoSpace | None = None

    def is_current(self) -> bool:
        """Whether the topic is still there, after a yield."""
        return self._node.open.get(self._topic.facts.name) is self._topic

    def swept(self) -> Swept:
        return Swept(self.segments, self._freed, tuple(self._forgotten))

    def run(self, now: Now) -> Slices[None]:
        # A group may have been active on the partitions that cannot be asked.
        if Sweep.RETENTION in self._sweeps and not self._topic.partitions.faults:
            yield from self._forget_groups(now)
        for partition in partitions_in(self._node, [self._topic.facts.name]):
            if not self.is_current():
                return
            before, has_to_sync = self.segments, partition.is_dirty
            try:
                # The ledger has it. A damaged segment stays as it is, and the others have their turn.
                with suppress(DamagedBatch):
                    yield from self._sweep(partition, now)
            except (FileMissing, DamagedFile) as error:
                self._node.fail(partition, error)
            except NoSpace as error:
                self.refusal = self.refusal or error.fresh()
            now = yield _WHOLE_SLICE if has_to_sync or self.segments > before else 1

    def _forget_groups(self, now: Now) -> Slices[None]:
        """Forget the groups that no client has asked for a long time on any partition, and that have no members."""
        node, partitions = self._node, self._topic.partitions
        names = yield from names_on(node, self._topic.facts.name)
        for name in sorted(names):
            if not self.is_current():
                return
            if not node.has_members(name) and groups.forget_idle(partitions, name, now):
                self._forgotten.append(name)
                node.assigned.forget([name])
            now = yield 1 + len(partitions) // 4

    def _sweep(self, partition: Partition, now: Now) -> Slices[None]:
        """Remove segments or write them anew."""
        is_compacted = partition.config.cleanup is Cleanup.COMPACT
        if Sweep.RETENTION in self._sweeps:
            for cleared in (clear_delayed(partition, now), clear_staged(partition, now)):
                self.segments += cleared.segments_rewritten
                self._freed += cleared.bytes_freed
        if is_compacted and Sweep.COMPACTION in self._sweeps:
            yield from self._compact(partition, now)
        elif not is_compacted and Sweep.RETENTION in self._sweeps:
            kept = retain(partition, now, self._older_than_ns)
            self.segments += kept.segments_removed
            self._freed += kept.bytes_freed

    def _compact(self, partition: Partition, now: Now) -> Slices[None]:
        """Step by step; not if another sweep is at it, and no further once the partition is gone."""
        if partition.messages.is_compacting:
            return
        steps = compact_steps(partition, now)
        with closing(steps):
            while True:
                try:
                    step = next(steps)
                except StopIteration as end:
                    self.segments += end.value.segments_rewritten
                    self._freed += end.value.bytes_freed
                    return
                if not isinstance(step, int):
                    step.sync()
                yield _WHOLE_SLICE
                if not is_open(self._node, partition):
                    return

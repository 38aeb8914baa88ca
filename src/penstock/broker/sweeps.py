"""Sweeps of topics: by retention, and, where they are compacted, by compaction; and when each is due.

Nothing of the times is journaled: a start counts from its own time.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from ..api.topics import Swept
from ..config import Cleanup, TopicConfig
from ..errors import DamagedBatch, DamagedFile, FileMissing, NoSpace
from . import groups
from .partition import Now, Partition
from .partition.cleanup import clear_delayed, clear_staged
from .partition.removal import compact, retain

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


def sweep_due(node: "Node", now: Now) -> None:
    """Sweep the topics whose time has come; `node.sweeps.next_ns` is when the next will have.

    NoSpace: what could be swept without is swept, and what was refused is due again in a while.
    """
    configs = {name: topic.facts.config for name, topic in node.open.items()}
    taken = node.sweeps.take_due(configs, now.monotonic_ns)
    due: dict[str, list[Sweep]] = {}
    for name, sweep in taken:
        due.setdefault(name, []).append(sweep)
    _, refused = sweep_topics(node, due, now)
    if taken:
        node.sweeps.put_back([one for one in taken if one.topic in refused], now.monotonic_ns)
    if refused:
        raise next(iter(refused.values())).fresh()


def sweep_topics(
    node: "Node",
    wanted: Mapping[str, Sequence[Sweep]],
    now: Now,
    *,
    older_than_ns: int | None = None,
) -> tuple[dict[str, Swept], dict[str, NoSpace]]:
    """What was done to each topic, and why there was no room to sweep the others, which are swept as far as it goes.

    One that has no room does not keep the next one from giving some back.
    """
    swept: dict[str, Swept] = {}
    refused: dict[str, NoSpace] = {}
    for name, sweeps in wanted.items():
        try:
            swept[name] = _sweep(node, node.open[name], sweeps, now, older_than_ns)
        except NoSpace as error:
            refused[name] = error.fresh()
    # Have meta know where the logs begin whose first segments went, perhaps before there was no room.
    moved = [*refused, *(name for name, one in swept.items() if one.segments_removed)]
    partitions = [one for name in moved for one in node.open[name].partitions]
    known = node.topics.ends
    node.note_ends(
        [one for one in partitions if known.get((one.identity.topic_id, one.number)) != one.ends()],
        now,
    )
    return swept, refused


def _sweep(
    node: "Node", topic: "Topic", sweeps: Sequence[Sweep], now: Now, older_than_ns: int | None
) -> Swept:
    forgotten: list[str] = []
    if Sweep.RETENTION in sweeps:
        busy = [*node.assigned.busy_groups(), *node.classic.busy_groups()]
        # A group may have been active on the partitions that cannot be asked.
        if not topic.partitions.faults:
            forgotten = groups.expire_idle(topic.partitions, now, busy=busy)
        node.assigned.forget(forgotten)
    segments = freed = 0
    refusal: NoSpace | None = None
    for partition in [*topic.partitions]:
        try:
            removed, bytes_freed = _sweep_partition(partition, sweeps, now, older_than_ns)
        except (FileMissing, DamagedFile) as error:
            node.fail(partition, error)
            continue
        except NoSpace as error:
            refusal = refusal or error.fresh()
            continue
        segments += removed
        freed += bytes_freed
    if refusal is not None:
        raise refusal.fresh()
    return Swept(segments, freed, tuple(forgotten))


def _sweep_partition(
    partition: Partition, sweeps: Sequence[Sweep], now: Now, older_than_ns: int | None
) -> tuple[int, int]:
    """How many segments were removed or written anew, and how many bytes that freed."""
    is_compacted = partition.config.cleanup is Cleanup.COMPACT
    segments = freed = 0
    if Sweep.RETENTION in sweeps:
        for cleared in (clear_delayed(partition, now), clear_staged(partition, now)):
            segments += cleared.segments_rewritten
            freed += cleared.bytes_freed
    # The ledger has it. A damaged segment stays as it is, and the others have their turn.
    with suppress(DamagedBatch):
        if is_compacted and Sweep.COMPACTION in sweeps:
            compacted = compact(partition, now)
            segments += compacted.segments_rewritten
            freed += compacted.bytes_freed
        elif not is_compacted and Sweep.RETENTION in sweeps:
            kept = retain(partition, now, older_than_ns)
            segments += kept.segments_removed
            freed += kept.bytes_freed
    return segments, freed

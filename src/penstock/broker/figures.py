"""Figures of a node as samples of metrics. Taken when a client asks, from counts that are there anyway."""

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..api.health import EventKind
from ..delivery import Delivery
from ..model import Priority
from .findings import findings_of
from .groups import lag_of
from .partition import Now, Partition
from .partition.consumption import lane_stats
from .partition.delayed_messages import stats_of
from .walks import Slices, groups_in, partitions_in

if TYPE_CHECKING:
    from .node import Node

# The label of all groups that have none of their own.
OTHER_GROUPS = "other"
_GROUP_METRICS = (
    "penstock_group_waiting",
    "penstock_group_dead_total",
    "penstock_group_expired_total",
    "penstock_group_skipped_total",
)

Tell = Callable[[str, dict[str, str], float], object]
"""Takes a sample: the name of its metric, its labels, its value."""


def figures_of(node: "Node", groups_max: int, tell: Tell, now: Now) -> Slices[None]:
    """Tell every number, with at most so many groups by name."""
    tell("penstock_topics", {}, len(node.open))
    tell(
        "penstock_partitions",
        {},
        sum(len(topic.partitions.serving) for topic in node.open.values()),
    )
    tell("penstock_cache_bytes", {}, node.cache.size)
    tell("penstock_disk_free_bytes", {}, node.disk.free_bytes())
    tell("penstock_disk_refusing", {}, int(node.guard.look(now)))
    yield from _findings(node, tell)
    lags = yield from _partitions(node, tell)
    named = _named_groups(lags, groups_max)
    for topic in [*node.open]:
        yield from _groups(node, topic, named, tell, now)
    for topic in sorted(node.open):
        yield from _delays(node, topic, tell)
        yield from _stagings(node, topic, tell)
    tell(
        "penstock_commit_names",
        {},
        sum(len(home.machine.commit_names.by_name) for home in node.commits.homes()),
    )
    yield from _members(node, named, tell)


def _findings(node: "Node", tell: Tell) -> Slices[None]:
    findings = yield from findings_of(node)
    kinds = Counter(event.kind for event in findings.recovery)
    for kind in EventKind:
        tell("penstock_recovery_events", {"kind": kind.value}, kinds[kind])
    tell("penstock_recovery_cut_bytes", {}, findings.cut_bytes)
    tell("penstock_faulty_partitions", {}, len(findings.faulty))
    for topic in [*node.open]:
        tell("penstock_damaged_batches_total", {"topic": topic}, node.damage.batches[topic])
        yield 1
    for (topic, validation), count in [*node.violations.messages.items()]:
        labels = {"topic": topic, "validation": validation.value}
        tell("penstock_schema_violations_total", labels, count)
        yield 1


def _partitions(node: "Node", tell: Tell) -> Slices[Counter[str]]:
    """Tell what there is in partitions. The lags of all groups."""
    lags = Counter[str]()
    for partition in partitions_in(node, [*node.open]):
        log = partition.messages
        place = {"topic": partition.topic, "partition": str(partition.number)}
        tell("penstock_topic_messages", place, log.end_offset - log.start_offset)
        tell("penstock_topic_bytes", place, log.size)
        tell("penstock_topic_appended_total", place, log.end_offset)
        for name, delivery in groups_in(node, partition):
            lags[name] += _unfinished(partition, delivery)
            yield 1
        yield 1
    return lags


def _named_groups(lags: Counter[str], most: int) -> frozenset[str]:
    """Groups that have labels of their own: those with the largest lag, or all if they are few."""
    if len(lags) <= most:
        return frozenset(lags)
    # A group that is called like the rest counts among them, or its figures would be there twice.
    return frozenset(name for name, _ in lags.most_common(most)) - {OTHER_GROUPS}


def _unfinished(partition: Partition, delivery: Delivery) -> int:
    log, progress = partition.messages, delivery.progress
    return progress.unfinished_below(log.end_offset) - progress.unfinished_below(log.start_offset)


@dataclass(slots=True)
class _Others:
    """The groups of a partition that have no label: sums, and which has the oldest unfinished message."""

    lag: int = 0
    in_flight: int = 0
    slowest: Delivery | None = None

    def add(self, partition: Partition, delivery: Delivery) -> None:
        self.lag += _unfinished(partition, delivery)
        self.in_flight += delivery.leases.in_flight
        oldest = delivery.progress.lowest_unfinished()
        if self.slowest is None or oldest < self.slowest.progress.lowest_unfinished():
            self.slowest = delivery


@dataclass(slots=True)
class _TopicFigures:
    """Of the groups of a topic, by their label; lanes of those that have one: of the others they are not counted."""

    moving: int = 0
    counts: dict[str, list[int]] = field(default_factory=dict)
    lanes: dict[tuple[str, Priority], list[int]] = field(default_factory=dict)

    def add(self, label: str, delivery: Delivery) -> None:
        known = self.counts.setdefault(label, [0] * len(_GROUP_METRICS))
        counts = (
            len(delivery.waiting),
            delivery.dead_count,
            delivery.expired_count,
            delivery.skipped_count,
        )
        for index, count in enumerate(counts):
            known[index] += count

    def add_lanes(self, label: str, partition: Partition, delivery: Delivery, now: Now) -> None:
        lanes = lane_stats(partition, delivery, now).lanes
        for priority, lane in zip(Priority, lanes, strict=True):
            known = self.lanes.setdefault((label, priority), [0, 0])
            known[0] += lane.waiting
            known[1] += lane.served


def _groups(node: "Node", topic: str, named: Collection[str], tell: Tell, now: Now) -> Slices[None]:
    figures, is_there = _TopicFigures(), False
    for partition in partitions_in(node, [topic]):
        is_there, others = True, _Others()
        for name, delivery in groups_in(node, partition):
            label = _label(name, named)
            figures.add(label, delivery)
            if name in named:
                lag = lag_of(partition, delivery, now)
                _tell_lag(tell, partition, name, (lag.lag, lag.lag_seconds, lag.in_flight))
                figures.add_lanes(name, partition, delivery, now)
            else:
                others.add(partition, delivery)
            now = yield 1
        if others.slowest is not None:
            seconds = lag_of(partition, others.slowest, now).lag_seconds
            _tell_lag(tell, partition, OTHER_GROUPS, (others.lag, seconds, others.in_flight))
        figures.moving += len(partition.machine.outbox.pending)
        now = yield 1
    for label, counts in figures.counts.items():
        for metric, count in zip(_GROUP_METRICS, counts, strict=True):
            tell(metric, {"group": label, "topic": topic}, count)
        yield 1
    for (label, priority), (waiting, served) in figures.lanes.items():
        labels = {"group": label, "topic": topic, "priority": priority.name.lower()}
        tell("penstock_lane_ready", labels, waiting)
        tell("penstock_lane_served_total", labels, served)
        yield 1
    if is_there:
        tell("penstock_dead_letters_moving", {"topic": topic}, figures.moving)


def _tell_lag(
    tell: Tell, partition: Partition, group: str, figures: tuple[int, float, int]
) -> None:
    """Lag and what is held. Of groups without a label the sums, and the age of what the slowest has not finished."""
    place = {"group": group, "topic": partition.topic, "partition": str(partition.number)}
    tell("penstock_group_lag_messages", place, figures[0])
    tell("penstock_group_lag_seconds", place, figures[1])
    tell("penstock_group_in_flight", place, figures[2])


def _label(group: str, named: Collection[str]) -> str:
    return group if group in named else OTHER_GROUPS


def _delays(node: "Node", topic: str, tell: Tell) -> Slices[None]:
    size = pending = 0
    finished = Counter[str]()
    for partition in partitions_in(node, [topic]):
        stats = stats_of(partition)
        size, pending = size + stats.size_bytes, pending + stats.pending
        for state in ("delivered", "cancelled", "expired", "lost"):
            finished[state] += getattr(stats, state)
        yield 1
    if size:
        tell("penstock_delayed_pending", {"topic": topic}, pending)
        for state, count in finished.items():
            tell("penstock_delayed_finished_total", {"topic": topic, "state": state}, count)


def _stagings(node: "Node", topic: str, tell: Tell) -> Slices[None]:
    figures: Counter[str] | None = None
    for partition in partitions_in(node, [topic]):
        if partition.staging.log is not None:
            stagings = partition.machine.stagings
            figures = Counter() if figures is None else figures
            figures["messages"] += len(stagings.live)
            figures["bytes"] += stagings.bytes
            figures["log"] += partition.staging.size
            figures["published"] += stagings.published_count
            figures["dropped"] += stagings.dropped_count
        yield 1
    if figures is None:
        return
    labels = {"topic": topic}
    tell("penstock_staged_messages", labels, figures["messages"])
    tell("penstock_staged_bytes", labels, figures["bytes"])
    tell("penstock_staging_log_bytes", labels, figures["log"])
    for outcome in ("published", "dropped"):
        tell("penstock_staged_ended_total", {**labels, "outcome": outcome}, figures[outcome])


def _members(node: "Node", named: Collection[str], tell: Tell) -> Slices[None]:
    members = Counter[str]()
    for name in [*node.assigned.groups]:
        membership = node.assigned.groups.get(name)
        if membership is not None:
            members[_label(name, named)] += len(membership.members)
            if name in named:
                tell("penstock_group_generation", {"group": name}, membership.generation)
        yield 1
    for name, count in members.items():
        tell("penstock_group_members", {"group": name}, count)

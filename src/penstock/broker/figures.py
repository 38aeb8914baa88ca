"""Figures of a node as samples of metrics. Taken when a client asks, from counts that are there anyway."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ..api.health import EventKind, Sample
from ..delivery import Delivery
from ..groups import Membership
from ..model import Priority
from .findings import findings_of
from .groups import lag_of
from .partition import Now, Partition
from .partition.consumption import lane_stats
from .partition.delayed_messages import stats_of

if TYPE_CHECKING:
    from .node import Node

# The label of all groups that have none of their own.
OTHER_GROUPS = "other"


def figures_of(node: "Node", groups_max: int, now: Now) -> Iterator[Sample]:
    """Every number, with at most so many groups by name."""
    partitions = node.partitions()
    yield Sample("penstock_topics", {}, len(node.open))
    yield Sample("penstock_partitions", {}, len(partitions))
    yield Sample("penstock_cache_bytes", {}, node.cache.size)
    yield Sample("penstock_disk_free_bytes", {}, node.disk.free_bytes())
    yield Sample("penstock_disk_refusing", {}, int(node.guard.look(now)))
    yield from _of_findings(node)
    for partition in partitions:
        yield from _of_partition(partition)
    named = _named_groups(partitions, groups_max)
    for partition in partitions:
        yield from _of_lag(partition, named, now)
    yield from _of_groups(partitions, named)
    yield from _of_lanes(partitions, named, now)
    yield from _of_delays(node)
    yield from _of_stagings(node)
    yield from _of_members(node.assigned.groups, named)


def _of_findings(node: "Node") -> Iterator[Sample]:
    findings = findings_of(node)
    kinds = Counter(one.kind for one in findings.recovery)
    for kind in EventKind:
        yield Sample("penstock_recovery_events", {"kind": kind.value}, kinds[kind])
    yield Sample("penstock_recovery_cut_bytes", {}, findings.cut_bytes)
    yield Sample("penstock_faulty_partitions", {}, len(findings.faulty))
    for topic in node.open:
        yield Sample("penstock_damaged_batches_total", {"topic": topic}, node.damage.batches[topic])
    for (topic, validation), count in node.violations.messages.items():
        labels = {"topic": topic, "validation": validation.value}
        yield Sample("penstock_schema_violations_total", labels, count)


def _named_groups(partitions: Sequence[Partition], most: int) -> frozenset[str]:
    """Groups that have labels of their own: those with the largest lag, or all if they are few."""
    lags: Counter[str] = Counter()
    for partition in partitions:
        for name, delivery in partition.user_groups():
            lags[name] += _unfinished(partition, delivery)
    if len(lags) <= most:
        return frozenset(lags)
    # A group that is called like the rest counts among them, or its figures would be there twice.
    return frozenset(name for name, _ in lags.most_common(most)) - {OTHER_GROUPS}


def _unfinished(partition: Partition, delivery: Delivery) -> int:
    log, progress = partition.messages, delivery.progress
    return progress.unfinished_below(log.end_offset) - progress.unfinished_below(log.start_offset)


def _of_lag(partition: Partition, named: Collection[str], now: Now) -> Iterator[Sample]:
    """Lag and what is held. Of groups without a label the sums, and the age of what the slowest has not finished."""
    others = []
    for name, delivery in partition.user_groups():
        if name in named:
            lag = lag_of(partition, delivery, now)
            yield from _lag_samples(partition, name, lag.lag, lag.lag_seconds, lag.in_flight)
        else:
            others.append(delivery)
    if others:
        slowest = min(others, key=lambda one: one.progress.lowest_unfinished())
        yield from _lag_samples(
            partition,
            OTHER_GROUPS,
            sum(_unfinished(partition, one) for one in others),
            lag_of(partition, slowest, now).lag_seconds,
            sum(one.leases.in_flight for one in others),
        )


def _lag_samples(
    partition: Partition, group: str, lag: int, seconds: float, in_flight: int
) -> Iterator[Sample]:
    place = {"group": group, "topic": partition.topic, "partition": str(partition.number)}
    yield Sample("penstock_group_lag_messages", place, lag)
    yield Sample("penstock_group_lag_seconds", place, seconds)
    yield Sample("penstock_group_in_flight", place, in_flight)


def _of_members(groups: Mapping[str, Membership], named: Collection[str]) -> Iterator[Sample]:
    members: Counter[str] = Counter()
    for name, membership in groups.items():
        members[_label(name, named)] += len(membership.members)
        if name in named:
            yield Sample("penstock_group_generation", {"group": name}, membership.generation)
    for name, count in members.items():
        yield Sample("penstock_group_members", {"group": name}, count)


def _label(group: str, named: Collection[str]) -> str:
    return group if group in named else OTHER_GROUPS


def _of_lanes(
    partitions: Iterable[Partition], named: Collection[str], now: Now
) -> Iterator[Sample]:
    """Lanes of groups with a label; of the others, which may be very many, they are not counted."""
    ready: Counter[tuple[str, str, Priority]] = Counter()
    served: Counter[tuple[str, str, Priority]] = Counter()
    for partition in partitions:
        for name, delivery in partition.user_groups():
            if name not in named:
                continue
            for priority, lane in zip(
                Priority, lane_stats(partition, delivery, now).lanes, strict=True
            ):
                ready[name, partition.topic, priority] += lane.waiting
                served[name, partition.topic, priority] += lane.served
    for (group, topic, priority), waiting in ready.items():
        labels = {"group": group, "topic": topic, "priority": priority.name.lower()}
        yield Sample("penstock_lane_ready", labels, waiting)
        yield Sample("penstock_lane_served_total", labels, served[group, topic, priority])


def _of_delays(node: "Node") -> Iterator[Sample]:
    for topic in sorted(node.open):
        facts = [*map(stats_of, node.topic(topic).partitions)]
        if not any(one.size_bytes for one in facts):
            continue
        yield Sample(
            "penstock_delayed_pending", {"topic": topic}, sum(one.pending for one in facts)
        )
        for state in ("delivered", "cancelled", "expired", "lost"):
            labels = {"topic": topic, "state": state}
            number = sum(getattr(one, state) for one in facts)
            yield Sample("penstock_delayed_finished_total", labels, number)


def _of_stagings(node: "Node") -> Iterator[Sample]:
    for topic in sorted(node.open):
        partitions = [one for one in node.topic(topic).partitions if one.staging.log is not None]
        if not partitions:
            continue
        stagings, labels = [one.machine.stagings for one in partitions], {"topic": topic}
        yield Sample("penstock_staged_messages", labels, sum(len(one.live) for one in stagings))
        yield Sample("penstock_staged_bytes", labels, sum(one.bytes for one in stagings))
        size = sum(one.staging.size for one in partitions)
        yield Sample("penstock_staging_log_bytes", labels, size)
        published = sum(one.published_count for one in stagings)
        dropped = sum(one.dropped_count for one in stagings)
        for outcome, count in (("published", published), ("dropped", dropped)):
            yield Sample("penstock_staged_ended_total", {**labels, "outcome": outcome}, count)
    yield Sample("penstock_commit_names", {}, sum(1 for _ in node.commits.names()))


def _of_partition(partition: Partition) -> Iterator[Sample]:
    log = partition.messages
    place = {"topic": partition.topic, "partition": str(partition.number)}
    yield Sample("penstock_topic_messages", place, log.end_offset - log.start_offset)
    yield Sample("penstock_topic_bytes", place, log.size)
    yield Sample("penstock_topic_appended_total", place, log.end_offset)


def _of_groups(partitions: Iterable[Partition], named: Collection[str]) -> Iterator[Sample]:
    figures: dict[tuple[str, str], list[int]] = {}
    moving: dict[str, int] = {}
    for partition in partitions:
        pending = len(partition.machine.outbox.pending)
        moving[partition.topic] = moving.get(partition.topic, 0) + pending
        for name, one in partition.user_groups():
            known = figures.setdefault((_label(name, named), partition.topic), [0, 0, 0, 0])
            found = (len(one.waiting), one.dead_count, one.expired_count, one.skipped_count)
            for index, number in enumerate(found):
                known[index] += number
    names = (
        "penstock_group_waiting",
        "penstock_group_dead_total",
        "penstock_group_expired_total",
        "penstock_group_skipped_total",
    )
    for (group, topic), known in figures.items():
        for metric, number in zip(names, known, strict=True):
            yield Sample(metric, {"group": group, "topic": topic}, number)
    for topic, pending in moving.items():
        yield Sample("penstock_dead_letters_moving", {"topic": topic}, pending)

"""Figures of the node and of the door as metrics. Taken when somebody asks, from counts that are there anyway."""

import asyncio
import resource
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from ...api.health import EventKind
from ...api.principals import Principal
from ...broker.consumption import lane_stats
from ...broker.delaying import stats_of
from ...broker.findings import findings_of
from ...broker.groups import lag_of
from ...broker.partition import Partition
from ...delivery import Delivery
from ...groups import Membership
from ...model import Priority
from ...observability.prometheus import Histogram, Sample, render
from ...runtime.malloc import malloc_bytes
from .traffic import BUCKETS_S, Latency

if TYPE_CHECKING:
    from ...broker.partition import Now
    from .door import Door

_S = 1_000_000_000
_PAGE_BYTES = resource.getpagesize()
# The label of all groups that have none of their own.
OTHER_GROUPS = "other"


class SyncTimes:
    """What the committer tells after each sync; one thread writes, and a reader may see one sync more or less."""

    def __init__(self) -> None:
        self.latency = Latency()
        self.waiters = 0

    def add(self, duration_ns: int, waiters: int) -> None:
        self.latency.add(duration_ns / _S)
        self.waiters += waiters


def render_metrics(door: "Door", principal: Principal) -> bytes:
    """The page, as far as it is theirs to see. For a thread: partitions by the thousand take a while."""
    found = door.driver.driver.look(lambda now: [*_of_node(door, now)])
    found += door.pipelines.samples()
    if principal.prefixes:
        found = [one for one in found if _is_seen(one, principal)]
    return render([*_of_process(door), *found, *_of_traffic(door)])


def _is_seen(sample: Sample, principal: Principal) -> bool:
    topic = sample.labels.get("topic")
    if topic is not None:
        return principal.reaches(topic)
    return sample.labels.keys().isdisjoint({"group", "pipeline"})


def _of_process(door: "Door") -> Iterator[Sample]:
    clock, broker = door.driver.driver.clock, door.settings.broker
    labels = {"version": version("penstock"), "broker": broker.id}
    yield Sample("penstock_info", labels, 1)
    yield Sample("penstock_uptime_seconds", {}, (clock.monotonic_ns() - door.started_ns) / _S)
    yield Sample("penstock_ready", {}, 0 if door.is_draining else 1)
    yield Sample("process_resident_memory_bytes", {}, _resident_bytes())
    if (in_use := malloc_bytes()) is not None:
        yield Sample("process_malloc_bytes", {}, in_use)
    yield Sample("process_threads", {}, threading.active_count())
    yield Sample("process_cpu_seconds_total", {}, time.process_time())
    yield Sample("process_open_fds", {}, _open_files())
    yield Sample("penstock_http_connections", {}, door.connections())
    yield Sample("penstock_http_waiting", {}, door.driver.waiting)
    yield Sample("penstock_tasks", {}, len(asyncio.all_tasks(door.driver.loop)))
    yield Sample("penstock_http_body_bytes", {}, door.memory.used)
    if door.tls_expires_ns:
        yield Sample(
            "penstock_tls_expires_seconds", {}, (door.tls_expires_ns - clock.now_ns()) / _S
        )


def _open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES


def _of_node(door: "Door", now: "Now") -> Iterator[Sample]:
    node = door.driver.driver.node
    partitions = [*node.partitions()]
    yield Sample("penstock_topics", {}, len(node.open))
    yield Sample("penstock_partitions", {}, len(partitions))
    yield Sample("penstock_cache_bytes", {}, node.cache.size)
    yield Sample("penstock_disk_free_bytes", {}, node.disk.free_bytes())
    yield Sample("penstock_disk_refusing", {}, int(node.guard.look(now)))
    yield from _of_findings(door)
    for partition in partitions:
        yield from _of_partition(partition)
    named = named_groups(partitions, door.settings.http.metrics_groups_max)
    for partition in partitions:
        yield from _of_lag(partition, named, now)
    yield from _of_groups(partitions, named)
    yield from _of_lanes(partitions, named, now)
    yield from _of_delays(door)
    yield from _of_members(node.assigned.groups, named)


def _of_findings(door: "Door") -> Iterator[Sample]:
    node = door.driver.driver.node
    findings = findings_of(node)
    kinds = Counter(one.kind for one in findings.recovery)
    for kind in EventKind:
        yield Sample("penstock_recovery_events", {"kind": kind.value}, kinds[kind])
    yield Sample("penstock_recovery_cut_bytes", {}, findings.cut_bytes)
    yield Sample("penstock_faulty_partitions", {}, len(findings.faulty))
    for topic in node.open:
        yield Sample("penstock_damaged_batches_total", {"topic": topic}, node.damage.batches[topic])


def named_groups(partitions: Sequence[Partition], most: int) -> frozenset[str]:
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


def _of_lag(partition: Partition, named: Collection[str], now: "Now") -> Iterator[Sample]:
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
    partitions: Iterable[Partition], named: Collection[str], now: "Now"
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


def _of_delays(door: "Door") -> Iterator[Sample]:
    node = door.driver.driver.node
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


def _of_traffic(door: "Door") -> Iterator[Sample | Histogram]:
    traffic, syncs = door.traffic, door.syncs
    for (method, route, status), count in [*traffic.requests.items()]:
        labels = {"method": method, "route": route, "status": str(status)}
        yield Sample("penstock_http_requests_total", labels, count)
    for route, latency in [*traffic.latency.items()]:
        yield _histogram("penstock_http_request_seconds", {"route": route}, latency)
    yield Sample("penstock_publish_messages_total", {}, traffic.published)
    yield Sample("penstock_delivered_messages_total", {}, traffic.delivered)
    for code, count in [*traffic.publish_errors.items()]:
        yield Sample("penstock_publish_errors_total", {"code": code}, count)
    for kind, count in [*traffic.answers.items()]:
        yield Sample("penstock_answers_total", {"answer": kind}, count)
    yield _histogram("penstock_fsync_seconds", {}, syncs.latency)
    yield Sample("penstock_fsync_waiters_total", {}, syncs.waiters)


def _histogram(name: str, labels: dict[str, str], latency: Latency) -> Histogram:
    return Histogram(name, labels, BUCKETS_S, [*latency.counts], latency.sum_s)

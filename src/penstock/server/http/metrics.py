"""Figures of the node and of the door as metrics. Taken when somebody asks, from counts that are there anyway."""

import asyncio
import resource
import threading
import time
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from ...broker.authorise import Principal
from ...broker.partition import Partition
from ...model import Priority
from ...observability.prometheus import Histogram, Sample, render
from ...runtime.malloc import malloc_bytes
from .traffic import BUCKETS_S, Latency

if TYPE_CHECKING:
    from ...broker.partition import Now
    from .door import Door

_S = 1_000_000_000
_PAGE_BYTES = resource.getpagesize()


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
    for partition in partitions:
        yield from _of_partition(partition)
    for name in node.group_names():
        for lag in node.lag(name, now):
            place = {"group": name, "topic": lag.topic, "partition": str(lag.partition)}
            yield Sample("penstock_group_lag_messages", place, lag.lag)
            yield Sample("penstock_group_lag_seconds", place, lag.lag_seconds)
            yield Sample("penstock_group_in_flight", place, lag.in_flight)
    yield from _of_groups(partitions)
    yield from _of_lanes(door, now)
    yield from _of_delays(door)
    for name, membership in node.assigned.groups.items():
        yield Sample("penstock_group_members", {"group": name}, len(membership.members))
        yield Sample("penstock_group_generation", {"group": name}, membership.generation)


def _of_lanes(door: "Door", now: "Now") -> Iterator[Sample]:
    node = door.driver.driver.node
    for group, topics in node.group_names().items():
        for topic in topics:
            parts = node.lanes(topic, group, now)
            for priority in Priority:
                labels = {"group": group, "topic": topic, "priority": priority.name.lower()}
                lanes = [one.lanes[priority] for one in parts]
                yield Sample("penstock_lane_ready", labels, sum(one.waiting for one in lanes))
                yield Sample("penstock_lane_served_total", labels, sum(one.served for one in lanes))


def _of_delays(door: "Door") -> Iterator[Sample]:
    node = door.driver.driver.node
    for topic in node.topic_names():
        facts = node.delay_facts(topic)
        if not any(one.size_bytes for one in facts):
            continue
        yield Sample(
            "penstock_delayed_pending", {"topic": topic}, sum(one.pending for one in facts)
        )
        for state in ("delivered", "cancelled", "expired"):
            labels = {"topic": topic, "state": state}
            number = sum(getattr(one, state) for one in facts)
            yield Sample("penstock_delayed_finished_total", labels, number)


def _of_partition(partition: Partition) -> Iterator[Sample]:
    log = partition.messages
    place = {"topic": partition.topic, "partition": str(partition.number)}
    yield Sample("penstock_topic_messages", place, log.end_offset - log.start_offset)
    yield Sample("penstock_topic_bytes", place, log.size)
    yield Sample("penstock_topic_appended_total", place, log.end_offset)


def _of_groups(partitions: Iterable[Partition]) -> Iterator[Sample]:
    figures: dict[tuple[str, str], list[int]] = {}
    moving: dict[str, int] = {}
    for partition in partitions:
        pending = len(partition.machine.outbox.pending)
        moving[partition.topic] = moving.get(partition.topic, 0) + pending
        for name, one in partition.user_groups():
            known = figures.setdefault((name, partition.topic), [0, 0, 0, 0])
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

"""The page of metrics: figures of the process, of the node and of requests."""

import asyncio
import resource
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from ...api.health import Sample, SeeFigures
from ...api.journeys import ATTEMPT_BOUNDS, LATENCY_BOUNDS_S, DescribeJourneys, LaneLatency
from ...api.principals import Principal
from ...broker.figures import OTHER_GROUPS
from ...observability.prometheus import Histogram, render
from ...runtime.malloc import malloc_bytes
from ..traffic import BUCKETS_S, BinaryTraffic, Latency

if TYPE_CHECKING:
    from ..standby.leader import LeaderRole
    from .app import App

_S = 1_000_000_000
_PAGE_BYTES = resource.getpagesize()
# So many are rendered within half a millisecond.
_SAMPLES_A_PACE, _PAUSE_S = 250, 0.000_05


class SyncTimes:
    """What the committer tells after each sync; one thread writes, and a reader may see one sync more or less."""

    def __init__(self) -> None:
        self.latency = Latency()
        self.waiters = 0

    def add(self, duration_ns: int, waiters: int) -> None:
        self.latency.add(duration_ns / _S)
        self.waiters += waiters


def render_metrics(app: "App", principal: Principal) -> bytes:
    """The page, as far as it is theirs to see. For a thread: partitions by the thousand take a while."""
    command = SeeFigures(app.settings.http.metrics_groups_max, prefixes=principal.prefixes)
    found = app.driver.driver.execute(command, principal)
    stats = app.driver.driver.execute(DescribeJourneys(prefixes=principal.prefixes), principal)
    pipelines = [] if principal.prefixes else app.pipelines.samples()
    named = {sample.labels["group"] for sample in found if "group" in sample.labels}
    latency = _of_latency(stats.latency, named)
    spans = [] if principal.prefixes or app.spans is None else app.spans.samples()
    copies = [] if app.leading is None else _of_standby(app.leading)
    samples = [*_of_process(app), *copies, *found, *latency, *pipelines, *spans, *_of_traffic(app)]
    return render(_paced(samples), is_whole=not principal.prefixes)


def _paced(samples: Iterable[Sample | Histogram]) -> Iterator[Sample | Histogram]:
    """The samples, with a pause after so many of them in which the event loop has the interpreter: it would wait for
    5 ms to get it from this thread."""
    for number, sample in enumerate(samples):
        if number % _SAMPLES_A_PACE == 0:
            time.sleep(_PAUSE_S)
        yield sample


def _of_standby(leading: "LeaderRole") -> Iterator[Sample]:
    membership = leading.membership
    yield Sample("penstock_replication_role", {"role": membership.role.value}, 1)
    yield Sample("penstock_replication_epoch", {}, membership.epoch)
    yield Sample("penstock_replication_forced_epoch", {}, membership.facts.forced_epoch)
    yield Sample("penstock_replication_in_sync", {}, leading.leader.in_sync)
    for node, follower in sorted(leading.followers.items()):
        labels = {"standby": str(node)}
        yield Sample("penstock_replication_lag_bytes", labels, leading.lag_bytes(follower))
        yield Sample("penstock_replication_lag_seconds", labels, follower.lag_s())
        yield Sample("penstock_replication_sent_bytes_total", labels, follower.link.bytes_out)


def _of_latency(lanes: Iterable[LaneLatency], named: Collection[str]) -> Iterator[Histogram]:
    """Latencies of the groups that the page names; those of all others together, for each lane."""
    others: dict[str, list[LaneLatency]] = {}
    for lane in lanes:
        if lane.group in named and lane.group != OTHER_GROUPS:
            yield from _histograms(lane.topic, lane.group, [lane])
        else:
            others.setdefault(lane.lane, []).append(lane)
    for some in others.values():
        yield from _histograms(OTHER_GROUPS, OTHER_GROUPS, some)


def _histograms(topic: str, group: str, lanes: Sequence[LaneLatency]) -> Iterator[Histogram]:
    """The latencies of one lane, in the sum of several topics and groups."""
    labels = {"topic": topic, "group": group, "priority": lanes[0].lane}
    for name, bounds, found in (
        ("penstock_delivery_seconds", LATENCY_BOUNDS_S, [lane.first_delivery for lane in lanes]),
        ("penstock_ack_seconds", LATENCY_BOUNDS_S, [lane.acked for lane in lanes]),
        ("penstock_delivery_attempts", ATTEMPT_BOUNDS, [lane.attempts for lane in lanes]),
    ):
        buckets = [sum(counts) for counts in zip(*(one.buckets for one in found), strict=True)]
        yield Histogram(name, labels, bounds, buckets, sum(one.total for one in found))


def _of_process(app: "App") -> Iterator[Sample]:
    clock, broker = app.driver.clock, app.settings.broker
    labels = {"version": version("penstock"), "broker": broker.id}
    yield Sample("penstock_info", labels, 1)
    yield Sample("penstock_uptime_seconds", {}, (clock.monotonic_ns() - app.started_ns) / _S)
    yield Sample("penstock_ready", {}, 0 if app.is_draining else 1)
    yield Sample("process_resident_memory_bytes", {}, _resident_bytes())
    if (in_use := malloc_bytes()) is not None:
        yield Sample("process_malloc_bytes", {}, in_use)
    yield Sample("process_threads", {}, threading.active_count())
    yield Sample("process_cpu_seconds_total", {}, time.process_time())
    yield Sample("process_open_fds", {}, _open_files())
    yield Sample("penstock_http_connections", {}, len(app.connections))
    yield Sample("penstock_http_waiting", {}, app.driver.waiting)
    yield Sample("penstock_tasks", {}, len(asyncio.all_tasks(app.driver.loop)))
    yield Sample("penstock_http_body_bytes", {}, app.memory.used)
    if app.tls_expires_ns:
        yield Sample("penstock_tls_expires_seconds", {}, (app.tls_expires_ns - clock.now_ns()) / _S)


def _open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES


def _of_traffic(app: "App") -> Iterator[Sample | Histogram]:
    traffic, syncs = app.traffic, app.syncs
    for (method, route, status), count in [*traffic.requests.items()]:
        labels = {"method": method, "route": route, "status": str(status)}
        yield Sample("penstock_http_requests_total", labels, count)
    for route, latency in [*traffic.latency.items()]:
        yield _histogram("penstock_http_request_seconds", {"route": route}, latency)
    activity = app.activity
    yield Sample("penstock_publish_messages_total", {}, activity.published)
    yield Sample("penstock_delivered_messages_total", {}, activity.delivered)
    for code, count in [*activity.publish_errors.items()]:
        yield Sample("penstock_publish_errors_total", {"code": code}, count)
    for kind, count in [*activity.answers.items()]:
        yield Sample("penstock_answers_total", {"answer": kind}, count)
    yield from _of_binary(app.binary)
    yield _histogram("penstock_fsync_seconds", {}, syncs.latency)
    yield Sample("penstock_fsync_waiters_total", {}, syncs.waiters)


def _of_binary(traffic: BinaryTraffic) -> Iterator[Sample]:
    for (api, outcome), count in [*traffic.requests.items()]:
        labels = {"api": api, "outcome": outcome}
        yield Sample("penstock_binary_requests_total", labels, count)
    for reason, count in [*traffic.refused.items()]:
        yield Sample("penstock_binary_refused_total", {"reason": reason}, count)
    yield Sample("penstock_binary_connections", {}, traffic.connections)
    for direction, size in (("in", traffic.bytes_in), ("out", traffic.bytes_out)):
        yield Sample("penstock_binary_bytes_total", {"direction": direction}, size)


def _histogram(name: str, labels: dict[str, str], latency: Latency) -> Histogram:
    return Histogram(name, labels, BUCKETS_S, [*latency.counts], latency.sum_s)

"""Every metric: its name, kind, labels and meaning."""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple


class MetricKind(Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric(NamedTuple):
    """`values` are those of its only label that are there from the start, with zero: a counter that appears with its
    first event is no increase to Prometheus.
    """

    kind: MetricKind
    labels: tuple[str, ...]
    text: str
    values: tuple[str, ...] = ()


_TOPIC = ("topic",)
_PLACE = ("topic", "partition")
_GROUP = ("group", "topic")
_PIPELINE = ("pipeline",)
_LANE = ("topic", "group", "priority")
_GROUP_PLACE = ("group", "topic", "partition")
# The refusals of publishes that need a person.
_REFUSALS = (
    "NO_SPACE",
    "NOT_ENOUGH_REPLICAS",
    "PARTITION_FAULTY",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "SCHEMA_VIOLATION",
    "TOO_LARGE",
    "UNCONFIRMED",
)

METRICS: Mapping[str, Metric] = MappingProxyType(
    {
        "penstock_info": Metric(
            MetricKind.GAUGE, ("version", "broker"), "Always 1; says who this is."
        ),
        "penstock_uptime_seconds": Metric(MetricKind.GAUGE, (), "Since the broker was opened."),
        "penstock_ready": Metric(
            MetricKind.GAUGE, (), "1 while requests are welcome, 0 while stopping."
        ),
        "penstock_topics": Metric(MetricKind.GAUGE, (), "Topics."),
        "penstock_partitions": Metric(MetricKind.GAUGE, (), "Partitions of all topics."),
        "penstock_topic_messages": Metric(MetricKind.GAUGE, _PLACE, "Messages kept."),
        "penstock_topic_bytes": Metric(MetricKind.GAUGE, _PLACE, "Bytes of messages on disk."),
        "penstock_topic_appended_total": Metric(
            MetricKind.COUNTER, _PLACE, "Messages ever appended: the next offset."
        ),
        "penstock_publish_messages_total": Metric(
            MetricKind.COUNTER, (), "Messages that clients published, repeats included."
        ),
        "penstock_publish_errors_total": Metric(
            MetricKind.COUNTER,
            ("code",),
            "Messages, and batches as a whole, that were refused, by code.",
            _REFUSALS,
        ),
        "penstock_schema_violations_total": Metric(
            MetricKind.COUNTER,
            ("topic", "validation"),
            "Messages that did not fit their schema, and were stored (warn) or refused (reject); a batch counts once.",
        ),
        "penstock_delivered_messages_total": Metric(
            MetricKind.COUNTER, (), "Messages lent to consumers."
        ),
        "penstock_answers_total": Metric(
            MetricKind.COUNTER,
            ("answer",),
            "Messages answered: ack, nack, reject, extend, release.",
            ("ack", "nack", "reject", "extend", "release"),
        ),
        "penstock_group_lag_messages": Metric(
            MetricKind.GAUGE, _GROUP_PLACE, "Messages that a group has not finished."
        ),
        "penstock_group_lag_seconds": Metric(
            MetricKind.GAUGE,
            _GROUP_PLACE,
            "Age of the oldest message that a group has not finished.",
        ),
        "penstock_group_in_flight": Metric(MetricKind.GAUGE, _GROUP_PLACE, "Messages lent now."),
        "penstock_group_waiting": Metric(
            MetricKind.GAUGE, _GROUP, "Messages that wait for a retry."
        ),
        "penstock_group_dead_total": Metric(MetricKind.COUNTER, _GROUP, "Messages given up."),
        "penstock_group_expired_total": Metric(
            MetricKind.COUNTER, _GROUP, "Messages whose time to live was over."
        ),
        "penstock_group_skipped_total": Metric(
            MetricKind.COUNTER,
            _GROUP,
            "Messages that retention or damage took before a group had them.",
        ),
        "penstock_group_members": Metric(
            MetricKind.GAUGE, ("group",), "Members of an assigned group."
        ),
        "penstock_group_generation": Metric(
            MetricKind.GAUGE,
            ("group",),
            "Number of the assignment of a group; each rebalance makes a new one.",
        ),
        "penstock_lane_ready": Metric(
            MetricKind.GAUGE,
            ("group", "topic", "priority"),
            "Messages that wait in a priority lane.",
        ),
        "penstock_lane_served_total": Metric(
            MetricKind.COUNTER,
            ("group", "topic", "priority"),
            "Messages lent from a priority lane.",
        ),
        "penstock_delivery_seconds": Metric(
            MetricKind.HISTOGRAM, _LANE, "From publish to the first delivery to a group."
        ),
        "penstock_ack_seconds": Metric(
            MetricKind.HISTOGRAM, _LANE, "From publish to the ack of a group."
        ),
        "penstock_delivery_attempts": Metric(
            MetricKind.HISTOGRAM, _LANE, "Deliveries of a message until its ack."
        ),
        "penstock_delayed_pending": Metric(
            MetricKind.GAUGE, _TOPIC, "Messages that wait for their time."
        ),
        "penstock_delayed_finished_total": Metric(
            MetricKind.COUNTER,
            ("topic", "state"),
            "Delayed messages that were delivered, cancelled, expired, or lost to damage.",
        ),
        "penstock_staged_messages": Metric(
            MetricKind.GAUGE, _TOPIC, "Messages of transactions and named commits that are open."
        ),
        "penstock_staged_bytes": Metric(
            MetricKind.GAUGE, _TOPIC, "What they take, as batches of the staging logs."
        ),
        "penstock_staging_log_bytes": Metric(
            MetricKind.GAUGE, _TOPIC, "Files of staging logs, with what no sweep has taken yet."
        ),
        "penstock_staged_ended_total": Metric(
            MetricKind.COUNTER,
            ("topic", "outcome"),
            "Staged messages that were published, or dropped: aborted, lost to another attempt, or too old.",
        ),
        "penstock_commit_names": Metric(
            MetricKind.GAUGE, (), "Names of commits that are remembered."
        ),
        "penstock_dead_letters_moving": Metric(
            MetricKind.GAUGE, _TOPIC, "Dead letters and redriven messages on their way."
        ),
        "penstock_fsync_seconds": Metric(
            MetricKind.HISTOGRAM, (), "How long a sync of everything takes."
        ),
        "penstock_fsync_waiters_total": Metric(
            MetricKind.COUNTER, (), "Requests that waited for a sync; by syncs, how many share one."
        ),
        "penstock_disk_free_bytes": Metric(MetricKind.GAUGE, (), "Free space where the data is."),
        "penstock_disk_refusing": Metric(
            MetricKind.GAUGE, (), "1 while publishes are refused for want of space."
        ),
        "penstock_recovery_events": Metric(
            MetricKind.GAUGE, ("kind",), "What the last start found and did, by kind."
        ),
        "penstock_recovery_cut_bytes": Metric(
            MetricKind.GAUGE,
            (),
            "Bytes that the last start cut off torn ends of logs, and kept beside them.",
        ),
        "penstock_faulty_partitions": Metric(
            MetricKind.GAUGE, (), "Partitions that refuse everything until they are repaired."
        ),
        "penstock_damaged_batches_total": Metric(
            MetricKind.COUNTER, _TOPIC, "Damaged batches met since the start, each counted once."
        ),
        "penstock_pipeline_up": Metric(
            MetricKind.GAUGE,
            _PIPELINE,
            "1 while a pipeline reports that it runs, 0 if it stopped or is silent.",
        ),
        "penstock_pipeline_messages_total": Metric(
            MetricKind.COUNTER, _PIPELINE, "Messages that a pipeline has done since it started."
        ),
        "penstock_pipeline_skipped_total": Metric(
            MetricKind.COUNTER, _PIPELINE, "Messages that were gone before a pipeline read them."
        ),
        "penstock_pipeline_commits_total": Metric(
            MetricKind.COUNTER, _PIPELINE, "Commits of a pipeline since it started."
        ),
        "penstock_pipeline_lag_messages": Metric(
            MetricKind.GAUGE, _PIPELINE, "Messages that a pipeline has still to do."
        ),
        "penstock_pipeline_messages_per_second": Metric(
            MetricKind.GAUGE, _PIPELINE, "Messages a second of a pipeline's last commit."
        ),
        "penstock_pipeline_batch_seconds": Metric(
            MetricKind.GAUGE, _PIPELINE, "Duration of a pipeline's last commit."
        ),
        "penstock_pipeline_report_age_seconds": Metric(
            MetricKind.GAUGE, _PIPELINE, "Since the last report of a pipeline."
        ),
        "penstock_otlp_spans_total": Metric(
            MetricKind.COUNTER,
            ("outcome",),
            "Spans that an OpenTelemetry collector took (exported) or did not (dropped), since the start.",
            ("exported", "dropped"),
        ),
        "penstock_http_requests_total": Metric(
            MetricKind.COUNTER, ("method", "route", "status"), "Requests, by route and status."
        ),
        "penstock_http_request_seconds": Metric(
            MetricKind.HISTOGRAM, ("route",), "How long requests took, long polls included."
        ),
        "penstock_http_connections": Metric(MetricKind.GAUGE, (), "Open connections."),
        "penstock_http_waiting": Metric(MetricKind.GAUGE, (), "Long polls and streams that wait."),
        "penstock_binary_requests_total": Metric(
            MetricKind.COUNTER,
            ("api", "outcome"),
            "Requests of the binary port, by command or request of Kafka's, and its first error.",
        ),
        "penstock_binary_refused_total": Metric(
            MetricKind.COUNTER,
            ("reason",),
            "Connections, frames and requests of the binary port that were turned away.",
            ("connections", "requests", "bytes", "frame"),
        ),
        "penstock_binary_connections": Metric(
            MetricKind.GAUGE, (), "Open connections of the binary port."
        ),
        "penstock_binary_bytes_total": Metric(
            MetricKind.COUNTER, ("direction",), "Bytes that the binary port received and sent."
        ),
        "penstock_tasks": Metric(
            MetricKind.GAUGE, (), "Tasks of the event loop, requests among them."
        ),
        "penstock_http_body_bytes": Metric(MetricKind.GAUGE, (), "Bodies being received."),
        "penstock_tls_expires_seconds": Metric(
            MetricKind.GAUGE, (), "Until the certificate expires; below zero: it has."
        ),
        "penstock_replication_role": Metric(
            MetricKind.GAUGE, ("role",), "1 for the role of this node: leading, following, waiting."
        ),
        "penstock_replication_epoch": Metric(
            MetricKind.GAUGE, (), "The epoch that this node leads in, or has promised to follow."
        ),
        "penstock_replication_in_sync": Metric(
            MetricKind.GAUGE,
            (),
            "Machines that have everything that is committed; as many as there are nodes is good.",
        ),
        "penstock_replication_lag_bytes": Metric(
            MetricKind.GAUGE,
            ("standby",),
            "Appended by the leader and not confirmed by the standby.",
        ),
        "penstock_replication_lag_seconds": Metric(
            MetricKind.GAUGE,
            ("standby",),
            "For how long something waits to be confirmed; -1: not known yet.",
        ),
        "penstock_replication_sent_bytes_total": Metric(
            MetricKind.COUNTER, ("standby",), "Sent to the standby on this connection."
        ),
        "penstock_replication_received_bytes_total": Metric(
            MetricKind.COUNTER, (), "Received from the leader on this connection."
        ),
        "penstock_replication_forced_epoch": Metric(
            MetricKind.GAUGE,
            (),
            "The last epoch that was begun by penstock promote --force; 0: none was.",
        ),
        "penstock_replication_set_aside_total": Metric(
            MetricKind.COUNTER,
            (),
            "Times that the end of a log, or a log, was set aside on a standby since its start.",
        ),
        "penstock_replication_problem": Metric(
            MetricKind.GAUGE,
            ("code",),
            "1: this standby cannot copy the leader, with the code of the reason; 0: nothing is wrong.",
        ),
        "penstock_cache_bytes": Metric(
            MetricKind.GAUGE, (), "Batches read lately and the objects made of them."
        ),
        "process_resident_memory_bytes": Metric(MetricKind.GAUGE, (), "Memory of the process."),
        "process_malloc_bytes": Metric(
            MetricKind.GAUGE, (), "What malloc has given out (glibc 2.33 and later)."
        ),
        "process_threads": Metric(MetricKind.GAUGE, (), "Threads of the process."),
        "process_cpu_seconds_total": Metric(
            MetricKind.COUNTER, (), "Processor time of the process."
        ),
        "process_open_fds": Metric(MetricKind.GAUGE, (), "Open file descriptors."),
    }
)

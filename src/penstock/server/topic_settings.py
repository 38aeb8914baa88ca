"""Sections that say what new topics, producers and consumers start with, and how the disk is used."""

import resource
from dataclasses import dataclass, fields
from typing import Any

from ..api.dead_letters import DEAD_LETTER_SUFFIX
from ..config import (
    DAY_MS,
    KIB,
    MIB,
    OFF,
    FsyncPolicy,
    LimitsConfig,
    NodeConfig,
    StorageConfig,
    TopicConfig,
)
from .setting_keys import key, require, require_positive

_STORAGE_OF_TOPIC = (
    "segment_size_bytes",
    "segment_age_ms",
    "segment_messages_max",
    "index_interval_bytes",
    "retention_hours",
    "retention_bytes",
    "retention_segments",
    "retention_segments_min",
    "retention_check_ms",
    "compaction_check_ms",
    "compression",
)


_CONSUMER_OF_TOPIC = (
    "visibility_timeout_ms",
    "max_retries",
    "backoff_base_ms",
    "backoff_multiplier",
    "backoff_max_ms",
    "backoff_jitter",
    "max_in_flight",
    "max_in_flight_per_consumer",
)


_REST_OF_TOPIC = (
    "keep_unread",
    "keep_unread_bytes_max",
    "group_retention_hours",
    "ttl_ms",
    "dedup_window_ms",
    "dedup_keys_max",
    "max_backlog_messages",
    "max_backlog_bytes",
    "journey_retention_hours",
    "journey_retention_bytes",
)


# Connections need descriptors, too.
_OPEN_FILES_SHARE = 4
# For a process with the usual limit of 1024, and for some thousand partitions.
_OPEN_FILES_MIN, _OPEN_FILES_MAX = 512, 16_384


def _open_files_max() -> int:
    """How many files of logs may be open at once. To close one that was written lately, the broker has to sync it."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _OPEN_FILES_MAX
    return min(max(soft // _OPEN_FILES_SHARE, _OPEN_FILES_MIN), _OPEN_FILES_MAX)


def _named(section: object, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(section, name) for name in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageSection:
    """The disk, and what new topics start with on it."""

    fsync: FsyncPolicy = key(  # noqa: RUF009 - `key` is a field
        FsyncPolicy.INTERVAL, "always (before each answer), interval, never."
    )
    fsync_interval_ms: int = key(1000, "The timer of `fsync: interval`.")
    min_free_bytes: int = key(
        256 * MIB, "Below this much free space publishes are refused; reads and acks go on."
    )
    open_files_max: int = key(
        OFF,
        "Files of logs that are kept open; -1: a quarter of what the process may open, from 512 to 16384.",
    )
    cache_bytes: int = key(
        64 * MIB,
        "Memory for batches read lately, of all partitions, with the objects made of them.",
    )
    segment_size_bytes: int = key(64 * MIB, "A segment of a new topic is closed at this size.")
    segment_age_ms: int = key(
        604_800_000,
        "A segment of a new topic is closed by the first message that comes so long after its own first; -1: never.",
    )
    segment_messages_max: int = key(
        OFF, "A segment of a new topic is closed when it holds so many messages; -1: no limit."
    )
    index_interval_bytes: int = key(
        4 * KIB, "The index of a new topic's segment has one entry for so many bytes."
    )
    retention_hours: float = key(168.0, "How long new topics keep messages; -1: for ever.")
    retention_bytes: int = key(OFF, "How much a partition of a new topic keeps; -1: everything.")
    retention_segments: int = key(
        OFF, "How many segments a partition of a new topic keeps, the open one included; -1: all."
    )
    retention_segments_min: int = key(
        1, "So many segments of a new topic stay, the open one included, however old or large."
    )
    retention_check_ms: int = key(
        300_000, "How often what is old is removed from a new topic, and its idle groups forgotten."
    )
    compaction_check_ms: int = key(
        300_000, "How often a new topic with `cleanup: compact` is compacted."
    )
    compression: str = key("none", "Of new topics: none, lz4 or zstd.")

    def __post_init__(self) -> None:
        self.storage_config()
        TopicConfig(**self.of_topics())

    def of_topics(self) -> dict[str, Any]:
        """What new topics start with, under the names of `TopicConfig`."""
        return _named(self, _STORAGE_OF_TOPIC)

    def storage_config(self) -> StorageConfig:
        return StorageConfig(
            fsync=self.fsync,
            fsync_interval_ms=self.fsync_interval_ms,
            min_free_bytes=self.min_free_bytes,
            open_files_max=_open_files_max() if self.open_files_max == OFF else self.open_files_max,
            cache_bytes=self.cache_bytes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSection:
    """What producers start with that do not say themselves. Clients of the binary port are told when they connect."""

    batch_size: int = key(100_000, "Messages of a batch.")
    linger_ms: float = key(5.0, "How long a message waits for others of its batch.")
    batch_bytes: int = key(MIB, "Bytes of a batch.")
    ack_mode: str = key(
        "leader",
        "What a publish waits for: none, leader (as `storage.fsync` says) or all (an fsync). Over HTTP, too.",
    )
    retries: int = key(3, "Tries after the first, if the server cannot be reached or is busy.")
    retry_backoff_ms: int = key(100, "The first pause between two tries; it doubles each time.")
    retry_backoff_max_ms: int = key(30_000, "The longest pause.")

    def __post_init__(self) -> None:
        require_positive(self, "batch_size", "batch_bytes", "retry_backoff_ms")
        modes = ("none", "leader", "all")
        require("ack_mode", self.ack_mode, self.ack_mode in modes, "none, leader or all")
        for name in ("linger_ms", "retries"):
            found = getattr(self, name)
            require(name, found, found >= 0, ">= 0")
        first, longest = self.retry_backoff_ms, self.retry_backoff_max_ms
        is_possible = first <= longest <= DAY_MS
        require(
            "retry_backoff_max_ms", longest, is_possible, f"in {first} (the first pause)..{DAY_MS}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSection:
    """Members of groups, and how messages of new topics are handed out and retried."""

    session_timeout_ms: int = key(
        30_000, "A member that does not say is missed after so long without a sign of life."
    )
    heartbeat_interval_ms: int = key(
        3000, "How often members are asked for a heartbeat; in the answer to a join, and in hello."
    )
    auto_commit: bool = key(
        True, "Commit for members that ask for it; false: they are refused, and answer themselves."
    )
    auto_commit_interval_ms: int = key(
        5000, "What such a member got is finished so long after it, or by its next poll."
    )
    visibility_timeout_ms: int = key(30_000, "How long a message is lent; then it comes back.")
    max_retries: int = key(3, "Retries before a message is a dead letter; -1: for ever.")
    backoff_base_ms: int = key(1000, "Wait before the first retry.")
    backoff_multiplier: float = key(2.0, "Each further wait is so many times longer.")
    backoff_max_ms: int = key(60_000, "The longest wait.")
    backoff_jitter: bool = key(False, "Spread retries by chance.")
    max_in_flight: int = key(10_000, "Lent messages for each group and partition.")
    max_in_flight_per_consumer: int = key(1000, "Lent messages for each consumer.")
    max_poll_records: int = key(500, "Messages in one answer, at most.")
    max_poll_records_binary: int = key(10_000, "The same of a binary answer, which ends at 16 MiB.")
    poll_timeout_ms_max: int = key(60_000, "The longest long poll.")

    def __post_init__(self) -> None:
        require_positive(self, "max_poll_records", "max_poll_records_binary", "poll_timeout_ms_max")
        self.node_config()
        heartbeat, session = self.heartbeat_interval_ms, self.session_timeout_ms
        is_possible = 1 <= heartbeat < session
        expected = f"in 1..{session - 1}, below session_timeout_ms"
        require("heartbeat_interval_ms", heartbeat, is_possible, expected)
        TopicConfig(**self.of_topics())

    def of_topics(self) -> dict[str, Any]:
        """What new topics start with, under the names of `TopicConfig`."""
        return _named(self, _CONSUMER_OF_TOPIC)

    def node_config(self, dead_letter_hours: float = 336) -> NodeConfig:
        return NodeConfig(
            session_timeout_ms=self.session_timeout_ms,
            is_auto_commit_on=self.auto_commit,
            auto_commit_interval_ms=self.auto_commit_interval_ms,
            dead_letter_retention_hours=dead_letter_hours,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DlqSection:
    """Dead letters."""

    enabled: bool = key(
        True, "Dead letters of new topics are kept; otherwise they are dropped and counted."
    )
    suffix: str = key(
        DEAD_LETTER_SUFFIX, "What follows a topic's name in that of its dead letters. It is fixed."
    )
    retention_hours: float = key(
        336.0, "How long a new topic of dead letters keeps them; -1: for ever."
    )

    def __post_init__(self) -> None:
        expected = (
            f"{DEAD_LETTER_SUFFIX}: topics that exist, and clients, know dead letters by this name"
        )
        require("suffix", self.suffix, self.suffix == DEAD_LETTER_SUFFIX, expected)
        TopicConfig(retention_hours=self.retention_hours)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSection:
    """Everything else that new topics start with."""

    num_partitions: int = key(3, "Partitions of a topic that does not say.")
    keep_unread: bool = key(False, "Keep what a group has not finished, whatever its age.")
    keep_unread_bytes_max: int = key(10 * 1024 * MIB, "Above this much, unread messages go too.")
    group_retention_hours: float = key(
        168.0, "A group that no client asks is forgotten after this."
    )
    ttl_ms: int = key(OFF, "Time to live of messages that do not say; -1: none.")
    dedup_window_ms: int = key(600_000, "How long an idempotency key is remembered.")
    dedup_keys_max: int = key(100_000, "Idempotency keys kept for each partition.")
    max_backlog_messages: int = key(OFF, "Unread messages of a partition; -1: no limit.")
    max_backlog_bytes: int = key(OFF, "Unread bytes of a partition; -1: no limit.")
    journey_retention_hours: float = key(
        24.0, "How long the records of deliveries are kept for journeys; -1: as the bytes allow."
    )
    journey_retention_bytes: int = key(
        256 * MIB, "State log of a partition above which its oldest records go before that."
    )

    def __post_init__(self) -> None:
        partitions = self.num_partitions
        require("num_partitions", partitions, 1 <= partitions <= 10_000, "in 1..10000")
        TopicConfig(**self.of_topics())

    def of_topics(self) -> dict[str, Any]:
        """What new topics start with, under the names of `TopicConfig`."""
        return _named(self, _REST_OF_TOPIC)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsSection:
    """How large things may be, and how many groups."""

    value_bytes_max: int = key(10 * MIB, "A value.")
    key_bytes_max: int = key(64 * KIB, "A key.")
    headers_bytes_max: int = key(64 * KIB, "All headers of a message.")
    batch_bytes_max: int = key(16 * MIB, "A batch.")
    groups_per_topic_max: int = key(1000, "Groups of a topic; a request for one more gets 409.")
    groups_max: int = key(
        10_000, "Groups of all topics together; one that reads two topics counts twice."
    )
    groups_per_key_max: int = key(
        2000, "The same of one key, with `auth.enabled`; one more gets 409."
    )
    staged_bytes_max: int = key(
        16 << 30, "Staged and not committed, on the whole node; more gets 429."
    )
    staged_bytes_per_topic_max: int = key(16 << 30, "The same of one topic.")
    staged_bytes_per_producer_max: int = key(
        4 << 30, "The same of one transaction, or of one staging of a named commit."
    )
    query_starts_max: int = key(
        10_000,
        "Starts of queries of engines such as Spark that had no first batch yet; one more gets 409, as for all below.",
    )
    query_starts_per_key_max: int = key(
        1000, "The same of one key, with `auth.enabled`, as for all below."
    )
    query_start_bytes_max: int = key(
        64 * MIB, "Bytes of these starts, which are in memory and in each snapshot of `meta/`."
    )
    query_start_bytes_per_key_max: int = key(4 * MIB, "The same of one key.")
    latency_series_max: int = key(
        1000, "Latencies, each of a topic, a group and a lane; the rest are counted as `other`."
    )
    latency_series_per_key_max: int = key(200, "The same of the groups of one key.")
    pipelines_max: int = key(
        1000, "Pipelines that report; one that ended makes room for another of its key."
    )
    pipelines_per_key_max: int = key(200, "The same of one key.")
    producers_max: int = key(
        50_000, "Names of producers with transactions; an idle one is forgotten after seven days."
    )
    producers_per_key_max: int = key(5000, "The same of one key.")
    commit_names_max: int = key(10_000, "Names of commits.")
    commit_names_per_key_max: int = key(1000, "The same of one key.")
    members_max: int = key(
        20_000,
        "Members of shared groups; as many of Kafka's groups that the broker assigns or shares.",
    )
    members_per_key_max: int = key(5000, "The same of one key.")

    def __post_init__(self) -> None:
        self.limits_config()

    def limits_config(self) -> LimitsConfig:
        return LimitsConfig(**{one.name: getattr(self, one.name) for one in fields(self)})

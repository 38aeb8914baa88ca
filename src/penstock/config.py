"""Settings, frozen and checked once, where they are made. Defaults live here and nowhere else."""

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from .errors import InvalidConfig

KIB = 1024
MIB = 1024 * KIB
HOUR_MS = 60 * 60 * 1000
# Once a day: an operator who wants it less often means never.
DAY_MS = 24 * HOUR_MS
OFF = -1  # A limit that does not apply.
# A sweep stops all syncs for a moment: ten a second are plenty.
SUBJECT_CHARACTERS_MAX = 255
SWEEP_MS_MIN = 100
SWEEP_MS_MAX = 7 * DAY_MS
# A century: with it, every moment that a clock may show fits into 64 bits of nanoseconds.
TTL_MS_MAX = 100 * 366 * 24 * HOUR_MS
# Longer than the largest retention.ms of a client of Kafka, and far from where nanoseconds of it are infinite.
HOURS_MAX = 10**13
# As long as a consumer may put a message off itself.
BACKOFF_MS_MAX = 366 * DAY_MS
# To its 64th power times any base it is a finite number.
BACKOFF_MULTIPLIER_MAX = 1000
CACHE_BYTES = 64 * MIB
SESSION_MS_MIN = 1000
SESSION_MS_MAX = HOUR_MS


def _require(setting: str, found: object, is_legal: bool, expected: str) -> None:
    if not is_legal:
        raise InvalidConfig(setting, found, expected)


def _require_hours(setting: str, hours: float) -> None:
    is_legal = hours == OFF or 0 < hours <= HOURS_MAX
    _require(setting, hours, is_legal, f"above 0, at most {HOURS_MAX}, or -1 for off")


_SHARES = (
    "query_starts_max",
    "query_starts_per_key_max",
    "query_start_bytes_max",
    "query_start_bytes_per_key_max",
    "groups_per_key_max",
    "latency_series_max",
    "latency_series_per_key_max",
    "pipelines_max",
    "pipelines_per_key_max",
    "producers_max",
    "producers_per_key_max",
    "commit_names_max",
    "commit_names_per_key_max",
    "members_max",
    "members_per_key_max",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsConfig:
    """How large things may be, and how many groups. Over a limit: refused, with the limit in the message."""

    value_bytes_max: int = 10 * MIB
    key_bytes_max: int = 64 * KIB
    headers_bytes_max: int = 64 * KIB
    batch_bytes_max: int = 16 * MIB
    groups_per_topic_max: int = 1000
    # A group that reads two topics counts twice.
    groups_max: int = 10_000
    staged_bytes_max: int = 16 << 30
    staged_bytes_per_topic_max: int = 16 << 30
    staged_bytes_per_producer_max: int = 4 << 30
    # What stays of requests, of all keys together and of each key that there is.
    query_starts_max: int = 10_000
    query_starts_per_key_max: int = 1000
    query_start_bytes_max: int = 64 * MIB
    query_start_bytes_per_key_max: int = 4 * MIB
    groups_per_key_max: int = 2000
    latency_series_max: int = 1000
    latency_series_per_key_max: int = 200
    pipelines_max: int = 1000
    pipelines_per_key_max: int = 200
    producers_max: int = 50_000
    producers_per_key_max: int = 5000
    commit_names_max: int = 10_000
    commit_names_per_key_max: int = 1000
    members_max: int = 20_000
    members_per_key_max: int = 5000

    def __post_init__(self) -> None:
        for name in (
            *_SHARES,
            "groups_per_topic_max",
            "groups_max",
            "staged_bytes_max",
            "staged_bytes_per_topic_max",
            "staged_bytes_per_producer_max",
        ):
            _require(name, getattr(self, name), getattr(self, name) > 0, "above 0")
        for name in ("value_bytes_max", "key_bytes_max", "headers_bytes_max"):
            found = getattr(self, name)
            _require(
                name, found, 0 < found <= self.batch_bytes_max, f"in 1..{self.batch_bytes_max}"
            )
        # A batch's length is a u32 and padded; half of that range keeps every sum inside it.
        _require(
            "batch_bytes_max", self.batch_bytes_max, self.batch_bytes_max <= 1 << 31, "<= 2 GiB"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """What a node does where a command does not say."""

    session_timeout_ms: int = 30_000
    # Off: a member that asks the broker to commit for it is refused.
    is_auto_commit_on: bool = True
    auto_commit_interval_ms: int = 5000
    dead_letter_retention_hours: float = 336

    def __post_init__(self) -> None:
        session, interval = self.session_timeout_ms, self.auto_commit_interval_ms
        is_legal = SESSION_MS_MIN <= session <= SESSION_MS_MAX
        _require("session_timeout_ms", session, is_legal, f"in {SESSION_MS_MIN}..{SESSION_MS_MAX}")
        _require("auto_commit_interval_ms", interval, 1 <= interval <= DAY_MS, f"in 1..{DAY_MS}")
        _require_hours("dead_letter_retention_hours", self.dead_letter_retention_hours)


class FsyncPolicy(Enum):
    """When a write becomes durable: before its answer, on a timer, or when the system likes."""

    ALWAYS = "always"
    INTERVAL = "interval"
    NEVER = "never"


class Cleanup(Enum):
    """What retention does with old messages: drop whole segments, or keep the last of each key."""

    DELETE = "delete"
    COMPACT = "compact"


class KafkaStorage(Enum):
    """How record batches of Kafka's producers are stored: as they came, or as columns, which our own readers want."""

    VERBATIM = "verbatim"
    COLUMNAR = "columnar"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """How one log is laid out on disk and how long it is kept. `OFF` (-1) turns a limit off."""

    segment_size_bytes: int = 64 * MIB
    segment_age_ms: int = 168 * HOUR_MS
    segment_messages_max: int = OFF
    # A scan of 4 KiB costs less than one more page fault on a denser index.
    index_interval_bytes: int = 4 * KIB
    # Bytes after which a sync also writes a checkpoint: bounds what a restart has to read.
    checkpoint_bytes: int = 16 * MIB
    retention_hours: float = 168
    retention_bytes: int = OFF
    retention_segments: int = OFF
    retention_segments_min: int = 1
    tombstone_grace_ms: int = 24 * HOUR_MS

    def __post_init__(self) -> None:
        # Positions inside a segment are u32 in the index, so a segment ends well before 4 GiB.
        size = self.segment_size_bytes
        _require("segment_size_bytes", size, 1 <= size <= 1 << 31, "in 1..2147483648")
        interval = self.index_interval_bytes
        _require("index_interval_bytes", interval, 1 <= interval <= size, f"in 1..{size}")
        _require("checkpoint_bytes", self.checkpoint_bytes, self.checkpoint_bytes >= 1, ">= 1")
        minimum = self.retention_segments_min
        _require("retention_segments_min", minimum, minimum >= 1, ">= 1")
        most = self.retention_segments
        _require("retention_segments_min", minimum, most < 1 or minimum <= most, f"<= {most}")
        _require(
            "tombstone_grace_ms", self.tombstone_grace_ms, self.tombstone_grace_ms >= 0, ">= 0"
        )
        _require_hours("retention_hours", self.retention_hours)
        for name in (
            "segment_age_ms",
            "segment_messages_max",
            "retention_bytes",
            "retention_segments",
        ):
            found = getattr(self, name)
            _require(name, found, found == OFF or found > 0, "above 0, or -1 for off")


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageConfig:
    """How a process treats its disk."""

    fsync: FsyncPolicy = FsyncPolicy.INTERVAL
    fsync_interval_ms: int = 1000
    # Below this the writer refuses new messages; enough for the state of those already there.
    min_free_bytes: int = 256 * MIB
    open_files_max: int = 512
    # Batches that were read lately, of all partitions together, with the objects made from them.
    cache_bytes: int = CACHE_BYTES

    def __post_init__(self) -> None:
        interval = self.fsync_interval_ms
        _require("fsync_interval_ms", interval, 1 <= interval <= DAY_MS, f"in 1..{DAY_MS}")
        _require("min_free_bytes", self.min_free_bytes, self.min_free_bytes >= 0, ">= 0")
        _require("open_files_max", self.open_files_max, self.open_files_max >= 8, ">= 8")
        _require("cache_bytes", self.cache_bytes, self.cache_bytes >= 0, ">= 0")


class TtlAction(Enum):
    """What becomes of a message whose time to live is over."""

    DROP = "drop"
    DEAD_LETTER = "dlq"


class Validation(Enum):
    """What becomes of a message that does not fit the schema of its topic: stored, stored and counted, or refused."""

    NONE = "none"
    WARN = "warn"
    REJECT = "reject"


class OnDamage(Enum):
    """What readers of a topic do at a batch that the disk has damaged: get an error, or go on behind it."""

    STOP = "stop"
    SKIP = "skip"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryConfig:
    """How a topic's messages are handed out, retried and given up."""

    visibility_timeout_ms: int = 30_000
    visibility_timeout_ms_max: int = 12 * HOUR_MS
    max_retries: int = 3
    backoff_base_ms: int = 1000
    backoff_multiplier: float = 2
    backoff_max_ms: int = 60_000
    backoff_jitter: bool = False
    # Per group and partition: bounds memory, and what a restart has to take over.
    max_in_flight: int = 10_000
    max_in_flight_per_consumer: int = 1000
    ttl_action: TtlAction = TtlAction.DROP
    dlq_enabled: bool = True
    # A lane that has messages and was not served for this long is served one next; 0: only by its weight.
    starvation_ms: int = 30_000

    def __post_init__(self) -> None:
        timeout, longest = self.visibility_timeout_ms, self.visibility_timeout_ms_max
        _require("visibility_timeout_ms", timeout, 0 < timeout <= longest, f"in 1..{longest}")
        _require("max_retries", self.max_retries, self.max_retries >= OFF, ">= -1")
        for name in ("backoff_base_ms", "backoff_max_ms"):
            found = getattr(self, name)
            _require(name, found, 0 <= found <= BACKOFF_MS_MAX, f"in 0..{BACKOFF_MS_MAX}")
        factor, most = self.backoff_multiplier, BACKOFF_MULTIPLIER_MAX
        _require("backoff_multiplier", factor, 1 <= factor <= most, f"in 1..{most}")
        _require("max_in_flight", self.max_in_flight, self.max_in_flight >= 1, ">= 1")
        each = self.max_in_flight_per_consumer
        _require("max_in_flight_per_consumer", each, each >= 1, ">= 1")
        _require("starvation_ms", self.starvation_ms, self.starvation_ms >= 0, ">= 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """Everything that can be said of one topic, under the names that users write."""

    retention_hours: float = 168
    retention_bytes: int = OFF
    retention_segments: int = OFF
    retention_segments_min: int = 1
    retention_check_ms: int = 300_000
    compaction_check_ms: int = 300_000
    segment_size_bytes: int = 64 * MIB
    segment_age_ms: int = 168 * HOUR_MS
    segment_messages_max: int = OFF
    index_interval_bytes: int = 4 * KIB
    cleanup: Cleanup = Cleanup.DELETE
    keep_unread: bool = False
    # A mistyped group must not fill the disk: above this much, unread messages go as well.
    keep_unread_bytes_max: int = 10 * 1024 * MIB
    # A group that no client asks for this long is forgotten, and no longer keeps anything.
    group_retention_hours: float = 168
    compression: str = "none"
    visibility_timeout_ms: int = 30_000
    max_retries: int = 3
    backoff_base_ms: int = 1000
    backoff_multiplier: float = 2
    backoff_max_ms: int = 60_000
    backoff_jitter: bool = False
    max_in_flight: int = 10_000
    max_in_flight_per_consumer: int = 1000
    ttl_ms: int = OFF
    ttl_action: TtlAction = TtlAction.DROP
    dlq_enabled: bool = True
    starvation_ms: int = 30_000
    dedup_window_ms: int = 10 * 60 * 1000
    dedup_keys_max: int = 100_000
    max_backlog_messages: int = OFF
    max_backlog_bytes: int = OFF
    on_damage: OnDamage = OnDamage.STOP
    # How long, and in how many bytes of each partition, the records of deliveries are kept for journeys.
    journey_retention_hours: float = 24
    journey_retention_bytes: int = 256 * MIB
    kafka_storage: KafkaStorage = KafkaStorage.VERBATIM
    validation: Validation = Validation.NONE
    # Subjects of the schema registry; empty: TOPIC-key, if it has a version, and TOPIC-value.
    key_subject: str = ""
    value_subject: str = ""

    def __post_init__(self) -> None:
        self.log_config()
        self.delivery_config()
        interval = self.index_interval_bytes
        _require("index_interval_bytes", interval, 1 <= interval <= 1 << 31, "in 1..2147483648")
        _require("dedup_window_ms", self.dedup_window_ms, self.dedup_window_ms >= 0, ">= 0")
        _require("dedup_keys_max", self.dedup_keys_max, self.dedup_keys_max >= 1, ">= 1")
        for name in ("retention_check_ms", "compaction_check_ms"):
            found = getattr(self, name)
            is_possible = SWEEP_MS_MIN <= found <= SWEEP_MS_MAX
            _require(name, found, is_possible, f"in {SWEEP_MS_MIN}..{SWEEP_MS_MAX}")
        cap = self.keep_unread_bytes_max
        _require("keep_unread_bytes_max", cap, cap >= 0, ">= 0")
        hours, size = self.journey_retention_hours, self.journey_retention_bytes
        if hours != 0:
            _require_hours("journey_retention_hours", hours)
        _require("journey_retention_bytes", size, size >= 0, ">= 0")
        kinds = ("none", "lz4", "zstd")
        _require("compression", self.compression, self.compression in kinds, "none, lz4 or zstd")
        is_possible = self.ttl_ms == OFF or 0 < self.ttl_ms <= TTL_MS_MAX
        _require("ttl_ms", self.ttl_ms, is_possible, f"in 1..{TTL_MS_MAX}, or -1 for off")
        _require_hours("group_retention_hours", self.group_retention_hours)
        for name in ("max_backlog_messages", "max_backlog_bytes"):
            found = getattr(self, name)
            _require(name, found, found == OFF or found > 0, "above 0, or -1 for off")
        for name in ("key_subject", "value_subject"):
            found = getattr(self, name)
            is_possible = len(found) <= SUBJECT_CHARACTERS_MAX and found.isprintable()
            _require(
                name, found[:60], is_possible, f"{SUBJECT_CHARACTERS_MAX} printable characters"
            )

    @lru_cache(maxsize=64)  # noqa: B019 - partitions of a topic share theirs, and few are kept
    def log_config(self) -> LogConfig:
        return LogConfig(
            segment_size_bytes=self.segment_size_bytes,
            index_interval_bytes=min(self.index_interval_bytes, self.segment_size_bytes),
            retention_hours=self.retention_hours,
            retention_bytes=self.retention_bytes,
            retention_segments=self.retention_segments,
            retention_segments_min=self.retention_segments_min,
            segment_age_ms=self.segment_age_ms,
            segment_messages_max=self.segment_messages_max,
        )

    @lru_cache(maxsize=64)  # noqa: B019 - as above
    def delivery_config(self) -> DeliveryConfig:
        return DeliveryConfig(
            visibility_timeout_ms=self.visibility_timeout_ms,
            max_retries=self.max_retries,
            backoff_base_ms=self.backoff_base_ms,
            backoff_multiplier=self.backoff_multiplier,
            backoff_max_ms=self.backoff_max_ms,
            backoff_jitter=self.backoff_jitter,
            max_in_flight=self.max_in_flight,
            max_in_flight_per_consumer=self.max_in_flight_per_consumer,
            ttl_action=self.ttl_action,
            dlq_enabled=self.dlq_enabled,
            starvation_ms=self.starvation_ms,
        )

"""What can be configured: sections of keys, each with its default and what it means. Made once, checked once, frozen.

Values come from a file, from `PENSTOCK_SECTION__KEY`, and from flags, in this order; a later one wins. `read_settings`
reports everything that is wrong at once. The reference in docs/configuration.md is made from these classes.
"""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
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
from ..errors import InvalidConfig
from .otlp_settings import OtlpSection
from .setting_keys import key, require, require_positive


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSection:
    """The process: its name, where it listens, where its data is."""

    id: str = key("broker-1", "Name of this broker, in answers and metrics.")
    host: str = key(
        "127.0.0.1", "Address to listen on. Other than this machine's own only with `auth.enabled`."
    )
    port: int = key(8080, "Port to listen on; 0 takes a free one.")
    binary_port: int = key(
        9092, "Port of the binary protocol, Kafka's and ours; 0 takes a free one, -1: off."
    )
    advertise: str = key(
        "", "Name or address that clients are told to connect to; empty: the one they came to."
    )
    node_id: int = key(1, "Number of this broker, as Kafka clients see it.")
    auto_create_topics: bool = key(
        False,
        "Make a topic that a Kafka client asks for and that there is not, if its key may make topics.",
    )
    console: bool = key(True, "Serve the console, for browsers, at `/`.")
    data_dir: str = key("./data", "Directory of all data. One process owns it at a time.")

    def __post_init__(self) -> None:
        require("port", self.port, 0 <= self.port <= 65_535, "in 0..65535")
        binary = self.binary_port
        require("binary_port", binary, OFF <= binary <= 65_535, "in 0..65535, or -1 for off")
        require("node_id", self.node_id, 0 <= self.node_id < 1 << 31, "in 0..2147483647")
        require("host", self.host, bool(self.host), "an address")
        require("data_dir", self.data_dir, bool(self.data_dir), "a directory")

    @property
    def is_loopback(self) -> bool:
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


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
    open_files_max: int = key(512, "Files of logs that are kept open.")
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
        TopicConfig(**_named(self, _STORAGE_OF_TOPIC))

    def storage_config(self) -> StorageConfig:
        return StorageConfig(
            fsync=self.fsync,
            fsync_interval_ms=self.fsync_interval_ms,
            min_free_bytes=self.min_free_bytes,
            open_files_max=self.open_files_max,
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
        TopicConfig(**_named(self, _CONSUMER_OF_TOPIC))

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
class ClusterSection:
    """Brokers that share their data. This version is one broker: what says more is refused."""

    nodes: tuple[str, ...] = key((), "Brokers of the cluster, such as broker-1:8080; one at most.")
    replication_factor: int = key(1, "Copies of each partition; there is one.")
    min_isr: int = key(1, "Copies that `acks: all` waits for; there is one.")

    def __post_init__(self) -> None:
        found = ", ".join(self.nodes)
        alone = "this version is a single node, which keeps one copy of everything"
        require("nodes", found, len(self.nodes) <= 1, f"one broker or none: {alone}")
        for name in ("replication_factor", "min_isr"):
            require(name, getattr(self, name), getattr(self, name) == 1, f"1: {alone}")


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
        TopicConfig(**_named(self, _REST_OF_TOPIC))


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
    staged_bytes_max: int = key(
        16 << 30, "Staged and not committed, on the whole node; more gets 429."
    )
    staged_bytes_per_topic_max: int = key(16 << 30, "The same of one topic.")
    staged_bytes_per_producer_max: int = key(
        4 << 30, "The same of one transaction, or of one staging of a named commit."
    )

    def __post_init__(self) -> None:
        self.limits_config()

    def limits_config(self) -> LimitsConfig:
        return LimitsConfig(**{one.name: getattr(self, one.name) for one in fields(self)})


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSection:
    """HTTP: what it takes from a client, and from which."""

    body_bytes_max: int = key(32 * MIB, "A request's body; JSON needs more room than a batch.")
    header_bytes_max: int = key(64 * KIB, "A request's line and headers.")
    bodies_bytes_max: int = key(256 * MIB, "Bodies being received at the same time.")
    client_bodies_bytes_max: int = key(
        128 * MIB, "The same of one key, or of one address without keys; more get 429."
    )
    answers_bytes_max: int = key(
        256 * MIB, "Answers that clients do not read, all together; over it reads get 429."
    )
    connections_max: int = key(20_000, "Connections at the same time; more get 503.")
    header_timeout_ms: int = key(10_000, "A request's headers have to be here by then.")
    body_timeout_ms: int = key(
        30_000,
        "A body has to be here by then, or bring `body_bytes_per_s_min` in each such span; else 408.",
        is_live=True,
    )
    body_bytes_per_s_min: int = key(
        16 * KIB, "The slowest that a body may come, once `body_timeout_ms` is over.", is_live=True
    )
    write_timeout_ms: int = key(30_000, "A client has to read on by then; otherwise it is cut off.")
    requests_max: int = key(
        512, "Requests under way at the same time, long polls and streams aside; more get 429."
    )
    keep_alive_ms: int = key(75_000, "An idle connection is closed after this.")
    drain_timeout_ms: int = key(10_000, "How long SIGTERM lets requests finish.")
    requests_per_s: int = key(
        OFF, "Requests a second for each key, or address; more get 429. -1: no limit.", is_live=True
    )
    metrics_groups_max: int = key(
        100,
        "Groups that `/metrics` names, those with the largest lag; the others are one group `other`.",
        is_live=True,
    )
    allowed_hosts: tuple[str, ...] = key(
        (), "Names under which this broker is reached, besides this machine's own.", is_live=True
    )
    allowed_origins: tuple[str, ...] = key(
        (), "Web pages that may use it, such as https://console.example.", is_live=True
    )

    def __post_init__(self) -> None:
        require_positive(
            self,
            "body_bytes_max",
            "header_bytes_max",
            "bodies_bytes_max",
            "client_bodies_bytes_max",
            "answers_bytes_max",
            "connections_max",
            "header_timeout_ms",
            "body_timeout_ms",
            "body_bytes_per_s_min",
            "write_timeout_ms",
            "requests_max",
            "keep_alive_ms",
            "metrics_groups_max",
        )
        require("drain_timeout_ms", self.drain_timeout_ms, self.drain_timeout_ms >= 0, ">= 0")
        rate = self.requests_per_s
        require("requests_per_s", rate, rate == OFF or rate > 0, "above 0, or -1 for off")


@dataclass(frozen=True, slots=True, kw_only=True)
class BinarySection:
    """The binary port: what it takes from a client. Connections, slow senders and slow readers are as in `http`."""

    frame_bytes_max: int = key(32 * MIB, "A request.")
    requests_max: int = key(
        10_000, "Requests that wait for the disk at the same time, of all clients; more get 429."
    )
    connection_requests_max: int = key(
        1000, "The same of one connection: no more is read from it until some are answered."
    )
    idle_ms: int = key(600_000, "A connection on which nothing happens is closed after this.")

    def __post_init__(self) -> None:
        require_positive(
            self, "frame_bytes_max", "requests_max", "connection_requests_max", "idle_ms"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthSection:
    """Who may come in."""

    enabled: bool = key(False, "Ask for an API key with every request but health.")
    insecure: bool = key(
        False, "Listen on other addresses without keys all the same. It is said in the log."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSection:
    """HTTPS. SIGHUP reads both files again."""

    cert_file: str = key("", "Certificate chain in PEM; empty: plain HTTP.")
    key_file: str = key("", "Its private key.")

    def __post_init__(self) -> None:
        is_whole = bool(self.cert_file) == bool(self.key_file)
        require("cert_file", self.cert_file, is_whole, "given together with key_file")

    @property
    def is_on(self) -> bool:
        return bool(self.cert_file)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSection:
    """What is written about the process itself, on stderr."""

    level: str = key("info", "debug, info, warning or error.", is_live=True)
    format: str = key("json", "json (one object a line) or text.")

    def __post_init__(self) -> None:
        levels = ("debug", "info", "warning", "error")
        require("level", self.level, self.level in levels, "debug, info, warning or error")
        require("format", self.format, self.format in {"json", "text"}, "json or text")


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


def _named(section: object, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(section, name) for name in names}


def conflicts(
    *,
    broker: BrokerSection,
    limits: LimitsSection,
    http: HttpSection,
    binary: BinarySection,
    auth: AuthSection,
    **_others: object,
) -> Iterable[tuple[tuple[str, ...], InvalidConfig]]:
    """Settings of several sections that do not go together: their names, and what is wrong."""
    if not (broker.is_loopback or auth.enabled or auth.insecure):
        expected = (
            "an address of this machine alone (127.0.0.1) while auth.enabled is false; set auth.enabled: true, "
            "or auth.insecure: true if something else keeps strangers away"
        )
        names = ("broker.host", "auth.enabled", "auth.insecure")
        yield names, InvalidConfig("broker.host", broker.host, expected)
    largest = limits.value_bytes_max
    for name, found in (
        ("http.body_bytes_max", http.body_bytes_max),
        ("binary.frame_bytes_max", binary.frame_bytes_max),
    ):
        if found < largest:
            expected = f"at least limits.value_bytes_max ({largest})"
            yield (name, "limits.value_bytes_max"), InvalidConfig(name, found, expected)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All sections."""

    broker: BrokerSection = field(default_factory=BrokerSection)
    storage: StorageSection = field(default_factory=StorageSection)
    producer: ProducerSection = field(default_factory=ProducerSection)
    consumer: ConsumerSection = field(default_factory=ConsumerSection)
    dlq: DlqSection = field(default_factory=DlqSection)
    topic: TopicSection = field(default_factory=TopicSection)
    limits: LimitsSection = field(default_factory=LimitsSection)
    http: HttpSection = field(default_factory=HttpSection)
    binary: BinarySection = field(default_factory=BinarySection)
    cluster: ClusterSection = field(default_factory=ClusterSection)
    auth: AuthSection = field(default_factory=AuthSection)
    tls: TlsSection = field(default_factory=TlsSection)
    log: LogSection = field(default_factory=LogSection)
    otlp: OtlpSection = field(default_factory=OtlpSection)

    def __post_init__(self) -> None:
        for _, error in conflicts(**{one.name: getattr(self, one.name) for one in fields(self)}):
            raise error

    def node_config(self) -> NodeConfig:
        return self.consumer.node_config(self.dlq.retention_hours)

    def topic_defaults(self) -> dict[str, Any]:
        """What a topic starts with, under the names of `TopicConfig`."""
        return {
            **_named(self.storage, _STORAGE_OF_TOPIC),
            **_named(self.consumer, _CONSUMER_OF_TOPIC),
            **_named(self.topic, _REST_OF_TOPIC),
            "dlq_enabled": self.dlq.enabled,
        }

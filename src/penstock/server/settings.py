"""What can be configured: sections of keys, each with its default and what it means. Made once, checked once, frozen.

Values come from a file, from `PENSTOCK_SECTION__KEY`, and from flags, in this order; a later one wins. `read_settings`
reports everything that is wrong at once. The reference in docs/configuration.md is made from these classes.
"""

import ipaddress
from dataclasses import dataclass, field, fields
from typing import Any

from ..config import (
    KIB,
    MIB,
    OFF,
    FsyncPolicy,
    LimitsConfig,
    StorageConfig,
    TopicConfig,
)
from ..errors import InvalidConfig


def key(default: Any, text: str, *, is_live: bool = False, is_secret: bool = False) -> Any:
    """A setting: its default, what it means, and whether SIGHUP is enough to change it."""
    metadata = {"text": text, "is_live": is_live, "is_secret": is_secret}
    if isinstance(default, tuple | list):
        return field(default=tuple(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def _require(setting: str, found: object, is_legal: bool, expected: str) -> None:
    if not is_legal:
        raise InvalidConfig(setting, found, expected)


def _require_positive(section: object, *names: str) -> None:
    for name in names:
        found = getattr(section, name)
        _require(name, found, found > 0, "above 0")


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
    data_dir: str = key("./data", "Directory of all data. One process owns it at a time.")

    def __post_init__(self) -> None:
        _require("port", self.port, 0 <= self.port <= 65_535, "in 0..65535")
        binary = self.binary_port
        _require("binary_port", binary, OFF <= binary <= 65_535, "in 0..65535, or -1 for off")
        _require("node_id", self.node_id, 0 <= self.node_id < 1 << 31, "in 0..2147483647")
        _require("host", self.host, bool(self.host), "an address")
        _require("data_dir", self.data_dir, bool(self.data_dir), "a directory")

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
class ConsumerSection:
    """How messages of new topics are handed out and retried."""

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
        _require_positive(
            self, "max_poll_records", "max_poll_records_binary", "poll_timeout_ms_max"
        )
        TopicConfig(**_named(self, _CONSUMER_OF_TOPIC))


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
    dlq_enabled: bool = key(True, "Keep dead letters; otherwise they are dropped and counted.")
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
        _require("num_partitions", partitions, 1 <= partitions <= 10_000, "in 1..10000")
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
        _require_positive(
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
        _require("drain_timeout_ms", self.drain_timeout_ms, self.drain_timeout_ms >= 0, ">= 0")
        rate = self.requests_per_s
        _require("requests_per_s", rate, rate == OFF or rate > 0, "above 0, or -1 for off")


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
        _require_positive(
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
        _require("cert_file", self.cert_file, is_whole, "given together with key_file")

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
        _require("level", self.level, self.level in levels, "debug, info, warning or error")
        _require("format", self.format, self.format in {"json", "text"}, "json or text")


_STORAGE_OF_TOPIC = (
    "segment_size_bytes",
    "segment_age_ms",
    "segment_messages_max",
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
    "dlq_enabled",
    "dedup_window_ms",
    "dedup_keys_max",
    "max_backlog_messages",
    "max_backlog_bytes",
    "journey_retention_hours",
    "journey_retention_bytes",
)


def _named(section: object, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(section, name) for name in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class OtlpSection:
    """Spans of messages for an OpenTelemetry collector. Takes the extra `penstock[otlp]`."""

    endpoint: str = key(
        "",
        "Where the collector takes traces over OTLP/HTTP, as `http://127.0.0.1:4318/v1/traces`; empty: off.",
    )
    sample_ratio: float = key(
        0.01,
        "The part of traces that is exported, by trace id. A message that came with a trace goes with that.",
    )
    service_name: str = key("penstock", "The `service.name` of the spans.")
    headers: tuple[str, ...] = key(
        (), "Headers of requests to the collector, each as `name=value`.", is_secret=True
    )
    interval_ms: int = key(1000, "How often spans are sent.")
    timeout_ms: int = key(
        10_000, "How long a collector that does not answer is asked again; then its spans are lost."
    )

    def __post_init__(self) -> None:
        is_url = self.endpoint.startswith(("http://", "https://"))
        _require("endpoint", self.endpoint, not self.endpoint or is_url, "an address http(s)://")
        _require("sample_ratio", self.sample_ratio, 0 <= self.sample_ratio <= 1, "in 0..1")
        for one in self.headers:
            _require("headers", one[:40], "=" in one, "name=value")
        _require_positive(self, "interval_ms", "timeout_ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All sections."""

    broker: BrokerSection = field(default_factory=BrokerSection)
    storage: StorageSection = field(default_factory=StorageSection)
    consumer: ConsumerSection = field(default_factory=ConsumerSection)
    topic: TopicSection = field(default_factory=TopicSection)
    limits: LimitsSection = field(default_factory=LimitsSection)
    http: HttpSection = field(default_factory=HttpSection)
    binary: BinarySection = field(default_factory=BinarySection)
    auth: AuthSection = field(default_factory=AuthSection)
    tls: TlsSection = field(default_factory=TlsSection)
    log: LogSection = field(default_factory=LogSection)
    otlp: OtlpSection = field(default_factory=OtlpSection)

    def __post_init__(self) -> None:
        is_open = not self.broker.is_loopback and not self.auth.enabled
        if is_open and not self.auth.insecure:
            raise InvalidConfig(
                "broker.host",
                self.broker.host,
                "an address of this machine alone (127.0.0.1) while auth.enabled is false; set auth.enabled: true, "
                "or auth.insecure: true if something else keeps strangers away",
            )
        largest = self.limits.value_bytes_max
        _require(
            "http.body_bytes_max",
            self.http.body_bytes_max,
            self.http.body_bytes_max >= largest,
            f"at least limits.value_bytes_max ({largest})",
        )
        _require(
            "binary.frame_bytes_max",
            self.binary.frame_bytes_max,
            self.binary.frame_bytes_max >= largest,
            f"at least limits.value_bytes_max ({largest})",
        )

    def topic_defaults(self) -> dict[str, Any]:
        """What a topic starts with, under the names of `TopicConfig`."""
        return {
            **_named(self.storage, _STORAGE_OF_TOPIC),
            **_named(self.consumer, _CONSUMER_OF_TOPIC),
            **_named(self.topic, _REST_OF_TOPIC),
        }

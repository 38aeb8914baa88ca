"""What can be configured: sections of keys, each with its default and what it means. Made once, checked once, frozen.

Values come from a file, from `PENSTOCK_SECTION__KEY`, and from flags, in this order; a later one wins. `read_settings`
reports everything that is wrong at once. The reference in docs/configuration.md is made from these classes.
"""

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any

from ..config import OFF, NodeConfig
from ..errors import InvalidConfig
from .audit_settings import AuditSection
from .cluster_settings import NODE_MAX, PORT_MAX, ClusterSection, split_address
from .otlp_settings import OtlpSection
from .port_settings import AuthSection, BinarySection, HttpSection, LogSection, TlsSection
from .setting_keys import key, require
from .topic_settings import (
    ConsumerSection,
    DlqSection,
    LimitsSection,
    ProducerSection,
    StorageSection,
    TopicSection,
)

_EVERY_ADDRESS = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared, not listened on
_NAME = re.compile(r"([\w-]+\.)*(?!\d+\.?$)[\w-]+\.?")


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
    node_id: int = key(
        1, "Number of this broker, as Kafka clients see it; with a standby in 1..255, each its own."
    )
    auto_create_topics: bool = key(
        False,
        "Make a topic that a Kafka client asks for and that there is not, if its key may make topics.",
    )
    console: bool = key(True, "Serve the console, for browsers, at `/`.")
    data_dir: str = key("./data", "Directory of all data. One process owns it at a time.")

    def __post_init__(self) -> None:
        require("port", self.port, 0 <= self.port <= PORT_MAX, f"in 0..{PORT_MAX}")
        binary = self.binary_port
        expected = f"in 0..{PORT_MAX}, or -1 for off"
        require("binary_port", binary, OFF <= binary <= PORT_MAX, expected)
        is_other = binary != self.port or binary == 0
        require("binary_port", binary, is_other, "another port than broker.port")
        require("node_id", self.node_id, 0 <= self.node_id < 1 << 31, "in 0..2147483647")
        require("host", self.host, _is_host(self.host), "an address, or the name of one")
        require("data_dir", self.data_dir, bool(self.data_dir), "a directory")

    @property
    def is_loopback(self) -> bool:
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def _is_host(text: str) -> bool:
    """Whether it is an address, or could be a name. No name ends with a number, as 999.1.1.1 does."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return bool(_NAME.fullmatch(text))
    return True


def conflicts(
    *,
    broker: BrokerSection,
    limits: LimitsSection,
    http: HttpSection,
    binary: BinarySection,
    auth: AuthSection,
    cluster: ClusterSection,
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
    if cluster.is_on and not 1 <= broker.node_id <= NODE_MAX:
        expected = f"in 1..{NODE_MAX}, and another one than the peer's, with a standby"
        yield (
            ("broker.node_id", "cluster.listen"),
            InvalidConfig("broker.node_id", broker.node_id, expected),
        )
    if cluster.is_on:
        yield from _shared_ports(broker, cluster)
    largest = limits.value_bytes_max
    for name, found in (
        ("http.body_bytes_max", http.body_bytes_max),
        ("binary.frame_bytes_max", binary.frame_bytes_max),
    ):
        if found < largest:
            expected = f"at least limits.value_bytes_max ({largest})"
            yield (name, "limits.value_bytes_max"), InvalidConfig(name, found, expected)


def _shared_ports(
    broker: BrokerSection, cluster: ClusterSection
) -> Iterable[tuple[tuple[str, ...], InvalidConfig]]:
    """One port for clients and for the peer. On different addresses of the machine that is possible."""
    host, port = split_address(cluster.listen)
    if port == 0 or (host != broker.host and not {host, broker.host} & _EVERY_ADDRESS):
        return
    for name, found in (("broker.port", broker.port), ("broker.binary_port", broker.binary_port)):
        if found == port:
            expected = f"another port than {name}"
            yield (
                ("cluster.listen", name, "broker.host"),
                InvalidConfig("cluster.listen", cluster.listen, expected),
            )


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
    audit: AuditSection = field(default_factory=AuditSection)
    log: LogSection = field(default_factory=LogSection)
    otlp: OtlpSection = field(default_factory=OtlpSection)

    def __post_init__(self) -> None:
        for _, error in conflicts(**{one.name: getattr(self, one.name) for one in fields(self)}):
            raise error.fresh()

    def node_config(self) -> NodeConfig:
        return self.consumer.node_config(self.dlq.retention_hours)

    def topic_defaults(self) -> dict[str, Any]:
        """What a topic starts with, under the names of `TopicConfig`."""
        return {
            **self.storage.of_topics(),
            **self.consumer.of_topics(),
            **self.topic.of_topics(),
            "dlq_enabled": self.dlq.enabled,
        }

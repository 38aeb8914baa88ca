"""The section of a broker with a standby: where its peers are, how they know each other, and what a reply waits for."""

import ipaddress
from dataclasses import dataclass

from ..config import MIB, OFF
from .setting_keys import key, require, require_positive

COPIES_WITH_STANDBY = 2
STANDBYS_MAX = 2
# Epochs have room for so many numbers of nodes.
NODE_MAX = 255
PORT_MAX = 65_535
_NAME_CHARACTERS_MAX = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSection:
    """Standbys on other machines that hold everything, one or two; docs/replication.md says how to set them up."""

    nodes: tuple[str, ...] = key((), "Brokers of the cluster, such as broker-1:8080; one at most.")
    replication_factor: int = key(
        1, "Copies that partitions are spread to; a standby keeps one more of everything."
    )
    min_isr: int = key(
        0,
        "Copies that `acks: all`, polls and answers wait for, at most as many as there are nodes; 0: 2 with a standby, "
        "otherwise 1.",
    )
    name: str = key("penstock", "Name of the cluster, which certificates of its nodes carry.")
    listen: str = key(
        "",
        "Address and port for the other node, such as 10.0.0.5:9093; empty: there is no standby.",
    )
    peers: tuple[str, ...] = key(
        (), "Where the other nodes listen for this one, such as 10.0.0.6:9093; two at most."
    )
    follow: str = key(
        "", "The same, of the node that this one copies from its first start on (--follow)."
    )
    begin: bool = key(
        False,
        "Begin a cluster although no peer answers: for the first start of its first node alone (--begin-cluster).",
    )
    ca_file: str = key(
        "", "Certificate of the cluster's own authority, in PEM; see penstock certs."
    )
    cert_file: str = key("", "Certificate of this node, in PEM.")
    key_file: str = key("", "Its private key.")
    ack_timeout_ms: int = key(
        10_000,
        "A reply waits so long for the standby; then 504, and the message may be there or not.",
    )
    replica_lag_ms: int = key(
        3000,
        "A standby from which nothing was heard for so long is away: commits do not wait for it.",
    )
    window_bytes: int = key(16 * MIB, "What is sent to the standby ahead of what it has confirmed.")
    catch_up_bytes_per_s: int = key(
        64 * MIB, "The most that is read from files for a standby that is behind; -1: no limit."
    )

    def __post_init__(self) -> None:
        found = ", ".join(self.nodes)
        alone = "a cluster of several leaders is not there yet; a standby is cluster.listen and cluster.peers"
        require("nodes", found, len(self.nodes) <= 1, f"one broker or none: {alone}")
        require(
            "replication_factor",
            self.replication_factor,
            self.replication_factor == 1,
            f"1: {alone}",
        )
        copies_max = self.node_count if self.is_on else 1
        expected = f"in 0..{copies_max}" + (
            "" if self.is_on else ": there is no standby (cluster.listen)"
        )
        require("min_isr", self.min_isr, 0 <= self.min_isr <= copies_max, expected)
        is_name = self.name.replace("-", "").isalnum() and self.name.isascii()
        expected = f"1 to {_NAME_CHARACTERS_MAX} of A-Z a-z 0-9 -"
        require("name", self.name, is_name and len(self.name) <= _NAME_CHARACTERS_MAX, expected)
        self._require_addresses()
        require("begin", self.begin, not (self.begin and self.follow), "without follow")
        together = {bool(self.ca_file), bool(self.cert_file), bool(self.key_file)}
        require(
            "cert_file",
            self.cert_file,
            len(together) == 1,
            "given together with ca_file and key_file",
        )
        require_positive(self, "ack_timeout_ms", "replica_lag_ms", "window_bytes")
        rate = self.catch_up_bytes_per_s
        require("catch_up_bytes_per_s", rate, rate == OFF or rate > 0, "above 0, or -1 for off")

    def _require_addresses(self) -> None:
        for name, found in (
            ("listen", self.listen),
            ("follow", self.follow),
            *(("peers", one) for one in self.peers),
        ):
            host, _, port = found.rpartition(":")
            is_address = bool(host) and port.isdecimal() and int(port) <= PORT_MAX
            require(name, found, not found or is_address, f"HOST:PORT, the port in 0..{PORT_MAX}")
        others = self.addresses
        expected = f"{STANDBYS_MAX} other nodes at most, follow among them"
        require("peers", ", ".join(others), len(others) <= STANDBYS_MAX, expected)
        is_whole = bool(self.listen) == bool(others)
        require("listen", self.listen, is_whole, "given together with peers, or with --follow")
        is_safe = bool(self.ca_file) or all(
            is_loopback(one) for one in (self.listen, *others) if one
        )
        expected = "an address of this machine alone while there are no certificates (ca_file, cert_file, key_file)"
        require("listen", self.listen, is_safe, expected)

    @property
    def is_on(self) -> bool:
        """Whether there is a standby, or is to be one."""
        return bool(self.listen)

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where the other nodes listen."""
        return tuple(dict.fromkeys(one for one in (self.follow, *self.peers) if one))

    @property
    def node_count(self) -> int:
        """How many nodes there are, this one included."""
        return 1 + len(self.addresses)

    @property
    def copies(self) -> int:
        """How many copies a reply waits for that is to survive the loss of a machine."""
        return self.min_isr or (COPIES_WITH_STANDBY if self.is_on else 1)

    @property
    def is_tls(self) -> bool:
        return bool(self.ca_file)


def is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def split_address(address: str) -> tuple[str, int]:
    """Host and port of an address of these settings."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)

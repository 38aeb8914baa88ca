"""Sections of the ports: what they take from a client, from which clients, and what is logged."""

import re
from dataclasses import dataclass

from ..config import KIB, MIB, OFF
from .setting_keys import key, require, require_positive

_ORIGIN = re.compile(
    r"[a-z][a-z0-9+.-]*://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:\d{1,5})?", re.IGNORECASE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSection:
    """HTTP: what it takes from a client, and from which."""

    body_bytes_max: int = key(32 * MIB, "A request's body; JSON needs more room than a batch.")
    header_bytes_max: int = key(64 * KIB, "A request's line and headers.")
    bodies_bytes_max: int = key(
        256 * MIB,
        "Bodies being received at the same time, large requests of the binary port among them.",
    )
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
        "Groups that `/metrics` names, those with the largest lag; the others are one, `other`, with their latencies.",
        is_live=True,
    )
    allowed_hosts: tuple[str, ...] = key(
        (), "Names under which this broker is reached, besides this machine's own.", is_live=True
    )
    allowed_origins: tuple[str, ...] = key(
        (),
        "Web pages that may use it, as SCHEME://HOST[:PORT], such as https://console.example.",
        is_live=True,
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
        for one in self.allowed_origins:
            expected = "SCHEME://HOST or SCHEME://HOST:PORT, as a browser sends it"
            require("allowed_origins", one[:100], bool(_ORIGIN.fullmatch(one)), expected)


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

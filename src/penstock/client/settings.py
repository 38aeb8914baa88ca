"""What a client is made with."""

import secrets
from dataclasses import dataclass, field

from .retrying import RetryPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Timeouts in seconds. A long poll may take its own time on top of `timeout_s`.

    `connections_max` calls run at once, more wait; `idle_max` connections are kept for the next call.
    """

    timeout_s: float = 30.0
    connect_timeout_s: float = 5.0
    connections_max: int = 100
    idle_max: int = 16
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    # A file with certificates to trust instead of the system's.
    ca_file: str | None = None

    def __post_init__(self) -> None:
        if self.timeout_s <= 0 or self.connect_timeout_s <= 0:
            raise ValueError("timeouts must be above 0")
        if self.connections_max < 1 or self.idle_max < 0:
            raise ValueError("connections_max must be at least 1 and idle_max at least 0")


def chance() -> float:
    """A number in 0..1, to spread clients that failed at the same moment."""
    return secrets.randbelow(1 << 30) / (1 << 30)

"""What a client is made with."""

import secrets
from dataclasses import dataclass, field
from os import PathLike

from ..api.arguments import instance, number, type_name, whole_number
from ..errors import Refused
from .retry import RetryPolicy

_TIMEOUT_S_MAX = 86_400 * 366
# More than a process has ports for.
_CONNECTIONS_MAX = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Timeouts in seconds: `timeout_s` for a request and its answer together, once there is a connection, for each try.

    A long poll may take its own time on top of it.

    `connections_max` calls run at once, more wait; `idle_max` connections are kept for the next call.
    """

    timeout_s: float = 30.0
    connect_timeout_s: float = 5.0
    connections_max: int = 100
    idle_max: int = 16
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    # A file with certificates to trust instead of the system's.
    ca_file: str | PathLike[str] | None = None

    def __post_init__(self) -> None:
        for name in ("timeout_s", "connect_timeout_s"):
            if not 0 < number(name, getattr(self, name), 0) <= _TIMEOUT_S_MAX:
                raise Refused(f"{name} must be above 0 and at most {_TIMEOUT_S_MAX} s")
        whole_number("connections_max", self.connections_max, 1, _CONNECTIONS_MAX)
        whole_number("idle_max", self.idle_max, 0)
        instance("retry", self.retry, RetryPolicy)
        if self.ca_file is not None and not isinstance(self.ca_file, str | PathLike):
            raise Refused(f"ca_file is the path of a file, not {type_name(self.ca_file)}")


def chance() -> float:
    """A number in 0..1, to spread clients that failed at the same moment."""
    return secrets.randbelow(1 << 30) / (1 << 30)

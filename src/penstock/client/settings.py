"""The settings of a client."""

from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING

from ..api.arguments import instance, number, shown, type_name
from ..errors import Refused
from .retry import RetryPolicy

if TYPE_CHECKING:
    import ssl

CLIENT_NAME = "penstock"
"""What a client calls itself in hello."""

_TIMEOUT_S_MAX = 86_400 * 366


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """`timeout_s` is for a request and its answer together, in each try; a long poll may take its own time on top.

    `connect_timeout_s` comes before it, for a new connection.
    """

    timeout_s: float = 30.0
    connect_timeout_s: float = 5.0
    # None: as the server says in hello.
    retry: RetryPolicy | None = None
    # A file with certificates to trust instead of the system's.
    ca_file: str | PathLike[str] | None = None

    def __post_init__(self) -> None:
        for name in ("timeout_s", "connect_timeout_s"):
            if not 0 < number(name, getattr(self, name), 0) <= _TIMEOUT_S_MAX:
                raise Refused(f"{name} must be above 0 and at most {_TIMEOUT_S_MAX} s")
        if self.retry is not None:
            instance("retry", self.retry, RetryPolicy)
        if self.ca_file is not None and not isinstance(self.ca_file, str | PathLike):
            raise Refused(f"ca_file is the path of a file, not {type_name(self.ca_file)}")

    def tls_context(self) -> "ssl.SSLContext":
        """Checks every certificate, against the system's or those of `ca_file`. Refused if that cannot be read."""
        import ssl

        try:
            return ssl.create_default_context(cafile=self.ca_file)
        except (OSError, ssl.SSLError) as error:
            raise Refused(f"{self.ca_file}: {error.strerror or error}") from None
        except ValueError as error:
            raise Refused(f"ca_file {shown(self.ca_file)}: {error}") from None

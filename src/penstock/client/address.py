"""The address of a server, and the headers of every request to it."""

from dataclasses import dataclass
from urllib.parse import urlsplit

from ..api.arguments import text
from ..errors import Refused

DEFAULT_URL = "http://127.0.0.1:8080"
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Address:
    """The parts of a server's URL. `prefix` is a path in front of every route, for servers behind a proxy."""

    scheme: str
    host: str
    port: int
    prefix: str

    @classmethod
    def parse(cls, url: str) -> "Address":
        """The address in a URL. Refused if it has no scheme, or more than scheme, host, port and path."""
        try:
            parts = urlsplit(text("an address", url).strip())
            port = parts.port
        except ValueError as error:
            raise Refused(f"{url[:200]!r} is not an address: {error}") from None
        if parts.scheme not in _PORTS or not parts.hostname:
            raise Refused(f"{url[:200]!r} is not an address: it looks like {DEFAULT_URL}")
        if parts.query or parts.fragment or parts.username is not None:
            raise Refused(f"{url[:200]!r}: only scheme, host, port and path belong into an address")
        host, prefix = parts.hostname, parts.path.rstrip("/")
        # Both go into requests, and must not be able to end a line there.
        if not (host + prefix).isascii() or not (host + prefix).isprintable() or " " in prefix:
            raise Refused(f"{url[:200]!r} is not an address: only plain ASCII")
        return cls(parts.scheme, host, port or _PORTS[parts.scheme], prefix)

    @property
    def is_tls(self) -> bool:
        return self.scheme == "https"

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.prefix}"


def common_headers(address: Address, key: str | None) -> bytes:
    """The header lines that every request has. Refused if the key is more than one line of ASCII."""
    lines = f"Host: {address.authority}\r\nUser-Agent: penstock\r\n"
    if key:
        if not text("a key", key).isascii() or not key.isprintable():
            raise Refused("a key is one line of plain ASCII")
        lines += f"Authorization: Bearer {key}\r\n"
    return lines.encode("ascii")

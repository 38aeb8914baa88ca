"""The address of a server, and the key that is sent to it."""

from dataclasses import dataclass
from urllib.parse import urlsplit

from ..api.arguments import text
from ..contexts import DEFAULT_SERVER
from ..errors import Refused

_DEFAULT_PORT = 9092
_ADDRESSES_MAX = 16
# Whether connections are encrypted.
_SCHEMES = {"penstock": False, "penstocks": True}
_HTTP = {"http": "penstock", "https": "penstocks"}


@dataclass(frozen=True, slots=True)
class Address:
    """The parts of a server's address, such as penstock://127.0.0.1:9092; penstocks:// is the same with TLS."""

    scheme: str
    host: str
    port: int

    @classmethod
    def parse(cls, url: str) -> "Address":
        """The address in a URL. Refused if it has no scheme, or more than scheme, host and port; and if it is HTTP."""
        try:
            parts = urlsplit(text("an address", url).strip())
            port = parts.port
        except ValueError as error:
            raise Refused(f"{url[:200]!r} is not an address: {error}") from None
        host = parts.hostname
        if parts.scheme in _HTTP and host:
            meant = cls(_HTTP[parts.scheme], host, _DEFAULT_PORT)
            raise Refused(
                f"{url[:200]!r} is an address for HTTP; the client speaks the binary port,"
                f" whose address looks like {meant}"
            )
        if parts.scheme not in _SCHEMES or not host:
            raise Refused(f"{url[:200]!r} is not an address: it looks like {DEFAULT_SERVER}")
        has_more = parts.query or parts.fragment or parts.username is not None
        if has_more or parts.path.strip("/"):
            raise Refused(f"{url[:200]!r}: only scheme, host and port belong into an address")
        if not host.isascii() or not host.isprintable() or " " in host:
            raise Refused(f"{url[:200]!r} is not an address: only plain ASCII")
        if port == 0:
            raise Refused(f"{url[:200]!r} is not an address: no server listens on port 0")
        # As the system looks a name up: IPv6 has no dots.
        try:
            host.encode("idna")
        except UnicodeError:
            raise Refused(
                f"{url[:200]!r} is not an address: between two dots of a host are 1 to 63 letters"
            ) from None
        return cls(parts.scheme, host, _DEFAULT_PORT if port is None else port)

    @classmethod
    def parse_all(cls, url: str) -> "tuple[Address, ...]":
        """The addresses of a broker and its standby, such as penstock://a:9092,b:9092; mostly it is one. Refused."""
        first, *others = text("an address", url).split(",")
        known = cls.parse(first)
        rest = (one if "://" in one else f"{known.scheme}://{one.strip()}" for one in others)
        found = (known, *map(cls.parse, rest))
        if len({one.scheme for one in found}) > 1:
            raise Refused(f"{url[:200]!r}: all addresses have one scheme")
        if len(found) > _ADDRESSES_MAX:
            raise Refused(f"{url[:200]!r}: at most {_ADDRESSES_MAX} addresses")
        return found

    @property
    def is_tls(self) -> bool:
        return _SCHEMES[self.scheme]

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def checked_key(key: str | None) -> str:
    """A key as hello has it. Refused if it is more than one line of ASCII."""
    if not key:
        return ""
    if not text("a key", key).isascii() or not key.isprintable():
        raise Refused("a key is one line of plain ASCII")
    return key

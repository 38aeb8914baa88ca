"""A head that a connection has seen before. Clients say the same with every request, but for the length of the body.

The parser is asked once. After that the same bytes mean the same thing, so to compare them is enough, and takes
half the time or less. Only what came in one piece is compared, and whatever differs goes to the parser, as always.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

Headers = list[tuple[bytes, bytes]]
_LENGTH = b"content-length"
# These change how a request is to be received, or what comes after it.
_SPECIAL = frozenset(
    {
        b"connection",
        b"expect",
        b"keep-alive",
        # Nobody's standard, but the parser takes it for the first one.
        b"proxy-connection",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        _LENGTH,
    }
)
_END = b"\r\n\r\n"
_START_BYTES_MAX = 4096
# Longer than any body that is taken, and short enough for a number.
_DIGITS_MAX = 9
_OFFSET = b"&offset="
_OFFSET_DIGITS_MAX = 18


def _number(digits: bytes, digits_max: int = _DIGITS_MAX) -> int:
    """What they say; -1 if they are none."""
    return int(digits) if digits.isdigit() and len(digits) <= digits_max else -1


Known = tuple[bytes, bytes]
"""A request whose head was known: the digits of its length, and its body."""


class KnownHead(NamedTuple):
    """`start` is all of it up to the length of the body, which stands last; `scope` is what the parser made of it."""

    start: bytes
    scope: Mapping[str, Any]
    headers: Headers

    @classmethod
    def of(cls, data: bytes, scope: Mapping[str, Any]) -> "KnownHead | None":
        """What is to be remembered of a request that the parser read; None if it is not of the usual kind.

        It has to be alone in `data`, and without anything that concerns the connection.
        """
        *headers, (name, digits) = scope["headers"] or [(b"", b"")]
        end = data.find(_END)
        start = data[: end - len(digits)]
        is_whole = name == _LENGTH and len(data) == end + len(_END) + _number(digits)
        if not is_whole or len(start) > _START_BYTES_MAX or start + digits != data[:end]:
            return None
        if scope["http_version"] != "1.1" or any(one in _SPECIAL for one, _ in headers):
            return None
        return cls(start, scope, headers)

    def is_of(self, data: bytes) -> bool:
        """Whether `data` is a request with this head, whole, and nothing else."""
        return self.read(data) is not None

    def read(self, data: bytes) -> Known | None:
        """The request that `data` is, if it is one with this head, whole, and nothing else."""
        start = self.start
        if not data.startswith(start):
            return None
        first = len(start)
        # Nothing but the digits of a number may stand there.
        end = data.find(_END, first, first + _DIGITS_MAX + len(_END))
        digits, body = data[first:end], data[end + len(_END) :]
        is_whole = end >= 0 and digits.isdigit() and int(digits) == len(body)
        return (digits, body) if is_whole else None

    def headers_of(self, known: Known) -> Headers:
        return [*self.headers, (_LENGTH, known[0])]


class KnownRead(NamedTuple):
    """The same for a request without a body whose last word is an offset: `start` goes up to it, `end` follows it."""

    start: bytes
    end: bytes
    scope: Mapping[str, Any]

    @classmethod
    def of(cls, data: bytes, scope: Mapping[str, Any]) -> "KnownRead | None":
        """None if it is not of the usual kind."""
        before, _, digits = scope["query_string"].rpartition(_OFFSET)
        is_read = scope["method"] == "GET" and before and _number(digits, _OFFSET_DIGITS_MAX) >= 0
        start, _, rest = data.partition(_OFFSET + digits + b" ")
        if not is_read or len(data) > _START_BYTES_MAX or data.find(_END) != len(data) - len(_END):
            return None
        if not start.endswith(before) or not rest.startswith(b"HTTP/1.1\r\n"):
            return None
        if any(name in _SPECIAL for name, _ in scope["headers"]):
            return None
        return cls(start + _OFFSET, b" " + rest, scope)

    def read(self, data: bytes) -> bytes | None:
        """The digits of the offset, if `data` is one such request and nothing else."""
        if not data.startswith(self.start) or not data.endswith(self.end):
            return None
        digits = data[len(self.start) : -len(self.end)]
        return digits if digits.isdigit() and len(digits) <= _OFFSET_DIGITS_MAX else None

    def scope_of(self, digits: bytes) -> dict[str, Any]:
        before, name, _ = self.scope["query_string"].rpartition(_OFFSET)
        return {**self.scope, "query_string": before + name + digits}

"""Keys, values and headers as programs hand them in: bytes, or text that stands for its UTF-8 bytes."""

from collections.abc import Sequence

from ..config import LimitsConfig
from ..errors import Refused, TooLarge
from ..model import Headers

Content = bytes | str | None
"""A key or a value; text stands for its UTF-8 bytes."""

HeadersIn = Sequence[tuple[str, Content]] | dict[str, Content]

LIMITS = LimitsConfig()


def _encoded(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise Refused(f"a {what} is text that UTF-8 cannot hold: {error.reason}") from None


def bytes_of(content: object, what: str, limit: int) -> bytes | None:
    """The bytes of a content. Refused if it is neither bytes nor text, TooLarge over the limit."""
    if isinstance(content, str):
        content = _encoded(content, what)
    if content is None:
        return None
    if not isinstance(content, bytes):
        raise Refused(f"a {what} is bytes, text or None, not {type(content).__name__}")
    if len(content) > limit:
        raise TooLarge(f"{what} in bytes", found=len(content), limit=limit)
    return content


def pairs_of(headers: HeadersIn, limit: int = LIMITS.headers_bytes_max) -> Headers:
    """Headers as a message has them. Refused if they are none, TooLarge over the limit."""
    found: list[tuple[str, bytes | None]] = []
    size = 0
    try:
        for name, value in headers.items() if isinstance(headers, dict) else headers:
            content = bytes_of(value, "header value", limit)
            size += len(_encoded(name, "header's name")) + len(content or b"")
            found.append((name, content))
    except (TypeError, ValueError, AttributeError):
        raise Refused("headers are pairs of a name and a value, or a dict of them") from None
    if size > limit:
        raise TooLarge("headers in bytes", found=size, limit=limit)
    return tuple(found)

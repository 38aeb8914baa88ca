"""Lists in pages: `limit` and `cursor` of every list. A cursor has the name of the last item that was shown."""

import binascii
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from typing import TypeVar

from ...errors import BadRequest
from .messages import Int64, Strict

T = TypeVar("T")
_LIMIT_MAX = 10_000
_CURSOR_CHARACTERS_MAX = 1000


class PageQuery(Strict):
    limit: Int64 = 1000
    cursor: str = ""


def page_of(
    items: Sequence[T], asked: PageQuery, key: Callable[[T], str]
) -> tuple[list[T], str | None]:
    """Those behind the cursor, in the order of their keys, and where the next page begins; None: nowhere."""
    limit, last = page_limit(asked.limit), _read_cursor(asked.cursor)
    rest = sorted((one for one in items if key(one) > last), key=key)
    return rest[:limit], _write_cursor(key(rest[limit - 1])) if len(rest) > limit else None


def _write_cursor(last: str) -> str:
    """With a checksum: a name that a client puts there by itself is no cursor."""
    name = last.encode()
    return urlsafe_b64encode(zlib.crc32(name).to_bytes(4, "big") + name).decode().rstrip("=")


def _read_cursor(cursor: str) -> str:
    """The name in a cursor; BadRequest if no list of ours gave it."""
    if not cursor:
        return ""
    try:
        if len(cursor) > _CURSOR_CHARACTERS_MAX or "=" in cursor:
            raise ValueError
        content = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        name = content[4:].decode()
        if _write_cursor(name) != cursor:
            raise ValueError
    except (ValueError, binascii.Error):
        raise BadRequest("cursor is not one of ours", field="cursor") from None
    return name


def page_limit(limit: int) -> int:
    if not 1 <= limit <= _LIMIT_MAX:
        raise BadRequest(f"limit must be in 1..{_LIMIT_MAX}, got {limit}", field="limit")
    return limit


def number_of_cursor(name: str, cursor: str) -> int:
    """The number that a cursor is; before all of them, if it is empty. BadRequest."""
    if cursor and not (cursor.isdecimal() and len(cursor) <= 18):
        raise BadRequest(f"{name} is not one of ours", field=name)
    return int(cursor or -1)

"""Lists in pages: `limit` and `cursor` of every list. A cursor is the name of the last item that was shown."""

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
    limit = page_limit(asked.limit)
    if len(asked.cursor) > _CURSOR_CHARACTERS_MAX:
        raise BadRequest("cursor is not one of ours", field="cursor")
    rest = sorted((one for one in items if key(one) > asked.cursor), key=key)
    return rest[:limit], key(rest[limit - 1]) if len(rest) > limit else None


def page_limit(limit: int) -> int:
    if not 1 <= limit <= _LIMIT_MAX:
        raise BadRequest(f"limit must be in 1..{_LIMIT_MAX}, got {limit}", field="limit")
    return limit

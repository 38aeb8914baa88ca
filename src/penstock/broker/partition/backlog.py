"""How far consumers may be behind: what would make it more is refused, with the numbers."""

from ...errors import BacklogFull, NeverFits
from ...log.lookup import bytes_from
from .partition import Partition

_RETRY_AFTER_MS = 1000


def require_room(
    partition: Partition, count: int, size: int, *, is_callers_choice: bool = True
) -> None:
    """Refuse so many messages, of so many bytes together, if more would be unread than may be.

    Without a group everything retained counts. NeverFits: not even if nothing were unread. A batch that a producer
    has made of whatever came is no `is_callers_choice`: it is let in when no group is behind: it could never be
    sent otherwise.
    """
    config, log, start = partition.config, partition.messages, partition.backlog_start()
    if start >= log.end_offset and not is_callers_choice:
        return
    if (limit := config.max_backlog_messages) >= 0:
        found = log.end_offset - start
        _require("messages", found, count, limit, is_callers_choice=is_callers_choice)
    if (limit := config.max_backlog_bytes) >= 0:
        found = bytes_from(log, start)
        _require("bytes", found, size, limit, is_callers_choice=is_callers_choice)


def is_full(partition: Partition) -> bool:
    """Whether there is no room for a single message, however small."""
    config, log, start = partition.config, partition.messages, partition.backlog_start()
    if 0 <= config.max_backlog_messages <= log.end_offset - start:
        return True
    return 0 <= config.max_backlog_bytes <= bytes_from(log, start)


def _require(unit: str, found: int, adding: int, limit: int, *, is_callers_choice: bool) -> None:
    if adding > limit and is_callers_choice:
        raise NeverFits(unit, adding=adding, limit=limit)
    if found + adding > limit:
        raise BacklogFull(
            unit, found=found, adding=adding, limit=limit, retry_after_ms=_RETRY_AFTER_MS
        )

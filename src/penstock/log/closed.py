"""A log that was closed, for the next owner of it in the same process: nothing of it has to be read again."""

from typing import TYPE_CHECKING, NamedTuple

from ..model import LogId, Offset
from .checkpoint import Checkpoint

if TYPE_CHECKING:
    from .log import Log

# An index is made again for so many bytes behind the checkpoint, at most.
UNCHECKED_BYTES_MAX = 64 << 10


class ClosedLog(NamedTuple):
    """How far a log is durable and whole (`checkpoint`), whatever the checkpoint on the disk says (`saved`), and its
    segments with their sizes."""

    log_id: LogId
    checkpoint: Checkpoint
    saved: Checkpoint
    segments: tuple[tuple[Offset, int], ...]


def _closed_log(log: "Log") -> ClosedLog | None:
    """What the next owner of a log has to know, before its files are closed. None: some of it may not be durable."""
    saved = log.saved_checkpoint
    is_durable = all(segment.size == segment.synced_size for segment in log.segments)
    if saved is None or not log.segments or not is_durable or log.durable_end < log.end_offset:
        return None
    if log.bytes_unchecked > UNCHECKED_BYTES_MAX:
        log.segments[-1].save_index()
    segments = tuple((Offset(segment.base_offset), segment.size) for segment in log.segments)
    return ClosedLog(log.log_id, log.checkpoint(), saved, segments)


class ClosedLogs:
    """The logs that this process has closed, by path, in one role of the node for the next."""

    def __init__(self) -> None:
        self._logs: dict[str, ClosedLog] = {}

    def put(self, log: "Log") -> None:
        if (closed := _closed_log(log)) is not None:
            self._logs[log.directory] = closed

    def get(self, directory: str) -> ClosedLog | None:
        return self._logs.get(directory)

    def clear(self) -> None:
        self._logs.clear()

    def take(self, directory: str) -> ClosedLog | None:
        return self._logs.pop(directory, None)

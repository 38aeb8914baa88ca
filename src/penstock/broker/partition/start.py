"""Where a start lies in one log."""

from ...api.start import Start, StartKind
from ...errors import OffsetOutOfRange
from ...log import Log
from ...log.lookup import offset_at


def visible_end(log: Log) -> int:
    """Where readers of a log end: behind what no change of leader can take back any more."""
    return log.reign.committed_end(log) if log.reign.is_shared else log.end_offset


def offset_in(log: Log, start: Start) -> int:
    """The offset in a log. A time before the first message is the earliest, one after the last the latest.

    OffsetOutOfRange: the log has neither a message at that offset nor its end there.
    """
    match start.kind:
        case StartKind.OFFSET:
            if not log.start_offset <= start.value <= log.end_offset:
                raise OffsetOutOfRange(start.value, start=log.start_offset, end=log.end_offset)
            return start.value
        case StartKind.EARLIEST:
            return log.start_offset
        case StartKind.LATEST:
            return visible_end(log)
        case StartKind.TIME:
            return offset_at(log, start.value)

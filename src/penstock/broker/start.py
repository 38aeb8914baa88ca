"""Where a group or a reader begins."""

from dataclasses import dataclass
from enum import Enum

from ..errors import OffsetOutOfRange
from ..log import Log


class StartKind(Enum):
    """What a start is measured by."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Start:
    """A place in a log by name, by offset, or by the time (ns) from which messages were appended."""

    kind: StartKind
    value: int = 0

    @classmethod
    def at_offset(cls, offset: int) -> "Start":
        return cls(StartKind.OFFSET, offset)

    @classmethod
    def at_time(cls, time_ns: int) -> "Start":
        return cls(StartKind.TIME, time_ns)

    def in_log(self, log: Log) -> int:
        """The offset in one log. A time before the first message is the earliest, one after the last the latest."""
        match self.kind:
            case StartKind.EARLIEST:
                return log.start_offset
            case StartKind.LATEST:
                return log.end_offset
            case StartKind.TIME:
                return log.offset_at(self.value)
            case StartKind.OFFSET:
                if not log.start_offset <= self.value <= log.end_offset:
                    raise OffsetOutOfRange(self.value, start=log.start_offset, end=log.end_offset)
                return self.value


EARLIEST = Start(StartKind.EARLIEST)
LATEST = Start(StartKind.LATEST)

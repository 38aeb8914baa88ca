"""Where a group or a reader begins."""

from enum import Enum

import msgspec


class StartKind(Enum):
    """What a start is measured by."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    TIME = "time"


class Start(msgspec.Struct, frozen=True):
    """A place in a log by name, by offset, or by the time (ns) from which messages were appended."""

    kind: StartKind
    value: int = 0

    def __str__(self) -> str:
        return f"{self.kind.value} {self.value}" if self.value else self.kind.value

    @classmethod
    def at_offset(cls, offset: int) -> "Start":
        return cls(StartKind.OFFSET, offset)

    @classmethod
    def at_time(cls, time_ns: int) -> "Start":
        return cls(StartKind.TIME, time_ns)


EARLIEST = Start(StartKind.EARLIEST)
LATEST = Start(StartKind.LATEST)

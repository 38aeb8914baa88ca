"""The schedules of one partition: what they are, from the journal, and how far each has come, from the messages.

The batch of an occurrence names schedule, version and due time in its head. One append publishes it and says so: before
it nothing has happened, and after a restart the batch itself shows what is not to be published again.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ..api.schedules import Recurrence
from .records import (
    ScheduleMark,
    ScheduleNumbers,
    ScheduleRecord,
    ScheduleRemoved,
    ScheduleStored,
)

_SOURCES = 1 << 63
_VERSION_BITS = 32


class Mark(NamedTuple):
    """The last occurrence that was published."""

    version: int
    due_ns: int


@dataclass(slots=True)
class Schedule:
    """One schedule as it is now."""

    stored: ScheduleStored
    mark: Mark | None = None

    @property
    def recurrence(self) -> Recurrence:
        return self.stored.recurrence

    @property
    def after_ns(self) -> int:
        """What is due up to here is settled."""
        since_ns = self.stored.since_ns
        if self.mark is None or self.mark.version < self.stored.counted_from:
            return since_ns
        return max(since_ns, self.mark.due_ns)

    @property
    def source(self) -> int:
        """What the head of a batch names as its origin: the schedule and its version."""
        return _SOURCES | self.stored.number << _VERSION_BITS | self.stored.version


def is_schedule(source: int) -> bool:
    """Whether the source of a batch that came as a letter is a schedule of its partition, and no other partition."""
    return source >= _SOURCES


class Schedules:
    """All schedules of a partition, by number and by key. `changes` counts what was applied."""

    def __init__(self) -> None:
        self.by_number: dict[int, Schedule] = {}
        self.by_key: dict[str, Schedule] = {}
        self.next_number = 1
        self.changes = 0

    def apply(self, record: ScheduleRecord) -> None:
        self.changes += 1
        match record:
            case ScheduleStored():
                known = self.by_number.get(record.number)
                schedule = Schedule(record, None if known is None else known.mark)
                self.by_number[record.number] = self.by_key[record.key] = schedule
                self.next_number = max(self.next_number, record.number + 1)
            case ScheduleRemoved():
                removed = self.by_number.pop(record.number)
                del self.by_key[removed.stored.key]
            case ScheduleMark():
                self._note(record.number, Mark(record.version, record.due_ns))
            case ScheduleNumbers():
                self.next_number = max(self.next_number, record.next_number)

    def published(self, source: int, due_ns: int) -> None:
        """Take note of a batch of occurrences, of which the last was due then. Its schedule may be deleted by now."""
        number = (source ^ _SOURCES) >> _VERSION_BITS
        self.changes += 1
        # The record of a schedule may be lost, and what it published not.
        self.next_number = max(self.next_number, number + 1)
        self._note(number, Mark(source & (1 << _VERSION_BITS) - 1, due_ns))

    def _note(self, number: int, mark: Mark) -> None:
        schedule = self.by_number.get(number)
        if schedule is not None:
            schedule.mark = mark if schedule.mark is None else max(schedule.mark, mark)

    def snapshot(self) -> Iterator[ScheduleRecord]:
        if self.next_number > 1:
            yield ScheduleNumbers(0, self.next_number)
        for schedule in self.by_number.values():
            yield schedule.stored
            if schedule.mark is not None:
                yield ScheduleMark(0, schedule.stored.number, *schedule.mark)

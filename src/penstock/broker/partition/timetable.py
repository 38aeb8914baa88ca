"""When the schedules of a partition are due. Nothing of it is recorded: it follows from them and from their zones."""

from typing import NamedTuple

from ...api.schedules import Missed
from ...errors import Refused
from ...ports import Zones
from ...schedules import Mark, Schedule, Schedules
from ...schedules.records import ScheduleMark
from ...schedules.timing import last_due, next_due

# A broker that is so late with an occurrence was down or held up: only then is the occurrence one to skip.
LATE_NS = 60 * 1_000_000_000


class _Due(NamedTuple):
    """When a schedule is due next, for as long as its version and its mark are these."""

    version: int
    mark: Mark | None
    due_ns: int | None
    problem: str = ""


class Timetable:
    """The next due time of every schedule of a partition, worked out once and again after a change."""

    def __init__(self, schedules: Schedules, zones: Zones) -> None:
        self._schedules, self._zones = schedules, zones
        self._dues: dict[int, _Due] = {}
        self._seen_changes = 0
        self._next_ns: int | None = None

    def next_ns(self) -> int | None:
        """The earliest due time of all; None: none is due ever."""
        if self._seen_changes != self._schedules.changes:
            self._seen_changes = self._schedules.changes
            known = self._schedules.by_number
            self._dues = {one: due for one, due in self._dues.items() if one in known}
            self._look_again()
        return self._next_ns

    def _look_again(self) -> None:
        dues = (self.due_of(one) for one in self._schedules.by_number.values())
        self._next_ns = min((due_ns for due_ns, _ in dues if due_ns is not None), default=None)

    def due_of(self, schedule: Schedule) -> tuple[int | None, str]:
        """When a schedule is due next, and if it should be, but that cannot be told, why."""
        stored, mark = schedule.stored, schedule.mark
        known = self._dues.get(stored.number)
        if known is None or known[:2] != (stored.version, mark):
            due_ns, problem = self._after(schedule, schedule.after_ns)
            known = self._dues[stored.number] = _Due(stored.version, mark, due_ns, problem)
        return known.due_ns, known.problem

    def _after(self, schedule: Schedule, after_ns: int) -> tuple[int | None, str]:
        timing, anchor_ns = schedule.recurrence.timing, schedule.stored.anchor_ns
        if schedule.recurrence.is_paused:
            return None, ""
        try:
            return next_due(timing, anchor_ns, after_ns, self._zones), ""
        except Refused as error:
            return None, str(error)

    def take_due(self, now_ns: int) -> tuple[list[Schedule], list[ScheduleMark]]:
        """The schedules that are to publish something now, and what to record of occurrences that are skipped."""
        due: list[Schedule] = []
        skipped: list[ScheduleMark] = []
        next_ns = self.next_ns()
        if next_ns is None or next_ns > now_ns:
            return due, skipped
        for schedule in self._schedules.by_number.values():
            due_ns, _ = self.due_of(schedule)
            if due_ns is None or due_ns > now_ns:
                continue
            if schedule.recurrence.missed is Missed.SKIP:
                last_ns = self._last(schedule, due_ns, now_ns)
                if now_ns - last_ns > LATE_NS:
                    stored = schedule.stored
                    skipped.append(ScheduleMark(0, stored.number, stored.version, last_ns))
                    continue
            due.append(schedule)
        self._look_again()
        return due, skipped

    def occurrences(self, schedule: Schedule, now_ns: int, count_max: int) -> list[int]:
        """The due times that a schedule is to publish now, earliest first: every one, or only the latest."""
        due_ns, _ = self.due_of(schedule)
        found: list[int] = []
        if due_ns is None or due_ns > now_ns:
            return found
        if schedule.recurrence.missed is not Missed.ALL:
            return [self._last(schedule, due_ns, now_ns)]
        while due_ns is not None and due_ns <= now_ns and len(found) < count_max:
            found.append(due_ns)
            due_ns, _ = self._after(schedule, due_ns)
        return found

    def _last(self, schedule: Schedule, first_ns: int, now_ns: int) -> int:
        timing, anchor_ns = schedule.recurrence.timing, schedule.stored.anchor_ns
        return last_due(timing, anchor_ns, first_ns, now_ns, self._zones)

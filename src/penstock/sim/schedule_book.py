"""What must be true of recurring messages: never early, never twice, and none lost but those that may be."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..api.schedules import Missed
from ..broker.partition import Partition
from ..errors import Refused
from ..schedules.timing import next_due
from .event import Event
from .violation import Checker, Violation

if TYPE_CHECKING:
    from .partition_book import StoredMessage

ZONE = "Sim/Zigzag"
# Longer than a day: no zone has changed its offset twice within one.
_CHANGE_EVERY_S = 36 * 3600


class SimZones:
    """UTC, and a zone whose clocks are set by an hour every day and a half, forward and back."""

    def offset_s(self, zone: str, at_s: int) -> int:
        if zone not in {"UTC", ZONE}:
            raise Refused(f"timezone: there is no {zone[:60]!r}", field="timezone")
        return 3600 * (at_s // _CHANGE_EVERY_S % 2) if zone == ZONE else 0


def check_occurrence(
    partition: Partition, earlier: "Sequence[StoredMessage]", stored: "StoredMessage", event: Event
) -> None:
    """Violation: a message that a schedule has published is not the one that was due. `earlier` are those before it.

    Schedules with `missed: all` are never paused, so none of their due times may be left out.
    """
    found = partition.machine.schedules.published_by(stored.source)
    if found is None:
        raise Violation(Checker.SCHEDULE, f"{partition.topic}: {stored.source} published nothing")
    version_of, due_ns = found.source, stored.message.timestamp
    name, timing, anchor_ns = found.stored.key, found.recurrence.timing, found.stored.anchor_ns
    same = (one for one in reversed(earlier) if one.source >> 32 == version_of >> 32)
    last_ns = next((one.message.timestamp for one in same), anchor_ns)
    if due_ns > event.time.wall_ns:
        raise Violation(Checker.SCHEDULE, f"{name}: {due_ns} came early")
    if due_ns <= last_ns:
        raise Violation(Checker.SCHEDULE, f"{name}: {due_ns} came after {last_ns}")
    expected = next_due(timing, anchor_ns, last_ns, SimZones())
    if found.recurrence.missed is Missed.ALL and due_ns != expected:
        raise Violation(Checker.SCHEDULE, f"{name}: {due_ns} came in place of {expected}")

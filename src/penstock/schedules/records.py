"""What a partition journals of its schedules. A file format: see `delivery.records`. Their group is 0."""

import msgspec

from ..api.schedules import Recurrence


class _Record(msgspec.Struct, frozen=True, array_like=True, tag_field="kind"):
    group: int


class ScheduleStored(_Record, frozen=True, tag=120):
    """A schedule is new, or has changed. Its number is never given again in its partition.

    It is due after `since_ns`, and after what a version from `counted_from` on has published. Intervals are counted
    from `anchor_ns`.
    """

    number: int
    key: str
    version: int
    counted_from: int
    anchor_ns: int
    since_ns: int
    recurrence: Recurrence


class ScheduleRemoved(_Record, frozen=True, tag=121):
    """A schedule was deleted."""

    number: int


class ScheduleMark(_Record, frozen=True, tag=122):
    """The due time of the last occurrence that a version of a schedule has skipped; in a snapshot, or has published."""

    number: int
    version: int
    due_ns: int


class ScheduleNumbers(_Record, frozen=True, tag=123):
    """In a snapshot: numbers below this one were given to schedules."""

    next_number: int


ScheduleRecord = ScheduleStored | ScheduleRemoved | ScheduleMark | ScheduleNumbers

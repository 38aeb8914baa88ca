"""Publishes the occurrences of schedules, each once.

The batch of an occurrence says which one it is, so that one append is all there is to do: see `schedules.machine`.
"""

from msgspec.structs import replace

from ...api.delays import NextOccurrence
from ...api.schedules import SCHEDULE_HEADER
from ...codec import Encoded, Marks, Origin
from ...codec.columns import columns_of
from ...codec.head import NO_MARKS
from ...model import Message
from ...schedules import Schedule
from .forwarding import NO_LIMITS
from .partition import Now, Partition
from .publishing import encode_for, size_of

_MS_NS = 1_000_000
_TIME_NS_MAX = (1 << 63) - 1
# These bound how long one step keeps the partition busy, and the size of a batch.
_SCHEDULES_A_STEP = 200
_MESSAGES_A_STEP = 1000
_BYTES_A_STEP = 4 << 20


def fire(partition: Partition, now: Now) -> int:
    """Publish what is due, so much of it as is good to do at once. Returns how many messages; NoSpace."""
    due, skipped = partition.timetable.take_due(now.wall_ns)
    if skipped:
        partition.record(skipped, now)
    return sum(fire_schedule(partition, one, now) for one in due[:_SCHEDULES_A_STEP])


def fire_schedule(partition: Partition, schedule: Schedule, now: Now) -> int:
    """Publish what is due of one schedule, so much as is good to do at once, as one batch. Returns how many; NoSpace.

    The batch carries the due time of its last message: all of it is there, or nothing.
    """
    count_max = _BYTES_A_STEP // (size_of(schedule.recurrence.message) + 1)
    count_max = max(1, min(_MESSAGES_A_STEP, count_max))
    dues = partition.timetable.occurrences(schedule, now.wall_ns, count_max)
    if dues:
        marks = Marks(origin=Origin.OUTBOX, origin_source=schedule.source, origin_sequence=dues[-1])
        partition.append(_encoded(partition, schedule, dues, now, marks), now)
    return len(dues)


def run(partition: Partition, schedule: Schedule, now: Now) -> Encoded:
    """A batch with the message of a schedule, as if it was due now. It is none of its occurrences."""
    return _encoded(partition, schedule, [now.wall_ns], now, NO_MARKS)


def _encoded(
    partition: Partition, schedule: Schedule, dues: list[int], now: Now, marks: Marks
) -> Encoded:
    messages = [_message(schedule, due_ns) for due_ns in dues]
    return encode_for(partition, columns_of(messages), now, limits=NO_LIMITS, marks=marks)


def _message(schedule: Schedule, due_ns: int) -> Message:
    message, ttl_ms = schedule.recurrence.message, schedule.recurrence.ttl_ms
    expires_at = None if ttl_ms is None else min(due_ns + ttl_ms * _MS_NS, _TIME_NS_MAX)
    headers = (*message.headers, (SCHEDULE_HEADER, schedule.stored.key.encode()))
    return replace(message, timestamp=due_ns, expires_at=expires_at, headers=headers)


def upcoming(partition: Partition) -> list[NextOccurrence]:
    """The next occurrence of each schedule that has one."""
    return [
        NextOccurrence(key, partition.number, due_ns)
        for key, schedule in partition.machine.schedules.by_key.items()
        if (due_ns := partition.timetable.due_of(schedule)[0]) is not None
    ]

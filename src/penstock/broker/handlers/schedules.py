"""Recurring messages: schedules created, listed, changed, run and deleted."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import UNSET
from msgspec.structs import replace

from ...api.command import Command
from ...api.publish import Publish, Published
from ...api.schedules import (
    EVERY_MS_MAX,
    EVERY_MS_MIN,
    SCHEDULE_BYTES_MAX,
    SCHEDULES_MAX,
    UTC_NAME,
    ChangeSchedule,
    CreateSchedule,
    DeleteSchedule,
    GetSchedule,
    ListSchedules,
    Recurrence,
    RunSchedule,
    ScheduleDescription,
    Timing,
)
from ...codec import encode
from ...codec.columns import columns_of
from ...errors import AlreadyExists, NotFound, Refused, TooLarge
from ...model import Message, check_name
from ...schedules import Schedule
from ...schedules.cron import parse_cron
from ...schedules.records import ScheduleRemoved, ScheduleStored
from ..partition import Now, Partition, occurrences
from ..partition.backlog import require_room
from ..partition.changes import Handler
from ..partition.partitioner import partition_of
from ..partition.publishing import size_of
from ..validation import require_valid
from ..walks import Slices, is_open, partitions_in

if TYPE_CHECKING:
    from ..node import Node

_TTL_MS_MAX = (1 << 63) // 1_000_000 - 1
_VERSIONS_MAX = (1 << 32) - 1
_Times = tuple[str | None, int | None, str | None]
"""Cron, every (ms) and time zone, as a client gives them."""


def create(node: "Node", command: CreateSchedule, now: Now) -> ScheduleDescription:
    key = check_name(command.key, "schedule")
    partition = _home(node, command)
    # One of this key may be in a partition that cannot be asked.
    for fault in node.topic(command.topic).partitions.faults:
        raise fault.error()
    recurrence = Recurrence(
        _timing(node, (command.cron, command.every_ms, command.timezone), now),
        Message(command.value, command.message_key, tuple(command.headers), command.priority),
        command.ttl_ms,
        command.missed,
        command.is_paused,
    )
    _check(node, command.topic, recurrence, now)
    count = 0
    for one in node.topic(command.topic).partitions:
        count += len(one.machine.schedules.by_key)
        if key in one.machine.schedules.by_key:
            raise AlreadyExists("schedule", key)
    if count >= SCHEDULES_MAX:
        raise TooLarge("schedules of a topic", found=count + 1, limit=SCHEDULES_MAX)
    node.guard.admit([recurrence.message], now)
    number = partition.machine.schedules.next_number
    stored = ScheduleStored(0, number, key, 1, 1, now.wall_ns, now.wall_ns, recurrence)
    partition.record((stored,), now)
    return _described(partition, partition.machine.schedules.by_key[key])


def _home(node: "Node", command: CreateSchedule) -> Partition:
    if command.partition is not None:
        return node.partition(command.topic, command.partition)
    partitions = node.topic(command.topic).partitions
    key = command.key.encode() if command.message_key is None else command.message_key
    return partitions[partition_of(key, len(partitions))]


def _check(node: "Node", topic: str, recurrence: Recurrence, now: Now) -> None:
    """Refused, TooLarge, SchemaViolation: a schedule cannot have this message."""
    ttl_ms, message = recurrence.ttl_ms, recurrence.message
    if ttl_ms is not None and not 0 <= ttl_ms <= _TTL_MS_MAX:
        raise Refused(f"ttl is 0 to {_TTL_MS_MAX} ms, got {ttl_ms}", field="ttl")
    if (size := size_of(message)) > SCHEDULE_BYTES_MAX:
        raise TooLarge("message of a schedule in bytes", found=size, limit=SCHEDULE_BYTES_MAX)
    # The codec has all other limits of a message.
    encode(columns_of([replace(message, timestamp=now.wall_ns)]), limits=node.limits)
    if node.bindings:
        require_valid(node, Publish(topic, [message]))


def _timing(node: "Node", given: _Times, now: Now) -> Timing:
    """When a schedule is due. Refused: it is not one that a schedule can have."""
    cron, every_ms, timezone = given
    if (cron is None) == (every_ms is None):
        raise Refused("a schedule has one of cron and every", field="cron")
    if cron is not None:
        parse_cron(cron)
        timing = Timing(cron, timezone=UTC_NAME if timezone is None else timezone)
        node.zones.offset_s(timing.timezone, now.wall_ns // 1_000_000_000)
        return timing
    if timezone is not None:
        raise Refused("a timezone goes with cron, not with every", field="timezone")
    assert every_ms is not None, "one of the two is given"
    if not EVERY_MS_MIN <= every_ms <= EVERY_MS_MAX:
        raise Refused(
            f"every is {EVERY_MS_MIN} ms to {EVERY_MS_MAX} ms (366 days), got {every_ms} ms",
            field="every",
        )
    return Timing(every_ms=every_ms)


def list_schedules(
    node: "Node", command: ListSchedules, _now: Now
) -> Slices[list[ScheduleDescription]]:
    schedules: list[ScheduleDescription] = []
    for partition in partitions_in(node, [node.topic(command.topic).facts.name]):
        by_key = partition.machine.schedules.by_key
        for key in [*by_key]:
            schedule = by_key.get(key)
            if schedule is not None and is_open(node, partition):
                schedules.append(_described(partition, schedule))
            yield 1
        yield 1
    return sorted(schedules, key=lambda schedule: schedule.key)


def get(node: "Node", command: GetSchedule, _now: Now) -> ScheduleDescription:
    return _described(*_find(node, command.topic, command.key))


def change(node: "Node", command: ChangeSchedule, now: Now) -> ScheduleDescription:
    partition, schedule = _find(node, command.topic, command.key)
    if command == ChangeSchedule(command.topic, command.key):
        raise Refused("there is nothing to change")
    recurrence = _changed(node, schedule.recurrence, command, now)
    _check(node, command.topic, recurrence, now)
    if schedule.stored.version >= _VERSIONS_MAX:
        raise TooLarge("changes of a schedule", found=_VERSIONS_MAX + 1, limit=_VERSIONS_MAX)
    node.guard.admit([recurrence.message], now)
    is_timed = (command.cron, command.every_ms, command.timezone) != (UNSET, UNSET, UNSET)
    is_resumed = schedule.recurrence.is_paused and not recurrence.is_paused
    if is_timed or recurrence.is_paused:
        while occurrences.fire_schedule(partition, schedule, now):
            pass
    former, version = schedule.stored, schedule.stored.version + 1
    stored = replace(
        former,
        version=version,
        counted_from=version if is_timed else former.counted_from,
        anchor_ns=now.wall_ns if is_timed else former.anchor_ns,
        since_ns=now.wall_ns if is_timed or is_resumed else former.since_ns,
        recurrence=recurrence,
    )
    partition.record((stored,), now)
    return _described(partition, partition.machine.schedules.by_key[command.key])


def _changed(node: "Node", recurrence: Recurrence, command: ChangeSchedule, now: Now) -> Recurrence:
    """Refused: it has another timing, which no schedule can have."""
    timing, message = recurrence.timing, recurrence.message
    if (command.cron, command.every_ms, command.timezone) != (UNSET, UNSET, UNSET):
        cron = None if command.cron is UNSET else command.cron
        every_ms = None if command.every_ms is UNSET else command.every_ms
        if cron is None and every_ms is None:
            cron, every_ms = timing.cron or None, timing.every_ms or None
        usual = None if cron is None else timing.timezone
        timezone = usual if command.timezone is UNSET else command.timezone
        timing = _timing(node, (cron, every_ms, timezone), now)
    parts = {
        "value": command.value,
        "key": command.message_key,
        "headers": command.headers if command.headers is UNSET else tuple(command.headers),
        "priority": command.priority,
    }
    rest = {
        "ttl_ms": command.ttl_ms,
        "missed": command.missed,
        "is_paused": command.is_paused,
    }
    return replace(
        recurrence,
        timing=timing,
        message=replace(message, **{name: one for name, one in parts.items() if one is not UNSET}),
        **{name: one for name, one in rest.items() if one is not UNSET},
    )


def delete(node: "Node", command: DeleteSchedule, now: Now) -> None:
    partition, schedule = _find(node, command.topic, command.key)
    partition.record((ScheduleRemoved(0, schedule.stored.number),), now)


def run(node: "Node", command: RunSchedule, now: Now) -> Published:
    partition, schedule = _find(node, command.topic, command.key)
    message = schedule.recurrence.message
    if node.bindings:
        require_valid(node, Publish(command.topic, [message]))
    node.guard.admit([message], now)
    encoded = occurrences.run(partition, schedule, now)
    if partition.has_backlog_limit:
        require_room(partition, 1, encoded.head.length)
    return partition.append(encoded, now)


def _find(node: "Node", topic: str, key: str) -> tuple[Partition, Schedule]:
    partitions = node.topic(topic).partitions
    for partition in partitions:
        found = partition.machine.schedules.by_key.get(key)
        if found is not None:
            return partition, found
    for fault in partitions.faults:
        raise fault.error()
    raise NotFound("schedule", key)


def _described(partition: Partition, schedule: Schedule) -> ScheduleDescription:
    stored, (due_ns, problem) = schedule.stored, partition.timetable.due_of(schedule)
    recurrence = stored.recurrence
    timing, message = recurrence.timing, recurrence.message
    return ScheduleDescription(
        topic=partition.topic,
        partition=partition.number,
        key=stored.key,
        version=stored.version,
        cron=timing.cron or None,
        every_ms=timing.every_ms or None,
        timezone=timing.timezone if timing.cron else None,
        missed=recurrence.missed,
        is_paused=recurrence.is_paused,
        last_due_ns=None if schedule.mark is None else schedule.mark.due_ns,
        next_due_ns=due_ns,
        problem=problem or None,
        message_key=message.key,
        value=message.value,
        headers=message.headers,
        priority=message.priority,
        ttl_ms=recurrence.ttl_ms,
    )


HANDLERS: Mapping[type[Command[Any]], Handler] = {
    CreateSchedule: create,
    ListSchedules: list_schedules,
    GetSchedule: get,
    ChangeSchedule: change,
    DeleteSchedule: delete,
    RunSchedule: run,
}

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


def create(node: "Node", command: CreateSchedule, now: Now) -> ScheduleDescription:
    key = check_name(command.key, "schedule")
    partition = _home(node, command)
    # One of this key may be in a partition that cannot be asked.
    for fault in node.topic(command.topic).partitions.faults:
        raise fault.error()
    recurrence = _checked(node, command.topic, command.recurrence, now)
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
    partitions, message = node.topic(command.topic).partitions, command.recurrence.message
    key = command.key.encode() if message.key is None else message.key
    return partitions[partition_of(key, len(partitions))]


def _checked(node: "Node", topic: str, recurrence: Recurrence, now: Now) -> Recurrence:
    """What a caller asked for, as it is stored. Refused, TooLarge, SchemaViolation."""
    timing, ttl_ms, given = recurrence.timing, recurrence.ttl_ms, recurrence.message
    _check_timing(node, timing, now)
    if ttl_ms is not None and not 0 <= ttl_ms <= _TTL_MS_MAX:
        raise Refused(f"ttl is 0 to {_TTL_MS_MAX} ms, got {ttl_ms}", field="ttl")
    if given.idempotency_key:
        raise Refused(
            "a schedule takes no idempotency_key: each occurrence is published once",
            field="idempotency_key",
        )
    message = Message(given.value, given.key, tuple(given.headers), given.priority)
    if (size := size_of(message)) > SCHEDULE_BYTES_MAX:
        raise TooLarge("message of a schedule in bytes", found=size, limit=SCHEDULE_BYTES_MAX)
    # The codec has all other limits of a message.
    encode(columns_of([replace(message, timestamp=now.wall_ns)]), limits=node.limits)
    if node.bindings:
        require_valid(node, Publish(topic, [message]))
    return replace(recurrence, message=message)


def _check_timing(node: "Node", timing: Timing, now: Now) -> None:
    if bool(timing.cron) == bool(timing.every_ms):
        raise Refused("a schedule has one of cron and every", field="cron")
    if timing.cron:
        parse_cron(timing.cron)
        node.zones.offset_s(timing.timezone, now.wall_ns // 1_000_000_000)
        return
    if not EVERY_MS_MIN <= timing.every_ms <= EVERY_MS_MAX:
        raise Refused(
            # An interval of 0 comes as -1, because 0 stands for none.
            f"every is {EVERY_MS_MIN} ms to {EVERY_MS_MAX} ms (366 days), got {max(0, timing.every_ms)} ms",
            field="every",
        )
    if timing.timezone != UTC_NAME:
        raise Refused("a timezone goes with cron, not with every", field="timezone")


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
    recurrence = _checked(node, command.topic, _changed(schedule.recurrence, command), now)
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


def _changed(recurrence: Recurrence, command: ChangeSchedule) -> Recurrence:
    """Whether it is one that can be is looked at later."""
    timing, message = recurrence.timing, recurrence.message
    cron, every_ms, timezone = command.cron, command.every_ms, command.timezone
    if cron is not UNSET and every_ms is not UNSET:
        timing = Timing(cron, every_ms)
    elif cron is not UNSET:
        timing = Timing(cron, 0, timing.timezone)
    elif every_ms is not UNSET:
        timing = Timing("", every_ms)
    if timezone is not UNSET:
        timing = replace(timing, timezone=timezone)
    parts = {
        "value": command.value,
        "key": command.message_key,
        "headers": command.headers,
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
    last_due_ns = None if schedule.mark is None else schedule.mark.due_ns
    return ScheduleDescription(
        partition.topic,
        partition.number,
        stored.key,
        stored.version,
        stored.recurrence,
        last_due_ns,
        due_ns,
        problem,
    )


HANDLERS: Mapping[type[Command[Any]], Handler] = {
    CreateSchedule: create,
    ListSchedules: list_schedules,
    GetSchedule: get,
    ChangeSchedule: change,
    DeleteSchedule: delete,
    RunSchedule: run,
}

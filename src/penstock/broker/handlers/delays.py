"""Delayed messages: listed, looked at, cancelled, rescheduled."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...api.command import Command
from ...api.delays import (
    FIRST_PLACE,
    CancelDelayed,
    DelayedId,
    DelayedMessage,
    DelayedPage,
    DelayPlace,
    DelayStats,
    DescribeDelays,
    Fired,
    FireDelayed,
    GetDelayed,
    ListDelayed,
    RescheduleDelayed,
)
from ...errors import NotFound
from ..partition import Now, Partition, delayed_messages, firing, occurrences
from ..partition.changes import Handler
from ..walks import Slices, partitions_in

if TYPE_CHECKING:
    from ..node import Node


def list_delayed(node: "Node", command: ListDelayed, _now: Now) -> DelayedPage:
    partitions, limit = node.topic(command.topic).partitions, command.limit
    found, has_more = delayed_messages.pending(partitions, limit=limit, after=command.after)
    schedules = occurrences.upcoming(partitions) if command.after == FIRST_PLACE else ()
    if not has_more:
        return DelayedPage(found, None, schedules)
    last = found[-1]
    return DelayedPage(found, DelayPlace(last.due_ns, last.partition, last.id), schedules)


def get(node: "Node", command: GetDelayed, _now: Now) -> DelayedMessage:
    return delayed_messages.get(*_find(node, command.topic, command.which))


def cancel(node: "Node", command: CancelDelayed, now: Now) -> DelayedMessage:
    """Also of a message that cannot be read."""
    place = _find(node, command.topic, command.which)
    return delayed_messages.cancel(*place, now, is_read=command.wants_message)


def reschedule(node: "Node", command: RescheduleDelayed, now: Now) -> DelayedMessage:
    """Also of a message that cannot be read."""
    place = _find(node, command.topic, command.which)
    delayed_messages.reschedule(*place, command.due_ns, now)
    return delayed_messages.describe(*place)


def _find(node: "Node", topic: str, which: DelayedId | bytes) -> tuple[Partition, int]:
    partitions = node.topic(topic).partitions
    if isinstance(which, bytes):
        for partition in partitions:
            found = partition.machine.delays.by_key.get(which)
            if found is not None:
                return partition, found
        raise NotFound("delayed message with the key", which.decode(errors="backslashreplace"))
    if which.partition is not None:
        return node.partition(topic, which.partition), which.id
    for partition in partitions:
        if partition.machine.delays.state_of(which.id) is not None:
            return partition, which.id
    raise NotFound("delayed message", f"{topic}/{which.id}")


def fire(node: "Node", command: FireDelayed, now: Now) -> Fired:
    partition = node.partition(command.topic, command.partition)
    machine, log = partition.machine, partition.messages
    end = log.end_offset
    count = firing.fire(partition, now) + occurrences.fire(partition, now)
    is_urgent = machine.lanes.last_urgent >= end
    dues = (machine.delays.next_ns(), partition.timetable.next_ns())
    next_due_ns = min((one for one in dues if one is not None), default=None)
    return Fired(count, log.end_offset, is_urgent, next_due_ns)


def describe(
    node: "Node", command: DescribeDelays, _now: Now
) -> Slices[dict[str, list[DelayStats]]]:
    names = sorted(node.open) if command.topic is None else [node.topic(command.topic).facts.name]
    stats: dict[str, list[DelayStats]] = {}
    for name in names:
        topic, rows = node.open.get(name), list[DelayStats]()
        for partition in partitions_in(node, [name]):
            rows.append(delayed_messages.stats_of(partition))
            yield 1
        if topic is not None and node.open.get(name) is topic:
            stats[name] = rows
        yield 1
    if command.topic is not None and not stats:
        raise NotFound("topic", command.topic)
    return stats


HANDLERS: Mapping[type[Command[Any]], Handler] = {
    ListDelayed: list_delayed,
    GetDelayed: get,
    CancelDelayed: cancel,
    RescheduleDelayed: reschedule,
    FireDelayed: fire,
    DescribeDelays: describe,
}

"""Delayed messages: listed, looked at, cancelled, rescheduled."""

from collections.abc import Mapping, Sequence
from heapq import merge
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ...api.bounds import PAGE_BYTES_MAX
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
    NextOccurrence,
    RescheduleDelayed,
)
from ...errors import NotFound
from ...model import content_bytes
from ..catalogue import Topic
from ..partition import Now, Partition, delayed_messages, firing, occurrences
from ..partition.batch_cache import LogCache
from ..partition.changes import Handler
from ..walks import Slices, is_open, partitions_in

if TYPE_CHECKING:
    from ..node import Node

_PLACES_AN_ENTRY = 50


def list_delayed(node: "Node", command: ListDelayed, _now: Now) -> Slices[DelayedPage]:
    topic, first, schedules = node.topic(command.topic), command.after, list[NextOccurrence]()
    places: list[DelayPlace] = []
    for partition in partitions_in(node, [command.topic]):
        # One more than the page has room for, to know whether there are more.
        after = delayed_messages.places_after(partition, first)
        if len(places) > command.limit:
            after = takewhile(places[-1].__gt__, after)
        some = [*islice(after, command.limit + 1)]
        places = [*merge(places, some)][: command.limit + 1] if some else places
        if first == FIRST_PLACE:
            schedules += occurrences.upcoming(partition)
        yield 1 + len(some) // _PLACES_AN_ENTRY
    page = yield from _described(node, topic, places, command.limit)
    schedules.sort(key=lambda occurrence: (occurrence.due_ns, occurrence.key))
    return replace(page, schedules=tuple(schedules))


def _described(
    node: "Node", topic: Topic, places: Sequence[DelayPlace], limit: int
) -> Slices[DelayedPage]:
    """At most `limit`, and as many as a page has bytes for. Those that have ended meanwhile are left out."""
    messages: list[DelayedMessage] = []
    # Messages that are due one after the other are in the same batches.
    caches: dict[Partition, LogCache] = {}
    size, last = 0, None
    try:
        for place in places[:limit]:
            if size > PAGE_BYTES_MAX:
                break
            last, partition = place, topic.partitions.serving_at(place.partition)
            if (
                partition is None
                or not is_open(node, partition)
                or place.id not in partition.machine.delays.pending
            ):
                continue
            if (cache := caches.get(partition)) is None and partition.delayed.log is not None:
                cache = caches[partition] = LogCache(partition.delayed.log, node.cache)
            messages.append(delayed_messages.describe(partition, place.id, cache))
            message = messages[-1].message
            if message is not None:
                size += content_bytes(message.key, message.value, message.headers)
            yield 1
    finally:
        for cache in caches.values():
            cache.clear()
    return DelayedPage(messages, None if not places or last == places[-1] else last)


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

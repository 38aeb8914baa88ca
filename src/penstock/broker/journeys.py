"""Journeys of messages from partition to partition: a delay, the groups of a topic, dead letters, redrives.

A journey stays within a topic and its dead-letter topic. What was redriven to another topic is a new message there.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..api.delays import DelayState
from ..api.journeys import EventType, GroupStanding, Journey, JourneyStatus, Span
from ..errors import NotFound
from ..journeys.story import MessagePlace, Story, status_of
from ..journeys.traces import TracePlace, trace_id_of
from ..model import Priority
from .journey_links import fired_at, following_of, origin_of
from .partition import Partition
from .partition.delayed_messages import describe as describe_delayed
from .partition.stories import (
    ToldStory,
    facts_of,
    standings_of,
    tell,
    tell_delay,
    trace_id_in,
)

if TYPE_CHECKING:
    from .node import Node

# A message that dies and is redriven again and again has a long journey; so many parts of it are told.
_PARTS_MAX = 32


class Part(NamedTuple):
    """A message that a journey comes through, told."""

    partition: Partition
    offset: int
    told: ToldStory
    is_dead_letter: bool


def describe(node: "Node", topic: str, number: int, offset: int) -> Journey:
    """The journey that a message is part of, from its beginning. OffsetOutOfRange: there was never such a message."""
    partition = node.partition(topic, number)
    facts_of(partition, offset)
    return _told(node, *beginning_of(node, partition, offset))


def beginning_of(node: "Node", partition: Partition, offset: int) -> tuple[Partition, int]:
    """The message that a journey began with, of which this one, a dead letter or a redriven copy, was made."""
    for _ in range(_PARTS_MAX):
        before = origin_of(node, partition, offset)
        if before is None:
            break
        partition, offset = before
    return partition, offset


def describe_delay(node: "Node", partition: Partition, identity: int) -> Journey:
    """The journey of a message that was delayed, by its id. NotFound."""
    state = partition.machine.delays.state_of(identity)
    if state is None:
        raise NotFound("delayed message", f"{partition.topic}/{partition.number}/{identity}")
    if state is DelayState.DELIVERED and (offset := fired_at(partition, identity)) is not None:
        return _told(node, partition, offset)
    trace_id = trace_id_of(TracePlace(*partition.identity, identity, is_delayed=True))
    story = Story(trace_id, MessagePlace(partition.topic, partition.number, identity))
    gaps = tell_delay(partition, identity, story)
    if state is DelayState.DELIVERED:
        gaps.append("it fired, and its message was not found near its time")
    message = describe_delayed(partition, identity).message
    return Journey(
        trace_id,
        partition.topic,
        partition.number,
        -1,
        identity,
        None if message is None else message.key,
        () if message is None else message.headers,
        Priority.NORMAL if message is None else message.priority,
        _DELAY_STATUS.get(state, JourneyStatus.EXPIRED),
        story.spans,
        [],
        gaps,
    )


_DELAY_STATUS = {
    DelayState.PENDING: JourneyStatus.DELAYED,
    DelayState.DELIVERED: JourneyStatus.IN_PROGRESS,
}


def _told(node: "Node", partition: Partition, offset: int) -> Journey:
    """The journey that begins with a message."""
    first = facts_of(partition, offset)
    trace_id = trace_id_in(partition, offset, first)
    parts: list[Part] = []
    waiting = [(partition, offset, "")]
    while waiting and len(parts) < _PARTS_MAX:
        here, where, parent = waiting.pop(0)
        told = _tell_part(here, where, trace_id, parent)
        following, lost = following_of(node, here, where, told.entries)
        told.gaps.extend(lost)
        waiting += [(*one, told.story.last_span_id) for one in following]
        is_dead_letter = facts_of(here, where).provenance is not None
        parts.append(Part(here, where, told, is_dead_letter))
    gaps = [gap for part in parts for gap in part.told.gaps]
    if waiting:
        gaps.append(f"a journey is told for {_PARTS_MAX} messages, and this one goes on")
    groups = _standings(parts)
    message = first.message
    return Journey(
        trace_id,
        partition.topic,
        partition.number,
        offset,
        first.delay_id,
        None if message is None else message.key,
        () if message is None else message.headers,
        Priority.NORMAL if message is None else message.priority,
        status_of(groups),
        merged([part.told.story.spans for part in parts]),
        groups,
        gaps,
    )


def _tell_part(partition: Partition, offset: int, trace_id: str, parent: str) -> ToldStory:
    place = MessagePlace(partition.topic, partition.number, offset)
    facts, story = facts_of(partition, offset), Story(trace_id, place, parent)
    gaps = tell_delay(partition, facts.delay_id, story) if facts.delay_id >= 0 else []
    return tell(partition, offset, facts, story, gaps=gaps)


def _standings(parts: Sequence[Part]) -> list[GroupStanding]:
    """What the message is for each group now: in the last part of the journey that the group has to do with.

    Groups that read dead letters are none of the journey's.
    """
    found: dict[str, GroupStanding] = {}
    for part in parts:
        if part.is_dead_letter:
            continue
        for one in standings_of(part.partition, part.offset, part.told.story):
            found[one.group] = one
    return [*found.values()]


def merged(stories: Sequence[Sequence[Span]]) -> list[Span]:
    """Spans of several stories by time. Each keeps its order; a message is reopened after it was redriven."""
    queues = [list(one) for one in stories]
    found: list[Span] = []
    while any(queues):
        heads = [
            (queue[0].at_ns, queue[0].event_type is EventType.REOPENED, number)
            for number, queue in enumerate(queues)
            if queue
        ]
        found.append(queues[min(heads)[2]].pop(0))
    return found

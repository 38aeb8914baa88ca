"""Journeys of messages from partition to partition: a delay, the groups of a topic, dead letters, redrives.

A journey stays within a topic and its dead-letter topic. What was redriven to another topic is a new message there.
"""

from collections.abc import Sequence
from heapq import heapify, heappop, heapreplace
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ..api.delays import DelayState
from ..api.journeys import EventType, GroupStanding, Journey, JourneyStatus, Span
from ..errors import NotFound, Unavailable
from ..journeys.story import MessagePlace, Story, status_of
from ..journeys.traces import TracePlace, trace_id_of
from ..model import Priority
from .journey_links import family_of, fired_at, following_of, origin_of
from .partition import Partition
from .partition.dead_letters import dead_letter_topic
from .partition.delayed_messages import describe as describe_delayed
from .partition.history import Told
from .partition.stories import (
    ToldStory,
    facts_of,
    standings_of,
    tell,
    tell_delay,
    trace_id_in,
)
from .walks import Slices

if TYPE_CHECKING:
    from .node import Node

R = TypeVar("R")
# A message that dies and is redriven again and again has a long journey; so many parts of it are told.
_PARTS_MAX = 32


class Part(NamedTuple):
    """A message that a journey comes through, told."""

    partition: Partition
    offset: int
    told: ToldStory
    is_dead_letter: bool


def describe(node: "Node", topic: str, number: int, offset: int) -> Slices[Journey]:
    """The journey that a message is part of, from its beginning. OffsetOutOfRange: there was never such a message."""
    partition = node.partition(topic, number)
    facts_of(partition, offset)
    return (yield from while_there(node, topic, _described(node, partition, offset)))


def while_there(node: "Node", topic: str, telling: Told[R]) -> Slices[R]:
    """What tells of messages of a topic and of its dead letters, as long as their partitions serve.

    NotFound: one of the two was deleted meanwhile; Unavailable: a partition failed.
    """
    family = family_of(topic)
    names = [name for name in (family, dead_letter_topic(family)) if name in node.open]
    before = [(node.open[name], len(node.open[name].partitions.serving)) for name in names]
    try:
        looked_at = next(telling)
        while True:
            now = yield looked_at
            for name, (known, serving) in zip(names, before, strict=True):
                if node.open.get(name) is not known:
                    raise NotFound("topic", name)
                if len(known.partitions.serving) < serving:
                    raise Unavailable(f"a partition of {name} failed while it was read; try again")
            looked_at = telling.send(now)
    except StopIteration as end:
        reply: R = end.value
        return reply
    finally:
        telling.close()


def _described(node: "Node", partition: Partition, offset: int) -> Told[Journey]:
    partition, offset = yield from beginning_of(node, partition, offset)
    return (yield from _told(node, partition, offset))


def beginning_of(node: "Node", partition: Partition, offset: int) -> Told[tuple[Partition, int]]:
    """The message that a journey began with, of which this one, a dead letter or a redriven copy, was made."""
    for _ in range(_PARTS_MAX):
        before = yield from origin_of(node, partition, offset)
        if before is None:
            break
        partition, offset = before
    return partition, offset


def describe_delay(node: "Node", partition: Partition, identity: int) -> Slices[Journey]:
    """The journey of a message that was delayed, by its id. NotFound."""
    telling = _delay_told(node, partition, identity)
    return (yield from while_there(node, partition.topic, telling))


def _delay_told(node: "Node", partition: Partition, identity: int) -> Told[Journey]:
    state = partition.machine.delays.state_of(identity)
    if state is None:
        raise NotFound("delayed message", f"{partition.topic}/{partition.number}/{identity}")
    if state is DelayState.DELIVERED:
        offset = yield from fired_at(partition, identity)
        if offset is not None:
            return (yield from _told(node, partition, offset))
    trace_id = trace_id_of(TracePlace(*partition.identity, identity, is_delayed=True))
    story = Story(trace_id, MessagePlace(partition.topic, partition.number, identity))
    gaps = yield from tell_delay(partition, identity, story)
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


def _told(node: "Node", partition: Partition, offset: int) -> Told[Journey]:
    """The journey that begins with a message."""
    first = facts_of(partition, offset)
    trace_id = trace_id_in(partition, offset, first)
    parts: list[Part] = []
    waiting = [(partition, offset, "")]
    while waiting and len(parts) < _PARTS_MAX:
        here, where, parent = waiting.pop(0)
        told = yield from _tell_part(here, where, trace_id, parent)
        following, lost = yield from following_of(node, here, where, told.entries)
        told.gaps.extend(lost)
        waiting += [(*one, told.story.last_span_id) for one in following]
        is_dead_letter = facts_of(here, where).provenance is not None
        parts.append(Part(here, where, told, is_dead_letter))
    gaps = [gap for part in parts for gap in part.told.gaps]
    if waiting:
        gaps.append(f"a journey is told for {_PARTS_MAX} messages, and this one goes on")
    groups = yield from _standings(parts)
    spans = yield from merged([part.told.story.spans for part in parts])
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
        spans,
        groups,
        gaps,
    )


def _tell_part(partition: Partition, offset: int, trace_id: str, parent: str) -> Told[ToldStory]:
    place = MessagePlace(partition.topic, partition.number, offset)
    facts, story = facts_of(partition, offset), Story(trace_id, place, parent)
    gaps: list[str] = []
    if facts.delay_id >= 0:
        gaps = yield from tell_delay(partition, facts.delay_id, story)
    return (yield from tell(partition, offset, facts, story, gaps=gaps))


def _standings(parts: Sequence[Part]) -> Told[list[GroupStanding]]:
    """What the message is for each group now: in the last part of the journey that the group has to do with.

    Groups that read dead letters are none of the journey's.
    """
    by_group: dict[str, GroupStanding] = {}
    for part in parts:
        if part.is_dead_letter:
            continue
        standings = yield from standings_of(part.partition, part.offset, part.told.story)
        by_group |= {standing.group: standing for standing in standings}
    return [*by_group.values()]


def merged(stories: Sequence[Sequence[Span]]) -> Told[list[Span]]:
    """Spans of several stories by time. Each keeps its order; a message is reopened after it was redriven."""
    # The next span of each story: its time, and where it stands.
    heads = [_head(stories, number, 0) for number, spans in enumerate(stories) if spans]
    heapify(heads)
    spans: list[Span] = []
    while heads:
        *_, number, place = heads[0]
        spans.append(stories[number][place])
        if place + 1 < len(stories[number]):
            heapreplace(heads, _head(stories, number, place + 1))
        else:
            heappop(heads)
        yield 1
    return spans


def _head(stories: Sequence[Sequence[Span]], number: int, place: int) -> tuple[int, bool, int, int]:
    span = stories[number][place]
    return span.at_ns, span.event_type is EventType.REOPENED, number, place

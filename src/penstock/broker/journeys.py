"""Journeys of messages from partition to partition: a delay, the groups of a topic, dead letters, redrives.

A journey stays within a topic and its dead-letter topic. What was redriven to another topic is a new message there.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..api.dead_letters import DEAD_LETTER_SUFFIX
from ..api.delays import DelayState
from ..api.journeys import (
    EventType,
    GroupStanding,
    Journey,
    JourneyStatus,
    Span,
)
from ..codec import Head, Origin
from ..delivery.delay_records import DelayMoved
from ..delivery.records import Buried
from ..errors import Damaged, NotFound, PartitionFaulty
from ..journeys.index import DELAYS, LETTERS
from ..journeys.story import MessagePlace, Story, status_of
from ..journeys.traces import TracePlace, trace_id_of
from ..log.lookup import offset_at
from ..model import Priority
from .partition import Partition
from .partition.dead_letters import dead_letter_topic
from .partition.delaying import describe as describe_delayed
from .partition.delaying import ids_of
from .partition.history import Entry
from .partition.records import Redriven, Returned
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
# How far behind the time of a letter its message is looked for.
_FOLLOW_BYTES = 16 << 20
_READ_BYTES = 1 << 20
_PARTITION_BITS = 20


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
    for _ in range(_PARTS_MAX):
        before = _origin(node, partition, offset)
        if before is None:
            break
        partition, offset = before
    return _told(node, partition, offset)


def describe_delay(node: "Node", partition: Partition, identity: int) -> Journey:
    """The journey of a message that was delayed, by its id. NotFound."""
    state = partition.machine.delays.state_of(identity)
    if state is None:
        raise NotFound("delayed message", f"{partition.topic}/{partition.number}/{identity}")
    if state is DelayState.DELIVERED and (offset := _fired(partition, identity)) is not None:
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
        following = _following(node, here, where, told.entries)
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


def family_of(topic: str) -> str:
    """The topic to whose journeys a topic belongs: its own, or that whose dead letters it has."""
    return topic.removesuffix(DEAD_LETTER_SUFFIX)


def partition_by_source(node: "Node", source: int) -> Partition | None:
    """The partition that an outbox names; None if it is gone or faulty."""
    facts = node.topics.by_id.get(source >> _PARTITION_BITS)
    return _serving(node, facts.name, source & ((1 << _PARTITION_BITS) - 1)) if facts else None


def _serving(node: "Node", topic: str, number: int) -> Partition | None:
    try:
        return node.partition(topic, number)
    except (NotFound, PartitionFaulty):
        return None


def _origin(node: "Node", partition: Partition, offset: int) -> tuple[Partition, int] | None:
    """The message that this one was made of: a dead letter's original, a redriven copy's dead letter."""
    facts = facts_of(partition, offset)
    if facts.head is None or facts.head.origin is not Origin.OUTBOX:
        return None
    source = partition_by_source(node, facts.head.origin_source)
    if source is None or family_of(source.topic) != family_of(partition.topic):
        return None
    if facts.provenance is not None:
        return source, facts.provenance.original_offset
    letter = _letter_of_copy(source, partition, offset, facts.head)
    return None if letter is None else (source, letter)


def _letter_of_copy(source: Partition, copy: Partition, offset: int, head: Head) -> int | None:
    """The dead letter that a redriven message was made of: the batch names the last letter in it, so count back."""
    behind = head.last_offset - offset
    for sequence in range(head.origin_sequence, 0, -1):
        letter: Redriven | None = None
        for found in source.history.about(LETTERS + sequence):
            if isinstance(found, Entry) and isinstance(found.record, Redriven):
                letter = found.record
            elif isinstance(found, Entry) and isinstance(found.record, Returned):
                letter = None
        if letter is None or letter.letter.topic != copy.topic:
            if sequence < head.origin_sequence - head.message_count - _LETTERS_SKIPPED:
                return None
            continue
        if behind == 0:
            return letter.letter.offset
        behind -= 1
    return None


# Letters that went elsewhere, or came back, between those of one batch.
_LETTERS_SKIPPED = 100


def _following(
    node: "Node", partition: Partition, offset: int, entries: Iterable[Entry]
) -> list[tuple[Partition, int]]:
    """The messages that were made of this one: dead letters of its groups, and of a dead letter its copy."""
    found: list[tuple[Partition, int]] = []
    for entry in entries:
        record = entry.record
        if isinstance(record, Buried) and record.offset == offset and record.sequence >= 0:
            name = dead_letter_topic(partition.topic)
            destination = _serving(node, name, partition.number)
            sequence, is_family = record.sequence, name.startswith(partition.topic)
        elif isinstance(record, Redriven) and not record.letter.group:
            letter = record.letter
            destination = _serving(node, letter.topic, letter.partition)
            sequence = letter.sequence
            is_family = family_of(letter.topic) == family_of(partition.topic)
        else:
            continue
        if destination is not None and is_family:
            where = _arrival(partition, destination, entry, sequence)
            if where is not None:
                found.append((destination, where))
    return found


def _arrival(source: Partition, destination: Partition, entry: Entry, sequence: int) -> int | None:
    """Where a letter became a message, looked for from the time of its intent on. None: not near it."""
    log, identity, left = destination.messages, source.identity.as_source, _FOLLOW_BYTES
    try:
        offset = int(offset_at(log, entry.at_ns))
        while offset < log.end_offset and left > 0:
            run = log.read(offset, bytes_max=_READ_BYTES)
            for head in run.heads:
                is_ours = head.origin is Origin.OUTBOX and head.origin_source == identity
                if is_ours and head.origin_sequence >= sequence:
                    return _within(source, destination, head, entry)
            offset, left = run.next_offset, left - len(run.data)
    except Damaged:
        return None
    return None


def _within(source: Partition, destination: Partition, head: Head, entry: Entry) -> int | None:
    """Which message of a batch of letters is the one of a record."""
    record = entry.record
    for offset in range(head.base_offset, head.next_offset):
        facts = facts_of(destination, offset)
        if isinstance(record, Buried):
            group = source.machine.names.get(record.group)
            made_of = facts.provenance
            is_same = made_of is not None and made_of.original_offset == record.offset
            if is_same and made_of is not None and group in (None, made_of.group):
                return offset
            continue
        assert isinstance(record, Redriven)
        if _letter_of_copy(source, destination, offset, head) == record.letter.offset:
            return offset
    return None


def _fired(partition: Partition, identity: int) -> int | None:
    """The offset of the message that a delayed one became, looked for from its due time on."""
    log, left = partition.messages, _FOLLOW_BYTES
    due_ns = describe_delayed(partition, identity).due_ns
    for found in partition.history.about(DELAYS + identity):
        if isinstance(found, Entry) and isinstance(found.record, DelayMoved):
            due_ns = found.record.due_ns
    try:
        offset = int(offset_at(log, due_ns))
        while offset < log.end_offset and left > 0:
            run = log.read(offset, bytes_max=_READ_BYTES)
            for head in run.heads:
                if head.origin is Origin.DELAY:
                    opened = partition.cache.at(head.base_offset)
                    ids = ids_of(opened.body, opened.head)
                    fired_at = next((at for at, one in ids.items() if one == identity), None)
                    if fired_at is not None:
                        return fired_at
            offset, left = run.next_offset, left - len(run.data)
    except Damaged:
        return None
    return None

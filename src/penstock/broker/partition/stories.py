"""The stories of messages of one partition: what the message says of itself, and what the history says of it."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from pyroaring import BitMap64

from ...api.journeys import EventType, GroupStanding, JourneyStatus
from ...codec import Head, Origin
from ...delivery.offsets import each_offset
from ...delivery.records import Buried
from ...errors import Damaged, NotFound, OffsetOutOfRange
from ...journeys.index import DELAYS, GROUPS, LETTERS
from ...journeys.story import FINISHED, Event, MessagePlace, Story
from ...journeys.traces import TRACEPARENT, TracePlace, parse_traceparent, trace_id_of
from ...model import Message, Provenance
from ...schedules import is_schedule
from ..topics import INTERNAL_PREFIX
from .dead_letters import index_of, read_dead_letter
from .history import Entry, Gap, Told, add_keys
from .journey_events import events_of, group_names
from .partition import Partition
from .records import Redriven
from .rows import ids_of

# To ask a group how a message stands takes less than to hand on that it was asked.
_GROUPS_A_YIELD = 8


class MessageFacts(NamedTuple):
    """A message as it is stored; without a `message` it is gone or damaged, and `missing` says why."""

    message: Message | None
    head: Head | None = None
    delay_id: int = -1
    provenance: Provenance | None = None
    missing: str = ""


class ToldStory(NamedTuple):
    """The story of one message, the records that it is made of, and what could not be read."""

    story: Story
    entries: Sequence[Entry]
    gaps: list[str]


def facts_of(partition: Partition, offset: int) -> MessageFacts:
    """What the message log says of a message. OffsetOutOfRange: there was never one."""
    log = partition.messages
    if not 0 <= offset < log.end_offset:
        raise OffsetOutOfRange(offset, start=log.start_offset, end=log.end_offset)
    if offset < log.start_offset:
        return MessageFacts(None, missing="the message is gone: retention removed it")
    try:
        opened = partition.cache.at(offset)
        index = index_of(opened, offset)
        if index is None:
            return MessageFacts(None, missing="the message is gone: compaction removed it")
        letter = read_dead_letter(partition, offset)
    except Damaged as damage:
        return MessageFacts(None, missing=f"the message cannot be read: {damage}")
    delay_id = ids_of(opened.body, opened.head).get(offset, -1)
    if letter is not None:
        return MessageFacts(letter.message, opened.head, delay_id, letter.provenance)
    return MessageFacts(opened.columns().message(index), opened.head, delay_id)


def trace_id_in(partition: Partition, offset: int, facts: MessageFacts) -> str:
    """The trace id that a message came with, or the one that follows from its place."""
    if facts.message is not None:
        for name, value in facts.message.headers:
            if name == TRACEPARENT and (parent := parse_traceparent(value)) is not None:
                return parent.trace_id
    if facts.delay_id >= 0:
        return trace_id_of(TracePlace(*partition.identity, facts.delay_id, is_delayed=True))
    return trace_id_of(TracePlace(*partition.identity, offset))


def tell(
    partition: Partition,
    offset: int,
    facts: MessageFacts,
    story: Story,
    *,
    gaps: Iterable[str] = (),
) -> Told[ToldStory]:
    """Tell the story of one message: its publish, and what its groups did with it."""
    entries, lost = yield from _records_of(partition, offset)
    gone = [*gaps, *lost]
    if facts.missing:
        gone.append(facts.missing)
    story.add(publish_events(partition, offset, facts))
    names = yield from group_names(partition, {entry.record.group for entry in entries})
    for entry in entries:
        story.add(events_of(entry, offset, names[entry.record.group]))
        yield 1
    start = partition.history.start()
    if facts.head is not None and offset < start.message_end:
        gone.append(f"records from before {start.at_ns} ns since 1970 are not kept any more")
    return ToldStory(story, entries, gone)


def _records_of(partition: Partition, offset: int) -> Told[tuple[list[Entry], list[str]]]:
    """The records about a message, with those about its letters and about groups that are gone, in their order."""
    entries, gaps = yield from _sorted_out(partition.history.about(offset))
    more: set[int] = set()
    for entry in entries:
        if isinstance(entry.record, Redriven):
            more.add(LETTERS + entry.record.letter.sequence)
        if isinstance(entry.record, Buried) and entry.record.sequence >= 0:
            more.add(LETTERS + entry.record.sequence)
        if entry.record.group and entry.record.group not in partition.machine.names:
            more.add(GROUPS + entry.record.group)
    if more:
        others, lost = yield from _sorted_out(partition.history.about(*more))
        known = {entry.offset for entry in entries}
        # A group's beginning, and a group's end before it had the message, are not of this story.
        entries += [
            other for other in others if other.offset not in known and _is_later(other, entries)
        ]
        gaps += lost
    return sorted(entries, key=lambda entry: entry.offset), gaps


def _is_later(entry: Entry, entries: Sequence[Entry]) -> bool:
    is_of_story = not isinstance(entry.record, Buried | Redriven)
    return is_of_story and entry.offset > entries[0].offset


def _sorted_out(records: Iterable[Entry | Gap | None]) -> Told[tuple[list[Entry], list[str]]]:
    entries: list[Entry] = []
    gaps: list[str] = []
    for entry in records:
        if isinstance(entry, Gap):
            first, last = entry.first, entry.end - 1
            gaps.append(f"state records {first} to {last} cannot be told: {entry.reason}")
        elif entry is not None:
            entries.append(entry)
        yield 1
    return entries, gaps


def publish_events(partition: Partition, offset: int, facts: MessageFacts) -> Iterator[Event]:
    """How the message came into its partition."""
    head, message = facts.head, facts.message
    if head is None or message is None:
        return
    at_ns = head.append_time
    is_letter = head.origin is Origin.OUTBOX and not is_schedule(head.origin_source)
    if not is_letter and facts.delay_id < 0:
        sent = {"timestamp_ns": message.timestamp}
        yield Event(at_ns, EventType.RECEIVED, attributes=sent)
    if facts.delay_id >= 0:
        yield Event(at_ns, EventType.FIRED, attributes={"delay_id": facts.delay_id})
    durable = {"durable": offset < partition.messages.durable_end}
    yield Event(at_ns, EventType.PERSISTED, attributes=durable)


def tell_delay(partition: Partition, identity: int, story: Story) -> Told[list[str]]:
    """Tell the story of a delayed message up to when it fires. Returns what could not be read."""
    log = partition.delayed.log
    gaps: list[str] = []
    try:
        if log is None:
            raise NotFound("delayed message", identity)
        head = log.head_at(identity) if identity >= log.start_offset else None
    except Damaged as damage:
        head = None
        gaps.append(f"the delayed message cannot be read: {damage}")
    if head is None:
        gaps.append("when it was scheduled is not known any more")
    else:
        story.add([Event(head.append_time, EventType.SCHEDULED, attributes={"delay_id": identity})])
    entries, lost = yield from _sorted_out(partition.history.about(DELAYS + identity))
    for entry in entries:
        story.add(events_of(entry, identity, ""))
        yield 1
    return gaps + lost


def standings_of(partition: Partition, offset: int, story: Story) -> Told[list[GroupStanding]]:
    """What the message is for each group that has had it, or will have it, as the state of today says."""
    told = {standing.group: standing for standing in story.standings()}
    standings: list[GroupStanding] = []
    for place, name in enumerate([name for name, _ in partition.user_groups()], 1):
        if place % _GROUPS_A_YIELD == 0:
            yield _GROUPS_A_YIELD
        number = partition.machine.numbers.get(name)
        if number is None:
            continue
        delivery = partition.machine.groups[number]
        known, is_finished = told.get(name), delivery.progress.is_finished(offset)
        if known is None and is_finished:
            continue  # Finished before the history begins, or before the group's start.
        known = known or GroupStanding(name, JourneyStatus.IN_PROGRESS)
        failure = delivery.failures.get(offset)
        attempts = known.attempts if failure is None else failure.attempts
        status = known.status
        if is_finished != (status in FINISHED):
            status = JourneyStatus.COMPLETED if is_finished else JourneyStatus.IN_PROGRESS
        standings.append(GroupStanding(name, status, attempts, known.consumer, known.error))
    known_names = partition.machine.numbers
    gone = [standing for name, standing in told.items() if name not in known_names]
    return [
        *standings,
        *(standing for standing in gone if not standing.group.startswith(INTERNAL_PREFIX)),
    ]


def tell_many(
    partition: Partition, offsets: Sequence[int]
) -> Told[dict[int, tuple[MessageFacts, Story]]]:
    """The stories of many messages, read together. Messages that are gone are left out."""
    wanted = BitMap64(offsets)
    by_offset: dict[int, list[Entry]] = {}
    entries, _ = yield from _sorted_out(partition.history.about(*offsets))
    for entry in entries:
        keys = BitMap64()
        add_keys(entry.record, keys)
        for offset in each_offset(keys & wanted):
            by_offset.setdefault(offset, []).append(entry)
        yield 1
    names = yield from group_names(partition, {entry.record.group for entry in entries})
    told: dict[int, tuple[MessageFacts, Story]] = {}
    for offset in offsets:
        yield 1
        facts = facts_of(partition, offset)
        if facts.message is None:
            continue
        place = MessagePlace(partition.topic, partition.number, offset)
        story = Story(trace_id_in(partition, offset, facts), place)
        if facts.delay_id >= 0:
            yield from tell_delay(partition, facts.delay_id, story)
        story.add(publish_events(partition, offset, facts))
        for entry in by_offset.get(offset, ()):
            story.add(events_of(entry, offset, names[entry.record.group]))
            yield 1
        told[offset] = facts, story
    return told

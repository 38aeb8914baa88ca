"""From a message to those that were made of it, and back: dead letters, redriven copies, delayed messages that fired.

The record that a letter has arrived (`Forwarded`) says which message it became, so both ways are one look-up. A crash
between the two leaves that unsaid; then the messages from the time of the letter on are looked through, `_FOLLOW_BYTES`
at most, and a journey that ends there says so.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from ..api.dead_letters import DEAD_LETTER_SUFFIX
from ..codec import Head, Origin
from ..delivery.delay_records import DelayMoved
from ..delivery.records import Buried
from ..errors import Damaged, NotFound, PartitionFaulty
from ..journeys.index import ARRIVALS, DELAYS, LETTERS
from ..log.lookup import offset_at
from .partition import Partition
from .partition.dead_letters import dead_letter_topic
from .partition.delayed_messages import describe as describe_delayed
from .partition.history import Entry, Told
from .partition.records import Forwarded, Redriven, Returned
from .partition.rows import ids_of
from .partition.stories import facts_of

if TYPE_CHECKING:
    from .node import Node

# How much behind the time of a letter is looked through for its message, where no record names it.
_FOLLOW_BYTES = 16 << 20
_READ_BYTES = 1 << 20
_PARTITION_BITS = 20
# Letters that went elsewhere, or came back, between those of one batch.
_LETTERS_SKIPPED = 100

Where = tuple[Partition, int]
"""A message by its place."""


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


def origin_of(node: "Node", partition: Partition, offset: int) -> Told[Where | None]:
    """The message that this one was made of: a dead letter's original, a redriven copy's dead letter."""
    facts = facts_of(partition, offset)
    if facts.head is None or facts.head.origin is not Origin.OUTBOX:
        return None
    source = partition_by_source(node, facts.head.origin_source)
    if source is None or family_of(source.topic) != family_of(partition.topic):
        return None
    if facts.provenance is not None:
        return source, facts.provenance.original_offset
    letter = yield from _letter_of_copy(source, partition, offset, facts.head)
    return None if letter is None else (source, letter)


def _letter_of_copy(
    source: Partition, copy: Partition, offset: int, head: Head
) -> Told[int | None]:
    """The dead letter that a redriven message was made of: by the record of its arrival, or counted back."""
    named: int | None = None
    for entry in source.history.about(ARRIVALS + offset):
        yield 1
        record = entry.record if isinstance(entry, Entry) else None
        # Letters to other partitions became messages with this offset, too; of a topic made again the last counts.
        if isinstance(record, Forwarded) and record.sequence <= head.origin_sequence:
            letter = yield from _redriven(source, copy, record.sequence)
            named = named if letter is None else letter
    if named is not None:
        return named
    behind = head.last_offset - offset
    least = max(0, head.origin_sequence - head.message_count - _LETTERS_SKIPPED)
    for sequence in range(head.origin_sequence, least, -1):
        letter = yield from _redriven(source, copy, sequence)
        if letter is not None and behind == 0:
            return letter
        behind -= letter is not None
    return None


def _redriven(source: Partition, copy: Partition, sequence: int) -> Told[int | None]:
    """The offset of the dead letter that left under this number to become a message of `copy`, if one did."""
    offset: int | None = None
    for entry in source.history.about(LETTERS + sequence):
        yield 1
        record = entry.record if isinstance(entry, Entry) else None
        if isinstance(record, Redriven):
            letter = record.letter
            is_there = (letter.topic, letter.partition) == (copy.topic, copy.number)
            offset = letter.offset if is_there and not letter.group else None
        elif isinstance(record, Returned):
            offset = None
    return offset


class _Sent(NamedTuple):
    """A letter that left, as the record of its intent has it."""

    entry: Entry
    sequence: int
    topic: str
    partition: int


def following_of(
    node: "Node", partition: Partition, offset: int, entries: Iterable[Entry]
) -> Told[tuple[list[Where], list[str]]]:
    """The messages that were made of this one, and what is missing: its groups' dead letters, a dead letter's copy."""
    sent: dict[int, _Sent] = {}
    places: dict[int, int] = {}
    for entry in entries:
        record = entry.record
        if isinstance(record, Buried) and record.offset == offset and record.sequence >= 0:
            name = dead_letter_topic(partition.topic)
            sent[record.sequence] = _Sent(entry, record.sequence, name, partition.number)
        elif isinstance(record, Redriven) and not record.letter.group:
            letter = record.letter
            sent[letter.sequence] = _Sent(entry, letter.sequence, letter.topic, letter.partition)
        elif isinstance(record, Forwarded):
            places[record.sequence] = record.offset
        elif isinstance(record, Returned):
            sent.pop(record.sequence, None)
    found: list[Where] = []
    missing: list[str] = []
    for one in sent.values():
        destination = _serving(node, one.topic, one.partition)
        is_pending = one.sequence in partition.machine.outbox.pending
        if destination is None or family_of(one.topic) != family_of(partition.topic):
            continue
        where = yield from _arrival(partition, destination, one, places.get(one.sequence, -1))
        if where is not None:
            found.append((destination, where))
        elif not is_pending:
            missing.append(f"what became of it in {one.topic} {one.partition} was not found")
    return found, missing


def _arrival(
    source: Partition, destination: Partition, sent: _Sent, known: int
) -> Told[int | None]:
    """Where a letter became a message: as its record says, or looked for from the time of its intent on."""
    log, identity, left = destination.messages, source.identity.as_source, _FOLLOW_BYTES
    if known >= 0:
        # A topic that was deleted and made again may have another message there, or none.
        if not log.start_offset <= known < log.end_offset:
            return None
        head = facts_of(destination, known).head
        is_ours = head is not None and head.origin is Origin.OUTBOX
        return known if is_ours and head is not None and head.origin_source == identity else None
    try:
        offset = int(offset_at(log, sent.entry.at_ns))
        while offset < log.end_offset and left > 0:
            run = log.read(offset, bytes_max=_READ_BYTES)
            for head in run.heads:
                is_ours = head.origin is Origin.OUTBOX and head.origin_source == identity
                if is_ours and head.origin_sequence >= sent.sequence:
                    return (yield from _within(source, destination, head, sent.entry))
                yield 1
            offset, left = run.next_offset, left - len(run.data)
            offset = max(offset, log.start_offset)
    except Damaged:
        return None
    return None


def _within(
    source: Partition, destination: Partition, head: Head, entry: Entry
) -> Told[int | None]:
    """Which message of a batch of letters is the one of a record."""
    record = entry.record
    for offset in range(head.base_offset, head.next_offset):
        yield 1
        facts = facts_of(destination, offset)
        if isinstance(record, Buried):
            group = source.machine.names.get(record.group)
            made_of = facts.provenance
            is_same = made_of is not None and made_of.original_offset == record.offset
            if is_same and made_of is not None and group in (None, made_of.group):
                return offset
            continue
        assert isinstance(record, Redriven)
        letter = yield from _letter_of_copy(source, destination, offset, head)
        if letter == record.letter.offset:
            return offset
    return None


def fired_at(partition: Partition, identity: int) -> Told[int | None]:
    """The offset of the message that a delayed one became, looked for from its due time on."""
    log, left = partition.messages, _FOLLOW_BYTES
    due_ns = describe_delayed(partition, identity).due_ns
    for entry in partition.history.about(DELAYS + identity):
        yield 1
        if isinstance(entry, Entry) and isinstance(entry.record, DelayMoved):
            due_ns = entry.record.due_ns
    try:
        offset = int(offset_at(log, due_ns))
        while offset < log.end_offset and left > 0:
            run = log.read(offset, bytes_max=_READ_BYTES)
            for head in run.heads:
                if head.origin is Origin.DELAY:
                    opened = partition.cache.at(head.base_offset)
                    ids = ids_of(opened.body, opened.head)
                    place = next((at for at, one in ids.items() if one == identity), None)
                    if place is not None:
                        return place
                yield 1
            offset, left = run.next_offset, left - len(run.data)
            offset = max(offset, log.start_offset)
    except Damaged:
        return None
    return None

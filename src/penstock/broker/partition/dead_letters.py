"""Dead letters: how they are written into the dead-letter topic, and how they are read there."""

from collections.abc import Iterator

import msgspec

from ...api.dead_letters import (
    DEAD_LETTER_SUFFIX,
    PROVENANCE_HEADER,
    DeadLetter,
    split_headers,
)
from ...codec import Origin
from ...codec.checksum import checksum
from ...errors import Damaged, DamagedBatch, NotFound
from ...model import NAME_LENGTH_MAX, Message, Provenance
from .batch_cache import CachedBatch
from .damage import behind
from .outbox import Burial, Redrive
from .partition import Partition

REDRIVE_GROUP = "__redrive"
"""Our own group on a dead-letter partition: what it has finished was redriven, and is not listed any more."""


def dead_letter_topic(topic: str) -> str:
    """The topic of a topic's dead letters. A name that would become too long is cut and told apart by a hash."""
    room = NAME_LENGTH_MAX - len(DEAD_LETTER_SUFFIX)
    if len(topic) > room:
        digest = f"-{checksum(topic.encode()):08x}"
        topic = topic[: room - len(digest)] + digest
    return topic + DEAD_LETTER_SUFFIX


def as_dead_letter(source: Partition, letter: Burial) -> Message:
    """The message as it goes to the dead-letter topic.

    If the disk damaged it since, it goes without its payload, and the error says so.
    """
    error = letter.error
    try:
        original = message_at(source, letter.offset)
    except Damaged as damage:
        original, error = Message(None), f"{error} (the message cannot be read: {damage})"
    provenance = Provenance(
        source.topic,
        source.number,
        letter.offset,
        original.timestamp,
        letter.attempts,
        letter.first_delivery_ns,
        letter.last_delivery_ns,
        letter.member,
        letter.group,
        error,
        letter.at_ns,
        letter.reason.name,
    )
    note = (PROVENANCE_HEADER, msgspec.msgpack.encode(provenance))
    # Neither its time to live nor its idempotency key goes along: it is kept for a person to look at.
    return Message(
        original.value,
        original.key,
        (*original.headers, note),
        original.priority,
        original.timestamp,
        schema_id=original.schema_id,
    )


def as_redriven(source: Partition, letter: Redrive) -> Message:
    """The message as it goes back to its topic."""
    found = read_dead_letter(source, letter.offset)
    if found is None:
        raise NotFound("dead letter", f"{source.topic}/{source.number}/{letter.offset}")
    message, edit = found.message, letter.edit
    key, value, headers = message.key, message.value, message.headers
    if edit is not None:
        key = edit.key if edit.is_key_set else key
        value = edit.value if edit.is_value_set else value
        headers = headers if edit.headers is None else edit.headers
    return Message(
        value, key, headers, message.priority, message.timestamp, schema_id=message.schema_id
    )


def message_at(partition: Partition, offset: int) -> Message:
    """One message; NotFound if compaction took it."""
    opened = partition.cache.at(offset)
    index = index_of(opened, offset)
    if index is None:
        raise NotFound("message", f"{partition.topic}/{partition.number}/{offset}")
    return opened.columns().message(index)


def index_of(opened: CachedBatch, offset: int) -> int | None:
    """Which message of its batch an offset is."""
    if opened.head.is_dense:
        return offset - opened.head.base_offset
    offsets = opened.columns().offsets
    return offsets.index(offset) if offset in offsets else None


def read_dead_letter(partition: Partition, offset: int) -> DeadLetter | None:
    """A stored dead letter with its provenance taken out of the headers; None if a producer published the message."""
    opened = partition.cache.at(offset)
    index = index_of(opened, offset)
    if index is None or opened.head.origin is not Origin.OUTBOX:
        return None
    message = opened.columns().message(index)
    own, provenance = split_headers(message.headers)
    if provenance is None:
        return None
    plain = msgspec.structs.replace(message, headers=own)
    return DeadLetter(partition.number, message.offset, plain, provenance)


def dead_letters_in(partition: Partition, start: int = 0) -> Iterator[DeadLetter | None]:
    """For each offset from one on its dead letter; None for one that is none, or was redriven.

    Between two of them letters may come and be redriven, and retention may remove some. The partition has to be open.
    """
    offset = max(start, partition.messages.start_offset)
    while offset < partition.messages.end_offset:
        if is_listed(partition, offset):
            try:
                yield read_dead_letter(partition, offset)
            except DamagedBatch as damage:
                offset = behind(damage, partition.config)
                yield None
                continue
        else:
            yield None
        offset = max(offset + 1, partition.messages.start_offset)


def is_listed(partition: Partition, offset: int) -> bool:
    """Whether what is stored there has not been redriven or discarded."""
    number = partition.machine.numbers.get(REDRIVE_GROUP)
    return number is None or not partition.machine.groups[number].progress.is_finished(offset)

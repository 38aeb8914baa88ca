"""Reading a partition by offset or by time: whole batches as they are stored, or messages."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from ...api.bounds import PAGE_BYTES_MAX
from ...api.command import Command
from ...api.dead_letters import DEAD_LETTER_SUFFIX, dead_letter_message
from ...api.fetch import (
    DescribeBounds,
    Fetch,
    FetchReply,
    FileRange,
    FindEpochEnd,
    FindTimestamp,
    LogBounds,
    Peek,
    Read,
    ReadReply,
    SkippedRange,
    TimedOffset,
    TimestampSearch,
)
from ...api.leased import LeasedPart
from ...api.receipts import Place
from ...api.received import Received
from ...codec import Origin, batches_in
from ...codec.body import Column
from ...codec.decode import Messages, offsets_of, open_body
from ...codec.head import BODY_BYTES_MAX, OFFSET_MAX, Head
from ...codec.numbers import moved
from ...config import OnDamage
from ...delivery import commands
from ...delivery.offsets import each_offset
from ...errors import DamagedBatch, Refused
from ...log import Log
from ...log.lookup import bytes_from
from ...model import Epoch, Message, content_bytes
from ..partition import Now
from ..partition.changes import Handler
from ..partition.damage import behind
from ..partition.dead_letters import index_of
from ..partition.rows import ids_of
from ..partition.start import offset_in, visible_end
from ..walks import Slices, is_open

if TYPE_CHECKING:
    from ..node import Node

_NOTHING = memoryview(b"")
_NO_LEASE = 0
# Compaction leaves few and small batches without messages; so many bytes of them are some milliseconds.
_IDLE_BYTES_MAX = 4 << 20
_READ_BYTES_MIN = 1 << 16

# Before every time.
_NEVER = -(1 << 63)


def fetch(node: "Node", command: Fetch, _now: Now) -> FetchReply:
    """Batches from a place on. Where the topic skips damage, from behind it."""
    partition = node.partition(command.topic, command.partition)
    log = partition.messages
    offset = offset_in(log, command.start)
    skipped: list[SkippedRange] = []
    while True:
        try:
            found = _fetch_from(log, offset, command)
        except DamagedBatch as damage:
            end = behind(damage, partition.config)
            skipped.append(SkippedRange(offset, end, damage.reason))
            offset = end
        else:
            return replace(found, skipped=tuple(skipped)) if skipped else found


def _fetch_from(log: Log, offset: int, command: Fetch) -> FetchReply:
    bytes_max, limit, end = command.bytes_max, command.limit, visible_end(log)
    if end < log.end_offset:
        if offset >= end:
            return FetchReply(
                _NOTHING, offset, offset, log.start_offset, end, log.seed, epoch=log.next_epoch
            )
        limit = end - offset if limit is None else min(limit, end - offset)
    if bytes_max < 1 or (limit is not None and limit < 1):
        raise Refused("a fetch needs room for at least one message")
    if not command.is_checked and (found := _in_file(log, offset, bytes_max, limit)) is not None:
        return found
    run = log.read(offset, bytes_max=bytes_max)
    data, next_offset = run.data, int(run.next_offset)
    # Mostly there are fewer, and no head has to be read once more to find out.
    if limit is not None and next_offset - offset > limit:
        data, next_offset = _limited(data, log.seed, offset, limit)
    return FetchReply(
        data, offset, next_offset, log.start_offset, end, log.seed, epoch=log.next_epoch
    )


def _in_file(log: Log, offset: int, bytes_max: int, limit: int | None) -> FetchReply | None:
    """None: they have to be read."""
    found = log.find(offset, bytes_max=bytes_max, limit=OFFSET_MAX if limit is None else limit)
    file = None if found is None else found.file.lend()
    if found is None or file is None:
        return None
    return FetchReply(
        _NOTHING,
        offset,
        int(found.next_offset),
        log.start_offset,
        visible_end(log),
        log.seed,
        FileRange(file, found.position, found.size),
        epoch=log.next_epoch,
    )


def _limited(data: memoryview, seed: int, offset: int, limit: int) -> tuple[memoryview, int]:
    """Returns the batches that the first `limit` offsets need, and where the next one begins."""
    size, next_offset = 0, offset
    for head, _ in batches_in(data, seed=seed, is_verified=True):
        size, next_offset = size + head.length, head.next_offset
        if next_offset >= offset + limit:
            break
    return data[:size], next_offset


def read(node: "Node", command: Read, _now: Now) -> ReadReply:
    partition, limit = node.partition(command.topic, command.partition), command.limit
    log = partition.messages
    first = offset = offset_in(log, command.start)
    found: list[Message] = []
    skipped: list[SkippedRange] = []
    ids: dict[int, int] = {}
    room, idle, last = command.bytes_max, _IDLE_BYTES_MAX, visible_end(log)
    while len(found) < limit and offset < last and idle > 0 and room > 0:
        try:
            run = log.read(offset, bytes_max=max(room, _READ_BYTES_MIN))
        except DamagedBatch as damage:
            if found and partition.config.on_damage is OnDamage.STOP:
                break
            end = behind(damage, partition.config)
            skipped.append(SkippedRange(offset, end, damage.reason))
            offset = end
            continue
        for head, batch in batches_in(run.data, seed=log.seed, is_verified=True):
            is_beyond = head.base_offset >= last
            if len(found) >= limit or is_beyond or (found and room < head.length):
                room = 0
                break
            offset = head.next_offset
            body = open_body(batch, head, size_max=BODY_BYTES_MAX)
            fresh = [one for one in Messages(body, head) if one.offset >= first]
            if head.origin is Origin.OUTBOX and command.topic.endswith(DEAD_LETTER_SUFFIX):
                fresh = [*map(dead_letter_message, fresh)]
            found += fresh
            ids |= ids_of(body, head)
            if fresh:
                room -= head.length
            else:
                idle -= head.length
    if len(found) >= limit:
        # Behind the last message, and not behind its batch.
        del found[limit:]
        offset = found[-1].offset + 1
    return ReadReply(found, ids, offset, log.start_offset, last, tuple(skipped))


def describe_bounds(node: "Node", command: DescribeBounds, _now: Now) -> LogBounds:
    log = node.partition(command.topic, command.partition).messages
    size = 0 if command.offset is None else bytes_from(log, max(command.offset, log.start_offset))
    return LogBounds(log.start_offset, visible_end(log), log.next_epoch, size)


def find_epoch_end(node: "Node", command: FindEpochEnd, _now: Now) -> tuple[int, int]:
    log = node.partition(command.topic, command.partition).messages
    if command.epoch < 0:
        return -1, -1
    known = [one.epoch for one in log.epochs if one.epoch <= command.epoch]
    # Where retention removed that epoch, a reader that has read all of it has missed nothing. Told of none, it would
    # reset its position.
    return known[-1] if known else command.epoch, log.end_of_epoch(Epoch(command.epoch))


def find_timestamp(node: "Node", command: FindTimestamp, _now: Now) -> TimestampSearch:
    log = node.partition(command.topic, command.partition).messages
    wanted, offset = command.time_ns, max(command.offset, log.start_offset)
    number = log.segment_number(offset)
    while offset < log.end_offset:
        latest = log.segments[number].latest_known
        if latest is None or wanted is None or latest >= wanted:
            found = _timed_in_segment(log, number, offset, wanted)
            end = log.end_of(number)
            is_over = end >= log.end_offset or (wanted is not None and found is not None)
            return TimestampSearch(found, None if is_over else end)
        offset, number = log.end_of(number), number + 1
    return TimestampSearch(None, None)


def _timed_in_segment(log: Log, number: int, offset: int, wanted: int | None) -> TimedOffset | None:
    """The message that is searched for, if it lies in a segment, from an offset on."""
    segment, latest, end = log.segments[number], _NEVER, visible_end(log)
    found: TimedOffset | None = None
    best: Head | None = None
    for head in segment.heads_from(0):
        if not head.message_count:
            continue
        latest = max(latest, head.max_timestamp)
        if head.next_offset <= offset or head.base_offset >= end:
            continue
        if wanted is None and head.base_offset < log.start_offset:
            # Its latest message may be deleted.
            found = _timed_in(log, head, None)
        elif wanted is None:
            best = head if best is None or head.max_timestamp > best.max_timestamp else best
        elif found is None and head.max_timestamp >= wanted:
            found = _timed_in(log, head, wanted)
    if segment is not log.segments[-1]:
        segment.latest_known = latest
    if best is None or (found is not None and found.timestamp >= best.max_timestamp):
        return found
    return _timed_in(log, best, best.max_timestamp) or found


def _timed_in(log: Log, head: Head, time_ns: int | None) -> TimedOffset | None:
    """The first message of a batch with such a timestamp, without one the latest; none of those that are deleted."""
    try:
        data = log.read(max(head.base_offset, log.start_offset), bytes_max=1).data
    except DamagedBatch:
        return None
    body = open_body(data, head, size_max=BODY_BYTES_MAX)
    times = moved(body.number(Column.TIMESTAMPS), body.count, head.base_timestamp)
    offsets = np.asarray(offsets_of(body, head), dtype=np.int64)
    is_kept = offsets >= log.start_offset
    if time_ns is None:
        time_ns = int(times[is_kept].max()) if is_kept.any() else _NEVER
    found = np.flatnonzero((times >= time_ns) & is_kept)
    if not len(found):
        return None
    return TimedOffset(int(offsets[found[0]]), int(times[found[0]]), head.epoch)


def peek(node: "Node", command: Peek, now: Now) -> Slices[list[Received]]:
    partition = node.partition(command.topic, command.partition)
    delivery = partition.group(command.group)
    delivery.tick(now.monotonic_ns)
    found: list[Received] = []
    size = 0
    if command.limit <= 0:
        return found
    place = Place(partition.topic, partition.number, delivery.group)
    choice = commands.choose(delivery, limit=command.limit, end=partition.messages.end_offset)
    readable_from = 0
    for offset in [*each_offset(choice.offsets)]:
        now = yield 1
        if not is_open(node, partition):
            break
        readable_from = max(readable_from, partition.messages.start_offset)
        if offset < readable_from or delivery.progress.is_finished(offset):
            continue
        try:
            opened = partition.cache.at(offset)
        except DamagedBatch as damage:
            if found and partition.config.on_damage is OnDamage.STOP:
                break
            readable_from = behind(damage, partition.config)
            continue
        index = index_of(opened, offset)
        if index is None:
            continue
        failure = delivery.failures.get(offset)
        attempts = 0 if failure is None else failure.attempts
        row = opened.columns().rows(index, index + 1)
        (message,) = LeasedPart(place, _NO_LEASE, row, attempts).messages()
        if message.expires_at is None or message.expires_at > now.wall_ns:
            found.append(message)
            size += content_bytes(message.key, message.value, message.headers)
            if size > PAGE_BYTES_MAX:
                break
    return found


HANDLERS: Mapping[type[Command[Any]], Handler] = {
    Fetch: fetch,
    Read: read,
    Peek: peek,
    DescribeBounds: describe_bounds,
    FindTimestamp: find_timestamp,
    FindEpochEnd: find_epoch_end,
}

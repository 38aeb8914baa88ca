"""Publishing: the disk guard is asked first, then repeats and limits, then one append for each partition."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...api.command import Command
from ...api.publish import (
    BatchStored,
    CheckBacklog,
    Publish,
    PublishAt,
    PublishBatch,
    PublishEach,
    Published,
    PublishedRun,
    PublishedTo,
    PublishOutcome,
    PublishRecords,
    PublishValues,
    Schedule,
    ScheduleValues,
    Verdict,
)
from ...codec import Columns
from ...codec.columns import columns_of
from ...codec.edit import expiring
from ...codec.head import NO_MARKS
from ...config import OFF
from ...errors import NoSpace, OffsetOutOfRange, SchemaViolation
from ..partition import Now, Partition, delayed_messages, publishing
from ..partition.backlog import require_room
from ..partition.batches import CheckedBatch, checked_batch
from ..partition.changes import Handler
from ..partition.record_batches import checked_records
from ..partition.split_batches import publish_split
from ..validation import require_valid, wrong_messages

if TYPE_CHECKING:
    from ..node import Node

_MS = 1_000_000
# Beyond these, values that are to come later are cut into several batches.
_BATCH_BYTES_MAX = 4 << 20
_BATCH_MESSAGES_MAX = 8192


def publish(node: "Node", command: Publish, now: Now) -> Sequence[Published]:
    topic = node.topic(command.topic)
    if node.bindings:
        require_valid(node, command)
    node.guard.admit(command.messages, now)
    return publishing.publish(
        topic.partitions, topic.router, command.messages, now, to_partition=command.partition
    )


def publish_each(node: "Node", command: PublishEach, now: Now) -> list[PublishOutcome]:
    topic, messages = node.topic(command.topic), command.messages
    if node.bindings and (wrong := wrong_messages(node, command)):
        return _without(node, command, wrong, now)
    try:
        node.guard.admit(messages, now)
    except NoSpace as error:
        return [error.fresh()] * len(messages)
    return publishing.publish_each(
        topic.partitions, topic.router, messages, now, to_partition=command.partition
    )


def _without(
    node: "Node", command: PublishEach, wrong: Mapping[int, SchemaViolation], now: Now
) -> list[PublishOutcome]:
    """Store the messages that fit, and refuse the others."""
    fitting = [one for index, one in enumerate(command.messages) if index not in wrong]
    none_wrong = Verdict(node.bindings[command.topic], {}, 0)
    rest = PublishEach(command.topic, fitting, command.partition, verdict=none_wrong)
    stored = iter(publish_each(node, rest, now) if fitting else ())
    return [
        wrong[index] if index in wrong else next(stored) for index in range(len(command.messages))
    ]


def publish_values(node: "Node", command: PublishValues, now: Now) -> Sequence[Published]:
    topic, values = node.topic(command.topic), command.values
    if node.bindings:
        require_valid(node, command)
    size = sum(map(len, values))
    node.guard.admit_bytes(size, now)
    partition = topic.router.next_call(topic.partitions)
    if partition.has_backlog_limit:
        require_room(partition, len(values), size)
    encoded = publishing.encode_for(partition, Columns(values=values), now)
    return PublishedRun(partition.append(encoded, now), len(values))


def publish_at(node: "Node", command: PublishAt, now: Now) -> PublishedTo:
    partition = node.partition(command.topic, command.partition)
    log = partition.messages
    if command.offset > log.end_offset:
        raise OffsetOutOfRange(command.offset, start=log.start_offset, end=log.end_offset)
    size = 0
    if command.offset == log.end_offset:
        columns = Columns(values=command.values)
        if command.messages:
            columns = columns_of(command.messages)
        encoded = publishing.encode_for(partition, columns, now)
        partition.append(encoded, now)
        size = encoded.head.length
    try:
        node.guard.admit_bytes(size, now)
    except NoSpace:
        return PublishedTo(log.end_offset, is_disk_full=True)
    return PublishedTo(log.end_offset, is_disk_full=False)


def check_backlog(node: "Node", command: CheckBacklog, _now: Now) -> None:
    partition = node.partition(command.topic, command.partition)
    require_room(partition, command.messages, command.size_bytes)


def publish_batch(node: "Node", command: PublishBatch, now: Now) -> BatchStored:
    partition = node.partition(command.topic, command.partition)
    stored = _stored(node, partition, command, checked_batch(command.batch, node.limits), now)
    return BatchStored(stored, len(node.topic(command.topic).partitions))


def publish_records(node: "Node", command: PublishRecords, now: Now) -> BatchStored:
    partition = node.partition(command.topic, command.partition)
    batch = checked_records(command.batch, partition.config, now, node.limits)
    stored = _stored(node, partition, command, batch, now)
    return BatchStored(stored, len(node.topic(command.topic).partitions))


def _stored(
    node: "Node",
    partition: Partition,
    command: PublishBatch | PublishRecords,
    batch: CheckedBatch,
    now: Now,
) -> Sequence[Published]:
    encoded, messages, due_at = batch
    is_ours = isinstance(command, PublishBatch) and encoded.head.marks == NO_MARKS
    if is_ours and messages is not None and due_at is None:
        found = Publish(command.topic, messages, command.partition, verdict=command.verdict)
        return publish(node, found, now)
    # A producer asks again for what was stored before schemas were asked for, or before they changed.
    if node.bindings and partition.machine.producers.repeat_of(encoded.head) is None:
        require_valid(node, command)
    node.guard.admit_bytes(encoded.head.length, now)
    if messages is not None:
        topic = node.topic(command.topic)
        stored = publish_split(partition, batch, now, (topic.partitions, topic.router))
        return PublishedRun(stored, len(messages))
    ttl_ms = partition.config.ttl_ms
    if ttl_ms != OFF:
        expires_at = now.wall_ns + ttl_ms * _MS
        encoded = expiring(encoded, expires_at, size_max=node.limits.batch_bytes_max)
    head = encoded.head
    # A repeat adds nothing, and a producer that asks again because its answer was lost has to be told so.
    if partition.has_backlog_limit and partition.machine.producers.repeat_of(head) is None:
        require_room(partition, head.message_count, head.length, is_callers_choice=False)
    return PublishedRun(partition.append(encoded, now), head.message_count)


def schedule(node: "Node", command: Schedule, now: Now) -> Sequence[Published]:
    topic, delayed = node.topic(command.topic), command.delayed
    if node.bindings:
        require_valid(node, command)
    node.guard.admit([one.message for one in delayed], now)
    return delayed_messages.publish_delayed(
        topic.partitions, topic.router, delayed, now, to_partition=command.partition
    )


def schedule_values(node: "Node", command: ScheduleValues, now: Now) -> Sequence[Published]:
    topic, values, due_ns = node.topic(command.topic), command.values, command.due_ns
    if node.bindings:
        require_valid(node, command)
    node.guard.admit_bytes(sum(map(len, values)), now)
    partition = topic.router.next_call(topic.partitions)
    ttl_ms = partition.config.ttl_ms
    expires_at = None if ttl_ms == OFF else max(due_ns, now.wall_ns) + ttl_ms * _MS
    stored = [
        partition.schedule(
            Columns(values=some, timestamps=now.wall_ns, expires_at=expires_at, due_at=due_ns), now
        )
        for some in _batches(values)
    ]
    return PublishedRun(stored[0]._replace(durable_at=stored[-1].durable_at), len(values))


def _batches(values: Sequence[bytes]) -> list[Sequence[bytes]]:
    """Halves of halves, until each is good for a batch."""
    half = len(values) // 2
    if not half or (
        sum(map(len, values)) <= _BATCH_BYTES_MAX and len(values) <= _BATCH_MESSAGES_MAX
    ):
        return [values]
    return _batches(values[:half]) + _batches(values[half:])


HANDLERS: Mapping[type[Command[Any]], Handler] = {
    Publish: publish,
    PublishEach: publish_each,
    PublishValues: publish_values,
    PublishAt: publish_at,
    PublishBatch: publish_batch,
    PublishRecords: publish_records,
    CheckBacklog: check_backlog,
    Schedule: schedule,
    ScheduleValues: schedule_values,
}

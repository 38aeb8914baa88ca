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
)
from ...codec import Columns, Encoded, encode
from ...codec.edit import expiring
from ...codec.head import NO_MARKS
from ...config import OFF
from ...errors import NoSpace, OffsetOutOfRange
from ..partition import Now, Partition, delaying, publishing
from ..partition.backlog import is_limited, require_room
from ..partition.batches import checked_batch
from ..partition.changes import Handler
from ..partition.record_batches import encoded_records

if TYPE_CHECKING:
    from ..node import Node

_MS = 1_000_000
# Beyond these, values that are to come later are cut into several batches.
_BATCH_BYTES_MAX = 4 << 20
_BATCH_MESSAGES_MAX = 8192


def publish(node: "Node", command: Publish, now: Now) -> list[Published]:
    topic = node.topic(command.topic)
    node.guard.admit(command.messages, now)
    return publishing.publish(
        topic.partitions, topic.router, command.messages, now, to_partition=command.partition
    )


def publish_each(node: "Node", command: PublishEach, now: Now) -> list[PublishOutcome]:
    topic, messages = node.topic(command.topic), command.messages
    try:
        node.guard.admit(messages, now)
    except NoSpace as error:
        return [error] * len(messages)
    return publishing.publish_each(
        topic.partitions, topic.router, messages, now, to_partition=command.partition
    )


def publish_values(node: "Node", command: PublishValues, now: Now) -> Sequence[Published]:
    topic, values = node.topic(command.topic), command.values
    size = sum(map(len, values))
    node.guard.admit_bytes(size, now)
    topic.router.next_call(topic.partitions)
    partition = topic.partitions[topic.router.turn]
    if is_limited(partition):
        require_room(partition, len(values), size)
    return PublishedRun(partition.append(_encoded(partition, values, now), now), len(values))


def _encoded(partition: Partition, values: Sequence[bytes], now: Now) -> Encoded:
    ttl_ms = partition.config.ttl_ms
    expires_at = None if ttl_ms == OFF else now.wall_ns + ttl_ms * _MS
    columns = Columns(values=values, timestamps=now.wall_ns, expires_at=expires_at)
    return encode(columns, compression=partition.compression, limits=partition.limits)


def publish_at(node: "Node", command: PublishAt, now: Now) -> PublishedTo:
    partition = node.partition(command.topic, command.partition)
    log = partition.messages
    if command.offset > log.end_offset:
        raise OffsetOutOfRange(command.offset, start=log.start_offset, end=log.end_offset)
    size = 0
    if command.offset == log.end_offset:
        if command.messages:
            limits = partition.limits
            encoded = publishing.encode_for(partition, command.messages, now, limits=limits)
        else:
            encoded = _encoded(partition, command.values, now)
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
    stored = _stored(node, command, now)
    return BatchStored(stored, len(node.topic(command.topic).partitions))


def _stored(node: "Node", command: PublishBatch, now: Now) -> Sequence[Published]:
    partition = node.partition(command.topic, command.partition)
    encoded, messages = checked_batch(command.batch, node.limits)
    if messages is not None and encoded.head.marks == NO_MARKS:
        return publish(node, Publish(command.topic, messages, command.partition), now)
    ttl_ms = partition.config.ttl_ms
    if ttl_ms != OFF:
        expires_at = now.wall_ns + ttl_ms * _MS
        encoded = expiring(encoded, expires_at, size_max=node.limits.batch_bytes_max)
    return _appended(node, partition, encoded, now)


def publish_records(node: "Node", command: PublishRecords, now: Now) -> BatchStored:
    partition = node.partition(command.topic, command.partition)
    encoded = encoded_records(partition, command.batch, now, limits=node.limits)
    stored = _appended(node, partition, encoded, now)
    return BatchStored(stored, len(node.topic(command.topic).partitions))


def _appended(
    node: "Node", partition: Partition, encoded: Encoded, now: Now
) -> Sequence[Published]:
    head = encoded.head
    node.guard.admit_bytes(head.length, now)
    # A repeat adds nothing, and a producer that asks again because its answer was lost has to be told so.
    if is_limited(partition) and partition.machine.producers.repeat_of(head) is None:
        require_room(partition, head.message_count, head.length, is_callers_choice=False)
    return PublishedRun(partition.append(encoded, now), head.last_delta + 1)


def schedule(node: "Node", command: Schedule, now: Now) -> list[Published]:
    topic, delayed = node.topic(command.topic), command.delayed
    node.guard.admit([one.message for one in delayed], now)
    return delaying.publish_delayed(
        topic.partitions, topic.router, delayed, now, to_partition=command.partition
    )


def schedule_values(node: "Node", command: ScheduleValues, now: Now) -> Sequence[Published]:
    topic, values, due_ns = node.topic(command.topic), command.values, command.due_ns
    node.guard.admit_bytes(sum(map(len, values)), now)
    topic.router.next_call(topic.partitions)
    partition = topic.partitions[topic.router.turn]
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

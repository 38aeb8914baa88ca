"""Publishing: the disk guard is asked first, then repeats and limits, then one append for each partition."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...api.command import Command
from ...api.publish import (
    BatchStored,
    Publish,
    PublishBatch,
    PublishEach,
    Published,
    PublishedRun,
    PublishOutcome,
    PublishValues,
    Schedule,
)
from ...codec import Columns, encode
from ...codec.edit import expiring
from ...codec.head import NO_MARKS
from ...config import OFF
from ...errors import NoSpace
from .. import delaying, publishing
from ..backlog import is_limited, require_room
from ..batches import checked_batch
from ..changes import Handler
from ..partition import Now

if TYPE_CHECKING:
    from ..node import Node

_MS = 1_000_000


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
    partition, ttl_ms = topic.partitions[topic.router.turn], topic.facts.config.ttl_ms
    if is_limited(partition):
        require_room(partition, len(values), size)
    columns = Columns(
        values=values,
        timestamps=now.wall_ns,
        expires_at=None if ttl_ms == OFF else now.wall_ns + ttl_ms * _MS,
    )
    encoded = encode(columns, compression=partition.compression, limits=partition.limits)
    return PublishedRun(partition.append(encoded, now), len(values))


def publish_batch(node: "Node", command: PublishBatch, now: Now) -> BatchStored:
    stored = _stored(node, command, now)
    return BatchStored(stored, len(node.topic(command.topic).partitions))


def _stored(node: "Node", command: PublishBatch, now: Now) -> Sequence[Published]:
    partition = node.partition(command.topic, command.partition)
    encoded, messages = checked_batch(command.batch, node.limits)
    node.guard.admit_bytes(encoded.head.length, now)
    if messages is not None and encoded.head.marks == NO_MARKS:
        return publish(node, Publish(command.topic, messages, command.partition), now)
    ttl_ms = partition.config.ttl_ms
    if ttl_ms != OFF:
        expires_at = now.wall_ns + ttl_ms * _MS
        encoded = expiring(encoded, expires_at, size_max=node.limits.batch_bytes_max)
    head = encoded.head
    # A repeat adds nothing, and a producer that asks again because its answer was lost has to be told so.
    if is_limited(partition) and partition.machine.producers.repeat_of(head) is None:
        require_room(partition, head.message_count, head.length, is_callers_choice=False)
    return PublishedRun(partition.append(encoded, now), head.message_count)


def schedule(node: "Node", command: Schedule, now: Now) -> list[Published]:
    topic, delayed = node.topic(command.topic), command.delayed
    node.guard.admit([one.message for one in delayed], now)
    return delaying.publish_delayed(
        topic.partitions, topic.router, delayed, now, to_partition=command.partition
    )


HANDLERS: Mapping[type[Command[Any]], Handler] = {
    Publish: publish,
    PublishEach: publish_each,
    PublishValues: publish_values,
    PublishBatch: publish_batch,
    Schedule: schedule,
}

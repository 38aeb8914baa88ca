"""Topics as the client shows them."""

from typing import Any

import msgspec

from ..api.json.topics import topic_out
from ..api.topics import TopicDescription
from ..errors import PartitionFaulty


class Ends(msgspec.Struct, frozen=True):
    """The first offset that is kept, and the next one to be written."""

    earliest: int
    latest: int


class Topic(msgspec.Struct, frozen=True):
    """A topic. `partition_offsets` is by the partition's number, as text.

    `faulty` has the reasons of partitions that cannot be used; those have no offsets.
    """

    name: str
    partitions: int
    total_messages: int
    total_size_bytes: int
    partition_offsets: dict[str, Ends]
    config: dict[str, Any]
    faulty: dict[str, str] = {}

    def ends(self, partition: int) -> Ends:
        """Returns the offsets of a partition. PartitionFaulty: it has none."""
        if fault := self.faulty.get(str(partition)):
            path, _, reason = fault.partition(": ")
            raise PartitionFaulty(self.name, partition, path, reason)
        return self.partition_offsets[str(partition)]


class TopicCreated(msgspec.Struct, frozen=True):
    name: str
    partitions: int


class TopicGrown(msgspec.Struct, frozen=True):
    old_partition_count: int
    new_partition_count: int


class Compaction(msgspec.Struct, frozen=True):
    segments_removed: int
    bytes_freed: int


def topic_of(found: TopicDescription) -> Topic:
    return msgspec.convert(msgspec.to_builtins(topic_out(found)), Topic)

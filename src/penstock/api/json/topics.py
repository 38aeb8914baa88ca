"""Topics as JSON."""

from typing import Any

import msgspec

from ..topics import TopicDescription
from .messages import Int64, Strict
from .paging import PageQuery


class CreateIn(Strict):
    """A topic; `config` holds the settings that differ from the broker's."""

    name: str
    num_partitions: Int64 | None = None
    retention_hours: float | None = None
    config: dict[str, Any] = msgspec.field(default_factory=dict)


class CreateQuery(Strict):
    """A topic, for clients that send no body."""

    name: str | None = None
    partitions: Int64 | None = None


class CreatedOut(msgspec.Struct):
    name: str
    partitions: int
    created: bool


class TopicsQuery(PageQuery):
    details: bool = False


class TopicsOut(msgspec.Struct):
    """Names; with `details` an object for each."""

    topics: list[Any]
    cursor: str | None


class Ends(msgspec.Struct):
    """First offset kept, next offset to be written."""

    earliest: int
    latest: int


class TopicOut(msgspec.Struct, omit_defaults=True):
    name: str
    partitions: int
    total_messages: int
    total_size_bytes: int
    partition_offsets: dict[str, Ends]
    config: dict[str, Any]
    # Partitions that cannot be used, and why.
    faulty: dict[str, str] = {}


class PartitionOut(msgspec.Struct, omit_defaults=True):
    """`fault` says why a partition cannot be used; the figures are 0 then."""

    partition: int
    earliest: int
    latest: int
    messages: int
    size_bytes: int
    fault: str = ""


class PartitionsOut(msgspec.Struct):
    topic: str
    partitions: list[PartitionOut]
    cursor: str | None


class ConfigureIn(Strict):
    """Settings to change; the rest stays."""

    config: dict[str, Any] = msgspec.field(default_factory=dict)
    retention_hours: float | None = None


class GrowIn(Strict):
    """The new total."""

    count: Int64


class GrownOut(msgspec.Struct):
    success: bool
    topic_name: str
    old_partition_count: int
    new_partition_count: int
    partitions_added: list[int]


class CompactOut(msgspec.Struct):
    topic: str
    segments_removed: int
    bytes_freed: int


def retention_of(hours: float | None) -> dict[str, Any]:
    return {} if hours is None else {"retention_hours": hours}


def grown_out(topic: str, before: int, now: int) -> GrownOut:
    return GrownOut(True, topic, before, now, [*range(before, now)])


def topic_out(topic: TopicDescription) -> TopicOut:
    found = topic.partitions
    return TopicOut(
        topic.name,
        len(found),
        sum(one.messages for one in found),
        sum(one.size_bytes for one in found),
        {str(one.number): Ends(one.earliest, one.latest) for one in found if not one.fault},
        topic.settings,
        {str(one.number): one.fault for one in found if one.fault},
    )

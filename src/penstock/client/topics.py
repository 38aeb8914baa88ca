"""The calls about topics, and their replies."""

from collections.abc import Mapping
from typing import Any

import msgspec

from ..api.arguments import text
from .calls import Call, get, given, nothing, path_of, send, with_query


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
        return self.partition_offsets[str(partition)]


class TopicCreated(msgspec.Struct, frozen=True):
    name: str
    partitions: int


class TopicNames(msgspec.Struct, frozen=True):
    topics: list[str]
    cursor: str | None = None


class TopicsDescribed(msgspec.Struct, frozen=True):
    topics: list[Topic]
    cursor: str | None = None


class TopicGrown(msgspec.Struct, frozen=True):
    old_partition_count: int
    new_partition_count: int


class Compaction(msgspec.Struct, frozen=True):
    segments_removed: int
    bytes_freed: int


def create(
    name: str, partitions: int | None, config: Mapping[str, Any] | None
) -> Call[TopicCreated]:
    body = given(name=text("the name of a topic", name), num_partitions=partitions, config=config)
    return send("POST", "/topics", body, TopicCreated, is_repeatable=False)


def names(cursor: str | None) -> Call[TopicNames]:
    return get(with_query("/topics", {"cursor": cursor}), TopicNames)


def describe_all(cursor: str | None) -> Call[TopicsDescribed]:
    return get(with_query("/topics", {"cursor": cursor, "details": True}), TopicsDescribed)


def describe(name: str) -> Call[Topic]:
    return get(path_of("topics", name), Topic)


def configure(name: str, changes: Mapping[str, Any]) -> Call[Topic]:
    return send("PATCH", path_of("topics", name), {"config": changes}, Topic)


def delete(name: str) -> Call[None]:
    return Call("DELETE", path_of("topics", name), nothing, is_repeatable=False)


def grow(name: str, total: int) -> Call[TopicGrown]:
    target = path_of("admin", "topics", name, "partitions")
    return send("POST", target, {"count": total}, TopicGrown, is_repeatable=False)


def compact(name: str) -> Call[Compaction]:
    return send("POST", path_of("admin", "topics", name, "compact"), {}, Compaction)

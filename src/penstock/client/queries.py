"""The calls of engines that read many partitions at once, such as Spark."""

from collections.abc import Mapping, Sequence

import msgspec

from .calls import Call, Moment, get, moment, nothing, path_of, send, with_query


class PartitionEnds(msgspec.Struct, frozen=True):
    """The first offset that is kept, and the next one to be written; `at`: the first one stored at a time, or later."""

    earliest: int
    latest: int
    at: int | None = None


class TopicEnds(msgspec.Struct, frozen=True):
    """The ends by the partition's number, as text. A topic that is deleted and made again has another `id`."""

    id: int
    partitions: dict[str, PartitionEnds]


class Ends(msgspec.Struct, frozen=True):
    topics: dict[str, TopicEnds]
    missing: list[str]


def ends(topics: Sequence[str], at: Moment | None = None) -> Call[Ends]:
    """The ends of all partitions of some topics, in one request."""
    fields = {"topics": ",".join(topics), "at": None if at is None else moment(at)}
    return get(with_query("/offsets", fields), Ends)


class QueryStart(msgspec.Struct, frozen=True):
    """Where a query first began, by "topic/partition"; `asked` is what it asked for."""

    offsets: dict[str, int]
    ids: dict[str, int]
    asked: str


def keep_start(
    query: str, asked: str, offsets: Mapping[str, int], ids: Mapping[str, int]
) -> Call[QueryStart]:
    """Keep where a query begins. For a query that is known the broker returns what it kept the first time."""
    body = {"offsets": offsets, "ids": ids, "asked": asked}
    return send("POST", path_of("queries", query, "start"), body, QueryStart)


def forget_start(query: str) -> Call[None]:
    return Call("DELETE", path_of("queries", query, "start"), nothing)


class SegmentFile(msgspec.Struct, frozen=True):
    """Whole batches from offset `start` up to `end`, in the first `size_bytes` of a file below the data directory."""

    path: str
    start: int
    end: int
    size_bytes: int


class Files(msgspec.Struct, frozen=True):
    """`data_dir` is None for a key that only reads."""

    data_dir: str | None
    seed: int
    files: list[SegmentFile]


def files(topic: str, partition: int, offset: int, end: int) -> Call[Files]:
    """The files that hold a range, as far as those do not grow any more. They stay for ten minutes."""
    target = path_of("topics", topic, "partitions", partition, "files")
    return send("POST", target, {"offset": offset, "end": end}, Files)

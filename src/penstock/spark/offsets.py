"""Offsets of a stream as Spark stores them, and the ranges between two of them. Pure functions: no call to the broker.

An offset of the stream in JSON, as it stands in a checkpoint:

    {"next": {"orders/0": 100, "orders/1": 50},    the offset that is read next
     "ids": {"orders": 7},                         which topic of that name it was
     "begin": {"orders/0": 90}}                    where its batch began, if not at the offset before

`begin` is there because Spark does not store where a query first began: it asks again after a crash, and "latest" has
changed by then. So the end of the first batch, which Spark does store, says where that batch began.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from ..api.queries import PartitionEnds, TopicEnds
from ..errors import Refused
from .losses import (
    checkpoint_of_another,
    lost_by_retention,
    lost_by_shrinking,
    pass_over,
    topic_deleted,
)
from .options import Topics

Offsets = Mapping[str, int]
TopicEndsByName = Mapping[str, TopicEnds]


class OffsetRange(NamedTuple):
    """Messages of a partition from `start` up to, and not including, `end`: the work of one task."""

    topic: str
    partition: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition} [{self.start}, {self.end})"


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """Where a stream is. `is_first`: nothing was read yet."""

    next: Offsets
    ids: Offsets = field(default_factory=dict)
    begin: Offsets = field(default_factory=dict)
    is_first: bool = False

    def to_json(self) -> dict[str, Any]:
        """Returns the offset as JSON, with keys in a fixed order: Spark compares the text."""
        written: dict[str, Any] = {
            "next": _sorted(self.next),
            "ids": dict(sorted(self.ids.items())),
        }
        if self.begin:
            written["begin"] = _sorted(self.begin)
        if self.is_first:
            written["first"] = True
        return written

    @classmethod
    def from_json(cls, written: Mapping[str, Any]) -> "StreamOffset":
        try:
            return cls(
                _numbers(written["next"]),
                _numbers(written["ids"]),
                _numbers(written.get("begin", {})),
                bool(written.get("first", False)),
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            raise Refused(
                f"the checkpoint is not one of a penstock source: {str(written)[:200]}"
            ) from None


def _numbers(written: Mapping[str, Any]) -> dict[str, int]:
    if not all(isinstance(one, int) for one in written.values()):
        raise ValueError
    return dict(written)


def _sorted(offsets: Offsets) -> dict[str, int]:
    return dict(sorted(offsets.items(), key=lambda one: _place_of(one[0])))


def key_of(topic: str, partition: int) -> str:
    return f"{topic}/{partition}"


def _place_of(key: str) -> tuple[str, int]:
    topic, _, partition = key.rpartition("/")
    return topic, int(partition) if partition.isdecimal() else 0


def partitions_in(found: TopicEndsByName, topics: Topics) -> Iterator[tuple[str, PartitionEnds]]:
    """Yields the partitions that a query reads, by key."""
    for name, topic in found.items():
        for number, ends in topic.partitions.items():
            if topics.takes(name, int(number)):
                yield key_of(name, int(number)), ends


def ids_of(found: TopicEndsByName) -> dict[str, int]:
    return {name: topic.id for name, topic in found.items()}


def ranges_between(start: StreamOffset, end: StreamOffset) -> list[OffsetRange]:
    """Returns the ranges of a batch. A partition that is new in `end` is read from its beginning."""
    ranges: list[OffsetRange] = []
    if start == end:
        return ranges
    for key, to in end.next.items():
        first = end.begin.get(key, start.next.get(key, 0))
        if first < to:
            ranges.append(OffsetRange(*_place_of(key), first, to))
    return ranges


def split(ranges: Iterable[OffsetRange], tasks_min: int | None) -> list[OffsetRange]:
    """Returns ranges with these messages, at least `tasks_min` of about equal size if there are so many messages."""
    whole = list(ranges)
    if tasks_min is None or len(whole) >= tasks_min:
        return whole
    total = sum(one.end - one.start for one in whole)
    pieces = []
    for one in whole:
        size = one.end - one.start
        count = min(-(-size * tasks_min // total), size)
        cuts = [one.start + size * number // count for number in range(count + 1)]
        pieces += [one._replace(start=a, end=b) for a, b in pairwise(cuts)]
    return pieces


@dataclass(frozen=True, slots=True)
class Advance:
    """Computes the end of the next batch of a stream."""

    topics: Topics
    is_loss_fatal: bool = True
    rows_max: int | None = None

    def from_start(self, start: StreamOffset, found: TopicEndsByName) -> StreamOffset:
        """Returns the end of the next batch, or `start` itself if there is nothing to read.

        DataLoss: messages were removed that were not read. If that is not fatal, they are passed over.
        """
        self._check_topics(start, found)
        begin = {
            key: self._begin(key, ends, start, found)
            for key, ends in partitions_in(found, self.topics)
        }
        latest = {key: ends.latest for key, ends in partitions_in(found, self.topics)}
        end = limit_ends(begin, latest, self.rows_max)
        # The offsets of a topic that was deleted and made again mean other messages.
        is_new = any(start.ids.get(name, topic.id) != topic.id for name, topic in found.items())
        if not is_new and all(end[key] == start.next.get(key, 0) for key in end):
            return start
        moved = {key: first for key, first in begin.items() if first != start.next.get(key, 0)}
        return StreamOffset(end, ids_of(found), dict(begin) if start.is_first else moved)

    def _check_topics(self, start: StreamOffset, found: TopicEndsByName) -> None:
        kept = {_place_of(key)[0] for key in start.next}
        named = self.topics.fixed_names()
        foreign = {name for name in kept if not _is_read(self.topics, name)}
        if foreign and (foreign == kept or self.is_loss_fatal):
            raise checkpoint_of_another(sorted(foreign), str(self.topics))
        left_out = [key for key in start.next if not self.topics.takes(*_place_of(key))]
        if left_out and self.is_loss_fatal:
            raise checkpoint_of_another(sorted(left_out), str(self.topics))
        for name in sorted(kept - set(found) - foreign):
            # A topic of a pattern may be deleted; a topic that was named has to be there.
            if self.is_loss_fatal or named is not None:
                raise topic_deleted(name)

    def _begin(
        self, key: str, ends: PartitionEnds, start: StreamOffset, found: TopicEndsByName
    ) -> int:
        """Returns the offset at which reading a partition goes on. DataLoss."""
        topic, _ = _place_of(key)
        first = start.next.get(key, 0 if topic in start.ids else ends.earliest)
        is_same = start.ids.get(topic, found[topic].id) == found[topic].id
        if is_same and ends.earliest <= first <= ends.latest:
            return first
        if is_same and first < ends.earliest:
            loss = lost_by_retention(key, first, ends.earliest)
        else:
            loss = lost_by_shrinking(key, first, ends.latest, is_same=is_same)
        pass_over(loss, is_fatal=self.is_loss_fatal)
        return ends.earliest


def _is_read(topics: Topics, name: str) -> bool:
    named = topics.fixed_names()
    return topics.matches(name) if named is None else name in named


def limit_ends(begin: Offsets, latest: Offsets, rows_max: int | None) -> dict[str, int]:
    """Returns the end for each partition: the latest, or its share of `rows_max` in proportion to its backlog."""
    waiting = {key: latest[key] - begin[key] for key in begin}
    total = sum(waiting.values())
    if rows_max is None or total <= rows_max:
        return dict(latest)
    share = {key: rows * rows_max // total for key, rows in waiting.items()}
    # The rest of the rounding goes to partitions that would get nothing, which could wait for ever, and then to those
    # with the longest backlog, one each.
    spare = rows_max - sum(share.values())
    left = [key for key in share if share[key] < waiting[key]]
    for key in sorted(left, key=lambda one: (share[one] > 0, share[one] - waiting[one], one))[
        :spare
    ]:
        share[key] += 1
    return {key: begin[key] + rows for key, rows in share.items()}


def ends_up_to(
    found: TopicEndsByName, target: StreamOffset, start: StreamOffset
) -> TopicEndsByName:
    """Returns the ends without what came after `target`, or after `start` where that is behind it."""
    last = {key: max(end, start.next.get(key, end)) for key, end in target.next.items()}
    return {
        name: TopicEnds(
            topic.id,
            {
                number: PartitionEnds(min(ends.earliest, last[key]), min(ends.latest, last[key]))
                for number, ends in topic.partitions.items()
                if (key := key_of(name, int(number))) in last
            },
        )
        for name, topic in found.items()
        if name in target.ids
    }

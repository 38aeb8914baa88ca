"""The ends of the partitions that a query reads, as the broker has them now, and the offsets that follow from them."""

import time
from collections.abc import Mapping

from ..api.queries import ListEnds, PartitionEnds
from ..client import Client
from ..errors import NotFound, Refused
from .losses import lost_by_retention
from .offsets import OffsetRange, TopicEndsByName, ids_of, key_of, partitions_in
from .options import EARLIEST, LATEST, OffsetSpec, SourceOptions

# New topics of a pattern are found after at most so long. A list of all names costs more than the ends of a few.
_NAMES_KEPT_S = 1.0
_TOPICS_A_CALL = 1000


class BrokerEnds:
    """Asks the broker for the ends of all topics that a query reads."""

    def __init__(self, client: Client, options: SourceOptions) -> None:
        self._client, self._topics = client, options.topics
        # Of the topics that were asked for last.
        self.ids: dict[str, int] = {}
        self._names: list[str] = []
        self._names_until_s = 0.0

    def query(self, *, at_ns: int | None = None) -> TopicEndsByName:
        """Returns the ends of all topics, also the offsets at a time. NotFound: a topic that was named is missing."""
        named = self._topics.fixed_names()
        names = list(named) if named is not None else self._matching()
        parts = [
            names[first : first + _TOPICS_A_CALL] for first in range(0, len(names), _TOPICS_A_CALL)
        ]
        answers = [self._client.execute(ListEnds(part, at_ns)) for part in parts]
        missing = [name for answer in answers for name in answer.missing]
        if missing and named is not None:
            raise NotFound("topic", missing[0])
        found = {name: one for answer in answers for name, one in answer.topics.items()}
        self._check_assigned(found)
        self.ids = ids_of(found)
        return found

    def _matching(self) -> list[str]:
        if time.monotonic() >= self._names_until_s:
            known = self._client.topics()
            self._names = [name for name in known if self._topics.matches(name)]
            self._names_until_s = time.monotonic() + _NAMES_KEPT_S
        return self._names

    def _check_assigned(self, found: TopicEndsByName) -> None:
        for topic, numbers in self._topics.partitions:
            count = len(found[topic].partitions)
            if numbers[-1] >= count:
                raise NotFound("partition", f"{topic}/{numbers[-1]}; there are {count}")


def resolve(
    ends: BrokerEnds, options: SourceOptions, place: OffsetSpec, option: str
) -> dict[str, int]:
    """Returns the offset of every partition by key. Refused: offsets name other partitions than the query reads."""
    found = ends.query(at_ns=place.time_ns)
    keys = dict(partitions_in(found, options.topics))
    if not place.offsets and not place.times_ns:
        return {key: _at(place, one) for key, one in keys.items()}
    given = {
        key_of(topic, number): said
        for topic, pairs in place.offsets or place.times_ns
        for number, said in pairs
    }
    if wrong := sorted(set(keys) ^ set(given)):
        is_there = wrong[0] in keys
        says = "is missing" if is_there else "is not one that is read"
        raise Refused(
            f"{option} must name every partition that is read, and no other: {wrong[0]} {says}"
        )
    if place.times_ns:
        return _at_times(ends, options, given)
    return {key: _checked(key, offset, keys[key], options) for key, offset in given.items()}


def _at_times(ends: BrokerEnds, options: SourceOptions, times: Mapping[str, int]) -> dict[str, int]:
    """Returns the offsets at the times of partitions; a call for each time that differs."""
    found: dict[str, int] = {}
    for at_ns in sorted(set(times.values())):
        at = OffsetSpec(time_ns=at_ns)
        for key, one in partitions_in(ends.query(at_ns=at_ns), options.topics):
            if times.get(key) == at_ns:
                found[key] = _at(at, one)
    return found


def _at(place: OffsetSpec, ends: PartitionEnds) -> int:
    if place.time_ns is not None:
        assert ends.at is not None, "it was asked for"
        # Behind the latest are messages that a standby does not have yet, and that no reader sees.
        return min(ends.at, ends.latest)
    return ends.earliest if place.end == EARLIEST else ends.latest


def _checked(key: str, offset: int, ends: PartitionEnds, options: SourceOptions) -> int:
    if offset in {EARLIEST, LATEST}:
        return ends.earliest if offset == EARLIEST else ends.latest
    if offset > ends.latest:
        raise Refused(f"{key} has no offset {offset}: it ends at {ends.latest}")
    if offset < ends.earliest and options.is_loss_fatal:
        raise lost_by_retention(key, offset, ends.earliest)
    return max(offset, ends.earliest)


def batch_ranges(ends: BrokerEnds, options: SourceOptions) -> list[OffsetRange]:
    """Returns the ranges of a batch, decided once, so that all tasks see the same ends."""
    first = resolve(ends, options, options.start, "startingOffsets")
    last = resolve(ends, options, options.end, "endingOffsets")
    found = []
    for key, end in last.items():
        start = first.get(key, 0)
        if start > end and options.end.offsets:
            raise Refused(f"{key} ends at {end}, before it starts at {start}")
        if start < end:
            topic, _, partition = key.rpartition("/")
            found.append(OffsetRange(topic, int(partition), start, end))
    return found

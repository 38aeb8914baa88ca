"""What a query reads, and from where to where, as the broker has it now."""

import time

from ..client import Client
from ..client.queries import Ends, PartitionEnds, ends
from ..errors import NotFound, Refused
from .losses import lost_by_retention
from .offsets import Found, OffsetRange, partitions_in
from .options import EARLIEST, LATEST, Place, SourceOptions

# New topics of a pattern are found after at most so long; a list of names is dearer than the ends of a few.
_NAMES_KEPT_S = 1.0
_TOPICS_A_CALL = 1000


class Survey:
    """Asks the broker for the ends of everything that a query reads."""

    def __init__(self, client: Client, options: SourceOptions) -> None:
        self._client, self._topics = client, options.topics
        self._names: list[str] = []
        self._names_until_s = 0.0

    def found(self, *, at_ns: int | None = None) -> Found:
        """All topics of the query. NotFound if one that was named is not there."""
        named = self._topics.fixed_names()
        names = list(named) if named is not None else self._matching()
        parts = [
            names[first : first + _TOPICS_A_CALL] for first in range(0, len(names), _TOPICS_A_CALL)
        ]
        answers: list[Ends] = [self._client.run(ends(part, at_ns)) for part in parts]
        missing = [name for answer in answers for name in answer.missing]
        if missing and named is not None:
            raise NotFound("topic", missing[0])
        found = {name: one for answer in answers for name, one in answer.topics.items()}
        self._check_assigned(found)
        return found

    def _matching(self) -> list[str]:
        if time.monotonic() >= self._names_until_s:
            known = self._client.topics()
            self._names = [name for name in known if self._topics.matches(name)]
            self._names_until_s = time.monotonic() + _NAMES_KEPT_S
        return self._names

    def _check_assigned(self, found: Found) -> None:
        for topic, numbers in self._topics.partitions:
            count = len(found[topic].partitions)
            if numbers[-1] >= count:
                raise NotFound("partition", f"{topic}/{numbers[-1]}; there are {count}")


def resolve(survey: Survey, options: SourceOptions, place: Place, option: str) -> dict[str, int]:
    """The offset of every partition at a place, by key."""
    found = survey.found(at_ns=place.time_ns)
    keys = dict(partitions_in(found, options.topics))
    if not place.offsets:
        return {key: _at(place, one) for key, one in keys.items()}
    given = {
        f"{topic}/{number}": offset for topic, pairs in place.offsets for number, offset in pairs
    }
    if wrong := sorted(set(keys) ^ set(given)):
        is_there = wrong[0] in keys
        says = "is missing" if is_there else "is not one that is read"
        raise Refused(
            f"{option} must name every partition that is read, and no other: {wrong[0]} {says}"
        )
    return {key: _checked(key, offset, keys[key], options) for key, offset in given.items()}


def _at(place: Place, ends: PartitionEnds) -> int:
    if place.time_ns is not None:
        assert ends.at is not None, "it was asked for"
        return ends.at
    return ends.earliest if place.end == EARLIEST else ends.latest


def _checked(key: str, offset: int, ends: PartitionEnds, options: SourceOptions) -> int:
    if offset in {EARLIEST, LATEST}:
        return ends.earliest if offset == EARLIEST else ends.latest
    if offset > ends.latest:
        raise Refused(f"{key} has no offset {offset}: it ends at {ends.latest}")
    if offset < ends.earliest and options.is_loss_fatal:
        raise lost_by_retention(key, offset, ends.earliest)
    return max(offset, ends.earliest)


def batch_ranges(survey: Survey, options: SourceOptions) -> list[OffsetRange]:
    """What a batch reads, decided once: all tasks see the same ends."""
    first = resolve(survey, options, options.start, "startingOffsets")
    last = resolve(survey, options, options.end, "endingOffsets")
    found = []
    for key, end in last.items():
        start = first.get(key, 0)
        if start > end and options.end.offsets:
            raise Refused(f"{key} ends at {end}, before it starts at {start}")
        if start < end:
            topic, _, partition = key.rpartition("/")
            found.append(OffsetRange(topic, int(partition), start, end))
    return found

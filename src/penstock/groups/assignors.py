"""Assignors: pure functions from members and partitions to an assignment.

A member only gets partitions of topics that it subscribes to; a partition without a subscriber is left out. Members and
partitions are taken in the order of their names, so the same input always gives the same assignment.
"""

from collections import defaultdict, deque
from collections.abc import Collection, Mapping, Sequence
from heapq import heapify, heapreplace
from itertools import cycle
from typing import NamedTuple

from ..api.members import Assignor
from ..model import TopicPartition

Subscriptions = Mapping[str, frozenset[str]]
"""Topics by member."""

Assignment = dict[TopicPartition, str]
"""Member by partition."""


class CurrentOwners(NamedTuple):
    """The present owners. Partitions that are `leaving` are the first to move if one has to."""

    owners: Mapping[TopicPartition, str]
    leaving: Collection[TopicPartition] = ()


NO_OWNERS = CurrentOwners({})


def assign(
    how: Assignor,
    subscriptions: Subscriptions,
    partitions: Sequence[TopicPartition],
    held: CurrentOwners = NO_OWNERS,
) -> Assignment:
    """Returns the assignment that these members should reach."""
    match how:
        case Assignor.RANGE:
            return by_range(subscriptions, partitions)
        case Assignor.ROUND_ROBIN:
            return round_robin(subscriptions, partitions)
        case Assignor.STICKY:
            return sticky(subscriptions, partitions, held)


def by_range(subscriptions: Subscriptions, partitions: Sequence[TopicPartition]) -> Assignment:
    """Returns neighbours together: each topic is cut into as many pieces as it has members."""
    readers, topics = _readers(subscriptions), _by_topic(partitions)
    found: Assignment = {}
    for topic, its_partitions in topics.items():
        members = readers.get(topic, [])
        for index, partition in enumerate(its_partitions):
            if members:
                found[partition] = members[index * len(members) // len(its_partitions)]
    return found


def round_robin(subscriptions: Subscriptions, partitions: Sequence[TopicPartition]) -> Assignment:
    """Returns one partition for each member in turn; members that do not subscribe to its topic are passed over."""
    readable = frozenset(_readers(subscriptions))
    turn = cycle(sorted(subscriptions))
    found: Assignment = {}
    for partition in sorted(partitions):
        if partition.topic in readable:
            found[partition] = next(one for one in turn if partition.topic in subscriptions[one])
    return found


def sticky(
    subscriptions: Subscriptions, partitions: Sequence[TopicPartition], held: CurrentOwners
) -> Assignment:
    """Returns an assignment in which members keep their partitions, and none has two more than another.

    Where subscriptions differ, that holds for every pair of members between which partitions could move, directly or
    through others.
    """
    draft = _AssignmentDraft(subscriptions)
    unassigned: list[TopicPartition] = []
    leaving = frozenset(held.leaving)
    # Leaving ones come last, because `_relieve` moves the last ones first.
    for partition in sorted(partitions, key=lambda one: (one in leaving, one)):
        owner = held.owners.get(partition)
        if owner is not None and partition.topic in subscriptions.get(owner, ()):
            draft.give(owner, partition)
        else:
            unassigned.append(partition)
    draft.assign_free(unassigned)
    draft.balance()
    return draft.assignment()


class _AssignmentDraft:
    """An assignment that is being made: the partitions of each member."""

    def __init__(self, subscriptions: Subscriptions) -> None:
        self.readers = _readers(subscriptions)
        self.held: dict[str, dict[str, list[TopicPartition]]] = {
            one: defaultdict(list) for one in sorted(subscriptions)
        }
        self.load = dict.fromkeys(self.held, 0)

    def give(self, member: str, partition: TopicPartition) -> None:
        self.held[member][partition.topic].append(partition)
        self.load[member] += 1

    def assign_free(self, unassigned: Sequence[TopicPartition]) -> None:
        """Give each partition to the least loaded member that reads it; topics with few readers first."""
        topics = _by_topic(unassigned)
        for topic in sorted(topics, key=lambda one: (len(self.readers.get(one, ())), one)):
            lightest = [(self.load[one], one) for one in self.readers.get(topic, ())]
            heapify(lightest)
            for partition in topics[topic] if lightest else ():
                load, member = lightest[0]
                self.give(member, partition)
                heapreplace(lightest, (load + 1, member))

    def balance(self) -> None:
        """Move partitions while that makes the loads more even. Each move reduces the sum of their squares."""
        while any(self._relieve(one) for one in self._overloaded()):
            pass

    def _overloaded(self) -> list[str]:
        """Returns members that have two more than another, the heaviest first."""
        lowest = min(self.load.values(), default=0)
        heavy = [(-load, one) for one, load in self.load.items() if load >= lowest + 2]
        return [one for _, one in sorted(heavy)]

    def _relieve(self, member: str) -> bool:
        """Move one partition from a member, along the shortest path to a member that has at least two less."""
        path = self._path_from(member)
        for giver, topic, taker in path:
            self.held[taker][topic].append(self.held[giver][topic].pop())
        if path:
            self.load[member] -= 1
            self.load[path[-1][2]] += 1
        return bool(path)

    def _path_from(self, member: str) -> list[tuple[str, str, str]]:
        """Returns steps (giver, topic, taker), or none if every member that can be reached has nearly as many."""
        before: dict[str, tuple[str, str]] = {}
        waiting, met, passed = deque([member]), {member}, set[str]()
        while waiting:
            giver = waiting.popleft()
            for topic in sorted(one for one, held in self.held[giver].items() if held):
                if topic in passed:
                    continue
                passed.add(topic)
                takers = [one for one in self.readers[topic] if one not in met]
                before.update((one, (giver, topic)) for one in takers)
                lightest = min(takers, key=lambda one: (self.load[one], one), default=member)
                if self.load[lightest] <= self.load[member] - 2:
                    return _steps(before, member, lightest)
                met.update(takers)
                waiting.extend(takers)
        return []

    def assignment(self) -> Assignment:
        return {
            partition: member
            for member, topics in self.held.items()
            for partitions in topics.values()
            for partition in partitions
        }


def _steps(
    before: Mapping[str, tuple[str, str]], first: str, last: str
) -> list[tuple[str, str, str]]:
    steps: list[tuple[str, str, str]] = []
    taker = last
    while taker != first:
        giver, topic = before[taker]
        steps.append((giver, topic, taker))
        taker = giver
    return steps[::-1]


def _readers(subscriptions: Subscriptions) -> dict[str, list[str]]:
    """Returns members by topic."""
    readers: dict[str, list[str]] = {}
    for member in sorted(subscriptions):
        for topic in subscriptions[member]:
            readers.setdefault(topic, []).append(member)
    return readers


def _by_topic(partitions: Sequence[TopicPartition]) -> dict[str, list[TopicPartition]]:
    topics: dict[str, list[TopicPartition]] = {}
    for partition in sorted(partitions):
        topics.setdefault(partition.topic, []).append(partition)
    return topics
